"""Broker processes, ports and folders; `sleep` replaces the broker."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.errors import ClusterError, ConfigurationError
from coopgroup.testing.processes import (
    BrokerProcess,
    Reaper,
    log_tail,
    make_folder,
)
from tests.support.programs import result_on_macos


@pytest.fixture
def reaper(tmp_path: Path) -> Iterator[Reaper]:
    """A reaper that may delete its folder."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Reaper(folder)
    yield made
    made.close()


def start(reaper: Reaper, folder: Path, script: str = "exec sleep 60") -> BrokerProcess:
    return BrokerProcess(["/bin/sh", "-c", script], folder / "broker.log", reaper)


def await_end(process: BrokerProcess) -> None:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_running


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A pipe; reading it waits for the process to write."""
    path = tmp_path / "ready"
    os.mkfifo(path)
    return path


def test_no_thread_of_a_paused_process_runs_on(reaper: Reaper, tmp_path: Path, ready: Path) -> None:
    """A broker that answered a request after the signal made a test fail."""
    spin = "import threading; [threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
    program = f'{spin} for _ in range(8)]; open("{ready}", "w").write("ready")'
    process = start(reaper, tmp_path, f"exec {sys.executable} -c '{program}'")
    tasks = Path(f"/proc/{process.pid}/task")
    assert ready.read_text() == "ready"
    assert len(list(tasks.iterdir())) == 9
    for _ in range(50):
        process.pause()
        stats = [task.joinpath("stat").read_text() for task in tasks.iterdir()]
        assert {stat.rpartition(")")[2].split()[0] for stat in stats} == {"T"}
        process.resume()
    process.kill()


def test_process_goes_on_when_it_ignores_the_request_to_end(
    reaper: Reaper, tmp_path: Path, ready: Path
) -> None:
    script = f"trap '' TERM; echo ready > {ready}; while :; do sleep 0.1; done"
    process = start(reaper, tmp_path, script)
    assert ready.read_text() == "ready\n"
    assert not process.terminate(timeout_ms=50)
    assert process.is_running
    process.kill()


def test_process_does_not_begin_without_a_reaper(reaper: Reaper, tmp_path: Path) -> None:
    """Otherwise no reaper would end the process."""
    reaper.close_pipe()
    with pytest.raises(ClusterError, match="the reaper of this cluster is closed"):
        start(reaper, tmp_path, "echo begun")
    assert log_tail(tmp_path / "broker.log") == []


def test_reaper_kills_when_its_pipe_closes(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Reaper(folder)
    process = start(made, folder)
    made.close()
    await_end(process)
    assert process.exit_status == -signal.SIGKILL
    assert not folder.exists()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_reaper_does_not_wait_for_a_forked_child(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Reaper(folder)
    barrier_read, barrier_write = os.pipe()
    child = os.fork()
    if child == 0:  # the forked child: it lives until the pipe of the barrier closes
        os.close(barrier_write)
        os.read(barrier_read, 1)
        os._exit(0)
    made.close()  # returns only when the reaper has ended
    assert not folder.exists()
    os.close(barrier_write)
    os.close(barrier_read)
    os.waitpid(child, 0)


def test_folder_cannot_be_made_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"data_dir: got .*, expected a folder to write in"
    ):
        make_folder(tmp_path / "file", 1)


def test_folder_avoids_a_small_ram_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's 64 MB would fill up; the folder for temporary files is used instead."""
    monkeypatch.setattr("coopgroup.testing.processes.ROOM_PER_BROKER", 1 << 60)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert make_folder(None, 1).parent == tmp_path


def test_frozen_broker_of_a_test_needs_no_waitid(tmp_path: Path) -> None:
    program = """
from pathlib import Path
from coopgroup.testing.processes import BrokerProcess, Reaper
reaper = Reaper(Path(sys.argv[1]))
broker = BrokerProcess(["sleep", "60"], Path(sys.argv[1]) / "log", reaper)
broker.pause()
frozen = broker.is_paused and broker.is_running
broker.resume()
broker.kill()
reaper.close()
print(json.dumps(frozen))
"""
    assert result_on_macos(program, str(tmp_path))
