"""The processes of a trial: how one starts, is spoken to, and says why it failed.

Rules of this file: every process reads what it is to do from its standard input, and that input's
end is its end; it sits in a session of its own, so that Ctrl-C reaches the controller alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from attrs import define

from coopgroup.errors import CoopgroupError
from coopgroup.testing.trial.spec import ProducerSpec, WorkerSpec, dump_spec

__all__ = ["Incarnation", "TrialError", "end_input", "failure", "start_python"]

STDERR_LINES: Final = 30


class TrialError(CoopgroupError):
    """A trial could not be played to its end."""


@define
class Incarnation:
    """One worker process, from start to end.

    Attributes:
        member: name of the member.
        log_path: path of its logs without their suffixes.
        process: the process.
        is_frozen: whether SIGSTOP was sent last.
    """

    member: str
    log_path: Path
    process: subprocess.Popen[str]
    is_frozen: bool = False

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
        """Write a line to the process' standard input."""
        if self.process.stdin is None:
            raise TrialError(f"{self.member} was started without an input")
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def start_python(module: str, spec: WorkerSpec | ProducerSpec) -> subprocess.Popen[str]:
    """Start a module in a process and a session of its own, and tell it what to do.

    What it writes to standard error goes into a file beside its logs: the clients' complaints about
    connections that a scenario cuts would litter a terminal.
    """
    with Path(f"{spec.log_path}.stderr").open("ab") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if module.endswith("producer") else subprocess.DEVNULL,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
    if process.stdin is not None:
        process.stdin.write(dump_spec(spec) + "\n")
        process.stdin.flush()
    return process


def end_input(process: subprocess.Popen[str]) -> None:
    """Close the standard input of a process, which ends it in its own time."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:  # it ended already; its status says why
            return


def failure(text: str, log_path: Path) -> TrialError:
    """An error about a process, with the last lines of its standard error as notes."""
    error = TrialError(text)
    complaints = log_path.with_name(f"{log_path.name}.stderr")
    if complaints.exists():
        lines = complaints.read_text(errors="replace").splitlines()
        if lines:
            error = TrialError(f"{text}: {lines[-1]}")
        for line in lines[-STDERR_LINES:]:
            error.add_note(line)
    return error
