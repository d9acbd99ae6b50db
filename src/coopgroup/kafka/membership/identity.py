"""Keep a member's identity in a file, so that its next process returns as the same member.

Rules of this file: only the holder of a slot's lock reads and writes the slot. Damaged content
means "no identity", never an error.

Theory of operation. A directory has numbered slots for each group, one file each. A consumer holds
a free slot for its lifetime. The lock is a POSIX lock (fcntl). It ends with its process, even after
a crash. A forked child does not inherit it; otherwise the child would keep the slot from the next
process. But POSIX locks do not exclude consumers of the same process, and they end when the process
closes any descriptor of the file. So this module remembers the slots that this process holds, and
does not open their files again.

A user who can write to a file can make two processes believe that they are one member. So a
directory or a file is refused if another user may write to it or if it is a symbolic link. This
also applies to the path of the directory: a link in it is refused, and a directory in which all
users may replace entries. The directory is opened once and checked by its descriptor. Its files are
opened relative to it.

A file is written in place, because a lock belongs to the file and not to its name. An interrupted
write leaves content with a wrong checksum. Nothing is flushed to the disk. A flush would only help
if the whole machine goes down, which takes longer than a session lasts. The group coordinator
refuses an outdated identity.

The group's thread sends the heartbeats, and a disk or a network file system may hang. So `keep`
returns immediately, and a worker writes the newest identity. A slot is freed only after its last
write, or the write would reach the slot's next holder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
from attrs import define, field

from coopgroup.core.member import KeptIdentity
from coopgroup.core.member.effects import SelfReport
from coopgroup.core.model import ResourceSet
from coopgroup.core.session import SeenTopics
from coopgroup.errors import ConfigurationError
from coopgroup.worker import Worker

_KEY: Final = "coopgroup.state.dir"
_VERSION: Final = 1
_SLOTS_MAX: Final = 1_000
_BYTES_MAX: Final = 64 * 1024 * 1024
_READABLE_MAX: Final = 60  # characters of the group's name in a file's name
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, a pipe with the file's name could hang the constructor.
_FILE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# The parts of a path before its last one: the right to search them is enough, where O_PATH exists.
_WAY_FLAGS: Final = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0
# How long a closing consumer waits for the disk.
_RELEASE_S: Final = 2.0
_BUSY: Final = frozenset({errno.EACCES, errno.EAGAIN})
_Content: TypeAlias = tuple[KeptIdentity | None, SeenTopics | None, int | None]


@define
class _Held:
    """Slots that consumers of this process hold, by device and inode number of the file."""

    files: set[tuple[int, int]] = field(factory=set)
    # Reentrant: a signal handler may close another consumer while this thread makes one.
    lock: threading.RLock = field(factory=threading.RLock)

    def forget(self) -> None:
        self.files = set()
        self.lock = threading.RLock()


_held: Final = _Held()
os.register_at_fork(after_in_child=_held.forget)


@define(eq=False)
class IdentitySlot:
    """A locked slot.

    Attributes:
        kept: identity of the member that used the slot before; None without one.
        seen: topics that this member saw when it led the round of `kept`; None if another member
            led.
        next_round_in_ms: time from that round to the next one that the leader was to request, in
            ms; None for no next round.
    """

    path: Path
    group_id: str
    kept: KeptIdentity | None
    seen: SeenTopics | None
    next_round_in_ms: int | None
    warn: Callable[..., None]
    _descriptor: int
    _file: tuple[int, int]
    _worker: Worker = field(factory=lambda: Worker("coopgroup-identity"), init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)  # guards the rest
    _waiting: _Content | None = field(default=None, init=False)
    _was_written: bool = field(default=False, init=False)
    _is_released: bool = field(default=False, init=False)

    def keep(
        self,
        identity: KeptIdentity | None,
        seen: SeenTopics | None = None,
        next_round_in_ms: int | None = None,
    ) -> None:
        """Write the member's identity in the background; without effect after `release`.

        A newer identity replaces one that is not written yet. If the file cannot be written, it
        keeps no identity or an earlier one.
        """
        with self._lock:
            if not self._is_released:
                self._waiting = (identity, seen, next_round_in_ms)
                self._was_written = True
                self._begin(self._write_newest)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the newest identity is written; return whether it is."""
        written = threading.Event()
        with suppress(RuntimeError):  # no thread can be had, so none is writing
            self._worker.submit(written.set)
            return written.wait(timeout_s)
        return self._waiting is None

    def release(self, timeout_s: float = _RELEASE_S) -> None:
        """Free the slot for other processes once the disk has answered; its content stays."""
        with self._lock:
            was_released, self._is_released = self._is_released, True
        # Closing a written file may hang, too.
        if not was_released and not (self._was_written and self._begin(self._free)):
            self._free()
        if not self._worker.close(timeout_s):
            self._warn_of(TimeoutError(f"the disk has not answered for {timeout_s:g} s"))

    def _begin(self, job: Callable[[], None]) -> bool:
        """Run a job after all earlier ones; return False without a free thread."""
        try:
            self._worker.submit(job)
        except RuntimeError as error:
            self._warn_of(error)
            return False
        return True

    def _write_newest(self) -> None:
        with self._lock:
            content, self._waiting = self._waiting, None
        if content is not None:
            self._try(partial(_write, self._descriptor, self.group_id, *content))

    def _free(self) -> None:
        self._write_newest()
        self._try(partial(_let_go, self._descriptor, self._file))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 -- the slot must become free
            self._warn_of(error)

    def _warn_of(self, error: Exception) -> None:
        self.warn("identity_not_kept", path=str(self.path), error=str(error))


