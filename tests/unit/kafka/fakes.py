"""Stand-ins for librdkafka's consumer, for connections, and for the group's driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coopgroup.core.member import ErrorCode, MemberConfig, MemberState
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.events import CommitRequested, Offset
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
)
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.clock import now_ms, pause
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.records.log_edges import LogEdges
from coopgroup.kafka.records.offset_lookup import OffsetLookup
from coopgroup.kafka.records.starting_offsets import RESET_TO, StartingOffsets
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import (
    CommittedOffset,
    FetchOffsetsAnswer,
    FindLogOffsets,
    FindTopics,
    FoundTopic,
    LogOffset,
)
from coopgroup.kafka.rpc.topics import FindPartition, FoundPartition
from coopgroup.kafka.rpc.transport import AnyLane, GroupTransport

Partition = tuple[str, int]
HERE = Coordinator(node_id=1, host="here", port=1)
THERE = Coordinator(node_id=2, host="there", port=2)
FOUND = FoundPartition(error_code=0, partition=3, leader=HERE)
MOVED = FoundPartition(error_code=0, partition=3, leader=THERE)
LOST = TransportFailure(kind=FailureKind.DISCONNECTED, message="gone")


def places(messages: Iterable[Message]) -> list[tuple[int | None, int | None]]:
    return [(one.partition(), one.offset()) for one in messages]


def record(partition: int, offset: int, topic: str = "t") -> Message:
    return Message(topic=topic, partition=partition, offset=offset, value=b"v", leader_epoch=4)


@define(eq=False)
class FakeCoordinator:
    """A transport with a coordinator that answers immediately.

    Attributes:
        code: error code of group-level answers.
        logs: begin and end of the logs; an absent one is empty, and begins at 0.
        is_silent: keep requests in `waiting` instead of answering them.
        override: returns an answer that replaces the usual one, or None.
    """

    committed: dict[Partition, CommittedOffset] = field(factory=dict)
    code: int = 0
    logs: dict[Partition, tuple[int, int]] = field(factory=dict)
    requests: list[tuple[Any, int | None]] = field(factory=list)
    is_silent: bool = False
    waiting: list[tuple[Any, Callable[[Any], None]]] = field(factory=list)
    override: Callable[[Any], Any] = lambda _: None

    def send(
        self,
        lane: Lane,
        request: Any,  # noqa: ANN401  (one of several kinds)
        on_answer: Callable[[Any], None],
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        assert (lane, timeout_ms > 0) == (Lane.COMMIT, True)
        self.requests.append((request, None if node is None else node.node_id))
        if self.is_silent:
            self.waiting.append((request, on_answer))
        else:
            on_answer(self.override(request) or self.answer(request))

    def answer(self, request: Any) -> Any:  # noqa: ANN401  (one of several kinds)
        here = Coordinator(node_id=1, host="localhost", port=1)
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=here)
        if isinstance(request, FindTopics):
            leaders = dict.fromkeys(range(10_000), here)
            return {name: FoundTopic(0, 10_000, leaders=leaders) for name in request.names}
        if isinstance(request, FindLogOffsets):
            return {
                one: LogOffset(0, self.logs.get(one, (0, 0))[edge])
                for one, edge in request.timestamps.items()
            }
        offsets = {one: self.committed.get(one, CommittedOffset(-1)) for one in request.partitions}
        return FetchOffsetsAnswer(error_code=self.code, offsets={} if self.code else offsets)


@define
class HandTransport:
    """Keeps requests and actions until a test answers or runs them.

    Attributes:
        find_lane: the connection on which partitions are looked up.
        requests: requests without an answer: lane, request, node, time-out and callback.
        actions: delays and actions that were not run yet.
    """

    find_lane: AnyLane = Lane.COMMIT
    requests: list[tuple[AnyLane, Any, Any, int, Callable[[Any], None]]] = field(factory=list)
    actions: list[tuple[float, Callable[[], None]]] = field(factory=list)
    is_closed: bool = False

    def send(
        self,
        lane: AnyLane,
        request: Any,  # noqa: ANN401
        on_answer: Callable[[Any], None],
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        if self.is_closed:
            on_answer(TransportFailure(kind=FailureKind.DISCONNECTED, message="not running"))
        else:
            self.requests.append((lane, request, node, timeout_ms, on_answer))

    def later(self, delay_s: float, action: Callable[[], None]) -> bool:
        if self.is_closed:
            return False
        if delay_s:
            self.actions.append((delay_s, action))
        else:
            action()
        return True

    def run(self) -> float:
        """Run the next action; return its delay."""
        delay_s, action = self.actions.pop(0)
        action()
        return delay_s

    def answer(self, kind: type, answer: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Answer the oldest request, which must have a kind; return it and its node."""
        lane, request, node, _, on_answer = self.requests.pop(0)
        assert isinstance(request, kind)
        if kind is FindPartition:
            assert (lane, node) == (self.find_lane, None)
        on_answer(answer)
        return request, node


