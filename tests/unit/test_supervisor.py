"""The supervisor with small workers, and a helper that only prints what it is told."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from coopgroup.supervisor import VARIABLE
from tests.support.programs import TIMEOUT_S

# Prints all modules at the end: the supervisor is the process that must stay small.
SUPERVISE = """
import sys
import coopgroup.supervisor as module
module._LIFE_S_MIN = float(sys.argv[1])
leaver = [sys.executable, "-c", "import sys; print('left', sys.stdin.read().strip(), flush=True)"]
status = module.Supervisor([sys.executable, "-c", *sys.argv[2:]], leaver).run()
print("modules", *sys.modules)
sys.exit(status)
"""
WORKER = f"""
import json, os, signal, sys
socket = int(os.environ["{VARIABLE}"].partition(":")[0])
def tell(member_id, returns=False, process=None, member=1, leaves=None):
    note = {{"process": process or os.getpid(), "member": member}}
    note["leaves"] = not returns if leaves is None else leaves
    os.write(socket, json.dumps(note | {{"id": member_id, "returns": returns}}).encode())
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""
# A test may run where these are ignored, such as below nohup.
NOTHING_IGNORED = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
KILLED = 128 + 9
LINUX = sys.platform == "linux"


def supervised(
    worker: str, *arguments: str, life_s_min: float = 10.0, before: tuple[str, ...] = ()
) -> tuple[int, list[str], str]:
    """Return the status of the supervisor, the ids for which its helpers left, and its errors."""
    command = [sys.executable, "-c", SUPERVISE, str(life_s_min), WORKER + worker, *arguments]
    ended = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    lines = ended.stdout.splitlines()
    left = [line.split('"id": "')[1].split('"')[0] for line in lines if '"id": "' in line]
    return ended.returncode, left, ended.stderr


@pytest.mark.parametrize(
    ("worker", "status"), [("sys.exit(3)", 3), ("die()", KILLED), ("os.abort()", 128 + 6)]
)
def test_it_ends_with_the_status_of_its_worker(worker: str, status: int) -> None:
    assert supervised(worker) == (status, [], "")


def test_killed_worker_has_left_with_its_last_ids() -> None:
    told = "tell('a'); tell('b'); tell('other', member=2); tell('gone', member=3)"
    status, left, _ = supervised(f"{told}; tell('', member=3); die()")
    assert (status, sorted(left)) == (KILLED, ["b", "other"])


def test_worker_that_ends_without_a_close_has_left() -> None:
    assert supervised("tell('a'); sys.exit(1)") == (1, ["a"], "")


def test_worker_that_has_left_by_itself_needs_no_helper() -> None:
    assert supervised("tell('a'); tell(''); sys.exit()") == (0, [], "")