def slot_path(folder: str, group_id: str, number: int) -> Path:
    """Return the path of a slot's file.

    The name begins with the safe characters of the group's name. A digest distinguishes groups
    whose names begin alike, or differ only in unsafe characters or in case.
    """
    readable = re.sub(r"[^a-zA-Z0-9_-]", "_", group_id)[:_READABLE_MAX]
    digest = hashlib.sha256(group_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Path(folder) / f"{readable}-{digest}.{number}.json"


def take_slot(folder: str, group_id: str, warn: Callable[..., None]) -> IdentitySlot:
    """Take the first free slot of a group that keeps an identity, else the first free slot.

    The first free slot alone would be wrong: its member may have left the group, while a later slot
    belongs to a process that restarts.

    Raises:
        ConfigurationError: no file can be created or locked in the directory, or the directory has
            too many files, or users other than its owner may write to it.
    """
    try:
        descriptor = _open_folder(Path(folder))
        try:
            return _take(folder, descriptor, group_id, warn)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else str(cause)
        raise ConfigurationError(
            _KEY, folder, f"a directory for files that can be written and locked ({reason})"
        ) from None


def _open_folder(folder: Path) -> int:
    """Open the directory, so that the checked directory is the one used; make what is missing.

    The way begins at the root, and each part is opened in the checked one before it.
    """
    way = Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links
    path = Path(way.anchor)
    descriptor = os.open(path, _WAY_FLAGS)
    try:
        parent = status = os.fstat(descriptor)
        for name in way.parts[1:]:
            _check_part(path, status, parent)
            path /= name
            flags = _FOLDER_FLAGS if path == way else _WAY_FLAGS
            part = _open_part(path, descriptor, flags)
            os.close(descriptor)
            descriptor, parent, status = part, status, os.fstat(part)
        _check_part(path, status, parent)
        _check_owner("it", status, "name a folder inside it, which is made safely")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_part(path: Path, parent: int, flags: int) -> int:
    """Open a directory in its parent; make it if it is missing."""
    with suppress(FileExistsError):
        try:
            status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            os.mkdir(path.name, 0o700, dir_fd=parent)
        else:
            if stat.S_ISLNK(status.st_mode):
                raise ValueError(f"{path} is a symbolic link: name its target")
    return os.open(path.name, flags, dir_fd=parent)


def _check_part(path: Path, status: os.stat_result, parent: os.stat_result) -> None:
    """Refuse a directory whose entries all users may replace; the sticky bit prevents that.

    The system mounts an emptyDir of Kubernetes with the mode 0777, but only one pod can reach it.
    """
    is_volume = status.st_uid == _ROOT and status.st_dev != parent.st_dev
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX and not is_volume:
        mode = stat.S_IMODE(status.st_mode)
        raise ValueError(f"{path} can be written by all users, its mode is {mode:04o}: chmod o-w")


def _check_owner(what: str, status: os.stat_result, remedy: str) -> None:
    """Refuse a directory or a file that another user may write to."""
    if status.st_uid not in {os.geteuid(), _ROOT}:
        raise ValueError(f"{what} belongs to user {status.st_uid}: {remedy}")
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise ValueError(f"{what} can be written by other users, its mode is {mode:04o}: {remedy}")


def _take(folder: str, descriptor: int, group_id: str, warn: Callable[..., None]) -> IdentitySlot:
    first: IdentitySlot | None = None
    try:
        for number in range(_SLOTS_MAX):
            path = slot_path(folder, group_id, number)
            if first is not None and _status(path, descriptor) is None:
                return first
            slot = _hold(path, descriptor, group_id, warn)
            if slot is None:
                continue
            if slot.kept is not None or first is None:
                if first is not None:
                    first.release()
                first = slot
            else:
                slot.release()
            if first.kept is not None:
                return first
    except BaseException:
        if first is not None:
            first.release()
        raise
    if first is None:
        raise ValueError(f"it has the {_SLOTS_MAX} files that a group may have, all in use")
    return first


def _status(path: Path, folder: int) -> os.stat_result | None:
    try:
        return os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _hold(path: Path, folder: int, group_id: str, warn: Callable[..., None]) -> IdentitySlot | None:
    with _held.lock:
        status = _status(path, folder)
        if status is not None and _number(status) in _held.files:
            return None
        descriptor = _open_file(path, folder)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = os.pread(descriptor, min(os.fstat(descriptor).st_size, _BYTES_MAX), 0)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in _BUSY:
                return None
            raise
        file = _number(os.fstat(descriptor))
        _held.files.add(file)
    # Release the lock first: `warn` runs the application's log handlers.
    try:
        kept, seen, next_round_in_ms = _read(content, path, group_id, warn)
    except BaseException:
        _let_go(descriptor, file)
        raise
    return IdentitySlot(
        path=path,
        group_id=group_id,
        kept=kept,
        seen=seen,
        next_round_in_ms=next_round_in_ms,
        warn=warn,
        descriptor=descriptor,
        file=file,
    )


def _let_go(descriptor: int, file: tuple[int, int]) -> None:
    try:
        os.close(descriptor)
    finally:  # without the lock, so that a disk that hangs costs no other slot
        _held.files.discard(file)


def _open_file(path: Path, folder: int) -> int:
    """Open a slot's file for reading and writing."""
    try:
        descriptor = os.open(path.name, _FILE_FLAGS, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path.name} is a symbolic link: delete it") from None
        raise
    try:
        _check_file(path.name, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_file(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise ValueError(f"{name} is no file of its own: delete it")
    _check_owner(name, status, "delete it")


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# --- the content of a file ------------------------------------------------------------------------


def _read(content: bytes, path: Path, group_id: str, warn: Callable[..., None]) -> _Content:
    if not content:
        return None, None, None
    try:
        return _decode(content, group_id)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        warn("identity_unreadable", path=str(path), error=repr(error))
        return None, None, None


def _write(
    descriptor: int,
    group_id: str,
    identity: KeptIdentity | None,
    seen: SeenTopics | None,
    next_round_in_ms: int | None,
) -> None:
    line = b"" if identity is None else _encode(group_id, identity, seen, next_round_in_ms)
    written = 0
    while written < len(line):
        written += os.pwrite(descriptor, line[written:], written)
    os.ftruncate(descriptor, len(line))


def _encode(
    group_id: str,
    identity: KeptIdentity,
    seen: SeenTopics | None,
    next_round_in_ms: int | None,
) -> bytes:
    row: dict[str, Any] = {
        "version": _VERSION,
        "group": group_id,
        "member_id": identity.member_id,
        "generation": identity.generation,
        "topics": list(identity.topics),
        "protocol": identity.protocol,
        "report": attrs.asdict(identity.report),
        "seen": None if seen is None else _counts(seen),
        "next_round_in_ms": next_round_in_ms,
    }
    line = json.dumps(row | {"checksum": _checksum(row)}).encode() + b"\n"
    if len(line) > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return line


def _decode(content: bytes, group_id: str) -> _Content:
    """Read the output of `_encode`; damaged content raises an error that `_read` expects."""
    # After the first line, the file may contain the rest of an earlier, longer line: an interrupted
    # write did not truncate it.
    row: Any = json.loads(content.split(b"\n", 1)[0])
    if row.pop("checksum") != _checksum(row):
        raise ValueError("the checksum differs")
    if row["version"] != _VERSION:
        raise ValueError(f"version {row['version']}")
    if row["group"] != group_id:
        raise ValueError(f"of group {row['group']}")
    kept = KeptIdentity(
        member_id=row["member_id"],
        generation=row["generation"],
        topics=tuple(row["topics"]),
        protocol=row["protocol"],
        report=SelfReport(**row["report"]),
    )
    seen = None if row["seen"] is None else _seen(row["seen"])
    return kept, seen, row["next_round_in_ms"]


def _counts(seen: SeenTopics) -> dict[str, int] | None:
    """Return the partition count of each topic; None if a topic has a gap, which Kafka never has.

    A negative count is that of a connector (index -1) with its tasks.
    """
    counts = dict.fromkeys(seen.topics, 0)
    for name, indices in seen.partitions.to_dict().items():
        first, last = indices[0], indices[-1]
        if first not in {0, -1} or last - first != len(indices) - 1:
            return None
        counts[name] = len(indices) if first == 0 else -len(indices)
    return counts


def _seen(counts: dict[str, int]) -> SeenTopics:
    partitions = ResourceSet.from_pairs(
        (name, index)
        for name, count in counts.items()
        for index in (range(count) if count >= 0 else range(-1, -count - 1))
    )
    return SeenTopics(topics=tuple(sorted(counts)), partitions=partitions)


def _checksum(row: Any) -> int:  # noqa: ANN401  (any JSON)
    return zlib.crc32(json.dumps(row, sort_keys=True).encode())
