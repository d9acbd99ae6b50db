"""Ask a server on loopback for a page."""

import urllib.error
import urllib.request

from tests.support.waiting import WAIT_S_MAX


def get(port: int, path: str, address: str = "127.0.0.1") -> tuple[int, str]:
    """Return status and content of an answer; (0, "") while the server does not listen."""
    try:
        with urllib.request.urlopen(
            f"http://{address}:{port}/{path}", timeout=WAIT_S_MAX
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
