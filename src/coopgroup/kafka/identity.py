"""Who a member was, kept in a file, so that its next process comes back as the same member.

Rules of this file: whoever holds a slot holds its lock, and only then reads and writes it; content
that is not what was written means "no identity", never an error.

Theory of operation. A directory has numbered slots for each group, one file each. A consumer takes
a free one for its life. The lock is one of POSIX (fcntl): it ends with its process, however that
ends, and a forked child does not inherit it, which would keep the slot from the next process. But
such locks do not hold among consumers of one process, and end when the process closes any
descriptor of the file; so what this process holds is remembered, and not even opened again.

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
_BUSY: Final = frozenset({errno.EACCES, errno.EAGAIN})
_Content: TypeAlias = tuple[KeptIdentity | None, SeenTopics | None, int | None]


@define
class _Held:
    """Slots that consumers of this process hold, by device and number of the file."""

    files: set[tuple[int, int]] = field(factory=set)
    lock: threading.Lock = field(factory=threading.Lock)

    def forget(self) -> None:
        """In a forked child, which holds nothing; the lock may have been taken when it forked."""
        self.files = set()
        self.lock = threading.Lock()


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
            with _held.lock:
                os.close(descriptor)
                if os.getpid() == self._home_pid:
                    _held.files.discard(self._file)


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
        ConfigurationError: no file can be made, or locked, in the directory, or it has too many.
    """
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        return _take(folder, group_id, warn)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else str(cause)
        raise ConfigurationError(
            _KEY, folder, f"a directory for files that can be written and locked ({reason})"
        ) from None


def _take(folder: str, group_id: str, warn: Callable[..., None]) -> IdentitySlot:
    first: IdentitySlot | None = None
    for number in range(_SLOTS_MAX):
        path = slot_path(folder, group_id, number)
        if first is not None and not path.exists():
            return first
        slot = _hold(path, group_id, warn)
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
    if first is None:
        raise ValueError(f"it has the {_SLOTS_MAX} files that a group may have, all in use")
    return first


def _hold(path: Path, group_id: str, warn: Callable[..., None]) -> IdentitySlot | None:
    """Hold a slot; None when somebody else does."""
    with _held.lock:
        if path.exists() and _number(path.stat()) in _held.files:
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept, seen, next_round_in_ms = _read(descriptor, path, group_id, warn)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in _BUSY:
                return None
            raise
        file = _number(os.fstat(descriptor))
        _held.files.add(file)
    return IdentitySlot(
        path=path,
        group_id=group_id,
        kept=kept,
        seen=seen,
        next_round_in_ms=next_round_in_ms,
        descriptor=descriptor,
        file=file,
    )


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# --- the content of a file ------------------------------------------------------------------------


def _read(descriptor: int, path: Path, group_id: str, warn: Callable[..., None]) -> _Content:
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, min(size, _BYTES_MAX), 0)
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
