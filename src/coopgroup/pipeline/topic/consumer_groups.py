"""Join the records of KIP-848 groups into states: who is in the group, and owns which partitions.

A classic group has one record for each round, with all members. A KIP-848 group has a record for
each member, and only the records that change are written. So the state of the group is the last
record of each key. A new state counts when members, epoch or owners have changed. Records of the
same time belong to one event, and become one state.

A member owns its assigned partitions, and those that it has not revoked yet. The generation of a
state is the epoch of the group.

The group coordinator writes ids of topics, not names. See `coopgroup.pipeline.history` for the
names. A topic without a known name, which was deleted, has its id in place of the name. If two
topics had one name, the newest target tells which one exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from attrs import define, field
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructField, StructType

from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.codec import ConsumerKind
from coopgroup.pipeline.topic.decoding import GROUP_RECORDS

__all__ = ["BROKER", "KNOWN_RECORDS", "Consumers", "join_states"]

BROKER: Final = "broker"
"""Protocol of a group whose partitions the group coordinator assigns."""

KNOWN_RECORDS: Final = StructType(
    [*TABLES["consumer_records"].schema.fields, StructField("is_new", BooleanType())]
)
"""Input of `join_states`: `is_new` is whether the record may end a new state."""

_SESSION_TIMEOUT_MS: Final = 45_000  # Kafka's default; a group's own is not in its records
_EVENT: Final = ("group", "at_ms", "is_new")
_OF_MEMBER: Final = (
    *("instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms"),
    *("topics", "regex"),
)
_ROWS_MAX: Final = 50_000  # members and partitions of the states that wait to be written
_Row = dict[str, Any]
_Place = tuple[str, int]  # topic id and partition


@define
class Consumers:
    """The last records of one KIP-848 group.

    A group may have thousands of members, and each event changes few of them. So the part of each
    member is kept, and made anew only after a change.

    Attributes:
        group: group id.
        names: names of topics, by id.
    """

    group: str
    names: Mapping[str, str]
    _epoch: int = 0
    _members: dict[str, _Row] = field(factory=dict)
    _owned: dict[str, frozenset[_Place]] = field(factory=dict)
    _owners: dict[_Place, str] = field(factory=dict)
    _expressions: dict[str, list[str]] = field(factory=dict)
    _own_names: dict[str, str] = field(factory=dict)
    _newest: dict[str, str] = field(factory=dict)
    _parts: dict[str, _Row] = field(factory=dict)
    _has_changed: bool = False
    _told: _Row | None = None

    def take(self, row: _Row) -> None:
        """Replace the earlier record with the same key."""
        name, is_gone = row["name"], row["is_tombstone"]
        match ConsumerKind[row["kind"].upper()]:
            case ConsumerKind.GROUP:
                self._begin(0 if is_gone else row["epoch"], row["at_ms"])
            case ConsumerKind.MEMBER:
                self._put_member(name, None if is_gone else row)
            case ConsumerKind.ASSIGNMENT:
                self._own(name, frozenset() if is_gone else _owned(row))
            case ConsumerKind.REGEX:
                _put(self._expressions, name, None if is_gone else row["topics"])
                for member, one in self._members.items():
                    if one["regex"] == name:
                        self._touch(member)
            case ConsumerKind.TOPICS:
                self._own_names |= {one["topic_id"]: one["topic"] for one in row["names"] or ()}
            case ConsumerKind.TARGET_OF_MEMBER:
                self._aim_at({one["topic_id"] for one in row["partitions"] or ()})
            case ConsumerKind.TARGET:
                pass  # a target is a wish

    def state(self) -> _Row | None:
        """Return the state of the group if it is another one than before: its part of a row."""
        # Compaction leaves records of members before the record of the group, and a micro-batch
        # may end between them. The epoch is not known yet.
        if not self._has_changed or (self._members and not self._epoch):
            return None
        self._has_changed = False
        if not self._epoch:
            new: _Row = {"is_tombstone": True, "members": []}
        else:
            new = {
                "is_tombstone": False,
                "generation": self._epoch,
                "protocol_type": "consumer",
                "protocol": BROKER,
                "member_count": len(self._members),
                "members": [self._part(one) for one in sorted(self._members)],
            }
        old, self._told = self._told, new
        if old is None and new["is_tombstone"]:
            return None
        return new if new["is_tombstone"] else new | {"is_restart": _is_restart(old, new)}

    def _begin(self, epoch: int, at_ms: int) -> None:
        """Begin an epoch. A lower one is of a group that was made again.

        Compaction may have removed the tombstones of the members before, with the whole group.
        """
        if 0 < epoch < self._epoch:
            for name in [one for one, row in self._members.items() if row["at_ms"] < at_ms]:
                self._put_member(name, None)
                self._own(name, frozenset())
        self._has_changed |= epoch != self._epoch
        self._epoch = epoch

    def _put_member(self, name: str, row: _Row | None) -> None:
        before = self._members.get(name)
        _put(self._members, name, row)
        if row is None or before is None or any(row[one] != before[one] for one in _OF_MEMBER):
            self._touch(name)

    def _own(self, name: str, owned: frozenset[_Place]) -> None:
        before = self._owned.get(name, frozenset())
        owned = frozenset(one for one in owned if self._exists(one[0]))
        _put(self._owned, name, owned or None)
        for place in before - owned:
            if self._owners.get(place) == name:
                del self._owners[place]
        for place in owned - before:
            # The group coordinator gives a partition only after its owner gave it up. So the older
            # record is of a member whose tombstone compaction has removed.
            other = self._owners.get(place)
            if other is not None:
                self._owned[other] -= {place}
                self._touch(other)
            self._owners[place] = name
        if owned != before:
            self._touch(name)

    def _aim_at(self, topic_ids: Iterable[str]) -> None:
        """Forget the partitions of earlier topics of the same names: targets have existing ones.

        Members give them up with their next heartbeats, and may own the new ones before.
        """
        newest = {self._name(one): one for one in topic_ids}
        if newest.items() <= self._newest.items():
            return
        self._newest |= newest
        for member, owned in [*self._owned.items()]:
            self._own(member, owned)

    def _touch(self, name: str) -> None:
        self._parts.pop(name, None)
        self._has_changed = True

    def _part(self, member_id: str) -> _Row:
        if member_id not in self._parts:
            self._parts[member_id] = self._member(member_id)
        return self._parts[member_id]

    def _member(self, member_id: str) -> _Row:
        row = self._members[member_id]
        topics = {*(row["topics"] or ()), *self._expressions.get(row["regex"] or "", ())}
        owned: dict[str, set[int]] = {}
        for topic_id, partition in self._owned.get(member_id, ()):
            owned.setdefault(self._name(topic_id), set()).add(partition)
        return {
            "member_id": member_id,
            **{name: row[name] for name in ("instance_id", "client_id", "client_host")},
            "session_timeout_ms": row["session_timeout_ms"] or _SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": row["rebalance_timeout_ms"],
            "topics": sorted(topics),
            "assigned_count": sum(map(len, owned.values())),
            "assigned": [
                {"topic": name, "partitions": sorted(numbers)}
                for name, numbers in sorted(owned.items())
            ],
        }

    def _exists(self, topic_id: str) -> bool:
        return self._newest.get(self._name(topic_id), topic_id) == topic_id

    def _name(self, topic_id: str) -> str:
        return self.names.get(topic_id) or self._own_names.get(topic_id) or topic_id


def join_states(
    names: Mapping[str, str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for Spark's mapInArrow: `KNOWN_RECORDS` to `GROUP_RECORDS`.

    Its input is sorted by group and offset; a group is in one partition of the frame.

    Args:
        names: names of topics, by id.
    """
    return partial(_joined, dict(names))


