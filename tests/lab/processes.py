"""The processes of a trial: how they start, receive commands, and report failures.

Every process reads its task from its standard input, and ends when this input ends. It runs in its
own session, so that Ctrl-C reaches the controller alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import define

from coopgroup.errors import CoopgroupError
from tests.lab.spec import ProducerSpec, WorkerSpec, dump_spec

ROOT: Final = Path(__file__).parents[2]
STDERR_LINES: Final = 30


class TrialError(CoopgroupError):
    """A trial could not be completed."""


@define
class Incarnation:
    """One worker process, from start to end.

    Attributes:
        log_path: path of its logs without their suffixes.
    """

    member: str
    log_path: Path
    process: subprocess.Popen[str]
    is_supervised: bool = False
    is_frozen: bool = False
    _worker: int | None = None

    @property
    def pid(self) -> int:
        """Number of the worker: the child of its supervisor, if it has one."""
        if self.is_supervised and self._worker is None:
            self._worker = child_of(self.process.pid)
        return self.process.pid if self._worker is None else self._worker

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker, if it is alive."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):  # only its supervisor is left
                os.kill(self.pid, number)

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended; a frozen one is alive."""
        return self.process.poll() is None

    @property
    def records_path(self) -> Path:
        """Log of the records that it handed out."""
        return self.log_path.with_name(f"{self.log_path.name}.records")

    @property
    def events_path(self) -> Path:
        """Log of its events."""
        return self.log_path.with_name(f"{self.log_path.name}.events")

    def tell(self, line: str) -> None:
        """Write a line to the process's standard input."""
        if self.process.stdin is None:
            raise TrialError(f"{self.member} was started without an input")
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def child_of(process: int) -> int | None:
    """Return the first child of a process, such as the worker of a supervisor; only on Linux."""
    children = Path(f"/proc/{process}/task/{process}/children")
    return next(map(int, children.read_text().split()), None)


def python_program(module: str, *, supervised: bool = False) -> list[str]:
    """Return the command that runs a module, below a supervisor if it has one."""
    supervisor = [sys.executable, "-m", "coopgroup.supervisor"] if supervised else []
    return [*supervisor, sys.executable, "-m", module]


def start_program(command: Sequence[str], spec: WorkerSpec | ProducerSpec) -> subprocess.Popen[str]:
    """Start a program in a new process and session, and send the specification to it.

    Its standard error goes into a file beside its logs. Otherwise the clients' messages about cut
    connections would fill the terminal.
    """
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with Path(f"{spec.log_path}.stderr").open("ab") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if isinstance(spec, ProducerSpec) else subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
            text=True,
            start_new_session=True,
        )
    if process.stdin is not None:
        process.stdin.write(dump_spec(spec) + "\n")
        process.stdin.flush()
    return process


def end_input(process: subprocess.Popen[str]) -> None:
    """Close the standard input of a process, so that it ends by itself."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:  # it has already ended; its status contains the reason
            return


def wait_for_end(process: subprocess.Popen[str], limit_s: float) -> int:
    """Return the exit status of a process as soon as it ends.

    With a limit, `Popen.wait` looks only every 50 ms, which is a large part of a short restart.

    Raises:
        TimeoutExpired: the process has not ended within the limit.
    """
    if process.poll() is None and hasattr(os, "pidfd_open"):  # only Linux has it
        descriptor = os.pidfd_open(process.pid)
        try:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            end.poll(limit_s * 1000)
        finally:
            os.close(descriptor)
        limit_s = 0.0
    return process.wait(limit_s)


def failure(text: str, log_path: Path) -> TrialError:
    """Return an error about a process, with the last lines of its standard error as notes."""
    error = TrialError(text)
    complaints = log_path.with_name(f"{log_path.name}.stderr")
    if complaints.exists():
        lines = complaints.read_text(errors="replace").splitlines()
        if lines:
            error = TrialError(f"{text}: {lines[-1]}")
        for line in lines[-STDERR_LINES:]:
            error.add_note(line)
    return error
