"""Who a member was, kept in a file, so that its next process comes back as the same member.

Rules of this file: whoever holds a slot holds its lock, and only then reads and writes it; content
that is not what was written means "no identity", never an error.

Theory of operation. A directory has numbered slots for each group, one file each. A consumer takes
a free one for its life. The lock is one of POSIX (fcntl): it ends with its process, however that
ends, and a forked child does not inherit it, which would keep the slot from the next process. But
such locks do not hold among consumers of one process, and end when the process closes any
descriptor of the file; so what this process holds is remembered, and not even opened again.

Whoever can write to a file can have two processes believe that they are one member. So nothing is
taken from a directory or a file that another user may write to, or that is a symbolic link: the
directory is opened once, checked by its descriptor, and its files are opened relative to it.

A file is written in place, for a lock is one of the file and not of its name. What a write that
was interrupted leaves behind does not have the checksum that it says. Nothing is flushed to the
disk: that matters when a whole machine goes down, which takes longer than a session lasts, and an
identity that is too old is found out by the group coordinator.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, field

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.leading import SeenTopics
from coopgroup.member import KeptIdentity
from coopgroup.model import ResourceSet

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IdentitySlot", "slot_path", "take_slot"]

_KEY: Final = "coopgroup.state.dir"
_VERSION: Final = 1
# Of a round in another protocol than ours, of which earlier releases know nothing.
_VERSION_WITH_PROTOCOL: Final = 2
_SLOTS_MAX: Final = 1_000
_BYTES_MAX: Final = 64 * 1024 * 1024
_READABLE_MAX: Final = 60  # characters of the group's name in that of a file
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, a pipe under the file's name could hang the constructor.
_FILE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0
_BUSY: Final = frozenset({errno.EACCES, errno.EAGAIN})
_Content: TypeAlias = tuple[KeptIdentity | None, SeenTopics | None, int | None]


@define
class _Held:
    """Slots that consumers of this process hold, by device and number of the file."""

    files: set[tuple[int, int]] = field(factory=set)
    # A signal handler may close another consumer while this one is made.
    lock: threading.RLock = field(factory=threading.RLock)

    def forget(self) -> None:
        """In a forked child, which holds nothing; the lock may have been taken when it forked."""
        self.files = set()
        self.lock = threading.RLock()


_held: Final = _Held()
os.register_at_fork(after_in_child=_held.forget)


@define(eq=False)
class IdentitySlot:
    """A slot that is held.

    Attributes:
        path: its file.
        group_id: the group.
        kept: who the member was that held it before; None for nobody.
        seen: what that one saw when it led the round of `kept`; None if another member led it.
        next_round_in_ms: how long after that round, in ms, it was to ask for another one as the
            leader; None for never.
    """

    path: Path
    group_id: str
    kept: KeptIdentity | None
    seen: SeenTopics | None
    next_round_in_ms: int | None
    _descriptor: int | None
    _file: tuple[int, int]
    _home_pid: int = field(factory=os.getpid, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def keep(
        self,
        identity: KeptIdentity | None,
        seen: SeenTopics | None = None,
        next_round_in_ms: int | None = None,
    ) -> None:
        """Write who the member is now, None for nobody; after `release` without effect.

        Args:
            identity: who it is.
            seen: what it saw if it led the round; else nobody would notice partitions that
                appear while the leader's process is down.
            next_round_in_ms: time until it is to ask for another round as the leader, in ms. It is
                kept as a duration, for the clock of another life may have begun anew.

        Raises:
            OSError: it cannot be written; then nobody, or nobody later than before, is kept.
        """
        with self._lock:
            if self._descriptor is None or os.getpid() != self._home_pid:
                return
            line = (
                b""
                if identity is None
                else _encode(self.group_id, identity, seen, next_round_in_ms)
            )
            _write(self._descriptor, line)

    def release(self) -> None:
        """Let others have the slot, with what is kept in it."""
        with self._lock:
            if self._descriptor is None:
                return
            descriptor, self._descriptor = self._descriptor, None
            if os.getpid() == self._home_pid:
                _let_go(descriptor, self._file)
            else:
                os.close(descriptor)


def slot_path(folder: str, group_id: str, number: int) -> Path:
    """The file of a slot.

    Its name begins with as much of the group's as is safe in any file system; the rest tells
    groups apart whose names begin alike, or differ by what is not safe or by upper and lower case.
    """
    readable = re.sub(r"[^a-zA-Z0-9_-]", "_", group_id)[:_READABLE_MAX]
    digest = hashlib.sha256(group_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Path(folder) / f"{readable}-{digest}.{number}.json"


def take_slot(folder: str, group_id: str, warn: Callable[..., None]) -> IdentitySlot:
    """Take a free slot of a group: the first in which somebody is kept, else the first of all.

    Not simply the first: a slot whose member has left the group may be free before one whose
    process is to be restarted.

    Args:
        folder: the directory; it is made if it does not exist.
        group_id: the group.
        warn: gets an event and its fields where the content of a file is damaged.

    Raises:
        ConfigurationError: no file can be made, or locked, in the directory, or it has too many, or
            users other than its owner may write to it.
    """
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
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
    """Open the directory, so that what is checked is what is used.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is a symbolic link, or another user may write to it.
    """
    if folder.is_symlink():
        raise ValueError("it is a symbolic link")
    descriptor = os.open(folder, _FOLDER_FLAGS)
    try:
        _check_owner("it", os.fstat(descriptor), "name a folder inside it, which is made safely")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(what: str, status: os.stat_result, remedy: str) -> None:
    """Refuse a directory or a file that another user may write to.

    Raises:
        ValueError: see above.
    """
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
    """The status of a file, of the link itself if it is one; None if there is no such file."""
    try:
        return os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _hold(path: Path, folder: int, group_id: str, warn: Callable[..., None]) -> IdentitySlot | None:
    """Hold a slot; None when another process or consumer holds it."""
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
    # Without the lock from here on: `warn` runs the application's log handlers.
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
        descriptor=descriptor,
        file=file,
    )


def _let_go(descriptor: int, file: tuple[int, int]) -> None:
    with _held.lock:
        os.close(descriptor)
        _held.files.discard(file)


def _open_file(path: Path, folder: int) -> int:
    """Open a slot's file for reading and writing.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is a link or no regular file, or another user may write to it.
    """
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


def _write(descriptor: int, line: bytes) -> None:
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
        "version": _VERSION_WITH_PROTOCOL if identity.protocol else _VERSION,
        "group": group_id,
        "member_id": identity.member_id,
        "generation": identity.generation,
        "topics": list(identity.topics),
        "seen": None if seen is None else _counts(seen),
    }
    if identity.protocol:
        row["protocol"] = identity.protocol
    if next_round_in_ms is not None:  # earlier releases pass it over
        row["next_round_in_ms"] = next_round_in_ms
    line = json.dumps(row | {"checksum": _checksum(row)}).encode() + b"\n"
    if len(line) > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return line


def _decode(content: bytes, group_id: str) -> _Content:
    """Read what `_encode` wrote.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, RecursionError: it did not write this.
    """
    # What follows is of a longer one that was written before, and not cut off any more.
    row: Any = json.loads(content.split(b"\n", 1)[0])
    if row.pop("checksum") != _checksum(row):
        raise ValueError("the checksum differs")
    if row["version"] not in {_VERSION, _VERSION_WITH_PROTOCOL}:
        raise ValueError(f"version {row['version']}")
    if row["group"] != group_id:
        raise ValueError(f"of group {row['group']}")
    kept = KeptIdentity(
        member_id=row["member_id"],
        generation=row["generation"],
        topics=tuple(row["topics"]),
        protocol=row.get("protocol", ""),
    )
    seen = None if row["seen"] is None else _seen(row["seen"])
    return kept, seen, row.get("next_round_in_ms")


def _counts(seen: SeenTopics) -> dict[str, int] | None:
    """How many partitions each topic had; None for a topic with a gap, which Kafka never has.

    A connector (index -1) and its tasks count together, below 0.
    """
    counts = dict.fromkeys(seen.topics, 0)
    for name, indices in seen.partitions.items():
        first, last = int(indices[0]), int(indices[-1])
        if first not in {0, -1} or last - first != len(indices) - 1:
            return None
        counts[name] = len(indices) if first == 0 else -len(indices)
    return counts


def _seen(counts: dict[str, int]) -> SeenTopics:
    partitions = ResourceSet(
        {
            name: range(count) if count >= 0 else range(-1, -count - 1)
            for name, count in counts.items()
        }
    )
    return SeenTopics(topics=tuple(sorted(counts)), partitions=partitions)


def _checksum(row: Any) -> int:  # noqa: ANN401  (any JSON)
    return zlib.crc32(json.dumps(row, sort_keys=True).encode())
