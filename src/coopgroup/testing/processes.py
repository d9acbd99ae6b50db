"""Operating system side of a cluster: broker processes, the reaper's pipe, free ports, folders.

A broker is started behind a gate, `read go && exec java …`: it waits until the reaper knows its
process id. So there is no instant at which the owner could die and leave a broker behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from coopgroup.errors import ConfigurationError
from coopgroup.testing import reaper as reaper_module
from coopgroup.testing.errors import ClusterError

__all__ = ["BrokerProcess", "Reaper", "free_ports", "is_listening", "log_tail", "make_folder"]

# Below the range that Linux and macOS hand out to outgoing connections: a port of a broker that is
# down for a moment must not be taken by a client's socket.
PORT_MIN = 20_000
PORT_MAX = 32_000
PORT_ATTEMPTS_MAX = 1_000
RAM_DISK = Path("/dev/shm")  # noqa: S108 - a folder of our own with a random name is made in it
ROOM_PER_BROKER = 1 << 30
LOG_TAIL_LINES = 40


class Reaper:
    """The process that ends the brokers should this one die; see `reaper.py`.

    Args:
        folder: the cluster's data folder, which goes with the brokers.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(reaper_module.__file__)), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        _open_reapers.add(self)

    def watch(self, pid: int) -> None:
        """Put a process under the reaper's watch.

        Raises:
            ClusterError: the reaper is gone.
        """
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """Take an ended process from the watch, before its id can be given to another one."""
        with contextlib.suppress(ClusterError):  # a reaper that is gone will kill nobody
            self._tell(f"-{pid}\n")

    def close(self) -> None:
        """Let the reaper finish and wait for it."""
        self.close_pipe()
        self._process.wait()

    def close_pipe(self) -> None:
        """Close this process' end; in a forked child that is all there is to do."""
        _open_reapers.discard(self)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            raise ClusterError("the reaper of this cluster is closed")
        try:
            pipe.write(line.encode())
        except OSError as error:
            raise ClusterError("the reaper of this cluster is gone") from error


_open_reapers: weakref.WeakSet[Reaper] = weakref.WeakSet()


def _close_pipes_of_parent() -> None:
    """Close inherited pipes: a forked child must not keep the brokers of a dead parent alive."""
    for inherited in tuple(_open_reapers):
        inherited.close_pipe()


os.register_at_fork(after_in_child=_close_pipes_of_parent)


class BrokerProcess:
    """One running `java kafka.Kafka`.

    Args:
        command: program and arguments.
        log_path: file that gets what the process prints; appended to.
        reaper: is told of the process before it may begin.
    """

    def __init__(self, command: Sequence[str], log_path: Path, reaper: Reaper) -> None:
        self._reaper = reaper
        self._is_stopped = False
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r go && exec "$@"', "broker", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        try:
            reaper.watch(self._process.pid)
            self._open_gate("go\n")
        except BaseException:
            self._open_gate("")
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused process is running."""
        return self.exit_status is None

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called last."""
        return self._is_stopped

    @property
    def exit_status(self) -> int | None:
        """Status of an ended process, negative for a signal; None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._reaper.forget(self.pid)
        return status

    def pause(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)
        self._is_stopped = True

    def resume(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self._is_stopped = False

    def kill(self) -> None:
        """End it at once (SIGKILL), also when it is frozen, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._reaper.forget(self.pid)

    def terminate(self, timeout_ms: int) -> bool:
        """Ask it to shut down (SIGTERM) and wait.

        Returns:
            True when it has ended within `timeout_ms`; otherwise it still runs.
        """
        self.resume()  # a frozen process would not see the signal
        self._process.terminate()
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        self._reaper.forget(self.pid)
        return True

    def _open_gate(self, word: str) -> None:
        """Let the shell go on to Java with "go"; with nothing, it ends."""
        if self._process.stdin is not None:
            with self._process.stdin as gate:
                gate.write(word.encode())


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback on which nobody listens now.

    Raises:
        ClusterError: too few were found.
    """
    found: list[int] = []
    chosen = random.SystemRandom().sample(range(PORT_MIN, PORT_MAX), PORT_ATTEMPTS_MAX)
    for port in chosen:
        if len(found) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise ClusterError(f"no {count} free ports between {PORT_MIN} and {PORT_MAX}")
    return tuple(found)


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_folder(parent: Path | None, broker_count: int) -> Path:
    """Make the data folder of a cluster.

    Args:
        parent: where to make it; None takes the RAM disk if that has 1 GiB for each broker, else
            the folder for temporary files.
        broker_count: number of brokers.

    Raises:
        ConfigurationError: the folder cannot be made in `parent`.
    """
    if parent is None:
        parent = Path(tempfile.gettempdir())
        if os.access(RAM_DISK, os.W_OK):
            room = shutil.disk_usage(RAM_DISK).free
            parent = RAM_DISK if room >= broker_count * ROOM_PER_BROKER else parent
    try:
        return Path(tempfile.mkdtemp(prefix="coopgroup-kafka-", dir=parent))
    except OSError as error:
        raise ConfigurationError("data_dir", str(parent), "a folder to write in") from error


def log_tail(path: Path) -> list[str]:
    """Last lines of a log; none if there is no log."""
    if not path.exists():
        return []
    return path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
