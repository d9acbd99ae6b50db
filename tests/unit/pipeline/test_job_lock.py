"""The lock of a job, between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coopgroup.cli.app import run
from coopgroup.cli.pipeline.options import Place
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.job_lock import job_lock

HOLDER = """
import sys
from coopgroup.pipeline.job_lock import job_lock
with job_lock(sys.argv[1], "history", "lag", "telemetry"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_in_a_line_until_the_first_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "tables")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            for job in ("history", "lag"):
                said = pytest.raises(PipelineError, match=f"in use: another {job} job")
                with said, job_lock(f"file://{folder}", job):
                    pass
            with job_lock(folder, "episodes"):
                pass
            assert run(["pipeline", "telemetry", __file__, "--tables", folder]) == 1
            err = capsys.readouterr().err
            assert err == (
                f"coopgroup: {folder} is in use: another telemetry job writes there; wait until it"
                " ends, or take another folder\n"
            )
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    with job_lock(folder, "history", "lag"):
        pass


def test_a_job_that_fails_holds_no_lock(tmp_path: Path) -> None:
    with job_lock(str(tmp_path), "lag"):
        with pytest.raises(PipelineError), job_lock(str(tmp_path), "lag", "history"):
            pass
        with job_lock(str(tmp_path), "history"):
            pass


def test_a_folder_of_elsewhere_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with job_lock("s3a://bucket/history", "lag"), job_lock("s3a://bucket/history", "lag"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = pytest.raises(ConfigurationError, match=r"--tables: got .*a folder to write in")
    with said, job_lock(str(tmp_path / "file"), "lag"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_file_system_has_no_locks_the_job_goes_on_and_says_so(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fcntl, "flock", _refusing(number))
    place = Place(folder=str(tmp_path), master="local[1]", jars=(), settings={})
    with place.locked("lag", "history"):
        pass
    err = capsys.readouterr().err
    assert err == (
        f"coopgroup: {tmp_path} is not locked ({os.strerror(number)}): see to it that no other lag"
        " or history job writes there\n"
    )


def test_another_failure_of_the_lock_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", _refusing(errno.EIO))
    said = pytest.raises(PipelineError, match="cannot be locked: Input/output error")
    with said, job_lock(str(tmp_path), "lag"):
        pass


def _refusing(number: int) -> Callable[[object, int], None]:
    def flock(_file: object, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock
