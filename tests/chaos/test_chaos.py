"""A run of chaos that is interrupted. `make verify` plays runs, after positive controls."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_a_run_is_interrupted(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Brokers and members end with the run, also after a signal; namespaces have no names."""
    mark = f"COOPGROUP_CHAOS_TEST={os.getpid()}-{number}"
    name, value = mark.split("=")
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.chaos.run", "1", "1", "--no-controls"),
            *("--folder", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, name: value},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("*/m6-1.events"))) == 1)
        assert len(_marked(mark)) > 6
        run.send_signal(number)
        run.wait(40)
        wait_for(lambda: not _marked(mark))
    finally:
        run.kill()
        run.wait()


def _marked(mark: str) -> list[str]:
    """Return processes with this environment variable, which children inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue  # it ended, or belongs to another user
    return found
