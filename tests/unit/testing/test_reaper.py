"""The process that ends brokers when their owner dies."""

import subprocess
import sys
from pathlib import Path

from coopgroup.testing import reaper


def sleeper() -> subprocess.Popen[bytes]:
    """A process that waits for the end of its input."""
    program = "import sys; sys.stdin.read()"
    return subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE)


def test_reap_kills_the_watched_and_spares_the_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    (folder / "broker-1").mkdir(parents=True)
    with sleeper() as watched, sleeper() as forgotten:
        lines = [f"+{watched.pid}\n", f"+{forgotten.pid}\n", f"-{forgotten.pid}\n"]
        reaper.reap(lines, str(folder))
        assert watched.wait() == -9
        assert forgotten.poll() is None
        forgotten.kill()
    assert not folder.exists()


def test_reap_ignores_a_torn_last_line(tmp_path: Path) -> None:
    """A torn number could be the id of another process."""
    with sleeper() as stranger:
        reaper.reap([f"+{stranger.pid}"], str(tmp_path / "none"))
        assert stranger.poll() is None
        stranger.kill()