def starts(
    coordinator: FakeCoordinator | None = None,
    reset: str = "earliest",
    warn: Callable[..., None] = lambda *_, **__: None,
) -> StartingOffsets:
    """Return starting offsets; without commits, partitions begin at the beginning."""
    transport = cast("GroupTransport", coordinator or FakeCoordinator())
    lookup = OffsetLookup(
        transport,
        "g",
        require_stable=True,
        timeout_ms=1_000,
        changed=lambda: None,
        persists=True,
        edges=LogEdges(transport, 1_000, reads_committed=True),
        reset_of=lambda _: RESET_TO.get(reset),
    )
    return StartingOffsets(lookup, warn)


@define
class FakeLibrdkafka:
    """Return the records that a test feeds, and count each as consumed, as librdkafka does.

    Attributes:
        failure: raised by the next fetch after it took its records, which are then lost.
        log: records of the broker; an assigned partition fetches them from its start offset.
        without_broker: whether librdkafka knows no broker, which it says only when asked.
        ends: log end offsets that the last fetches brought.
        markers: partitions in which the next fetch passes a marker of a transaction.
    """

    queue: list[Message] = field(factory=list)
    calls: list[tuple[str, Any]] = field(factory=list)
    failure: BaseException | None = None
    on_fetch: Callable[[], None] | None = None
    unassign_failure: BaseException | None = None
    log: list[Message] = field(factory=list)
    without_broker: bool = False
    ends: dict[Partition, int] = field(factory=dict)
    markers: list[Partition] = field(factory=list)
    _positions: dict[Partition, int] = field(factory=dict)
    _epochs: dict[Partition, int] = field(factory=dict)
    _assigned: set[Partition] = field(factory=set)

    def feed(self, messages: Iterable[Message]) -> None:
        self.queue.extend(messages)

    def consume(self, count: int, _timeout_s: float) -> list[Message]:
        """Fetch like confluent_kafka: an exception drops the records, no position gets lower."""
        taken, self.queue = self.queue[:count], self.queue[count:]
        for one in taken:
            if one.error() is None:
                key = str(one.topic()), int(one.partition() or 0)
                self._positions[key] = max((one.offset() or 0) + 1, self._positions.get(key, 0))
                self._epochs[key] = one.leader_epoch() or 0
        for key in self.markers:
            self._positions[key] += 1
        self.markers.clear()
        if self.on_fetch is not None:
            self.on_fetch()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return taken

    def poll(self, timeout_s: float) -> Message | None:
        return next(iter(self.consume(1, timeout_s)), None)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return positions like confluent_kafka: -1001 before the first record."""
        names = [(one.topic, one.partition) for one in partitions]
        return [
            TopicPartition(*one, self._positions[one], leader_epoch=self._epochs.get(one, 0))
            if one in self._positions
            else TopicPartition(*one)
            for one in names
        ]

    def list_topics(self, _topic: str, *, timeout: float) -> None:
        assert timeout > 0
        if self.without_broker:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def get_watermark_offsets(self, partition: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self.ends.get((partition.topic, partition.partition), -1001)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Refuse partitions that are assigned already, as librdkafka does."""
        self._note("assign", partitions)
        for one in partitions:
            if (one.topic, one.partition) in self._assigned:
                raise KafkaException(KafkaError(KafkaError._CONFLICT))
            self._assigned.add((one.topic, one.partition))
            self.feed(
                message
                for message in self.log
                if message.partition() == one.partition and (message.offset() or 0) >= one.offset
            )

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Forget the position, as librdkafka does."""
        if self.unassign_failure is not None:
            raise self.unassign_failure
        self._note("unassign", partitions)
        for one in partitions:
            self._assigned.discard((one.topic, one.partition))
            self._positions.pop((one.topic, one.partition), None)
        if self.log:
            ended = {one.partition for one in partitions}
            self.queue = [one for one in self.queue if one.partition() not in ended]

    def unassign(self) -> None:
        self.incremental_unassign(self.assignment())

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*one) for one in sorted(self._assigned)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._note("pause", partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._note("resume", partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Forget the position until the next record, as librdkafka does."""
        self._note("seek", [partition])
        self._positions.pop((partition.topic, partition.partition), None)

    def close(self) -> None:
        self.calls.append(("close", None))

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.calls.append((name, [(one.partition, one.offset) for one in partitions]))


