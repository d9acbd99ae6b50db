"""A certificate authority, a server and a client certificate for one test cluster, as PEM files.

Keys are P-256: their creation takes a millisecond, RSA would take half a second.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from importlib.util import find_spec
from pathlib import Path

from coopgroup.testing.errors import ToolMissingError

__all__ = ["write_certificates"]

VALIDITY = dt.timedelta(days=30)


def write_certificates(folder: Path) -> None:
    """Write `ca.pem`, `server.pem` (key and chain), `client.crt` and `client.key`.

    Args:
        folder: new folder, created by this call.

    Raises:
        ToolMissingError: the Python package `cryptography` is not installed.
    """
    if find_spec("cryptography") is None:
        raise ToolMissingError("the Python package cryptography", "pip install cryptography")
    # Imported late: only clusters with TLS need it, and coopgroup does not depend on it.
    from coopgroup.testing import authority  # noqa: PLC0415

    folder.mkdir(mode=0o700)
    ca = authority.make_authority("coopgroup test authority", VALIDITY)
    server = authority.issue(
        ca, "localhost", VALIDITY, addresses=(ipaddress.ip_address("127.0.0.1"),)
    )
    client = authority.issue(ca, "coopgroup test client", VALIDITY, addresses=())
    (folder / "ca.pem").write_bytes(ca.certificate_pem)
    (folder / "server.pem").write_bytes(
        server.key_pem + server.certificate_pem + ca.certificate_pem
    )
    (folder / "client.crt").write_bytes(client.certificate_pem)
    (folder / "client.key").write_bytes(client.key_pem)
