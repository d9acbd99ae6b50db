"""The operating system's view of a cluster: broker processes, the reaper's pipe, ports, folders.

A broker starts as `read go && exec java …` and waits until the reaper knows its process id. If the
owner dies at any moment, no broker is left behind.
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
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from coopgroup.errors import ClusterError, ConfigurationError
from coopgroup.temporary_folder import temporary_folder
from coopgroup.testing import reaper as reaper_module

# Below the range that Linux and macOS use for outgoing connections. Otherwise a client's socket
# could take the port of a broker that is down for a moment.
PORT_MIN = 20_000
PORT_MAX = 32_000
PORT_ATTEMPTS_MAX = 1_000
RAM_DISK = Path("/dev/shm")  # noqa: S108 - a folder of our own with a random name is made in it
ROOM_PER_BROKER = 1 << 30
LOG_TAIL_LINES = 40
STOP_S = 5.0  # for the kernel to stop all threads of a process


class Reaper:
    """The process that ends the brokers if this process dies; see `reaper.py`."""

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
        """Let the reaper watch a process.

        Raises:
            ClusterError: the reaper has ended.
        """
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """Stop watching an ended process, before another process can get its id."""
        with contextlib.suppress(ClusterError):  # an ended reaper cannot kill the wrong process
            self._tell(f"-{pid}\n")

    def close(self) -> None:
        """Let the reaper finish and wait for it."""
        self.close_pipe()
        self._process.wait()

    def close_pipe(self) -> None:
        """Close this process's end of the pipe; a forked child does nothing else."""
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
    """One running `java kafka.Kafka`."""

    def __init__(self, command: Sequence[str], log_path: Path, reaper: Reaper) -> None:
        self._reaper = reaper
        self.is_paused = False
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
        """Whether the process has not ended; a paused process is running."""
        return self.exit_status is None

    @property
    def exit_status(self) -> int | None:
        """Status of an ended process, negative for a signal; None for a running process."""
        status = self._process.poll()
        if status is not None:
            self._reaper.forget(self.pid)
        return status

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), and wait until all its threads stand.

        The signal only begins the stop. A thread on another core runs on for a moment, and a broker
        could still answer a request that was sent after the signal.
        """
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True
        if not hasattr(os, "waitid"):  # macOS with Python before 3.13
            return
        until = time.monotonic() + STOP_S
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # it has ended
            while os.waitid(os.P_PID, self.pid, options) is None and time.monotonic() < until:
                time.sleep(0.001)

    def resume(self) -> None:
        """Resume a frozen process (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        """Kill the process (SIGKILL), even if it is frozen, and wait for its end."""
        self._process.kill()
        self._process.wait()
        self._reaper.forget(self.pid)

    def terminate(self, timeout_ms: int) -> bool:
        """Ask the process to shut down (SIGTERM); return whether it ended within `timeout_ms`."""
        self.resume()  # a frozen process would not handle the signal
        self._process.terminate()
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        self._reaper.forget(self.pid)
        return True

    def _open_gate(self, word: str) -> None:
        """Let the shell start Java with "go", or end with an empty word."""
        if self._process.stdin is not None:
            with self._process.stdin as gate:
                gate.write(word.encode())


def free_ports(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Return free ports of a loopback address.

    Raises:
        ClusterError: too few were found.
    """
    found: list[int] = []
    chosen = random.SystemRandom().sample(range(PORT_MIN, PORT_MAX), PORT_ATTEMPTS_MAX)
    for port in chosen:
        if len(found) == count:
            break
        with socket.socket(_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise ClusterError(f"no {count} free ports between {PORT_MIN} and {PORT_MAX}")
    return tuple(found)


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a program accepts connections on a port of a loopback address."""
    with socket.socket(_family(host)) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def make_folder(parent: Path | None, broker_count: int) -> Path:
    """Create the data folder of a cluster.

    Args:
        parent: parent folder; None for the RAM disk if it has 1 GiB for each broker, else for
            the folder for temporary files.
        broker_count: number of brokers.

    Raises:
        ConfigurationError: the folder cannot be created in `parent`, or there is no folder for
            temporary files.
    """
    if parent is None:
        room = shutil.disk_usage(RAM_DISK).free if os.access(RAM_DISK, os.W_OK) else 0
        is_enough = room >= broker_count * ROOM_PER_BROKER
        parent = RAM_DISK if is_enough else Path(temporary_folder())
    try:
        return Path(tempfile.mkdtemp(prefix="coopgroup-kafka-", dir=parent))
    except OSError as error:
        raise ConfigurationError("data_dir", str(parent), "a folder to write in") from error


def log_tail(path: Path) -> list[str]:
    """Return the last lines of a log, or an empty list without a log."""
    if not path.exists():
        return []
    return path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