@define(eq=False)
class FakeDriver:
    """A group that behaves as the test tells it.

    Attributes:
        code: outcome of commits, which end immediately; None keeps them waiting.
        left: reason of each leave, and whether it was permanent.
        reminders: times at which the application asked to be woken.
        on_commit: called with the id of each pending commit, if set.
        waited_s: limits of the waits for commits.
    """

    inbox: ApplicationInbox = field(factory=ApplicationInbox)
    lease_until_s: float = math.inf
    polled_at_s: float = 0.0
    is_quiet: bool = True
    member: Any = field(factory=lambda: SimpleNamespace(topics=(), member_id="m", generation=3))
    posted: list[Any] = field(factory=list)
    code: int | None = 0
    waiting: dict[int, Callable[[Any], None]] = field(factory=dict)
    left: list[tuple[str, bool]] = field(factory=list)
    on_commit: Callable[[int], None] | None = None
    waited_s: list[float] = field(factory=list)
    reminders: list[float] = field(factory=list)
    listens: bool = False
    warned: list[tuple[str, dict[str, Any]]] = field(factory=list)
    settings: Any = field(
        factory=lambda: SimpleNamespace(
            max_poll_interval_ms=60_000, member=MemberConfig(group_id="g")
        )
    )
    meter: WorkMeter = field(factory=WorkMeter)

    @property
    def sink(self) -> Any:  # noqa: ANN401  (as much of one as is asked for)
        return SimpleNamespace(warn=lambda event, **fields: self.warned.append((event, fields)))

    def listen(self) -> None:
        self.listens = True

    def remind(self, at_s: float) -> None:
        self.reminders.append(at_s)

    def post(self, event: Any) -> None:  # noqa: ANN401  (any event)
        """Record an event; a commit ends immediately unless `code` is None."""
        self.posted.append(event)
        offsets = getattr(event, "offsets", None)
        if offsets is None:
            return
        if self.code is None:
            if self.on_commit is not None:
                self.on_commit(event.commit_id)
        else:
            self.waiting.pop(event.commit_id)(
                tuple((one.topic, one.partition, self.code) for one in offsets)
            )

    def leave(self, reason: str, *, for_good: bool) -> None:
        self.left.append((reason, for_good))

    def wait_left(self) -> bool:
        return bool(self.member.state in {MemberState.UNSUBSCRIBED, MemberState.FAILED})

    def wait_for_commits(self, limit_s: float) -> bool:
        self.waited_s.append(limit_s)
        return not self.waiting

    def request_commit(
        self,
        offsets: tuple[Offset, ...],
        on_committed: Callable[[Any], None],
        until_ms: int | None = None,
    ) -> None:
        commit_id = len(self.posted) + 1
        self.waiting[commit_id] = on_committed
        self.post(CommitRequested(commit_id=commit_id, offsets=offsets, until_ms=until_ms))
        if self.code is None and until_ms is not None:  # the member ends it when its time is over
            pause(max(0, until_ms - now_ms()) / 1000)
            code = int(ErrorCode.REQUEST_TIMED_OUT)
            self.waiting.pop(commit_id)(tuple((one.topic, one.partition, code) for one in offsets))
