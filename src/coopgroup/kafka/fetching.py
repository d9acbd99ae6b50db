"""librdkafka's consumer, which only fetches, and what it gave that nobody has got yet.

It is told what to fetch with `incremental_assign` and `incremental_unassign`, which leave all
other partitions alone, and is in no group. It gets explicit offsets only: a partition without one
waits here until its committed offset is known (`starting_offsets`).

Rules of this file: no record is lost between librdkafka and the hand-out. librdkafka counts a
record as consumed when it gives it, and a signal or an exception of an application's callback
(`error_cb`, say) makes confluent_kafka drop the batch under way. So the positions before each
batch are kept, and partitions that came further than their records did are fetched again from
there. The same positions serve other threads that ask while a batch is under way.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field
from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.handout import HandOut, Partition, partition_of
from coopgroup.kafka.partitions import to_partitions
from coopgroup.kafka.starting_offsets import names_no_offset
from coopgroup.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confluent_kafka import Message

    from coopgroup.kafka.starting_offsets import StartingOffsets

__all__ = ["Fetching"]

# How many records, and about how many bytes of them, are taken from librdkafka ahead of `poll`.
_AHEAD_MAX: Final = 500
_AHEAD_FIRST: Final = 32
_AHEAD_BYTES_MAX: Final = 4_000_000
# More topics than this are looked up with all others of the cluster, in one request.
_SINGLE_TOPICS_MAX: Final = 5
_LEARN_TIMEOUT_S: Final = 1.0
# After so few records it costs less to work positions out than to ask for all of them again.
_FEW: Final = 8
# So long an offset is expected at any moment. After that, the coordinator is away.
_SOON_S: Final = 1.0


@define(eq=False)
class Fetching:
    """What is fetched, and where each partition stands.

    Attributes:
        consumer: librdkafka's consumer.
        starts: finds out where partitions begin.
        hand_out: records that it gave.
        fetched: partitions that it fetches.
        waiting: partitions that are not fetched before their committed offsets are known.
    """

    consumer: Any
    starts: StartingOffsets
    hand_out: HandOut = field(factory=HandOut)
    fetched: ResourceSet = field(default=EMPTY, init=False)
    waiting: frozenset[Partition] = field(default=frozenset(), init=False)
    _waiting_since_s: float = field(default=0.0, init=False)
    # Partitions without a commit where `auto.offset.reset` is error: only `seek` begins them.
    _stuck: frozenset[Partition] = field(default=frozenset(), init=False)
    _partitions: list[TopicPartition] = field(factory=list, init=False)  # of `fetched`
    _places: dict[Partition, int] = field(factory=dict, init=False)  # of each in that list
    # Positions of them in librdkafka; None while they are not known. They may be too low by control
    # records of transactions, which harms nobody: those are passed over again.
    _known: list[TopicPartition] | None = field(default=None, init=False)
    _begun_at: dict[Partition, TopicPartition] = field(factory=dict, init=False)
    _ahead: int = field(default=_AHEAD_FIRST, init=False)
    # Positions before the batch under way; None while none is.
    _before: list[TopicPartition] | None = field(default=None, init=False)
    _close_is_due: bool = field(default=False, init=False)
    # Where partitions go on that were set back: librdkafka has no position until the next record.
    _set_back: dict[Partition, int] = field(factory=dict, init=False)

    # --- what is fetched -------------------------------------------------------------------------

    @property
    def begun(self) -> ResourceSet:
        """Partitions that are fetched, or will be without another word."""
        if not self.waiting and not self._stuck:
            return self.fetched
        return self.fetched | ResourceSet.from_pairs(self.waiting | self._stuck)

    @property
    def is_about_to_begin(self) -> bool:
        """Whether the offset of a partition may come at any moment."""
        return bool(self.waiting) and now_s() - self._waiting_since_s < _SOON_S

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch more partitions, from the offsets given with them, else from the committed ones.

        A partition whose committed offset is not known yet waits for `begin_known`.

        Raises:
            KafkaException: librdkafka refuses them.
            TypeError: they are no list of partitions.
        """
        wait = frozenset(_key(one) for one in partitions if names_no_offset(one))
        explicit = [one for one in partitions if not names_no_offset(one)]
        # Asked for first: librdkafka may wait for the topics below.
        self.starts.drop(map(_key, explicit))
        self.starts.want(wait)
        if wait:
            # Before librdkafka is waited for: a signal's exception there must not forget them.
            self.waiting |= wait
        self._learn_topics({one.topic for one in partitions} - set(self.fetched.names))
        if wait:
            self._waiting_since_s = now_s()
        self._begin_known(explicit)

    def begin_known(self) -> None:
        """Fetch the waiting partitions whose offsets are known by now.

        Raises:
            KafkaException: librdkafka refuses them.
        """
        if self.waiting:
            self._begin_known([])

    def _begin_known(self, explicit: list[TopicPartition]) -> None:
        found, events = self.starts.take(self.waiting)
        stuck = {key for key, event in events.items() if _is_no_offset(event)}
        if stuck:
            self.waiting -= stuck
            self._stuck |= stuck
        if events:
            self.hand_out.add(events.values())
        self.waiting -= frozenset(map(_key, found))
        if explicit or found:
            self._begin_at(explicit + found)

    def wait_no_longer(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that wait for their offsets: they are given up, or begin elsewhere."""
        gone = frozenset(partitions) & (self.waiting | self._stuck)
        if gone:
            self.waiting -= gone
            self._stuck -= gone
        self.starts.drop(gone)

    def _begin_at(self, partitions: Sequence[TopicPartition]) -> None:
        """Have librdkafka fetch partitions from explicit offsets."""
        self.consumer.incremental_assign(partitions)
        for one in partitions:
            self._begun_at[one.topic, one.partition] = one
        self._fetch_from_now_on(self.fetched | ResourceSet.from_pairs(map(_key, partitions)))
        self._pause_in_librdkafka(partitions)

    def end(self, resources: ResourceSet) -> None:
        """Fetch partitions no longer, and drop what waits of them."""
        gone = resources & self.fetched
        # librdkafka would remember a pause until the partition comes back (seen with 2.16).
        paused = [
            TopicPartition(*one)
            for one in sorted(self.hand_out.paused)
            if one in gone or (one in self.waiting and one in resources)
        ]
        self.wait_no_longer(resources)
        self._fetch_from_now_on(self.fetched - gone)
        self.hand_out.drop(resources)
        for one in resources:
            self._begun_at.pop(one, None)
            self._set_back.pop(one, None)
        if paused:
            self.consumer.resume(paused)
        if gone:
            self.consumer.incremental_unassign(to_partitions(gone))

    def pause(self, partitions: list[TopicPartition], held: ResourceSet) -> None:
        """Hand out nothing of held partitions until `resume`; others are left alone."""
        self.consumer.pause(partitions)
        self.hand_out.pause(one for one in map(_key, partitions) if one in held)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Go on with paused partitions where they were paused."""
        self.consumer.resume(partitions)
        self.hand_out.resume(map(_key, partitions))

    def seek(self, partition: TopicPartition) -> None:
        """Go on elsewhere in a partition; one that waits for its offset begins there.

        Raises:
            KafkaException: it is not fetched, or the offset is none.
            TypeError: it is no partition.
        """
        if isinstance(partition, TopicPartition) and self._begins_at(partition):
            return
        self._known = None
        self.consumer.seek(partition)
        self.hand_out.skip(_key(partition))
        self._set_back.pop(_key(partition), None)

    def _begins_at(self, partition: TopicPartition) -> bool:
        """Begin a partition that was not begun so far where the application wants it."""
        key = _key(partition)
        if key not in self.waiting and key not in self._stuck:
            return False
        if partition.offset == OFFSET_INVALID:  # librdkafka goes on as if nothing was said
            return True
        if partition.offset == OFFSET_STORED:
            return False  # librdkafka refuses that
        self.wait_no_longer([key])
        self._begin_at([partition])
        return True

    def close(self) -> None:
        """End the client; nothing is handed out any more.

        The handler of a signal or a callback of the configuration may close the consumer while
        librdkafka is asked for records. It would hang or crash then, so it is closed after that.
        """
        self.hand_out.ready.clear()
        if self._before is None:
            self.consumer.close()
        else:
            self._close_is_due = True

    # --- records ---------------------------------------------------------------------------------

    def fetch(self, wanted: int, wait_s: float) -> None:
        """Get records into the hand-out: up to a number of them, or some ahead where one will do.

        Args:
            wanted: how many are missing, at least 1.
            wait_s: how long to wait for them, in seconds.

        Raises:
            BaseException: what a signal or a callback of the configuration raised meanwhile.
        """
        fetched, before = self.fetched, self._begin_fetch()
        try:
            if wanted > 1:
                messages = self.consumer.consume(wanted, wait_s)
            else:
                messages = self._fetch_ahead(wait_s)
            if messages:
                self.hand_out.add(self._take_up(messages, fetched, before))
        except BaseException:
            self._set_back_to(before)
            raise
        finally:
            self._before = None  # no call, which could let a signal in
            if self._close_is_due:
                self._close_now()

    def fetch_past(self, count: int, wait_s: float, may_leave: Callable[[], bool]) -> list[Message]:
        """Get a full batch straight to the application, past the hand-out, which is empty.

        Args:
            count: how many records, at least 1.
            wait_s: how long to wait for them, in seconds.
            may_leave: asked when they are there.

        Returns:
            The batch, which is leaving; none if it is not full or may not leave: its records are in
            the hand-out.

        Raises:
            BaseException: what a signal or a callback of the configuration raised meanwhile.
        """
        fetched, before = self.fetched, self._begin_fetch()
        try:
            messages: list[Message] = self.consumer.consume(count, wait_s)
            if messages:
                messages = self._take_up(messages, fetched, before)
            if len(messages) == count and not self.hand_out.paused and may_leave():
                self.hand_out.leaving = messages
                return messages
            self.hand_out.add(messages)
        except BaseException:
            self._set_back_to(before)
            raise
        finally:
            self._before = None  # no call, which could let a signal in
            if self._close_is_due:
                self._close_now()
        return []

    def positions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Where the application stands: offset of the next record that it gets; from any thread.

        Raises:
            TypeError: no list of partitions.
        """
        # The order matters, for another thread may be fetching: an answer may be too low, which
        # repeats records after a crash, but never too high, which would lose them.
        before = self._before
        found: list[TopicPartition] = self.consumer.position(partitions)
        before = before or self._before
        earlier = {_key(one): one for one in before or ()}
        waiting = self.hand_out.first_waiting()
        return [self._position(one, earlier.get(_key(one), one), waiting) for one in found]

    def _begin_fetch(self) -> list[TopicPartition]:
        """Remember positions in librdkafka before a batch; they are what is returned.

        To ask for those of 1,000 partitions takes half a millisecond.
        """
        known = self._known
        if known is None:
            known = self._known = self.consumer.position(self._partitions)
        self._before = known
        return known

    def _take_up(
        self, messages: list[Message], fetched: ResourceSet, before: list[TopicPartition]
    ) -> list[Message]:
        """What librdkafka gave; nothing of partitions that were given up meanwhile."""
        if self.fetched is not fetched:  # by a callback or in the handler of a signal
            return [one for one in messages if partition_of(one) in self.fetched]
        if self._known is before:
            self._known = None if len(messages) > _FEW else self._moved_on(before, messages)
        return messages

    def _moved_on(
        self, before: Sequence[TopicPartition], messages: Iterable[Message]
    ) -> list[TopicPartition]:
        """Positions after some records; the list of those before is left as it is."""
        after = list(before)
        for message in messages:
            place = self._places.get(partition_of(message))
            if place is not None and message.error() is None:
                offset = (message.offset() or 0) + 1
                after[place] = TopicPartition(*partition_of(message), offset)
        return after

    def _close_now(self) -> None:
        self._close_is_due = False
        self.consumer.close()

    def _position(
        self,
        asked: TopicPartition,
        found: TopicPartition,
        waiting: Any,  # noqa: ANN401  (a mapping to Message, which has no public type)
    ) -> TopicPartition:
        key = _key(asked)
        if key in self.waiting:
            return TopicPartition(*key)
        first = waiting.get(key)
        if first is not None:
            # The leader epoch to commit is that of the record before it (KIP-320), which is not
            # at hand: leaving it out only skips a check for truncation.
            return TopicPartition(*key, first.offset())
        if found.offset < 0 and key in self._set_back:
            return TopicPartition(*key, self._set_back[key])
        return found

    def _fetch_ahead(self, wait_s: float) -> list[Message]:
        messages: list[Message] = self.consumer.consume(self._ahead, 0)
        if messages:
            size = max(len(messages[0]), len(messages[-1]), 1)
            self._ahead = max(1, min(_AHEAD_MAX, _AHEAD_BYTES_MAX // size))
            return messages
        message = self.consumer.poll(wait_s)
        return [] if message is None else [message]

    def _set_back_to(self, before: Sequence[TopicPartition]) -> None:
        """Fetch again what librdkafka gave and nobody got."""
        self._known = None
        earlier = {_key(one): one for one in before}
        last = self.hand_out.last_waiting()
        # What was given up meanwhile is not among these.
        for new in self.consumer.position(self._partitions) if self._partitions else ():
            key = _key(new)
            old = earlier.get(key, new)
            offset = (last[key].offset() or 0) + 1 if key in last else old.offset
            if new.offset in (offset, old.offset):
                continue
            begin = TopicPartition(*key, offset) if offset >= 0 else self._begun_at[key]
            self.consumer.incremental_unassign([old])
            self.consumer.incremental_assign([begin])
            if offset >= 0:
                self._set_back[key] = offset

    def _learn_topics(self, topics: set[str]) -> None:
        """Have librdkafka look up where partitions are of topics that it did not fetch so far.

        Otherwise it would begin to look at its next tick only, and the first records would come
        up to a second later. Topics that are assigned exist, so none is created by being asked
        for. Without an answer it comes as it would have come. The application waits meanwhile,
        so all look-ups together have one limit.
        """
        deadline_s = now_s() + _LEARN_TIMEOUT_S
        with contextlib.suppress(KafkaException):
            if len(topics) > _SINGLE_TOPICS_MAX:
                self.consumer.list_topics(timeout=_LEARN_TIMEOUT_S)
                return
            for topic in sorted(topics):
                left_s = deadline_s - now_s()
                if left_s <= 0:
                    return
                self.consumer.list_topics(topic, timeout=left_s)

    def _fetch_from_now_on(self, fetched: ResourceSet) -> None:
        self.fetched = fetched
        self._partitions = to_partitions(fetched)
        self._places = {_key(one): place for place, one in enumerate(self._partitions)}
        self._known = None

    def _pause_in_librdkafka(self, partitions: Iterable[TopicPartition]) -> None:
        """`pause` in `on_assign` came before the partition was fetched at all."""
        paused = [one for one in partitions if _key(one) in self.hand_out.paused]
        if paused:
            self.consumer.pause(paused)


def _is_no_offset(event: Message) -> bool:
    error = event.error()
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  (public)


def _key(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition
