"""A parent process that leaves the group for its worker, if the worker is killed.

    python -m coopgroup.supervisor python billing.py

A process that is killed (SIGKILL, the kernel's out-of-memory killer) cannot leave its group. The
coordinator keeps its partitions for `session.timeout.ms`. The parent of a process learns of
its death immediately.

The worker needs no change. A member tells the supervisor its id over a socket, and how to reach the
brokers (`coopgroup.kafka.membership.supervised`). When `waitpid` has returned the worker, the
supervisor starts a short-lived helper that leaves the group.

Rules of this file:

- A member is declared dead only after `waitpid` has returned its process. The kernel, not the
  message, says which process a message came from, because numbers differ between containers.
- No leave for an identity that survives the process (`group.instance.id`, `coopgroup.state.dir`):
  its next process may be at work already. The worker is started again instead. With
  `group.protocol=consumer`, the helper also releases the static id, which keeps its partitions.
- Only a few modules of the standard library are imported. The supervisor must stay tiny, because
  its memory counts in the container, and the kernel kills the largest process.
- Everything else that goes wrong here costs only what happens without a supervisor: the wait for
  the end of the session.
"""

import _thread
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from coopgroup.nameless_file import nameless_file

VARIABLE: Final = "COOPGROUP_SUPERVISOR"
"""The environment variable that names the socket of the supervisor: descriptor and inode."""

_USAGE: Final = "usage: python -m coopgroup.supervisor COMMAND [ARGUMENT]..."
_LEAVER: Final = (sys.executable, "-m", "coopgroup.kafka.membership.supervised")
_PASSED_ON: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# After one of these, a worker that ends is not started again.
_STOPS: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
# A terminal sends these to all its foreground processes, so the worker has them already.
_OF_TERMINALS: Final = frozenset({signal.SIGINT, signal.SIGQUIT})
# Python ignores these two, and a program would inherit that.
_RESTORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
# A worker that dies earlier would die again and again.
_LIFE_S_MIN: Final = 10.0
# The helper gives up by itself before.
_LEAVER_S_MAX: Final = 20.0
_NOTE_BYTES_MAX: Final = 1 << 20
_CREDENTIALS: Final = struct.Struct("3i")
_STATUS_OF_SIGNALS: Final = 128
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


class _Note(NamedTuple):
    """A member, as it described itself.

    Attributes:
        returns: whether its identity survives the process.
        leaves: whether the helper is needed after its death.
        line: for the helper; may contain a password.
    """

    member_id: str
    returns: bool
    leaves: bool
    line: bytes


