"""`CooperativeConsumer`: `confluent_kafka.Consumer` whose retained partitions never pause.

Theory of operation. The group has its own thread (`driver`), so a round never blocks the
application. librdkafka only fetches (`fetching`). Its records wait in a hand-out until `poll` or
`consume` takes them (`delivery`). Notices of the group wait in an inbox until then as well, and
callbacks run on the application's thread (`listener`). Commits go to the group's thread
(`committing`). This file is the front of these parts, with the methods of confluent_kafka.

`poll` is the hot path. It hands out the next waiting record if the lease holds and no other work is
due. `Delivery.take` handles every other case.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from time import clock_gettime
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.error import ConsumeError

from coopgroup.core.member.events import WarmedUp
from coopgroup.kafka.callbacks.pending_revocations import PutOff
from coopgroup.kafka.callbacks.subscribed import Callback, Callbacks, as_resources
from coopgroup.kafka.callbacks.user_callbacks import keep_callbacks
from coopgroup.kafka.clock import CLOCK
from coopgroup.kafka.config.settings import merge_configuration, read_settings
from coopgroup.kafka.exceptions import PASSING_ERRORS
from coopgroup.kafka.membership.group_metadata import encode_group_metadata
from coopgroup.kafka.parts import ConsumerParts
from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice
from coopgroup.kafka.records.committed import read_committed
from coopgroup.kafka.records.offsets import given_offsets, offsets_to_store
from coopgroup.kafka.records.partitions import all_but, to_partition, to_partitions

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

    from coopgroup.kafka.health.value import Health


__all__ = ["CooperativeConsumer"]

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
                self._delivery.put_back([message])
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
        owned, is_automatic = self._listener.owned, self._settings.auto_offset_store
        wanted = offsets_to_store(message, offsets, owned, is_automatic=is_automatic)
        self._committing.store.store(wanted)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next record that the application gets from each partition."""
        self._check_open()
        return self._fetching.positions(partitions)

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

        An exception of a callback is raised, but the consumer is closed anyway.
        """
        if self._closing:
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

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)


def _seconds(timeout: float | None) -> float:
    return -1 if timeout is None else timeout
