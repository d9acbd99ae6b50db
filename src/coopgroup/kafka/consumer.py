"""`CooperativeConsumer`: `confluent_kafka.Consumer` whose retained partitions never pause.

Theory of operation. librdkafka's consumer only fetches: it is told what to fetch with
`incremental_assign` and `incremental_unassign`, which leave all other partitions alone, and never
joins the group. The group lives on a thread of its own (`driver`), so a round never holds up the
application. What the group has to say to the application waits in an inbox until `poll` or
`consume` is called, and callbacks run there, on the application's thread.

Rules of this file: a record is handed out only while the lease holds, looked at after the record
was taken and before it is returned; a revocation is complete when its callback has returned, its
offsets are committed and its partitions are not fetched any more, in this order.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import define
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import GroupDriver, has_left
from coopgroup.kafka.group_metadata import encode_group_metadata
from coopgroup.kafka.handout import HandOut
from coopgroup.kafka.lookup import ClusterLookup
from coopgroup.kafka.offsets import OffsetStore, offset_of_message, offsets_of_partitions
from coopgroup.kafka.partitions import to_partitions, to_resources
from coopgroup.kafka.settings import check_with_librdkafka, read_settings
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.kafka.watching import TopicWatcher, TopicWish
from coopgroup.member.effects import FailMember, GrantResources, LoseResources, RevokeResources
from coopgroup.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    RevocationCompleted,
)
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.policies.simple import SimplePolicy
from coopgroup.telemetry import CommitFailed, ResourcesStarted, ResourcesStopped, StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from coopgroup.assignors.base import Assignor
    from coopgroup.kafka.application_inbox import Notice
    from coopgroup.policies.base import Policy

__all__ = ["CooperativeConsumer"]

Codes = tuple[tuple[str, int, int], ...]
# Records taken from librdkafka at once beyond the first one.
_BATCH_MAX: Final = 500
# How long a wait in librdkafka may keep the application from hearing the group: briefly while a
# round is under way, longer while nothing is to be expected.
_SLICE_BUSY_S: Final = 0.005
_SLICE_QUIET_S: Final = 0.05
_CLOSE_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01


@define(eq=False)
class _Callbacks:
    """What `subscribe` was given."""

    on_assign: Callable[..., Any] | None = None
    on_revoke: Callable[..., Any] | None = None
    on_lost: Callable[..., Any] | None = None


class CooperativeConsumer:
    """A consumer whose group rebalances incrementally and in cooperation.

    It has the methods of `confluent_kafka.Consumer`, with the same arguments, return values and
    exceptions; the documentation lists the few differences one by one. One thread polls; `commit`,
    `memberid` and the look-ups may be called from any thread.

    Args:
        configuration: keys of `confluent_kafka.Consumer`, and coopgroup's own
            (`coopgroup.telemetry.file`, `coopgroup.leader.timeout.ms`,
            `coopgroup.lookup.timeout.ms`).
        policy: when resources move; `SimplePolicy()` if not given.
        assignor: where they go; `StickyAssignor()` if not given. Both count only while this
            member leads the group, so give all members the same.

    Raises:
        ConfigurationError: a key is unknown, refused, or has a value that it cannot have.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any],
        *,
        policy: Policy | None = None,
        assignor: Assignor | None = None,
    ) -> None:
        """Read the configuration and start the group's threads; nothing is joined yet."""
        settings = read_settings(configuration)
        self._settings = settings
        try:
            self._fetcher = Consumer(dict(settings.librdkafka))
        except KafkaException as error:
            raise check_with_librdkafka(error) from None
        group_id = settings.member.group_id
        self._sink = TelemetrySink(group_id, settings.telemetry_file)
        lookup = ClusterLookup(
            settings.admin, group_id, settings.offset_reset, settings.lookup_timeout_ms
        )
        self._driver = GroupDriver(
            settings=settings,
            assignor=StickyAssignor() if assignor is None else assignor,
            policy=SimplePolicy() if policy is None else policy,
            lookup=lookup,
            sink=self._sink,
        )
        self._watcher = TopicWatcher(
            lookup=lookup,
            leader=self._driver.leader,
            leads=lambda: self._driver.leads,
            post=self._driver.post,
            sink=self._sink,
            refresh_ms=settings.metadata_refresh_ms,
        )
        self._inbox = self._driver.inbox
        self._hand_out = HandOut()
        self._ready = self._hand_out.ready
        self._offsets = OffsetStore(self._fetcher, self._hand_out, settings.auto_offset_store)
        self._held = EMPTY
        self._fetched = EMPTY
        self._callbacks = _Callbacks()
        self._assigning: ResourceSet | None = None
        self._revoking: ResourceSet | None = None
        self._wish: TopicWish | None = None
        self._commit_at_s = math.inf
        self._closed = False
        self._driver.start()
        self._watcher.start()

    # --- subscription ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        **_: Any,  # noqa: ANN401  (as confluent_kafka takes them)
    ) -> None:
        """Join the group for a list of topics, in place of an earlier list.

        Args:
            topics: names, and patterns that begin with `^`.
            on_assign: called with (consumer, partitions) for partitions that are gained, before
                they are fetched; it may set where to begin with `incremental_assign`.
            on_revoke: called with (consumer, partitions) for partitions to give up, before their
                offsets are committed.
            on_lost: called with (consumer, partitions) for partitions that are lost already;
                `on_revoke` is called instead if it is not given.

        Raises:
            KafkaException: the list is empty.
            ConfigurationError: a pattern is no regular expression.
            TypeError: the topics are no list of strings.
        """
        self._check_open()
        if isinstance(topics, (str, bytes)) or not all(isinstance(one, str) for one in topics):
            raise TypeError("expected list of topic unicode strings")
        if not topics:
            raise _exception(
                KafkaError._INVALID_ARG,  # noqa: SLF001  (public constant of confluent_kafka)
                "Failed to set subscription: the list of topics is empty",
            )
        self._callbacks = _Callbacks(on_assign, on_revoke, on_lost)
        self._wish = TopicWish.read(topics)
        self._driver.polled_at_s = now_s()
        self._watcher.watch(self._wish)
        self._schedule_commit()

    def unsubscribe(self) -> None:
        """Give up all partitions, as `close` does, and leave the group."""
        self._check_open()
        self._leave("unsubscribed")

    def assignment(self) -> list[TopicPartition]:
        """Partitions that the application holds: those that `on_assign` was told."""
        self._check_open()
        return to_partitions(self._held)

    # --- records ---------------------------------------------------------------------------------

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Hand out one record or event, and run callbacks that wait.

        Args:
            timeout: how long to wait, in seconds; negative or None for as long as it takes.

        Returns:
            A message (whose `error()` must be looked at), or None when the time is over.

        Raises:
            KafkaException: the group refused this member for good.
            RuntimeError: the consumer is closed.
        """
        ready = self._ready
        if ready:
            driver = self._driver
            now = now_s()
            # The lease first: once it stops to matter, the inbox says why.
            if now < driver.lease_until_s and now < self._commit_at_s and not self._inbox.waiting:
                driver.polled_at_s = now
                return ready.popleft()
        messages = self._take(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Hand out up to a number of records and events, and run callbacks that wait.

        Args:
            num_messages: how many at most, up to 1,000,000.
            timeout: how long to wait until there are so many, in seconds; negative or None for as
                long as it takes.

        Raises:
            KafkaException: the group refused this member for good.
            RuntimeError: the consumer is closed.
            ValueError: a number of messages outside its range.
        """
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._take(num_messages, timeout)

    def __iter__(self) -> Iterator[Message]:
        """Records one after the other, until the consumer is closed; errors are raised."""
        while not self._closed:
            message = self.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            yield message

    def _take(self, count: int, timeout: float | None) -> list[Message]:
        self._check_open()
        driver = self._driver
        deadline = math.inf if timeout is None or timeout < 0 else now_s() + timeout
        taken: list[Message] = []
        while True:
            self._serve()
            # Waiting here is polling: only what the application does outside can stall it.
            driver.polled_at_s = math.inf
            try:
                self._fill(count - len(taken), deadline)
            finally:
                driver.polled_at_s = now_s()
            if self._ready and now_s() < driver.lease_until_s and not self._inbox.waiting:
                while self._ready and len(taken) < count:
                    taken.append(self._ready.popleft())
            if len(taken) >= count or now_s() >= deadline or (taken and self._inbox.waiting):
                return taken

    def _fill(self, wanted: int, deadline: float) -> None:
        """Get records from librdkafka: what is there, else wait for a slice of time."""
        if len(self._ready) >= wanted and now_s() < self._driver.lease_until_s:
            return
        quiet = self._driver.is_quiet and now_s() < self._driver.lease_until_s
        slice_s = _SLICE_QUIET_S if quiet else _SLICE_BUSY_S
        wait_s = max(0.0, min(slice_s, deadline - now_s()))
        if now_s() >= self._driver.lease_until_s:
            self._inbox.wait(wait_s)  # nothing may be handed out; the group will say why
            return
        if wanted > 1:
            batch = max(wanted - len(self._ready), 0)
            self._hand_out.add(self._fetcher.consume(batch, wait_s))
            return
        first = self._fetcher.poll(wait_s)
        if first is not None:
            self._hand_out.add((first, *self._fetcher.consume(_BATCH_MAX, 0)))

    # --- what the group says ---------------------------------------------------------------------

    def _serve(self) -> None:
        """Run on the application's thread what waits in the inbox, and commit when it is time."""
        if self._inbox.waiting:
            while (notice := self._inbox.take()) is not None:
                self._obey(notice)
            while (call := self._inbox.take_call()) is not None:
                call()
        if now_s() >= self._commit_at_s:
            self._schedule_commit()
            self._commit_automatically(self._held, wait=False)

    def _obey(self, notice: Notice) -> None:
        # A callback counts against max.poll.interval.ms like any work of the application.
        self._driver.polled_at_s = now_s()
        match notice:
            case GrantResources():
                self._grant(notice.resources)
            case RevokeResources():
                self._revoke(notice.resources)
            case LoseResources():
                self._lose(notice.resources)
            case FailMember():
                raise _exception(notice.code, notice.message, fatal=True)

    def _grant(self, resources: ResourceSet) -> None:
        self._held |= resources
        self._assigning = resources
        try:
            self._call_back(self._callbacks.on_assign, resources)
        finally:
            self._assigning = None
            rest = resources - self._fetched
            if rest:
                self._fetcher.incremental_assign(to_partitions(rest))
                self._fetched |= rest
            self._write(ResourcesStarted(resources=resources))

    def _revoke(self, resources: ResourceSet) -> None:
        try:
            self._stop(resources, StopReason.REVOKED)
        finally:
            # Also where the callback raised: the whole group waits for it.
            self._driver.post(RevocationCompleted(resources=resources))

    def _lose(self, resources: ResourceSet) -> None:
        lost = resources & self._held
        try:
            if lost:
                callbacks = self._callbacks
                self._revoking = lost
                self._call_back(callbacks.on_lost or callbacks.on_revoke, lost)
        finally:
            self._revoking = None
            self._drop(lost, StopReason.LOST, now_s())
            self._driver.post(LossHandled())

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        """Callback, commit, stop fetching: in this order, whatever the callback raises."""
        began = now_s()
        self._revoking = resources
        try:
            self._call_back(self._callbacks.on_revoke, resources)
        finally:
            self._revoking = None
            self._commit_automatically(resources, wait=True)
            self._drop(resources, reason, began)

    def _drop(self, resources: ResourceSet, reason: StopReason, began_s: float) -> None:
        fetched = resources & self._fetched
        if fetched:
            self._fetcher.incremental_unassign(to_partitions(fetched))
        self._hand_out.drop(resources)
        self._offsets.forget(resources)
        self._fetched -= resources
        self._held -= resources
        duration_ms = round((now_s() - began_s) * 1000)
        self._write(ResourcesStopped(resources=resources, reason=reason, duration_ms=duration_ms))

    def _call_back(self, callback: Callable[..., Any] | None, resources: ResourceSet) -> None:
        if callback is not None and resources:
            callback(self, to_partitions(resources))

    def _write(self, record: ResourcesStarted | ResourcesStopped | CommitFailed) -> None:
        member = self._driver.member
        self._sink.write(record, member_id=member.member_id, generation=member.claim_generation)

    # --- where to begin, from inside callbacks ---------------------------------------------------

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Say in `on_assign` where to begin with partitions that were gained.

        Raises:
            KafkaException: called elsewhere, or with partitions that were not gained.
        """
        self._check_open()
        wanted = to_resources(partitions)
        if self._assigning is None or not wanted <= self._assigning:
            raise _exception(
                KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                "the group assigns: possible in on_assign only, for the partitions given there",
            )
        fresh = wanted - self._fetched
        self._fetcher.incremental_assign(
            [one for one in partitions if (one.topic, one.partition) in fresh]
        )
        self._fetched |= fresh

    def assign(self, partitions: list[TopicPartition]) -> None:
        """The same as `incremental_assign`: what is held already stays."""
        self.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Accept in `on_revoke` or `on_lost` what happens anyway after it.

        Raises:
            KafkaException: called elsewhere, or with partitions that are not given up.
        """
        self._check_open()
        if self._revoking is None or not to_resources(partitions) <= self._revoking:
            raise _exception(
                KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                "the group revokes: possible in on_revoke and on_lost only",
            )

    def unassign(self) -> None:
        """The same as `incremental_unassign` of all that is given up."""
        self.incremental_unassign([])

    # --- offsets ---------------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> list[TopicPartition] | None:
        """Commit offsets to the group, right through a rebalance.

        Args:
            message: commit this record's offset + 1.
            offsets: commit these; not together with a message.
            asynchronous: whether to return at once; `on_commit` of the configuration then hears
                the outcome.

        Returns:
            None if asynchronous, else what was committed.

        Raises:
            KafkaException: the commit failed, or there was nothing to commit.
            ValueError: both a message and offsets.
        """
        self._check_open()
        wanted = self._wanted_offsets(message, offsets)
        if not wanted:
            error = KafkaError(KafkaError._NO_OFFSET)  # noqa: SLF001  (public constant)
            if not asynchronous:
                raise KafkaException(error)
            self._tell_on_commit(error, [])
            return None
        if asynchronous:
            self._commit(wanted, self._report_commit)
            return None
        codes = self._commit_and_wait(wanted)
        failed = next((code for _, _, code in codes if code), None)
        if failed is not None or not codes:
            raise _exception(KafkaError.UNKNOWN_MEMBER_ID if failed is None else failed)
        return [TopicPartition(one.topic, one.partition, one.offset) for one in wanted]

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Remember offsets for the next commit; needs `enable.auto.offset.store` off.

        Raises:
            KafkaException: offsets are stored automatically, or a partition is not held.
            ValueError: both or neither of message and offsets.
        """
        self._check_open()
        if (message is None) == (offsets is None):
            raise ValueError("expected either message or offsets")
        if self._settings.auto_offset_store:
            raise _exception(
                KafkaError._INVALID_ARG,  # noqa: SLF001  (public constant of confluent_kafka)
                "enable.auto.offset.store must be false to store offsets",
            )
        wanted = self._wanted_offsets(message, offsets)
        for one in wanted:
            if (one.topic, one.partition) not in self._held:
                raise _exception(
                    KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                    f"{one.topic} [{one.partition}] is not assigned",
                )
        self._offsets.store(wanted)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Offset of the next record that the application gets from each partition."""
        self._check_open()
        return self._offsets.positions(partitions)

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """Offsets that the group has committed."""
        self._check_open()
        answer: list[TopicPartition] = self._fetcher.committed(partitions, _seconds(timeout))
        return answer

    def _wanted_offsets(
        self, message: Message | None, offsets: list[TopicPartition] | None
    ) -> tuple[Offset, ...]:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            return (offset_of_message(message),)
        if offsets is not None:
            return offsets_of_partitions(offsets)
        return self._offsets.due(self._held)

    def _commit(self, offsets: tuple[Offset, ...], on_committed: Callable[[Codes], None]) -> None:
        def remember(codes: Codes) -> None:
            refused = {(topic, partition) for topic, partition, code in codes if code}
            if codes:
                self._offsets.committed(
                    one for one in offsets if (one.topic, one.partition) not in refused
                )
            on_committed(codes)

        commit_id = self._driver.new_commit(remember)
        self._driver.post(CommitRequested(commit_id=commit_id, offsets=offsets))

    def _commit_and_wait(self, offsets: tuple[Offset, ...]) -> Codes:
        finished = threading.Event()
        outcome: list[Codes] = []

        def finish(codes: Codes) -> None:
            outcome.append(codes)
            finished.set()

        self._commit(offsets, finish)
        finished.wait()
        return outcome[0]

    def _commit_automatically(self, resources: ResourceSet, *, wait: bool) -> None:
        if self._settings.auto_commit_interval_ms is None:
            return
        offsets = self._offsets.due(resources & self._held)
        if not offsets:
            return
        if wait:
            self._report_commit(self._commit_and_wait(offsets))
        else:
            self._commit(offsets, self._report_commit)

    def _report_commit(self, codes: Codes) -> None:
        """Tell telemetry of failures, and `on_commit` of everything."""
        failed = [(topic, partition) for topic, partition, code in codes if code]
        first = next((code for _, _, code in codes if code), None)
        error = None if first is None else KafkaError(first)
        if error is not None:
            resources = ResourceSet.from_pairs(failed)
            self._write(CommitFailed(resources=resources, error=error.name()))
        self._tell_on_commit(error, [TopicPartition(one[0], one[1]) for one in codes])

    def _tell_on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        on_commit = self._settings.on_commit
        if on_commit is not None:
            self._inbox.call_soon(lambda: on_commit(error, partitions))

    def _schedule_commit(self) -> None:
        interval_ms = self._settings.auto_commit_interval_ms
        self._commit_at_s = math.inf if interval_ms is None else now_s() + interval_ms / 1000

    # --- flow ------------------------------------------------------------------------------------

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        self._check_open()
        self._fetcher.pause(partitions)
        self._hand_out.pause((one.topic, one.partition) for one in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out records of these partitions again, from where they were paused."""
        self._check_open()
        self._hand_out.resume((one.topic, one.partition) for one in partitions)
        self._fetcher.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset of a partition that is held."""
        self._check_open()
        self._fetcher.seek(partition)
        self._hand_out.drop([(partition.topic, partition.partition)])

    # --- look-ups --------------------------------------------------------------------------------

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float | None = -1,
        cached: bool = False,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> tuple[int, int] | None:
        """Lowest and highest offset of a partition."""
        self._check_open()
        answer: tuple[int, int] | None = self._fetcher.get_watermark_offsets(
            partition, timeout=_seconds(timeout), cached=cached
        )
        return answer

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """First offset at or after a time, given in ms since 1970 in place of the offset."""
        self._check_open()
        answer: list[TopicPartition] = self._fetcher.offsets_for_times(
            partitions, timeout=_seconds(timeout)
        )
        return answer

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> Any:  # noqa: ANN401
        """Metadata of the cluster, as `confluent_kafka.admin.ClusterMetadata`."""
        self._check_open()
        if topic is None:
            return self._fetcher.list_topics(timeout=_seconds(timeout))
        return self._fetcher.list_topics(topic, timeout=_seconds(timeout))

    def cluster_id(self, timeout: float | None = -1) -> str | None:
        """Id of the cluster."""
        self._check_open()
        answer: str | None = self._fetcher.cluster_id(timeout=_seconds(timeout))
        return answer

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Not possible: the group's connections were set up with the first credentials.

        Raises:
            KafkaException: always.
        """
        del username, password
        raise _exception(
            KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  (public constant of confluent_kafka)
            "set_sasl_credentials: make a new consumer with the new credentials",
        )

    # --- the group -------------------------------------------------------------------------------

    def memberid(self) -> str | None:
        """Id that the group coordinator gave this member; None before it has one."""
        self._check_open()
        return self._driver.member.member_id or None

    def consumer_group_metadata(self) -> bytes:
        """What `Producer.send_offsets_to_transaction` needs to fence a zombie (KIP-447)."""
        self._check_open()
        return encode_group_metadata(self._driver.member)

    def close(self) -> None:
        """Give up all partitions (`on_revoke`), commit, leave the group, end all threads.

        Raises:
            Exception: whatever a callback raised; the consumer is closed all the same.
        """
        if self._closed:
            return
        try:
            self._leave("consumer closed")
        finally:
            self._closed = True
            self._watcher.stop()
            self._driver.stop()
            self._serve_calls()
            self._ready.clear()
            self._fetcher.close()
            self._sink.close()

    def __enter__(self) -> Self:
        """Return the consumer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the consumer."""
        self.close()

    def _leave(self, reason: str) -> None:
        self._watcher.watch(None)
        self._wish = None
        self._commit_at_s = math.inf
        try:
            self._serve_last()
            if self._held:
                self._stop(self._held, StopReason.CLOSED)
        finally:
            self._driver.post(LeaveRequested(reason=reason))
            deadline = now_s() + _CLOSE_TIMEOUT_S
            while not has_left(self._driver.member) and now_s() < deadline:
                self._inbox.wait(_STEP_S)

    def _serve_last(self) -> None:
        """Hear what the group said last; partitions granted now are not begun any more."""
        while (notice := self._inbox.take()) is not None:
            if isinstance(notice, (RevokeResources, LoseResources)):
                self._obey(notice)
        self._serve_calls()

    def _serve_calls(self) -> None:
        while (call := self._inbox.take_call()) is not None:
            call()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")


def _seconds(timeout: float | None) -> float:
    return -1 if timeout is None else timeout


def _exception(code: int, message: str | None = None, *, fatal: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, message, fatal=fatal))