class Supervisor:
    """Runs a command as its worker."""

    def __init__(self, command: Sequence[str], leaver: Sequence[str] = _LEAVER) -> None:
        """Prepare to run a command.

        Args:
            command: program and arguments of the worker.
            leaver: the helper; it reads a line for each member that has died.
        """
        self._command = list(command)
        self._leaver = list(leaver)
        self._inbox, self._outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for one in (self._inbox, self._outbox):
            one.settimeout(0)  # a supervisor that hangs must not stop the worker
        # macOS limits a message to this buffer, by default to 2,048 bytes.
        self._outbox.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NOTE_BYTES_MAX)
        if hasattr(socket, "SO_PASSCRED"):
            self._inbox.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._outbox.set_inheritable(True)
        self._signals, self._signal_pipe = os.pipe()
        os.set_blocking(self._signals, False)
        self._mask: set[int] = set()
        self._worker: int | None = None
        self._status = 0
        self._began_s = 0.0
        self._stops = False
        # By process and number of the member in it.
        self._notes: dict[int, dict[int, _Note]] = {}
        self._strangers: set[int] = set()
        # End of the patience with each helper, by process.
        self._leavers: dict[int, float] = {}

    def run(self) -> int:
        """Run the worker to its end; return its exit status, as a shell reports it."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # macOS drops it without a handler
        # nohup ignores SIGHUP for the worker, too.
        passed_on = [one for one in _PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN]
        numbers = [signal.SIGCHLD, *passed_on]
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        _thread.start_new_thread(self._listen, (numbers,))
        self._start()
        while self._worker is not None or self._leavers:
            select.select([self._inbox.fileno(), self._signals], [], [], self._patience_s())
            self._read_notes()
            self._pass_on()
            self._bury()
        return self._status

    def _start(self) -> None:
        socket_id = f"{self._outbox.fileno()}:{os.fstat(self._outbox.fileno()).st_ino}"
        environment = {**os.environ, VARIABLE: socket_id}
        self._worker = os.posix_spawnp(
            self._command[0],
            self._command,
            environment,
            setsigmask=self._mask,
            setsigdef=_RESTORED,
        )
        self._began_s = time.monotonic()

    def _patience_s(self) -> float | None:
        now_s = time.monotonic()
        for process, until_s in self._leavers.items():
            if now_s >= until_s:
                os.kill(process, signal.SIGKILL)  # not reaped yet, so the number is its own
        return min((max(0.1, one - now_s) for one in self._leavers.values()), default=None)

    # --- notes of members ------------------------------------------------------------------------

    def _read_notes(self) -> None:
        while True:
            try:
                line, ancillary, _, _ = self._inbox.recvmsg(
                    _NOTE_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            try:
                self._keep(line, ancillary)
            except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
                say("a note of a member is unreadable; do both run the same version of coopgroup?")

    def _keep(self, line: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        note = json.loads(line)
        process = _sender(ancillary, int(note["process"]))
        member, member_id = int(note["member"]), str(note["id"])
        notes = self._notes.setdefault(process, {})
        notes.pop(member, None)
        if member_id:
            notes[member] = _Note(member_id, bool(note["returns"]), bool(note["leaves"]), line)
        if process != self._worker and process not in self._strangers:
            self._forget_the_gone()
            self._strangers.add(process)
            say(
                f"process {process} has a member, and is not the worker (process {self._worker}): "
                "no process leaves for it if it is killed; start it with exec"
            )

    def _forget_the_gone(self) -> None:
        """Forget processes that another parent has reaped; without this they would add up."""
        for process in tuple(self._strangers):
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                self._strangers.discard(process)
                self._notes.pop(process, None)
            except PermissionError:
                pass  # another user's process, which exists

    # --- signals and deaths ----------------------------------------------------------------------

    def _listen(self, numbers: list[signal.Signals]) -> None:
        """Write each signal to the pipe, and whether the kernel sent it. A handler cannot know."""
        while True:
            if hasattr(signal, "sigwaitinfo"):
                found = signal.sigwaitinfo(numbers)
                told = found.si_signo, found.si_code > 0
            else:  # macOS does not say who sent a signal
                told = signal.sigwait(numbers), True
            os.write(self._signal_pipe, bytes(told))

    def _pass_on(self) -> None:
        try:
            told = os.read(self._signals, 1 << 16)
        except BlockingIOError:
            return
        for number, by_kernel in zip(told[::2], told[1::2], strict=True):
            if number not in _PASSED_ON:
                continue
            self._stops = self._stops or number in _STOPS
            if self._worker is None:
                continue
            if by_kernel and number in _OF_TERMINALS and _is_in_foreground(self._worker):
                continue
            try:
                os.kill(self._worker, number)  # not reaped yet, so the number is its own
            except OSError as error:  # another user's process, such as one below sudo
                say(f"signal {number} cannot be passed on: {error}")

    def _bury(self) -> None:
        """Reap all processes that have ended: also orphans, which process 1 inherits."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            self._strangers.discard(process)  # it is gone, and its notes still count
            self._read_notes()  # notes that were sent just before the death
            notes = self._notes.pop(process, {}).values()
            self._strangers.discard(process)
            self._leavers.pop(process, None)
            self._leave_for([one for one in notes if one.leaves])
            if process == self._worker:
                self._worker = None
                self._pass_on()  # a stop that arrived just before the death
                self._end_or_start_again(status, [one for one in notes if one.returns])

    def _leave_for(self, notes: list[_Note]) -> None:
        if not notes:
            return
        try:
            # A write to a pipe could wait for the helper.
            with nameless_file(b"".join(one.line + b"\n" for one in notes)) as file:
                process = os.posix_spawn(
                    self._leaver[0],
                    self._leaver,
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 0)],
                    setsigmask=self._mask,
                )
            self._leavers[process] = time.monotonic() + _LEAVER_S_MAX
        except OSError as error:
            say(f"no process can leave the group for the worker: {error}")

    def _end_or_start_again(self, status: int, returning: list[_Note]) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._status = code if code >= 0 else _STATUS_OF_SIGNALS - code
        # A worker that dies of a signal to stop was stopped on purpose.
        is_stopped = self._stops or -code in (*_STOPS, signal.SIGHUP)
        if code >= 0 or is_stopped or not returning:
            return
        why = f"the worker was killed by signal {-code}"
        if time.monotonic() - self._began_s < _LIFE_S_MIN:
            say(f"{why} within {_LIFE_S_MIN:.0f} s of its start, so it is not started again")
            return
        say(f"{why}; it is started again, because it returns as {returning[0].member_id}")
        try:
            self._start()
        except OSError as error:  # helpers may still leave for other members
            say(f"it cannot be started: {error}")


def _sender(ancillary: list[tuple[int, int, bytes]], said: int) -> int:
    """Return the process that sent a note, as this process numbers it.

    Linux says it. macOS does not, but has no containers with numbers of their own.
    """
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", None):
            process: int = _CREDENTIALS.unpack(content)[0]
            return process
    return said


def _is_in_foreground(process: int) -> bool:
    """Return whether a process is in the foreground of the terminal, and has its signals."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgid(process)
    except OSError:
        return False
    finally:
        os.close(terminal)


def say(what: str) -> None:
    """Write a line to the log; without a reader it is lost, because nothing may wait for it."""
    line = f"coopgroup.supervisor: {what}".encode(errors="replace")[: select.PIPE_BUF - 1]
    try:
        if select.select([], [2], [], 0)[1]:  # a pipe then has room for PIPE_BUF bytes
            os.write(2, line + b"\n")
    except OSError:
        pass  # the reader of the log has gone, and the worker lives on


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    command = list(arguments)
    if command[:1] == ["--help"]:
        sys.stdout.write(f"{_USAGE}\n")
        return 0
    if command[:1] == ["--"]:
        del command[0]
    if not command or command[0].startswith("-"):
        say(f"COMMAND: got {' '.join(command[:1]) or 'nothing'}, expected a program; {_USAGE}")
        return 2
    try:
        return Supervisor(command).run()
    except OSError as error:
        say(f"COMMAND: got {command[0]}, expected a program that can be started ({error})")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
