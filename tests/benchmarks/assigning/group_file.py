"""Groups and answers as files that contestants in any language read and write.

Big-endian int32 throughout, strings with an int32 length before their ASCII bytes:

    topics        count, then of each: name, partitions
    racks         count, then names
    subscriptions count, then of each: count, numbers of topics
    members       count, then of each: id, subscription, rack (-1 none)
    owners        count, then of each partition, topic by topic: member (-1 none)
    replicas      racks per partition, then of each partition: numbers of racks

An answer is the member of each partition, in the same order, -1 for none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.assigning.groups import RACKS, Group, Int32Array

__all__ = ["read_answer", "read_group", "write_answer", "write_group"]

_WIRE: Final = np.dtype(">i4")


def write_group(group: Group, path: Path) -> None:
    parts = [_int(len(group.topics))]
    for name, count in group.topics:
        parts += [_string(name), _int(count)]
    parts += [_int(len(RACKS)), *map(_string, RACKS), _int(len(group.subscriptions))]
    for topics in group.subscriptions:
        parts += [_int(len(topics)), _ints(topics)]
    parts.append(_int(len(group.members)))
    for member, number, rack in zip(
        group.members, group.class_of.tolist(), group.member_racks.tolist(), strict=True
    ):
        parts += [_string(member), _int(number), _int(rack)]
    parts += [_int(group.owner.size), _array(group.owner)]
    parts += [_int(group.replica_racks.shape[1]), _array(group.replica_racks)]
    path.write_bytes(b"".join(parts))


def read_group(path: Path) -> Group:
    reader = _Reader(path.read_bytes())
    topics = tuple((reader.string(), reader.number()) for _ in range(reader.number()))
    for _ in range(reader.number()):
        reader.string()
    subscriptions = tuple(
        tuple(reader.ints(reader.number()).tolist()) for _ in range(reader.number())
    )
    members = [(reader.string(), reader.number(), reader.number()) for _ in range(reader.number())]
    owner = reader.ints(reader.number())
    replicas = reader.number()
    return Group(
        topics=topics,
        subscriptions=subscriptions,
        members=tuple(member for member, _, _ in members),
        class_of=np.array([number for _, number, _ in members], dtype=np.int32),
        owner=owner,
        member_racks=np.array([rack for _, _, rack in members], dtype=np.int32),
        replica_racks=reader.ints(owner.size * replicas).reshape(owner.size, replicas),
    )


def write_answer(holder: Int32Array, path: Path) -> None:
    path.write_bytes(_array(holder))


def read_answer(path: Path) -> Int32Array:
    """Return the member of each partition: int32 (R,)."""
    return np.frombuffer(path.read_bytes(), dtype=_WIRE).astype(np.int32)


class _Reader:
    """A read position in a group file."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._offset = 0

    def number(self) -> int:
        return int(self.ints(1)[0])

    def ints(self, count: int) -> Int32Array:
        found = np.frombuffer(self._content, dtype=_WIRE, count=count, offset=self._offset)
        self._offset += found.nbytes
        return found.astype(np.int32)

    def string(self) -> str:
        length = self.number()
        self._offset += length
        return self._content[self._offset - length : self._offset].decode("ascii")


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _ints(values: Iterable[int]) -> bytes:
    return _array(np.array(list(values), dtype=np.int32))


def _array(values: Int32Array) -> bytes:
    return values.astype(_WIRE).tobytes()


def _string(text: str) -> bytes:
    return _int(len(text)) + text.encode("ascii")