def test_identity_that_returns_is_started_again_and_never_left(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    worker = """
ran = sys.argv[1]
tell('kept', returns=True)
if os.path.exists(ran):
    sys.exit(5)
open(ran, "w").close()
tell('dynamic', member=2)
tell('static', returns=True, member=3, leaves=True)
die()
"""
    status, left, errors = supervised(worker, str(ran), life_s_min=0.0)
    assert (status, left) == (5, ["dynamic", "static"])
    assert "killed by signal 9; it is started again, because it returns as kept" in errors


def test_notes_larger_than_a_pipe_do_not_wait_for_the_helper(tmp_path: Path) -> None:
    """This helper reads nothing until the next worker runs, and only the supervisor starts that."""
    waits = tmp_path / "waits"
    os.mkfifo(waits)
    worker = f"""
if os.path.exists({str(waits)!r} + ".ran"):
    open({str(waits)!r}, "w").close()
    sys.exit(5)
open({str(waits)!r} + ".ran", "w").close()
tell('kept', returns=True)
for member in range(2, 6):
    tell('x' * 40_000, member=member)
die()
"""
    leaver = f"""
import sys
import signal
signal.alarm({TIMEOUT_S})
open({str(waits)!r}).close()
print([len(line) > 40_000 for line in sys.stdin])
"""
    program = SUPERVISE.replace("leaver).run()", f"[sys.executable, '-c', {leaver!r}]).run()")
    ended = subprocess.run(
        [sys.executable, "-c", program, "0", WORKER + worker],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 5
    assert ended.stdout.startswith("[True, True, True, True]")


def test_full_log_does_not_stop_the_supervisor() -> None:
    """Nobody reads its errors, and it has one to report."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    worker = "os.write(socket, b'garbage'); sys.exit(3)"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", SUPERVISE, "10", WORKER + worker],
            stdout=subprocess.DEVNULL,
            stderr=writing,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert ended.returncode == 3


def test_identity_that_dies_at_once_is_not_started_again() -> None:
    status, left, errors = supervised("tell('kept', returns=True); die()")
    assert (status, left) == (KILLED, [])
    assert "within 10 s of its start, so it is not started again" in errors


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signal_is_passed_on(name: str) -> None:
    worker = f"""
signal.signal(signal.{name}, lambda *_: sys.exit(7))
os.kill(os.getppid(), signal.{name})
signal.pause()
"""
    before = (sys.executable, "-c", NOTHING_IGNORED)
    assert supervised(worker, before=before) == (7, [], "")


def test_signal_that_is_ignored_stays_ignored() -> None:
    """A supervisor below nohup would otherwise let its worker die with the terminal."""
    worker = "sys.exit(signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)"
    assert supervised(worker, before=("nohup",))[:2] == (0, [])


def test_worker_killed_while_it_stops_is_not_started_again() -> None:
    worker = """
signal.signal(signal.SIGTERM, lambda *_: die())
tell('kept', returns=True)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
    assert supervised(worker, life_s_min=0.0) == (KILLED, [], "")


@pytest.mark.parametrize("said", ["os.getpid()", "os.getppid()"])
@pytest.mark.skipif(not LINUX, reason="only Linux says which process sent a message")
def test_member_of_another_process_is_not_left_when_the_worker_dies(said: str) -> None:
    """Also if it claims to be the worker's: it may be alive."""
    worker = f"""
child = os.fork()
if child == 0:
    tell('alive', process={said})
    os._exit(0)
os.waitpid(child, 0)
die()
"""
    status, left, errors = supervised(worker)
    assert (status, left) == (KILLED, [])
    assert "has a member, and is not the worker" in errors


@pytest.mark.skipif(
    not LINUX or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root may make a namespace of processes",
)
def test_as_process_1_it_reaps_orphans_and_leaves_for_them() -> None:
    worker = """
assert os.getppid() == 1
reading, writing = os.pipe()
parent = os.fork()
if parent == 0:
    if os.fork() == 0:
        while os.getppid() != 1:
            os.sched_yield()
        tell('orphan')
        die()
    os._exit(0)
os.close(writing)
os.waitpid(parent, 0)
os.read(reading, 1)  # until the orphan is dead
tell('worker')
die()
"""
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    status, left, _ = supervised(worker, before=unshare)
    assert (status, sorted(left)) == (KILLED, ["orphan", "worker"])


def test_unreadable_note_costs_only_itself() -> None:
    status, left, errors = supervised("os.write(socket, b'garbage'); tell('a'); die()")
    assert (status, left) == (KILLED, ["a"])
    assert errors.count("unreadable") == 1


@pytest.mark.skipif(not LINUX, reason="only Linux says who sent a signal")
@pytest.mark.parametrize("as_process_1", [False, True])
@pytest.mark.parametrize(
    ("worker", "sent", "senders"),
    [
        ("", "ctrl-c", ["the terminal"]),
        ("os.setpgid(0, 0)", "ctrl-c", ["the supervisor"]),
        ("", "kill", ["the supervisor"]),
    ],
)
def test_sigint_reaches_the_worker_of_a_terminal_once(
    worker: str, sent: str, senders: list[str], as_process_1: bool
) -> None:
    """The terminal sends Ctrl-C to all its foreground processes; a second SIGINT would abort."""
    if as_process_1 and (os.geteuid() != 0 or shutil.which("unshare") is None):
        pytest.skip("only root may make a namespace of processes")
    worker = f"""
{worker}
heard = signal.SIGINT, signal.SIGTERM
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("ready", flush=True)
while (found := signal.sigwaitinfo(heard)).si_signo == signal.SIGINT:
    print("SIGINT of", "the terminal" if found.si_code > 0 else "the supervisor", flush=True)
"""
    # A suite that a shell started in the background ignores SIGINT, and so would its children.
    terminal = """
import os, pty, signal, sys
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
    unshare = ("unshare", "--pid", "--fork", "--kill-child") if as_process_1 else ()
    command = [*unshare, sys.executable, "-c", SUPERVISE, "10", WORKER + worker]
    with (
        subprocess.Popen(
            [sys.executable, "-c", terminal, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program,
        ExitStack() as ending,
    ):
        ending.callback(program.kill)  # the terminal ends, and so do the processes in it
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline().split() == [b"ready"]
        supervisor = child_of(program.pid)
        if as_process_1:
            supervisor = child_of(supervisor)
        if sent == "ctrl-c":
            program.stdin.write(b"\x03")
            program.stdin.flush()
        else:
            os.kill(supervisor, signal.SIGINT)
        first = program.stdout.readline().decode()  # a terminal echoes ^C
        os.kill(supervisor, signal.SIGTERM)
        lines = [first, *program.stdout.read().decode().splitlines()]
        assert program.wait(TIMEOUT_S) == 0
    assert [one.split(" of ")[1].strip() for one in lines if "SIGINT of" in one] == senders


def child_of(process: int) -> int:
    [child] = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


def test_it_imports_nothing_large_even_when_it_has_left() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SUPERVISE, "10", WORKER + "tell('a'); die()"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert 'left {"process"' in ended.stdout
    [modules] = [line.split() for line in ended.stdout.splitlines() if line.startswith("modules")]
    ours = {name for name in modules if name.startswith("coopgroup")}
    names = ("", ".late_names", ".nameless_file", ".supervisor")
    assert ours == {f"coopgroup{name}" for name in names}
    large = {"asyncio", "attr", "confluent_kafka", "kafka", "logging", "numpy", "ssl", "subprocess"}
    assert large & set(modules) == set()


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ([], 2, "COMMAND: got nothing, expected a program"),
        (["-x"], 2, "COMMAND: got -x, expected a program"),
        (["/no/such/program"], 127, "COMMAND: got /no/such/program, expected a program that"),
        (["/"], 126, "COMMAND: got /, expected a program that can be started"),
    ],
)
def test_command_that_cannot_be_run_is_refused(
    arguments: list[str], status: int, line: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "coopgroup.supervisor", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == status
    assert line in ended.stderr
    assert ended.stderr.count("\n") == 1
