"""`CooperativeConsumer`: `confluent_kafka.Consumer` whose retained partitions never pause.

Theory of operation. The group has its own thread (`driver`), so a round never blocks the
application. librdkafka only fetches (`fetching`). Its records wait in a buffer until `poll` or
`consume` takes them (`pump`). Notices of the group wait in an inbox until then as well, and
callbacks run on the application's thread (`listener`). Commits go to the group's thread
(`committing`). This file is the front of these parts, with the methods of confluent_kafka.

`poll` is the hot path. It hands out the next waiting record if the lease holds and no other work is
due. `Delivery.take` handles every other case.

`ConsumerParts` builds the parts. User input is checked before anything is opened. Opened parts are
closed if a later part cannot be made. Threads start last and end first.

`Delivery` is the slow path of `poll` and `consume`: it turns the pump until it gives records, and
waits meanwhile. Its rule: notices are handled only while no record is on its way to the
application. So an offset counts as handed out if, and only if, the application got the record.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import clock_gettime
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

# Instrumentation replaces confluent_kafka.Consumer, and would see fetches in place of records.
from confluent_kafka.cimpl import Consumer
from confluent_kafka.error import ConsumeError

from coopgroup.core.member.events import WarmedUp, Woken
from coopgroup.kafka.callbacks.application_inbox import GroupErrors
from coopgroup.kafka.callbacks.finalizer import (
    Finalizer,
    finalize_when_dropped,
    keep_callbacks,
    with_plain_errors,
)
from coopgroup.kafka.callbacks.listener import (
    Callback,
    Callbacks,
    GroupListener,
    as_resources,
)
from coopgroup.kafka.callbacks.pending_revocations import PutOff
from coopgroup.kafka.clock import CLOCK, now_s
from coopgroup.kafka.config.settings import (
    ConsumerSettings,
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)
from coopgroup.kafka.config.strategy import assignor_of
from coopgroup.kafka.exceptions import PASSING_ERRORS
from coopgroup.kafka.forked import is_of_parent, keep_to_process
from coopgroup.kafka.health.consumer_work import ConsumerWork
from coopgroup.kafka.health.probe import MemberProbe
from coopgroup.kafka.membership.driver import GroupDriver, open_sink_and_slot
from coopgroup.kafka.membership.first_look import FirstLook
from coopgroup.kafka.membership.group_metadata import encode_group_metadata
from coopgroup.kafka.membership.identity import IdentitySlot
from coopgroup.kafka.membership.leading import LOOKUP_TIMEOUT_MS
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.missing_topics import MissingTopics
from coopgroup.kafka.membership.subscription import ApplicationSubscription
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.membership.watching import TopicWatcher
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.pump import Pump
from coopgroup.kafka.records.committing import Committing, read_committed
from coopgroup.kafka.records.decoding import Decoder, error_of
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.log_edges import LogEdges
from coopgroup.kafka.records.offset_lookup import OffsetLookup
from coopgroup.kafka.records.offsets import OffsetStore, check_storable, given_offsets
from coopgroup.kafka.records.pace import AWAY_S, IDLE_S, Pace
from coopgroup.kafka.records.partitions import (
    all_but,
    checked_partitions,
    to_partition,
    to_partitions,
)
from coopgroup.kafka.records.starting_offsets import RESET_TO, StartingOffsets

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.policies.policy import Policy
    from coopgroup.kafka.health.value import Health
    from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice


@define(eq=False)
class Delivery:
    """Passes fetched records to the application."""

    pump: Pump
    meter: WorkMeter
    driver: GroupDriver = field(init=False)
    fetching: Fetching = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.driver, self.fetching = self.pump.driver, self.pump.fetching

    def take(self, count: int, timeout_s: float | None) -> list[Message]:
        """Take up to a number of records; wait for the full number until the time is over.

        Raises:
            BaseException: raised by a callback or a signal handler; no record is lost by it.
        """
        stalled_at_s = self.driver.inbox.take_stall()
        if stalled_at_s is not None:
            return self._tell_stall(stalled_at_s)
        called_s, record_buffer = now_s(), self.fetching.record_buffer
        self.meter.pause(called_s, len(record_buffer.ready), record_buffer.rearranged)
        limit_s = math.inf if timeout_s is None or timeout_s < 0 else timeout_s
        try:
            taken = self._take(count, called_s + limit_s)
            ready, rearranged = len(record_buffer.ready), record_buffer.rearranged
            self.meter.go_on(now_s(), len(taken), ready, rearranged)
        except BaseException:
            self.pump.put_back(record_buffer.leaving)
            raise
        record_buffer.leaving = ()  # no call follows, so no signal handler can run
        return taken

    def _tell_stall(self, stalled_at_s: float) -> list[Message]:
        """Return confluent_kafka's event for a stall, with its text; it precedes `on_lost`.

        Raises:
            ConsumeError: the same event, with deserializers.
        """
        limit_ms = self.driver.settings.max_poll_interval_ms
        late_ms = max(0, round((stalled_at_s - self.driver.polled_at_s) * 1000) - limit_ms)
        words = f"Application maximum poll interval ({limit_ms}ms) exceeded by {late_ms}ms"
        code = KafkaError._MAX_POLL_EXCEEDED
        event = Message(
            partition=0, value=words.encode(), error=KafkaError(code, words), timestamp=(0, -1)
        )
        self.driver.polled_at_s = now_s()
        if self.pump.decoder is not None:
            raise error_of(event)
        return [event]

    def _take(self, count: int, deadline_s: float) -> list[Message]:
        pump, record_buffer = self.pump, self.fetching.record_buffer
        while True:
            pump.serve()
            self._gather(count, deadline_s)
            is_over = now_s() >= deadline_s
            if is_over or len(record_buffer.ready) >= count:
                taken = pump.take(count)
                if taken or is_over or (not count and pump.may_leave()):
                    return taken

    def _gather(self, count: int, deadline_s: float) -> None:
        driver, ready = self.driver, self.fetching.record_buffer.ready
        # Waiting here counts as polling; the application can stall only outside of `poll`.
        driver.polled_at_s = math.inf
        try:
            now = now_s()
            # Without a lease, a full buffer must wait, too: a loop without a pause would keep the
            # GIL from the thread that is about to report the loss.
            while len(ready) < count or now >= driver.lease_until_s:
                is_quiet = driver.is_quiet and not self.fetching.is_about_to_begin
                slice_s = self.pump.pace.slice_s(now, is_quiet=is_quiet)
                wait_s = max(0.0, _whole_ms(min(slice_s, deadline_s - now)))
                if now >= driver.lease_until_s:
                    # No record may leave, and the group is about to report the reason.
                    driver.inbox.wait(wait_s)
                    return
                if not self.fetching.fetched:
                    # No record can arrive, and librdkafka does not wake up for the group.
                    until_s = min(deadline_s, now + AWAY_S, self.pump.committing.due_at_s)
                    driver.inbox.wait(max(0.0, until_s - now))
                    wait_s = 0.0
                self.fetching.fetch(count - len(ready), wait_s)
                if ready:
                    self.pump.pace.hear()
                now = now_s()
                if now >= min(deadline_s, self.pump.committing.due_at_s) or driver.inbox.waiting:
                    return
        finally:
            driver.polled_at_s = now_s()


def _whole_ms(wait_s: float) -> float:
    """Round up to milliseconds: librdkafka rounds down, and would not wait at all at the end."""
    return math.ceil(wait_s * 1000) / 1000


_PARTS: Final = (
    "_parts",
    "_driver",
    "_fetching",
    "_committing",
    "_listener",
    "_delivery",
    "_ready",
    "_inbox",
)
NOT_SUBSCRIBED: Final = "the consumer is not subscribed: call subscribe before the first record"
_CLOSED: Final = "Consumer closed"  # same text as in confluent_kafka


class CooperativeConsumer:
    """A consumer whose group rebalances incrementally and in cooperation.

    It has the methods of `confluent_kafka.Consumer`, with the same arguments, return values and
    exceptions. The documentation lists the few differences. Only one thread may poll. `commit`,
    `position`, `memberid` and the look-ups may be called from any thread.

    Args:
        configuration: keys of `confluent_kafka.Consumer`, and coopgroup's own (`coopgroup.…`).
        policy: decides when resources move: a policy, its name, or `{"name": …}` with options.
            The default is `SimplePolicy()`.
        assignor: decides where resources go, in the same forms; the default is `StickyAssignor()`.
            Both take effect only while this member leads the group, so give all members the same.
        more: further keys, such as `logger=`; they take precedence over `configuration`.

    Raises:
        ConfigurationError: a key is unknown or refused, or its value is not allowed; or the policy
            or the assignor is not valid.
        KafkaException: `oauth_cb` gave no token within 10 seconds.
        TypeError: the configuration is missing.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *,
        policy: PolicyChoice | None = None,
        assignor: AssignorChoice | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        given, self._callbacks = keep_callbacks(merge_configuration(configuration, more))
        self._settings = read_settings(given)
        self._parts = parts = ConsumerParts.build(self, self._settings, assignor, policy)
        self._driver = parts.driver
        self._fetching = parts.fetching
        self._committing = parts.committing
        self._listener = parts.listener
        self._delivery = parts.delivery
        self._ready = parts.ready  # for the hot path, as is the next
        self._inbox = parts.driver.inbox
        self._closing = self._closed = False
        keep_to_process(self, *_PARTS)
        parts.start()

    # --- subscription ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
        *,
        on_warmup: Callback | None = None,
        on_warmup_cancelled: Callback | None = None,
        warm: list[TopicPartition] | None = None,
    ) -> None:
        """Join the group for a list of topics, which replaces an earlier list.

        Args:
            topics: names, and patterns (regular expressions of Python) that begin with `^`.
            on_assign: called with (consumer, partitions) for newly assigned partitions, before they
                are fetched. It may set the first offsets with `incremental_assign`.
            on_revoke: called with (consumer, partitions) for partitions to give up, before their
                offsets are committed.
            on_lost: called with (consumer, partitions) for partitions that are already lost.
                Without it, `on_revoke` is called instead.
            on_warmup: called with (consumer, partitions) to restore state of other members'
                partitions, or to keep it after `on_revoke`. Without it, there are no warm-ups.
            on_warmup_cancelled: called with (consumer, partitions) that need no warm-up any longer.
            warm: partitions whose state the process has already, for example on its disk.

        Raises:
            KafkaException: the list is empty, or a name or a pattern is not valid.
            TypeError: an argument has the wrong type, or `on_warmup` is missing.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        callbacks = Callbacks(on_assign, on_revoke, on_lost, on_warmup, on_warmup_cancelled)
        self._parts.subscription.enter(topics, callbacks, callbacks.warm_set(warm))

    def unsubscribe(self) -> None:
        """Give up all partitions, as `close` does, and leave the group.

        The member leaves even with `coopgroup.state.dir`, where `close` alone would keep its place.
        """
        self._check_open()
        self._parts.subscription.leave("unsubscribed", for_good=True)

    def hand_over(self) -> None:
        """Let the group take over all partitions, while `poll` continues to return records.

        Use it before a process ends permanently. A partition then pauses only while two members
        pass it on, and not until every other member's next heartbeat, as after `close`. Poll until
        `assignment` is empty, then close. `subscribe` cancels the hand-over. coopgroup's own.

        With the option `warmup` of the policy, a partition stays here until its next owner is warm,
        or until that warm-up has run for `timeout_ms` of the option (10 minutes by default). If the
        process must end earlier, close: cold members then restore during the outage.
        """
        self._check_open()
        self._parts.subscription.hand_over()

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that the application holds, as reported to `on_assign`."""
        self._check_open()
        return to_partitions(self._listener.owned)

    def warmed_up(self, partitions: list[TopicPartition]) -> None:
        """Report that the state of warm-ups is restored; for any thread; coopgroup's own.

        Partitions whose warm-up was cancelled meanwhile are ignored.
        """
        self._check_open()
        self._driver.post(WarmedUp(resources=as_resources(partitions)))

    def warmups(self) -> list[TopicPartition]:
        """Return the warm-ups that the group wants, warm or not; for any thread; coopgroup's own.

        In `on_revoke` they tell which partitions keep their state.
        """
        self._check_open()
        return to_partitions(self._listener.warmups)

    # --- records ---------------------------------------------------------------------------------

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Hand out one record or event, and run waiting callbacks.

        Args:
            timeout: how long to wait, in seconds; negative or None for no limit.

        Returns:
            A message, or None when the time is over. Check the message's `error()`.

        Raises:
            ConsumeError: with deserializers, an event, or a record that cannot be decoded.
            KafkaException: the group refused this member permanently.
            RuntimeError: the consumer is closed.
        """
        ready = self._ready
        if ready:
            driver = self._driver
            now = clock_gettime(CLOCK)
            # Check the lease first: the loss is queued before the lease is cleared.
            if (
                now < driver.lease_until_s
                and now < self._committing.due_at_s
                and not self._inbox.waiting
                and ready
            ):
                # Make no call from here on. A call lets signals in, and a signal's exception would
                # lose the record. (A signal during the clock's call may have closed the consumer.)
                message = ready[0]
                del ready[0]
                driver.polled_at_s = now
                return message
        self._check_open()
        messages = self._delivery.take(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Hand out up to a number of records and events, and run waiting callbacks.

        Args:
            num_messages: maximum number of messages, up to 1,000,000.
            timeout: how long to wait for the full number, in seconds; negative or None for no
                limit.

        Raises:
            ConsumeError: as for `poll`, after the messages before it.
            KafkaException: the group refused this member permanently.
            TypeError: `num_messages` is not a whole number.
            ValueError: `num_messages` is outside its range.
        """
        self._check_open()
        count = operator.index(num_messages)
        if not 0 <= count <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._delivery.take(count, timeout)

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the records until the consumer is closed; subscribe before.

        An iteration that has begun outlasts `unsubscribe`: it waits for the next subscription.

        Raises:
            RuntimeError: the consumer is not subscribed when the iteration begins, so no record
                could ever come. (`poll` and `consume` wait in this case, as in confluent_kafka.)
        """
        self._check_subscribed()
        record_buffer = self._fetching.record_buffer
        while not self._closed:
            try:
                message = self.poll(1.0)
            except RuntimeError as refusal:
                if refusal.args == (_CLOSED,):
                    return  # closed by a callback, or in a signal handler
                raise
            except ConsumeError as event:  # with deserializers
                if event.code in PASSING_ERRORS:
                    continue
                raise
            if message is None:
                continue
            record_buffer.leaving = (message,)
            try:
                error = message.error()
            except BaseException:  # such as Ctrl-C at this moment
                self._delivery.pump.put_back([message])
                raise
            record_buffer.leaving = ()
            if error is not None:
                if error.code() in PASSING_ERRORS:
                    continue  # `on_lost`, or a log event, has reported it
                raise KafkaException(error)
            yield message

    # --- where to begin, from inside callbacks ---------------------------------------------------

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Set the first offsets of new partitions in `on_assign`; else raise `KafkaException`."""
        self._check_open()
        self._listener.begin_assigned(partitions)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Do the same as `incremental_assign`; owned partitions stay."""
        self.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Accept the revocation in `on_revoke` or `on_lost`; elsewhere raise `KafkaException`."""
        self._check_open()
        self._listener.accept_revoked(partitions)

    def unassign(self) -> None:
        """Do the same as `incremental_unassign` for all partitions that are given up."""
        self.incremental_unassign([])

    def revoke_later(self, partitions: list[TopicPartition]) -> PutOff | None:
        """Postpone, in `on_revoke`, the revocation of partitions whose work takes long to stop.

        The work stops beside the polling thread. Until `finish_revoke`, `poll` returns no records
        of these partitions, but they stay in `assignment` and their offsets may be committed. The
        other partitions move meanwhile. A partition that is not finished within
        `max.poll.interval.ms` of the call of `on_revoke` is lost (`on_lost`). This method is
        coopgroup's own.

        Returns:
            The postponed partitions, for `finish_revoke`. None during `unsubscribe` and `close`,
            which cannot wait.

        Raises:
            KafkaException: the call is not in `on_revoke`, or the partitions are not being revoked.
            TypeError: the argument is not a list of partitions.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        return self._listener.revoke_later(partitions)

    def finish_revoke(self, stopped: list[TopicPartition] | PutOff) -> None:
        """Report that partitions postponed by `revoke_later` have stopped; for any thread.

        The next `poll` commits their offsets, as after `on_revoke`, and gives them up. Partitions
        that were lost meanwhile are ignored. This method is coopgroup's own.

        Args:
            stopped: the result of `revoke_later`, if all its partitions have stopped; or a list
                of partitions. A list ends any postponed revocation of these partitions. If they
                were lost and returned meanwhile, that may be a later revocation. The result of
                `revoke_later` always means its own revocation.

        Raises:
            TypeError: the argument is neither.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        self._listener.finish_revoke(stopped)

    # --- offsets and flow ------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> list[TopicPartition] | None:
        """Commit offsets to the group; works during a rebalance too.

        Args:
            message: commit its offset + 1.
            offsets: commit these offsets. Without `message` and `offsets`, all positions or all
                stored offsets are committed.
            asynchronous: whether to return immediately; `on_commit` then gets the outcome.

        Returns:
            None if asynchronous, else the committed offsets.

        Raises:
            KafkaException: the commit failed, or no offset was due.
            TypeError: an argument is not a record or a list of partitions.
            ValueError: both a message and offsets were given.
        """
        self._check_open()
        wanted = given_offsets(message, offsets, "commit")
        if wanted is None:
            wanted = self._committing.store.due(self._listener.owned)
        if asynchronous:
            self._committing.commit_later(wanted, self._listener.owned)
            return None
        self._committing.commit_now(wanted)
        if offsets is not None:
            return list(offsets)
        return [to_partition(one.topic, one.partition, one) for one in wanted]

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; requires `enable.auto.offset.store` to be off.

        Raises:
            KafkaException: offsets are stored automatically, or a partition is not owned.
            TypeError: an argument is not a record or a list of partitions.
            ValueError: both or neither of message and offsets were given.
        """
        self._check_open()
        wanted = given_offsets(message, offsets, "store")
        if wanted is None:
            raise ValueError("expected either message or offsets")
        is_automatic = self._settings.auto_offset_store
        check_storable(wanted, self._listener.owned, is_automatic=is_automatic)
        self._committing.store.store(wanted)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next record that the application gets from each partition.

        Raises:
            TypeError: the argument is not a list of partitions.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        return self._fetching.positions(checked_partitions(partitions))

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """Return the group's committed offsets.

        Args:
            partitions: partitions to look up.
            timeout: how long to wait, in seconds; negative or None for no limit.

        Returns:
            The partitions with offset, metadata and leader epoch. The offset is -1001 without a
            commit. `error` is the coordinator's refusal.

        Raises:
            KafkaException: the coordinator does not answer in time, or refuses.
            TypeError: the argument is not a list of partitions.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        return read_committed(
            self._driver, self._settings, partitions, _seconds(timeout), lambda: self._closed
        )

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out no records of these partitions until `resume`."""
        self._check_open()
        self._fetching.pause(partitions, self._listener.owned, "application")

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out records of these partitions again, from the position of the pause."""
        self._check_open()
        self._fetching.resume(all_but(partitions, self._listener.stopping), "application")

    def seek(self, partition: TopicPartition) -> None:
        """Continue at another offset of an owned partition."""
        self._check_open()
        self._fetching.seek(partition)

    # --- look-ups and the group ------------------------------------------------------------------

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float | None = -1,
        cached: bool = False,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> tuple[int, int]:
        """Return the lowest offset of a partition, and the highest offset + 1."""
        return self._client.get_watermark_offsets(partition, _seconds(timeout), cached)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """Return the first offset at or after a time, given as the offset, in ms since 1970."""
        return self._client.offsets_for_times(partitions, _seconds(timeout))

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        """Return the metadata of the cluster, or of one topic."""
        metadata: ClusterMetadata = self._client.list_topics(topic, _seconds(timeout))
        return metadata

    def cluster_id(self, timeout: float | None = -1) -> str | None:
        """Return the id of the cluster."""
        return self._client.cluster_id(_seconds(timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this name and password (PLAIN, SCRAM) from the next authentication on.

        Connections that are open stay open, as in confluent_kafka.
        """
        self._check_open()
        self._parts.set_sasl_credentials(username, password)

    def memberid(self) -> str | None:
        """Return the member id from the group coordinator; None before the member has an id."""
        self._check_open()
        return self._driver.member.member_id or None

    def consumer_group_metadata(self) -> bytes:
        """Return metadata for `Producer.send_offsets_to_transaction` to fence zombies (KIP-447).

        After a loss it still names the last generation, so that the group refuses the offsets.
        """
        self._check_open()
        return encode_group_metadata(self._settings.member, self._driver.fence)

    def health(self) -> Health:
        """Return the state of this member, for any thread; see `coopgroup.health`; our own."""
        return self._parts.probe.read()

    def close(self) -> None:
        """Give up all partitions (`on_revoke`), commit, leave the group, end all threads.

        An exception of a callback is raised, but the consumer is closed anyway. A forked child of
        the process that made the consumer does nothing here; its other calls raise RuntimeError.
        """
        if self._closing or is_of_parent(self._parts):
            return
        self._closing = True
        with ExitStack() as last_first:
            last_first.callback(self._parts.close)
            last_first.callback(setattr, self, "_closed", True)  # noqa: FBT003
            last_first.callback(self._listener.serve_calls)
            last_first.callback(self._parts.stop)
            self._parts.subscription.leave("consumer closed", for_good=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _client(self) -> Consumer:
        self._check_open()
        client: Consumer = self._fetching.consumer
        return client

    def _check_subscribed(self) -> None:
        if not self._closed and self._parts.subscription.is_empty:
            raise RuntimeError(NOT_SUBSCRIBED)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)


def _seconds(timeout: float | None) -> float:
    return -1 if timeout is None else timeout


@frozen(kw_only=True, eq=False)
class ConsumerParts:
    """The parts of a consumer."""

    sink: TelemetrySink
    slot: IdentitySlot | None
    driver: GroupDriver
    watcher: TopicWatcher
    fetching: Fetching
    committing: Committing
    listener: GroupListener
    pump: Pump
    delivery: Delivery
    subscription: ApplicationSubscription
    work: ConsumerWork
    probe: MemberProbe
    when_dropped: Finalizer

    @classmethod
    def build(
        cls,
        consumer: object,
        settings: ConsumerSettings,
        assignor: AssignorChoice | None,
        policy: PolicyChoice | None,
    ) -> ConsumerParts:
        """Make all parts; no thread of the group runs before `start`.

        Raises:
            ConfigurationError: the assignor or the policy is invalid, or librdkafka refuses the
                configuration, or the telemetry file or the state directory cannot be written.
            KafkaException: `oauth_cb` gave no token within 10 seconds.
        """
        where, when = choose_plugins(settings, assignor, policy)
        with ExitStack() as opened:
            sink, slot = open_sink_and_slot(settings, opened)
            client = _librdkafka(settings)
            opened.callback(client.close)
            parts = cls._put_together(consumer, settings, sink, slot, client, where, when)
            if settings.strategies:
                chosen = getattr(where, "name", None)
                offered = list(settings.member.protocols)
                sink.warn("assignment_strategy_read", assignor=chosen, protocols=offered)
            opened.pop_all()
            return parts

    @classmethod
    def _put_together(
        cls,
        consumer: object,
        settings: ConsumerSettings,
        sink: TelemetrySink,
        slot: IdentitySlot | None,
        client: Any,  # noqa: ANN401  (librdkafka's consumer, or a test's)
        assignor: Assignor | None,
        policy: Policy | None,
    ) -> ConsumerParts:
        lookup = ClusterLookup(
            settings.admin,
            settings.member.group_id,
            settings.offset_reset,
            LOOKUP_TIMEOUT_MS,
            settings.connection,
        )
        driver = GroupDriver(
            settings=settings,
            assignor=assignor,
            policy=policy,
            lookup=lookup,
            sink=sink,
            slot=slot,
        )
        first_look = FirstLook()
        starts = driver.inbox.starts = _starting_offsets(driver, settings, first_look)
        fetching = Fetching(client, starts, renew=lambda: _renewed(settings))

        committing = Committing(
            driver=driver,
            store=OffsetStore(fetching, settings.auto_offset_store),
            starts=starts,
            on_commit=settings.on_commit,
            interval_ms=settings.auto_commit_interval_ms,
            write=driver.write,
        )
        listener = GroupListener(
            consumer=consumer,
            driver=driver,
            fetching=fetching,
            committing=committing,
            write=driver.write,
        )
        error_cb = settings.librdkafka.get("error_cb")
        if error_cb is not None:
            errors = GroupErrors(error_cb, driver.inbox)
            sink.hear, listener.on_failure = errors.hear, error_cb
        missing = MissingTopics(
            driver.transport,
            driver.inbox,
            fetching,
            sink.warn,
            LOOKUP_TIMEOUT_MS,
            first_look,
        )
        watcher = TopicWatcher(
            lookup=lookup,
            leader=driver.leader,
            leads=lambda: driver.leads,
            post=driver.post,
            later=driver.transport.later,
            refresh_ms=settings.metadata_refresh_ms,
            hidden=settings.own_topics,
            look_for_missing=missing.look,
            sight=missing.sight,
            first_look=first_look,
        )
        lookup.on_open = watcher.give_back_soon
        decoder = None if settings.deserializers is None else Decoder(settings.deserializers)
        pump = Pump(driver, fetching, committing, listener, decoder, Pace(IDLE_S))
        work = ConsumerWork(listener, fetching, committing, lookup.log_ranges, lookup.offset_reset)
        probe = MemberProbe(driver, work)
        sink.watch(probe)
        return cls(
            sink=sink,
            slot=slot,
            driver=driver,
            watcher=watcher,
            fetching=fetching,
            committing=committing,
            listener=listener,
            pump=pump,
            delivery=Delivery(pump, driver.meter),
            subscription=ApplicationSubscription(
                driver=driver, watcher=watcher, listener=listener, committing=committing
            ),
            work=work,
            probe=probe,
            when_dropped=finalize_when_dropped(consumer, driver, watcher, sink, slot),
        )

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Authenticate with these from now on, on all connections; open connections stay open.

        Raises:
            TypeError: an argument is not a string.
            ValueError: a string contains NUL.
        """
        credentials = self.driver.settings.connection.credentials
        if credentials is None:  # the mechanism has no password, but the arguments may be wrong
            self.fetching.consumer.set_sasl_credentials(username, password)
            return
        # First: a consumer that replaces this one at the same moment takes them from there.
        credentials.replace(username, password)
        credentials.give(self.fetching.consumer)

    @property
    def decoder(self) -> Decoder | None:
        """Return what decodes the records; None without deserializers."""
        return self.pump.decoder

    @property
    def ready(self) -> deque[Message]:
        """Return the records that may leave as they are; those with deserializers may not."""
        return self.fetching.record_buffer.ready if self.decoder is None else deque()

    def start(self) -> None:
        """Start the group's threads; if one cannot start, end and close everything."""
        try:
            self.driver.start()
        except BaseException:  # the caller gets no consumer to close
            with ExitStack() as last_first:
                last_first.callback(self.close)
                self.stop()
            raise

    def stop(self) -> None:
        """End the group's threads, and with them the commits in progress."""
        self.when_dropped.detach()
        with ExitStack() as last_first:
            last_first.callback(self.driver.stop)
            self.watcher.stop()

    def close(self) -> None:
        """End librdkafka's client, free the identity slot, and close the telemetry file."""
        with ExitStack() as last_first:
            last_first.callback(self.sink.close)
            if self.slot is not None:
                last_first.callback(self.slot.release)
            self.fetching.close()


def _is_without_token(error: Exception) -> bool:
    """Return whether `oauth_cb` gave no token in time: then the configuration is not at fault."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, KafkaError) and cause.code() == KafkaError.SASL_AUTHENTICATION_FAILED


def _starting_offsets(
    driver: GroupDriver, settings: ConsumerSettings, first_look: FirstLook
) -> StartingOffsets:
    def changed() -> None:
        """Wake the application to take offsets, and the group's thread to check the time."""
        driver.inbox.wake()
        driver.post(Woken())

    def reset_of(partition: tuple[str, int]) -> int | None:
        is_late = settings.offset_reset == "latest" and first_look.has_appeared(*partition)
        return RESET_TO.get("earliest" if is_late else settings.offset_reset)

    timeout_ms = settings.connection.request_timeout_ms
    edges = LogEdges(driver.transport, timeout_ms, reads_committed=settings.requires_stable)
    lookup = OffsetLookup(
        transport=driver.transport,
        group_id=settings.member.group_id,
        require_stable=settings.requires_stable,
        timeout_ms=timeout_ms,
        changed=changed,
        known_coordinator=lambda: driver.member.coordinator,
        persists=True,
        edges=edges,
        reset_of=reset_of,
    )
    return StartingOffsets(lookup, driver.sink.warn)


def _librdkafka(settings: ConsumerSettings) -> Any:  # noqa: ANN401  (its stub lacks dict values)
    credentials = settings.connection.credentials
    try:
        client = Consumer(with_plain_errors(settings.librdkafka))
    except (KafkaException, TypeError, ValueError) as error:
        if _is_without_token(error):
            raise
        raise refusal_of_librdkafka(error, settings.librdkafka) from None
    if credentials is not None:
        credentials.give(client)
    return client


@contextmanager
def _renewed(settings: ConsumerSettings) -> Iterator[Any]:
    """Yield another consumer; credentials may change until it is in place, at the block's end."""
    client = _librdkafka(settings)
    try:
        yield client
    finally:
        if settings.connection.credentials is not None:
            settings.connection.credentials.give(client)


def choose_plugins(
    settings: ConsumerSettings, assignor: AssignorChoice | None, policy: PolicyChoice | None
) -> tuple[Assignor | None, Policy | None]:
    """Return the assignor and the policy; None for the defaults.

    Raises:
        ConfigurationError: a name or an option is wrong, or as for `check_plugins`.
    """
    if assignor is not None:
        settings.member.require_leader("assignor=")
    if policy is not None:
        settings.member.require_leader("policy=")
    wanted = settings.assignor if assignor is None else assignor
    wanted = assignor_of(settings.strategies) if wanted is None else wanted
    named = settings.policy if policy is None else policy
    if wanted is None and named is None:
        return None, None
    from coopgroup.kafka.plugins import (  # noqa: PLC0415 - imports all assignors and policies
        check_plugins,
        chosen_assignor,
        chosen_policy,
    )

    where, when = chosen_assignor(wanted), chosen_policy(named)
    check_plugins(where, when)
    return where, when
