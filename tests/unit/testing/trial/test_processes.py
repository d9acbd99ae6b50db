"""The end of a process of a trial."""

import subprocess
import sys

import pytest

from coopgroup.testing.trial.processes import wait_for_end


def _start(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True)


@pytest.mark.parametrize("has_ended", [False, True])
def test_end_of_a_process_is_its_status(has_ended: bool) -> None:
    with _start("raise SystemExit(3)") as process:
        if has_ended:
            process.wait()
        assert wait_for_end(process, 60.0) == 3


def test_process_that_does_not_end_is_reported_and_lives() -> None:
    with _start("input()") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            wait_for_end(process, 0.05)
        assert process.poll() is None
        process.communicate("\n")
        assert wait_for_end(process, 60.0) == 0
