"""librdkafka's consumer, which only fetches, and its records that the application has not got yet.

This file controls librdkafka with `incremental_assign` and `incremental_unassign`, which leave all
other partitions alone, and with `unassign` when none is left. librdkafka's consumer is in no
group. It gets explicit offsets only. A
partition without an offset waits here until its committed offset is known (`starting_offsets`). So
does a partition that begins at an end of its log: librdkafka would not tell the offset of that end.

Rule of this file: no record is lost between librdkafka and the record buffer. librdkafka counts a
record as consumed when it returns it. A signal or an exception of an application's callback (such
as `error_cb`) makes confluent_kafka drop the current batch. So this file keeps the positions before
each batch. If a partition's position moved past its delivered records, it is fetched again from the
kept position.

The kept positions are also the answer for any thread that asks. Only the fetching thread asks
librdkafka. A client of confluent_kafka 2.16 serves one thread at a time. While one thread is in
`poll` or `consume`, a call by another thread waits, and each new `poll` can overtake it. So it may
wait for ever.

`ClientWatch` notices that librdkafka's consumer has lost all brokers and will not look for them
again. librdkafka forgets brokers that a metadata answer does not list. An answer during a rolling
upgrade may list none. librdkafka then forgets all brokers, the bootstrap brokers too, and may never
connect again. It reports no error (librdkafka#5301, seen with 2.16). Only a new client helps.

A client without brokers is silent, and so is a client without new records. So the watch asks a
silent client for metadata. `_TRANSPORT` means that the client knows no broker or reaches none.
Replacing a client that only waits for its brokers is harmless: the new client waits for them, too.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from operator import ge
from typing import Any, Final, TypeAlias

from attrs import define, evolve, field, frozen
from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.clock import now_s, pause
from coopgroup.kafka.records.offset_lookup import EdgeOffset
from coopgroup.kafka.records.partitions import all_but, to_partitions
from coopgroup.kafka.records.record_buffer import (
    Partition,
    Pauser,
    RecordBuffer,
    partition_of,
    runs_of,
)
from coopgroup.kafka.records.starting_offsets import (
    StartingOffsets,
    names_edge,
    names_no_offset,
)
from coopgroup.kafka.rpc.questions import CommittedOffset
from coopgroup.worker import Worker

# More topics than this are looked up in one request for all topics of the cluster.
_SINGLE_TOPICS_MAX: Final = 5
_LEARN_TIMEOUT_S: Final = 1.0


def learn_topics(client: Any, topics: set[str]) -> None:  # noqa: ANN401  (librdkafka's, or a test's)
    """Make librdkafka look up the partitions' brokers for topics that it did not fetch so far.

    Otherwise librdkafka would begin the look-up at its next tick, and the first records would
    arrive up to a second later. Assigned topics exist, so the request creates no topic. If no
    answer arrives, the look-up happens at the next tick as usual. The application waits
    meanwhile, so all look-ups together have one limit.
    """
    deadline_s = now_s() + _LEARN_TIMEOUT_S
    with contextlib.suppress(KafkaException):
        if len(topics) > _SINGLE_TOPICS_MAX:
            client.list_topics(timeout=_LEARN_TIMEOUT_S)
            return
        for topic in sorted(topics):
            left_s = deadline_s - now_s()
            if left_s <= 0:
                return
            client.list_topics(topic, timeout=left_s)


# How long a client is silent before a question. Each question is one request to a broker.
_SILENT_S: Final = 10.0
# Silence after the replacement of a client. It doubles with each replacement in a row.
_SILENT_S_MAX: Final = 160.0
_DOUBT_S: Final = 2.0
_FAILURES_MAX: Final = 3
# The application waits meanwhile: no longer than `poll` waits for records between two notices.
_ASK_S: Final = 0.05


@define(eq=False)
class ClientWatch:
    """Decides when a silent client must be replaced."""

    due_s: float = field(default=0.0, init=False)
    _silent_s: float = field(default=_SILENT_S, init=False)
    _failures: int = field(default=0, init=False)

    def hear(self) -> None:
        """Note a sign of life, or the first assignment of an idle client."""
        self._failures = 0
        self._silent_s = _SILENT_S
        self.due_s = now_s() + _SILENT_S

    def is_lost(self, client: Any, topic: str) -> bool:  # noqa: ANN401  (librdkafka's, or a test's)
        """Ask the client for metadata; return whether it repeatedly had no broker."""
        if _has_broker(client, topic):
            self.hear()
            return False
        self._failures += 1
        if self._failures < _FAILURES_MAX:
            self.due_s = now_s() + _DOUBT_S
            return False
        self._failures = 0
        self.due_s = now_s() + self._silent_s
        self._silent_s = min(2 * self._silent_s, _SILENT_S_MAX)
        return True


def _has_broker(client: Any, topic: str) -> bool:  # noqa: ANN401  (librdkafka's, or a test's)
    try:
        client.list_topics(topic, timeout=_ASK_S)
    except KafkaException as error:
        # A late answer is another error: then the client has a connection.
        return bool(error.args[0].code() != KafkaError._TRANSPORT)
    return True


# How long `close` waits for librdkafka.
_CLOSE_MAX_S: Final = 10.0
# Limits of the records, and roughly of their bytes, that are taken from librdkafka ahead of `poll`.
_AHEAD_MAX: Final = 500
_AHEAD_FIRST: Final = 32
_AHEAD_BYTES_MAX: Final = 4_000_000
# Asking librdkafka for one position costs as much as computing it from this number of records.
_FEW: Final = 4
# How long an offset is expected at any moment. After that, the coordinator seems to be away.
_SOON_S: Final = 1.0
# How often an idle consumer looks for positions behind control records, which bring no record.
_ASK_POSITIONS_S: Final = 1.0

# How long `seek` waits for the end of a log. The partition begins there later, too.
_SEEK_S: Final = 1.0
_SEEK_STEP_S: Final = 0.002

_Positions: TypeAlias = Sequence[TopicPartition]


class Origin(enum.Enum):
    """Why a partition began, or continued, at an offset."""

    COMMITTED = "committed"
    RESET = "auto.offset.reset"
    GIVEN = "given by the application"


@frozen(eq=False)
class Begin:
    """Where a fetched partition began, or continued after `seek`.

    Attributes:
        again: the offset at which librdkafka began again, which has no position before the next
            record; None if it did not.
    """

    start: TopicPartition
    origin: Origin
    again: int | None = None

    @property
    def without_record(self) -> TopicPartition:
        """Where librdkafka begins if it has not returned a record since."""
        if self.again is None:
            return self.start
        return TopicPartition(self.start.topic, self.start.partition, self.again)


@define(eq=False)
class Fetching:
    """The fetched partitions, and the position of each.

    Attributes:
        renew: makes another such consumer, to replace one that has lost all brokers, during its
            block; None if the consumer is never replaced.
        ahead_max: maximum number of records that are taken from librdkafka in one call.
        ahead: number of records of the latest size that are taken in one call.
        waiting: partitions that wait for their committed offsets before they are fetched.
        paused_there: partitions that are paused in librdkafka, if these are not all paused ones.
        held_back: partitions that are paused in librdkafka to limit the record buffer.
        held: partitions that wait for `release`; `seek` sets the offset where they begin.
    """

    consumer: Any
    starts: StartingOffsets
    renew: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    record_buffer: RecordBuffer = field(factory=RecordBuffer)
    ahead_max: int = _AHEAD_MAX
    ahead: int = field(default=_AHEAD_FIRST, init=False)
    paused_there: AbstractSet[Partition] | None = field(default=None, init=False)
    fetched: ResourceSet = field(default=EMPTY, init=False)
    waiting: frozenset[Partition] = field(default=frozenset(), init=False)
    held: dict[Partition, TopicPartition] = field(factory=dict, init=False)
    held_back: frozenset[Partition] = field(default=frozenset(), init=False)
    _waiting_since_s: float = field(default=0.0, init=False)
    # Partitions without a commit if `auto.offset.reset` is error: only `seek` begins them.
    _stuck: frozenset[Partition] = field(default=frozenset(), init=False)
    _partitions: list[TopicPartition] = field(factory=list, init=False)  # partitions of `fetched`
    _places: dict[Partition, int] = field(factory=dict, init=False)  # index of each in that list
    # Positions after all records that are in the record buffer, or were in it. They may be too low
    # because of control records of transactions. That is harmless: such records are skipped again.
    # Never changed in place, because other threads read it.
    _positions: _Positions = field(default=(), init=False)
    # Whether these are librdkafka's positions of now, of all partitions in their order.
    _are_known: bool = field(default=False, init=False)
    # When to ask for the positions behind such records, once no record comes.
    _ask_at_s: float = field(default=0.0, init=False)
    _begins: dict[Partition, Begin] = field(factory=dict, init=False)
    _is_idle: bool = field(default=False, init=False)
    _is_fetching: bool = field(default=False, init=False)
    _close_is_due: bool = field(default=False, init=False)
    _watch: ClientWatch = field(factory=ClientWatch, init=False)

    # --- what is fetched -------------------------------------------------------------------------

    @property
    def begun(self) -> ResourceSet:
        """Return the partitions that are fetched, or will be without a further request."""
        if not self.waiting and not self._stuck and not self.held:
            return self.fetched
        return self.fetched | ResourceSet.from_pairs({*self.waiting, *self._stuck, *self.held})

    @property
    def is_about_to_begin(self) -> bool:
        """Return whether the offset of a partition may arrive at any moment."""
        return bool(self.waiting) and now_s() - self._waiting_since_s < _SOON_S

    def hold(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Do not fetch new partitions before `release` gets the result of this call."""
        held = [TopicPartition(*_key(one)) for one in partitions]
        self.held |= {_key(one): one for one in held}
        return held

    def release(self, held: Iterable[TopicPartition]) -> ResourceSet:
        """Begin held partitions, and return them without those given up or held again."""
        free = [one for one in held if self.held.get(_key(one)) is one]
        for one in free:
            del self.held[_key(one)]
        if free:
            self.begin(free)
        return ResourceSet.from_pairs(map(_key, free))

    def begin_of(self, partition: Partition) -> Begin | None:
        """Return where a partition began, or continued after `seek`, and why; for any thread.

        None if it has not begun. A signal's exception may have kept `end` from forgetting the begin
        of an earlier assignment.
        """
        is_to_begin = partition in self.waiting or partition in self.held
        return None if is_to_begin else self._begins.get(partition)

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch more partitions, from their given offsets, else from the committed offsets.

        A partition waits for `begin_known` if its committed offset, or the given end of its log, is
        not known yet.

        Raises:
            KafkaException: librdkafka refuses the partitions.
            TypeError: the argument is not a list of partitions.
        """
        wait = frozenset(_key(one) for one in partitions if names_no_offset(one))
        edges = {_key(one): one.offset for one in partitions if names_edge(one)}
        explicit = [one for one in partitions if not names_no_offset(one) and not names_edge(one)]
        # Before all calls: a signal's exception in one must not forget these partitions.
        self.waiting |= wait | edges.keys()
        # Request the offsets first, because librdkafka may wait for the topics below.
        self.starts.drop(map(_key, explicit))
        self.starts.want_edges(edges)
        self.starts.want(wait)
        learn_topics(self.consumer, {one.topic for one in partitions} - set(self.fetched.names))
        if wait or edges:
            self._waiting_since_s = now_s()
        self._begin_known(explicit)

    def begin_known(self) -> None:
        """Fetch the waiting partitions whose offsets are now known."""
        if self.waiting:
            self._begin_known([])

    def _begin_known(self, explicit: list[TopicPartition]) -> None:
        """Begin partitions; after a signal's exception, the next call does what is missing.

        So an answer is forgotten last. Otherwise its partition would never be fetched.
        """
        answers = self.starts.look(self.waiting)
        keys = frozenset(map(_key, answers.begin))
        if answers.events:
            self.record_buffer.add(answers.events.values())
        self._stuck |= answers.stuck
        begin = explicit + [one for one in answers.begin if _key(one) not in self.fetched]
        if begin:
            self._begin_at([Begin(one, _origin_of(answers.found.get(_key(one)))) for one in begin])
        self.waiting -= keys | answers.stuck
        if answers.found:
            self.starts.settle(answers)

    def wait_no_longer(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that wait for their offsets: they are given up, or begin elsewhere."""
        gone = frozenset(partitions)
        for one in gone & self.held.keys():
            del self.held[one]
        gone &= self.waiting | self._stuck
        if gone:
            self.waiting -= gone
            self._stuck -= gone
        self.starts.drop(gone)

    def _begin_at(self, begins: Sequence[Begin]) -> None:
        if not self.fetched:
            self._watch.hear()
        partitions = [one.start for one in begins]
        self._begins |= {_key(one.start): one for one in begins}
        try:
            self.consumer.incremental_assign(partitions)
            self._pause_in_librdkafka(partitions)
            self._fetch_from_now_on(self.fetched | ResourceSet.from_pairs(map(_key, partitions)))
        except BaseException:
            # A signal's exception may come before or after librdkafka has taken the partitions.
            with contextlib.suppress(Exception):  # its handler may have closed the consumer
                taken = ResourceSet.from_pairs(map(_key, self.consumer.assignment()))
                self._pause_in_librdkafka(one for one in partitions if _key(one) in taken)
                self._fetch_from_now_on(taken)
            raise

    def end(self, resources: ResourceSet) -> None:
        """Stop fetching partitions, and drop their waiting records."""
        gone = resources & self.fetched
        # Otherwise librdkafka would remember a pause until the partition returns (seen with 2.16).
        paused = [
            TopicPartition(*one)
            for one in sorted(self.record_buffer.paused | self.held_back)
            if one in gone or (one in self.waiting and one in resources)
        ]
        self.wait_no_longer(resources)
        self._fetch_from_now_on(self.fetched - gone)
        self.record_buffer.drop(resources)
        for one in resources:
            self._begins.pop(one, None)
        if paused:
            self.consumer.resume(paused)
        if gone and not self.fetched and len(self.consumer.assignment()) == len(gone):
            # The other call searches a list for each partition: 1.8 s for 10,000 at a close. A
            # signal handler may come here while more partitions are being assigned, which stay.
            self.consumer.unassign()
        elif gone:
            self.consumer.incremental_unassign(to_partitions(gone))

    def pause(self, partitions: list[TopicPartition], owned: ResourceSet, by: Pauser) -> None:
        """Hand out no records of owned partitions until `resume`; ignore other partitions."""
        self.consumer.pause(partitions)
        self.record_buffer.pause((one for one in map(_key, partitions) if one in owned), by)

    def resume(self, partitions: list[TopicPartition], by: Pauser) -> None:
        """Continue from the position of the pause with partitions that nobody else pauses."""
        self.consumer.resume(all_but(partitions, self.record_buffer.paused_besides(by)))
        self.record_buffer.resume(map(_key, partitions), by)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at another offset of a partition; a waiting partition begins there.

        Raises:
            KafkaException: the partition is not fetched, or the offset is not valid.
            TypeError: the argument is not a partition.
        """
        if isinstance(partition, TopicPartition):
            if self._begins_at(partition):
                return
            if names_edge(partition) and _key(partition) in self.fetched:
                self._seek_edge(partition)
                return
        self._are_known = False
        self.consumer.seek(partition)
        self.record_buffer.skip(_key(partition))
        key = _key(partition)
        # A position of before must not be committed.
        self._positions = [one for one in self._positions if _key(one) != key]
        self._begins[key] = Begin(partition, Origin.GIVEN)

    def _seek_edge(self, partition: TopicPartition) -> None:
        """Begin a fetched partition again at an end of its log, which `commit` can commit then."""
        key = _key(partition)
        self.waiting |= {key}  # first: a signal's exception must not forget it
        self._fetch_from_now_on(self.fetched - ResourceSet.from_pairs([key]))
        self._begins.pop(key, None)  # no partition is fetched without it
        self.record_buffer.skip(key)
        self.consumer.incremental_unassign([partition])
        self.begin([partition])
        deadline_s = now_s() + _SEEK_S
        while key in self.waiting and now_s() < deadline_s:
            pause(_SEEK_STEP_S)
            self.begin_known()

    def _begins_at(self, partition: TopicPartition) -> bool:
        """Begin a waiting partition at the application's offset; return whether `seek` is done."""
        key = _key(partition)
        if key in self.held:
            self.held[key].offset = partition.offset
            return True
        if key not in self.waiting and key not in self._stuck:
            return False
        if partition.offset == OFFSET_INVALID:  # librdkafka ignores such a call
            return True
        if partition.offset == OFFSET_STORED:
            return False  # librdkafka refuses this offset
        self.wait_no_longer([key])
        self.begin([partition])
        return True

    def close(self) -> None:
        """Close the client; no record is handed out afterwards.

        A signal handler or a callback of the configuration may close the consumer during a request
        for records. librdkafka would hang or crash then, so it is closed after the request.
        """
        self.record_buffer.ready.clear()
        if self._is_fetching:
            self._close_is_due = True
        else:
            self._close_now()

    # --- records ---------------------------------------------------------------------------------

    def fetch(self, wanted: int, wait_s: float) -> None:
        """Get up to a number of records into the record buffer; if one is enough, prefetch some."""
        self._look_at_client()
        fetched, before = self.fetched, self._begin_fetch()
        try:
            if wanted > 1:
                messages = self.consumer.consume(wanted, wait_s)
            else:
                messages = self._fetch_ahead(wait_s)
            if messages:
                self._add(*self._take_up(messages, fetched, before))
            elif now_s() >= self._ask_at_s:
                self._are_known = False
        except BaseException:
            self._set_back_to(before)
            raise
        finally:
            self._is_fetching = False  # not a call, which would let a signal in
            if self._close_is_due:
                self._close_now()

    def positions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the application's next record in each partition; for any thread."""
        # Together: another thread may be fetching. A position that is too low repeats records after
        # a crash. One that is too high loses records.
        with self.record_buffer.lock:
            positions, waiting = self._positions, self.record_buffer.first_waiting()
        known = {_key(one): one for one in positions}
        return [self._position(key, known.get(key), waiting) for key in map(_key, partitions)]

    def _ask_positions(self) -> _Positions:
        """Ask librdkafka for the positions, and keep them."""
        self._positions, self._are_known = self.consumer.position(self._partitions), True
        self._ask_at_s = now_s() + _ASK_POSITIONS_S
        return self._positions

    def _begin_fetch(self) -> _Positions:
        """Return the positions in librdkafka before a batch."""
        before = self._positions if self._are_known else self._ask_positions()
        self._is_fetching = True
        return before

    def _add(self, messages: list[Message], after: _Positions) -> None:
        """Add records to the buffer; other threads see them and the new positions together."""
        with self.record_buffer.lock:
            self.record_buffer.add(messages)
            if not self._are_known:  # a signal handler has changed some at this moment
                kept = set(map(_key, self._positions))
                after = [one for one in after if _key(one) in kept]
            self._positions = after

    def _take_up(
        self, messages: list[Message], fetched: ResourceSet, before: _Positions
    ) -> tuple[list[Message], _Positions]:
        """Return librdkafka's records, and the positions after them.

        Leave out the records of partitions that were given up meanwhile.
        """
        self._watch.hear()
        if self._are_known:
            return messages, self._moved_on(before, messages)
        if self.fetched is not fetched:  # changed by a callback or a signal handler
            messages = [one for one in messages if partition_of(one) in self.fetched]
        return messages, self._ask_positions()

    def _moved_on(self, before: _Positions, messages: Sequence[Message]) -> _Positions:
        """Return the positions after some records, as a new list.

        If the offsets of a partition went back, its topic was deleted and made again, or its log
        was cut. librdkafka's `consume` never lowers a position. A commit of that position would
        lose the new records up to it, so librdkafka begins such a partition again.
        """
        asked: _Positions = ()
        if len(messages) > _FEW * len(before):
            asked = self.consumer.position(self._partitions)
            moved = sum(new.offset - old.offset for new, old in zip(asked, before, strict=True))
            if moved == len(messages):  # no offset is missing, so none came twice
                return asked
        after, back = list(before), set()
        for key, run in runs_of(messages):
            place = self._places.get(key)
            if place is None:
                continue
            offsets: Any = [after[place].offset - 1, *map(Message.offset, run)]
            if any(map(ge, offsets, offsets[1:])):
                back.add(place)
            after[place] = _partition_at(key, offsets[-1] + 1, run[-1].leader_epoch())
        if back:
            self._follow_back([after[place] for place in sorted(back)])
        return after if back or not asked else asked

    def _follow_back(self, positions: list[TopicPartition]) -> None:
        """Let librdkafka begin partitions again at positions that are lower than its own."""
        self.consumer.incremental_unassign(positions)
        self.consumer.incremental_assign(positions)
        self._begin_again(positions)
        self._pause_unwanted(self.consumer, positions)
        shown = ", ".join(
            f"{one.topic} [{one.partition}] at {one.offset}" for one in positions[:10]
        )
        self.starts.warn("offsets_went_back", positions=shown, count=len(positions))

    def _pause_unwanted(self, consumer: Any, partitions: Iterable[TopicPartition]) -> None:  # noqa: ANN401
        """Repeat the pauses that librdkafka forgot because partitions began again."""
        there = self.record_buffer.paused if self.paused_there is None else self.paused_there
        unwanted = there | self.held_back
        paused = [one for one in partitions if _key(one) in unwanted]
        if paused:
            consumer.pause(paused)

    def _close_now(self) -> None:
        """Close librdkafka's client, and wait a limited time for its end.

        The client can hang for ever if one of its topics was deleted (librdkafka issue 4362). The
        process could not end then, although it has left the group.
        """
        self._close_is_due = False
        closed = Future[None]()

        def close() -> None:
            try:
                self.consumer.close()
            except BaseException as error:  # noqa: BLE001 -- the caller raises it
                closed.set_exception(error)
            else:
                closed.set_result(None)

        try:
            Worker("coopgroup-close", idle_s=0.0).submit(close)
        except RuntimeError:  # the system has no thread left
            close()
        try:
            closed.result(_CLOSE_MAX_S)
        except TimeoutError:
            self.starts.warn("client_not_closed", waited_s=_CLOSE_MAX_S)

    def _position(
        self,
        key: Partition,
        known: TopicPartition | None,
        waiting: Any,  # noqa: ANN401  (a mapping to Message, which has no public type)
    ) -> TopicPartition:
        if key in self.waiting or key in self.held:
            return TopicPartition(*key)
        first = waiting.get(key)
        if first is not None:
            # The leader epoch to commit is that of the record before this offset (KIP-320), which
            # is not available here. Omitting it only skips a check for truncation.
            return TopicPartition(*key, first.offset())
        if known is not None and known.offset >= 0:
            return _partition_at(key, known.offset, known.leader_epoch)
        begin = self._begins.get(key)
        offset = OFFSET_INVALID if begin is None else begin.without_record.offset
        return TopicPartition(*key, offset if offset >= 0 else OFFSET_INVALID)

    def _fetch_ahead(self, wait_s: float) -> list[Message]:
        if not self._is_idle:  # otherwise one call saves half of the time of each slice
            messages: list[Message] = self.consumer.consume(self.ahead, 0)
            if messages:
                size = max(len(messages[0]), len(messages[-1]), 1)
                self.ahead = max(1, min(self.ahead_max, _AHEAD_BYTES_MAX // size))
                return messages
        message = self.consumer.poll(wait_s)
        self._is_idle = message is None
        return [] if message is None else [message]

    def _set_back_to(self, before: _Positions) -> None:
        """Fetch records again that librdkafka returned but that did not reach the record buffer."""
        self._are_known = False
        earlier, last = {_key(one): one for one in before}, self.record_buffer.last_waiting()
        positions = []
        # This list excludes partitions that were given up meanwhile.
        for new in self.consumer.position(self._partitions) if self._partitions else ():
            key = _key(new)
            old = earlier.get(key, new)
            offset = (last[key].offset() or 0) + 1 if key in last else old.offset
            positions.append(TopicPartition(*key, offset))
            if new.offset in (offset, old.offset):
                continue
            begin = self._begin_from(key, offset)
            self.consumer.incremental_unassign([old])
            self.consumer.incremental_assign([begin])
            self._begin_again([begin])
        self._positions = positions

    def _look_at_client(self) -> None:
        """Replace librdkafka's consumer if it has been silent for long and has no broker."""
        if now_s() < self._watch.due_s or self.renew is None or not self.fetched:
            return
        if not self._watch.is_lost(self.consumer, self.fetched.names[0]):
            return
        try:
            with self.renew() as consumer:
                is_replaced = self._continue_with(consumer)
        except Exception as error:  # noqa: BLE001 -- such as no token; the next look tries again
            self.starts.warn("consumer_not_replaced", error=str(error))
        else:
            if is_replaced:
                self.starts.warn("consumer_replaced", reason="librdkafka had no broker left")

    def _continue_with(self, consumer: Any) -> bool:  # noqa: ANN401  (librdkafka's, or a test's)
        """Fetch all partitions with another consumer, from the same positions.

        The earlier consumer is not closed here, because another thread may be asking it. It ends
        with its last user.

        Returns:
            Whether it is in place. It is not if a signal handler or `oauth_cb` meanwhile closed the
            consumer, or changed the partitions or their positions.
        """
        begin = [self._begin_from(_key(one), one.offset) for one in self._ask_positions()]
        self._begin_again(begin)
        consumer.incremental_assign(begin)
        self._pause_unwanted(consumer, begin)
        if not self._are_known:
            return False
        self.consumer, self._are_known = consumer, False  # not a call, which would let a signal in
        return True

    def _begin_from(self, key: Partition, offset: int) -> TopicPartition:
        """Return a partition with this position, or where it begins without one."""
        if offset < 0:
            return self._begins[key].without_record
        return TopicPartition(*key, offset)

    def _begin_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Note where librdkafka begins partitions again."""
        for one in partitions:
            key, begin = _key(one), self._begins.get(_key(one))
            if begin is None or one is begin.start:
                continue
            again = evolve(begin, again=one.offset)
            # No call comes between, so no signal handler has ended the partition, or sought.
            if self._begins.get(key) is begin:
                self._begins[key] = again

    def _fetch_from_now_on(self, fetched: ResourceSet) -> None:
        self.fetched = fetched
        self._partitions = to_partitions(fetched)
        self._places = {_key(one): place for place, one in enumerate(self._partitions)}
        self._are_known = False
        # A position of an earlier assignment must not be committed.
        self._positions = [one for one in self._positions if _key(one) in fetched]

    def _pause_in_librdkafka(self, partitions: Iterable[TopicPartition]) -> None:
        """Repeat a `pause` from `on_assign`, which came before the partition was fetched."""
        paused = [one for one in partitions if _key(one) in self.record_buffer.paused]
        if paused and self.paused_there is None:  # asyncio pauses only for many records
            self.consumer.pause(paused)


def _key(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def _origin_of(found: CommittedOffset | EdgeOffset | None) -> Origin:
    if isinstance(found, EdgeOffset) and not found.is_given:
        return Origin.RESET
    return Origin.COMMITTED if isinstance(found, CommittedOffset) else Origin.GIVEN


def _partition_at(key: Partition, offset: int, leader_epoch: int | None) -> TopicPartition:
    """Return a partition with an offset, and the leader epoch of the record before it (KIP-320)."""
    if leader_epoch is None or leader_epoch < 0:
        return TopicPartition(*key, offset)
    return TopicPartition(*key, offset, leader_epoch=leader_epoch)
