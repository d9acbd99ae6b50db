"""Stand-ins for librdkafka's consumer and for the group's driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from attrs import define, field
from confluent_kafka import Message, TopicPartition

from coopgroup.kafka.application_inbox import ApplicationInbox
from coopgroup.kafka.offset_lookup import OffsetLookup
from coopgroup.kafka.requests import CommittedOffset, FetchOffsetsAnswer
from coopgroup.kafka.starting_offsets import StartingOffsets
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import Coordinator, FindCoordinatorAnswer, FindCoordinatorRequest

__all__ = ["FakeCoordinator", "FakeDriver", "FakeLibrdkafka", "record", "starts"]

Partition = tuple[str, int]


def record(partition: int, offset: int, topic: str = "t") -> Message:
    """A record that says where it stands."""
    return Message(topic=topic, partition=partition, offset=offset, value=b"v", leader_epoch=4)


@define(eq=False)
class FakeCoordinator:
    """A transport with a coordinator that answers at once.

    Attributes:
        committed: what the group has committed.
        code: of the answers for the whole group.
        requests: what was asked, in order, and where.
        is_silent: whether requests are kept in `waiting` instead.
        waiting: callbacks of requests without an answer.
        override: answers instead, where it gives an answer.
    """

    committed: dict[Partition, CommittedOffset] = field(factory=dict)
    code: int = 0
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
        """Answer, unless silent."""
        assert (lane, timeout_ms > 0) == (Lane.COMMIT, True)
        self.requests.append((request, None if node is None else node.node_id))
        if self.is_silent:
            self.waiting.append((request, on_answer))
        else:
            on_answer(self.override(request) or self.answer(request))

    def answer(self, request: Any) -> Any:  # noqa: ANN401  (one of several kinds)
        """The usual answer."""
        if isinstance(request, FindCoordinatorRequest):
            here = Coordinator(node_id=1, host="localhost", port=1)
            return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=here)
        offsets = {one: self.committed.get(one, CommittedOffset(-1)) for one in request.partitions}
        return FetchOffsetsAnswer(error_code=self.code, offsets={} if self.code else offsets)


def starts(coordinator: FakeCoordinator | None = None, reset: str = "earliest") -> StartingOffsets:
    """Where partitions begin: at the beginning, unless the coordinator says otherwise."""
    transport = FakeCoordinator() if coordinator is None else coordinator
    lookup = OffsetLookup(transport, "g", True, 1_000, lambda: None, persists=True)  # noqa: FBT003
    return StartingOffsets(lookup, reset, lambda *_, **__: None)


@define
class FakeLibrdkafka:
    """Gives what it was fed, counts a record as consumed when it gives it, as librdkafka does.

    Attributes:
        queue: what it will give.
        calls: what it was told to do, in order.
        failure: raised by the next fetch after it took its records, which are lost then.
        on_fetch: called while records are on their way.
        unassign_failure: raised instead of letting partitions go.
        log: what the broker has: fetched when a partition is assigned, from where it begins.
    """

    queue: list[Message] = field(factory=list)
    calls: list[tuple[str, Any]] = field(factory=list)
    failure: BaseException | None = None
    on_fetch: Callable[[], None] | None = None
    unassign_failure: BaseException | None = None
    log: list[Message] = field(factory=list)
    _positions: dict[Partition, int] = field(factory=dict)

    def feed(self, messages: Iterable[Message]) -> None:
        """Have records fetched."""
        self.queue.extend(messages)

    def consume(self, count: int, _timeout_s: float) -> list[Message]:
        """As confluent_kafka: nothing comes back where something is raised."""
        taken, self.queue = self.queue[:count], self.queue[count:]
        for one in taken:
            if one.error() is None:
                self._positions[str(one.topic()), int(one.partition() or 0)] = (
                    one.offset() or 0
                ) + 1
        if self.on_fetch is not None:
            self.on_fetch()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return taken

    def poll(self, timeout_s: float) -> Message | None:
        """The same for one."""
        return next(iter(self.consume(1, timeout_s)), None)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """As confluent_kafka: -1001 where nothing was given yet."""
        return [
            TopicPartition(
                one.topic, one.partition, self._positions.get((one.topic, one.partition), -1001)
            )
            for one in partitions
        ]

    def list_topics(self, _topic: str, *, timeout: float) -> None:
        """Answered at once; of no interest here."""
        assert timeout > 0

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Noted, and fetched from then on."""
        self._note("assign", partitions)
        for one in partitions:
            self.feed(
                message
                for message in self.log
                if message.partition() == one.partition and (message.offset() or 0) >= one.offset
            )

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """The position is forgotten, as there."""
        if self.unassign_failure is not None:
            raise self.unassign_failure
        self._note("unassign", partitions)
        for one in partitions:
            self._positions.pop((one.topic, one.partition), None)
        if self.log:
            ended = {one.partition for one in partitions}
            self.queue = [one for one in self.queue if one.partition() not in ended]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Noted."""
        self._note("pause", partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Noted."""
        self._note("resume", partitions)

    def seek(self, partition: TopicPartition) -> None:
        """The position is unknown until the next record, as there."""
        self._note("seek", [partition])
        self._positions.pop((partition.topic, partition.partition), None)

    def close(self) -> None:
        """Noted."""
        self.calls.append(("close", None))

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.calls.append((name, [(one.partition, one.offset) for one in partitions]))


@define(eq=False)
class FakeDriver:
    """A group that does what the test says.

    Attributes:
        member: as much of the member as is asked for.
        posted: events that it got.
        code: outcome of commits, which are answered at once; None keeps them waiting.
        waiting: callbacks of commits that are not answered.
        left: why it was left, and whether for good.
        reminders: when it was asked to wake the application.
        warned: events and fields of warnings.
        settings: as much of them as is asked for.
        on_commit: gets the id of each commit that is kept waiting; None for nobody.
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
    warned: list[tuple[str, dict[str, Any]]] = field(factory=list)
    settings: Any = field(factory=lambda: SimpleNamespace(max_poll_interval_ms=60_000))

    @property
    def sink(self) -> Any:  # noqa: ANN401  (as much of one as is asked for)
        """Takes warnings."""
        return SimpleNamespace(warn=lambda event, **fields: self.warned.append((event, fields)))

    def remind(self, at_s: float) -> None:
        """Note it."""
        self.reminders.append(at_s)

    def post(self, event: Any) -> None:  # noqa: ANN401  (any event)
        """Note an event; a commit is answered at once, unless it is to wait."""
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
        """Note it."""
        self.left.append((reason, for_good))

    def wait_for_commits(self, limit_s: float) -> bool:
        """Note it."""
        self.waited_s.append(limit_s)
        return not self.waiting

    def new_commit(self, on_committed: Callable[[Any], None]) -> int:
        """As the real one."""
        commit_id = len(self.posted) + 1
        self.waiting[commit_id] = on_committed
        return commit_id