def _joined(
    names: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(GROUP_RECORDS)
    told: list[_Row] = []
    size = 0
    for row in _states(names, (row for batch in batches for row in batch.to_pylist())):
        told.append(row)
        size += sum(1 + one["assigned_count"] for one in row["members"])
        if size > _ROWS_MAX:
            yield pa.RecordBatch.from_pylist(told, schema=schema)
            told, size = [], 0
    yield pa.RecordBatch.from_pylist(told, schema=schema)


def _states(names: Mapping[str, str], rows: Iterable[_Row]) -> Iterator[_Row]:
    group, last = Consumers("", names), None
    for row in rows:
        if last is not None and any(row[name] != last[name] for name in _EVENT):
            if last["is_new"]:
                yield from _told(group, last)
            elif row["group"] == last["group"] and row["is_new"]:
                group.state()  # an earlier micro-batch told it
        if last is None or row["group"] != last["group"]:
            group = Consumers(row["group"], names)
        group.take(row)
        last = row
    if last is not None and last["is_new"]:
        yield from _told(group, last)


def _told(group: Consumers, last: _Row) -> Iterator[_Row]:
    """Yield the state of a group after its record `last`, if it is new."""
    state = group.state()
    if state is not None:
        yield {
            "group": group.group,
            "at_ms": last["at_ms"],
            "written_ms": last["at_ms"],
            "source_partition": last["source_partition"],
            "source_offset": last["source_offset"],
            "rejections": [],
            **state,
        }


def _put(values: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _owned(row: _Row) -> frozenset[_Place]:
    return frozenset(
        (one["topic_id"], partition)
        for one in (*(row["partitions"] or ()), *(row["revoking"] or ()))
        for partition in one["partitions"]
    )


def _is_restart(old: _Row | None, new: _Row) -> bool:
    """Return whether static members returned under other ids, and nothing else happened."""
    if old is None or old.get("generation") != new["generation"]:
        return False
    before, after = ([one["member_id"] for one in state["members"]] for state in (old, new))
    return before != after and _shares(old) == _shares(new)


def _shares(state: _Row) -> dict[str, Any]:
    """Return what each member owns, by its static id if it has one."""
    return {one["instance_id"] or one["member_id"]: one["assigned"] for one in state["members"]}
