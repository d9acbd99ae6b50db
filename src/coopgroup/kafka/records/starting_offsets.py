"""Where newly assigned partitions begin: the committed offset, else `auto.offset.reset`.

librdkafka gets explicit offsets only, because its own look-up is lost when the coordinator moves
(`offset_lookup`).

Theory of operation. When the group's thread gets the assignment, it asks for the offsets of all
partitions in one request. So the answer is often there before the application polls. The
application's thread takes the found offsets. A partition without an answer waits, while records of
other partitions flow. The group's thread repeats the question, because the application may be busy
with records of other partitions.

A partition without a commit begins where `auto.offset.reset` says. That is a number here, too
(`log_edges`), so that it can be committed before the first record.

Rules of this file: an offset counts only if it was asked for after the partition was assigned, and
after all commits of this consumer in progress for it. An older offset would repeat records that the
earlier owner has committed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    Message,
    TopicPartition,
)

from coopgroup.core.member.effects import GrantResources, LoseResources
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import kafka_error
from coopgroup.kafka.records.log_edges import Edges, Partition
from coopgroup.kafka.records.offset_lookup import EdgeOffset, OffsetLookup
from coopgroup.kafka.records.partitions import to_partition
from coopgroup.kafka.rpc.questions import CommittedOffset

if TYPE_CHECKING:
    from coopgroup.kafka.membership.ports import Notice


RESET_TO: Final = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
"""The end of the log for each `auto.offset.reset`; there is none for error."""
# librdkafka's message.
_NO_OFFSET: Final = "no previously committed offset available: Local: No offset stored"
_WARN_AFTER_S: Final = 5.0
_SHOWN_MAX: Final = 10  # partitions of one log event


def names_no_offset(partition: TopicPartition) -> bool:
    """Return whether a partition is to begin at its committed offset."""
    return partition.offset in (OFFSET_INVALID, OFFSET_STORED)


def names_edge(partition: TopicPartition) -> bool:
    """Return whether a partition is to begin at an end of its log."""
    return partition.offset in (OFFSET_BEGINNING, OFFSET_END)


@frozen(kw_only=True, eq=False)
class Answers:
    """Answers for waiting partitions.

    Attributes:
        events: events for the application, by partition. A partition with an event of the code
            `_AUTO_OFFSET_RESET` does not begin; partitions with other events keep waiting.
    """

    found: Mapping[Partition, CommittedOffset | EdgeOffset]
    begin: list[TopicPartition]
    events: Mapping[Partition, Message]

    @property
    def stuck(self) -> frozenset[Partition]:
        """Return the partitions that do not begin, because `auto.offset.reset` is error."""
        return frozenset(key for key, event in self.events.items() if _is_no_offset(event))


@define(eq=False)
class StartingOffsets:
    """Finds the starting offsets of one consumer's partitions."""

    lookup: OffsetLookup
    warn: Callable[..., None]
    # Ends of logs where the application wants to begin.
    _edges: dict[Partition, int] = field(factory=dict, init=False)
    # Partitions whose refusal was reported to the application, each once.
    _refused: set[Partition] = field(factory=set, init=False)

    # --- the group's thread ----------------------------------------------------------------------

    def pause_s(self) -> float:
        """Repeat due questions, and warn of slow ones; return the seconds until the next call."""
        if self.lookup.is_idle:
            return math.inf
        late = self.lookup.overdue(_WARN_AFTER_S)
        if late:
            shown = ResourceSet.from_pairs(sorted(late)[:_SHOWN_MAX]).to_dict()
            why, count = self.lookup.reason, len(late)
            self.warn("committed_offsets_unavailable", error=why, waiting=shown, count=count)
        at_s = min(self.lookup.advance(), self.lookup.next_overdue_at_s(_WARN_AFTER_S))
        return max(0.0, at_s - now_s())

    def hear(self, notice: Notice) -> None:
        """Ask for the offsets of granted partitions; forget the offsets of lost ones.

        Answers to an earlier assignment do not count for a new one.
        """
        match notice:
            case GrantResources():
                self.lookup.ask(notice.resources)
            case LoseResources():
                self.lookup.drop(notice.resources)
            case _:
                pass

    def forget_all(self) -> None:
        """Forget all partitions, because the group is left."""
        self.lookup.drop_all()

    # --- the application's thread ----------------------------------------------------------------

    def want(self, partitions: Iterable[Partition]) -> None:
        """Begin partitions at their committed offsets, which may be known already."""
        wanted = tuple(partitions)
        self._refused.difference_update(wanted)
        self.lookup.want(wanted)

    def want_edges(self, edges: Edges) -> None:
        """Begin partitions at ends of their logs, whatever is committed."""
        self.drop(edges)
        self._edges |= edges
        self.lookup.want_edges(edges)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that begin at another offset, or are given up."""
        gone = tuple(partitions)
        for one in gone:
            self._edges.pop(one, None)
        if not self.lookup.is_idle:
            self.lookup.drop(gone)

    def look(self, waiting: Iterable[Partition]) -> Answers:
        """Return the answers for waiting partitions; they are forgotten only by `settle`.

        A signal's exception may have kept a partition from being asked for; ask for it now.
        """
        wanted = tuple(waiting)
        if self._edges:
            self.lookup.want_edges(self._edges)
        self.lookup.want(wanted)
        begin: list[TopicPartition] = []
        events: dict[Partition, Message] = {}
        found = self.lookup.found(wanted)
        for key, one in sorted(found.items()):
            if one.error_code:
                if key not in self._refused:
                    events[key] = self._refusal(key, one.error_code)
            elif one.offset < 0:
                events[key] = _event(key, KafkaError._AUTO_OFFSET_RESET, _NO_OFFSET)
            else:
                begin.append(to_partition(*key, one))
        return Answers(found=found, begin=begin, events=events)

    def settle(self, answers: Answers) -> None:
        """Forget answers that were used; later answers for the same partitions stay."""
        self._refused.update(key for key, one in answers.found.items() if one.error_code)
        for key, one in answers.found.items():
            if not one.error_code:
                self._edges.pop(key, None)
        self.lookup.forget(answers.found)

    def _refusal(self, key: Partition, code: int) -> Message:
        topic, partition = key
        said = (
            f'Failed to fetch committed offset for group "{self.lookup.group_id}" '
            f"topic {topic} [{partition}]: {kafka_error(code).str()}"
        )
        return _event(key, code, said)


def _event(key: Partition, code: int, said: str) -> Message:
    topic, partition = key
    error = kafka_error(code, said)
    return Message(topic=topic, partition=partition, value=said.encode(), error=error)


def _is_no_offset(event: Message) -> bool:
    error = event.error()
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
