"""`CooperativeConsumer`: `confluent_kafka.Consumer` whose retained partitions never pause.

Theory of operation. The group lives on a thread of its own (`driver`), so a round never holds up
the application. librdkafka only fetches (`fetching`); what it gave waits in a hand-out until
`poll` or `consume` takes it (`delivery`). What the group has to say waits in an inbox until then
as well, and callbacks run there, on the application's thread (`notices`). Commits go to the
group's thread (`committing`). This file is the front of these parts, method by method as
confluent_kafka has them.

Rule of this file: `poll` is the hot path. It hands out the next record that waits if the lease
holds and nothing else is to be done, and everything else is `Delivery.take`.
"""

from __future__ import annotations

import operator
from contextlib import ExitStack
from time import clock_gettime
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.kafka.clock import CLOCK
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.group_metadata import encode_group_metadata
from coopgroup.kafka.notices import Callbacks
from coopgroup.kafka.offsets import given_offsets
from coopgroup.kafka.partitions import to_partitions
from coopgroup.kafka.parts import ConsumerParts
from coopgroup.kafka.settings import merge_configuration, read_settings
from coopgroup.kafka.user_callbacks import keep_callbacks
from coopgroup.policies.simple import SimplePolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka.admin import ClusterMetadata

    from coopgroup.assignors.base import Assignor
    from coopgroup.kafka.notices import Callback
    from coopgroup.kafka.slow_stops import PutOff
    from coopgroup.policies.base import Policy

__all__ = ["CooperativeConsumer"]

_CLOSED: Final = "Consumer closed"  # the words of confluent_kafka


class CooperativeConsumer:
    """A consumer whose group rebalances incrementally and in cooperation.

    It has the methods of `confluent_kafka.Consumer`, with the same arguments, return values and
    exceptions; the documentation lists the few differences one by one. One thread polls; `commit`,
    `position`, `memberid` and the look-ups may be called from any thread.

    Args:
        configuration: keys of `confluent_kafka.Consumer`, and coopgroup's own (`coopgroup.…`).
        policy: when resources move; `SimplePolicy()` if not given.
        assignor: where they go; `StickyAssignor()` if not given. Both count only while this
            member leads the group, so give all members the same.
        more: further keys, which win over those in `configuration`; `logger=` for instance.

    Raises:
        ConfigurationError: a key is unknown, refused, or has a value that it cannot have; or the
            policy or the assignor is none.
        KafkaException: `oauth_cb` gave no token within 10 seconds.
        TypeError: no configuration at all.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *,
        policy: Policy | None = None,
        assignor: Assignor | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        """Read the configuration and start the group's threads; nothing is joined yet."""
        given, self._callbacks = keep_callbacks(merge_configuration(configuration, more))
        self._settings = read_settings(given)
        parts = ConsumerParts.build(
            self,
            self._settings,
            StickyAssignor() if assignor is None else assignor,
            SimplePolicy() if policy is None else policy,
        )
        self._parts = parts
        self._driver = parts.driver
        self._fetching = parts.fetching
        self._committing = parts.committing
        self._notices = parts.notices
        self._delivery = parts.delivery
        self._ready = parts.fetching.hand_out.ready  # these two for the hot path
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
    ) -> None:
        """Join the group for a list of topics, in place of an earlier list.

        Args:
            topics: names, and patterns (regular expressions of Python) that begin with `^`.
            on_assign: called with (consumer, partitions) for partitions that are gained, before
                they are fetched; it may set where to begin with `incremental_assign`.
            on_revoke: called with (consumer, partitions) for partitions to give up, before their
                offsets are committed.
            on_lost: called with (consumer, partitions) for partitions that are lost already;
                `on_revoke` is called instead if it is not given.

        Raises:
            KafkaException: the list is empty, or a name or a pattern is none.
            TypeError: the topics are no list of strings, or a callback cannot be called.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        callbacks = Callbacks(on_assign, on_revoke, on_lost)
        for name in ("on_assign", "on_revoke", "on_lost"):
            callback = getattr(callbacks, name)
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        self._parts.subscription.enter(topics, callbacks)

    def unsubscribe(self) -> None:
        """Give up all partitions, as `close` does, and leave the group.

        Also with `coopgroup.state.dir`, where a member that is only closed keeps its place.
        """
        self._check_open()
        self._parts.subscription.leave("unsubscribed", for_good=True)

    def hand_over(self) -> None:
        """Have the group take everything over, while records go on being handed out.

        For a process that is about to end for good: a partition pauses for as long as two
        members need to pass it on, and not until every other member's next heartbeat, as it does
        when `close` is the first that the group hears. Poll until `assignment` is empty, then
        close. `subscribe` takes it back. coopgroup's own; confluent_kafka has nothing like it.
        """
        self._check_open()
        self._parts.subscription.hand_over()

    def assignment(self) -> list[TopicPartition]:
        """Partitions that the application holds: those that `on_assign` was told."""
        self._check_open()
        return to_partitions(self._notices.held)

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
            now = clock_gettime(CLOCK)
            # The lease first: when it stops to matter, the inbox already says why.
            if (
                now < driver.lease_until_s
                and now < self._committing.due_at_s
                and not self._inbox.waiting
                and ready
            ):
                # No call from here on: it could let a signal in, whose exception would lose the
                # record. (One that was let in by the clock may have closed the consumer.)
                message = ready[0]
                del ready[0]
                driver.polled_at_s = now
                return message
        self._check_open()
        messages = self._delivery.take(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Hand out up to a number of records and events, and run callbacks that wait.

        Args:
            num_messages: how many at most, up to 1,000,000.
            timeout: how long to wait until there are so many, in seconds; negative or None for as
                long as it takes.

        Raises:
            KafkaException: the group refused this member for good.
            TypeError: a number of messages that is no whole number.
            ValueError: a number of messages outside its range.
        """
        self._check_open()
        count = operator.index(num_messages)
        if not 0 <= count <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._delivery.take(count, timeout)

    def __iter__(self) -> Iterator[Message]:
        """Records one after the other, until the consumer is closed; errors are raised."""
        hand_out = self._fetching.hand_out
        while not self._closed:
            try:
                message = self.poll(1.0)
            except RuntimeError as refusal:
                if refusal.args == (_CLOSED,):
                    return  # by a callback, or in the handler of a signal
                raise
            if message is None:
                continue
            hand_out.leaving = (message,)
            try:
                error = message.error()
            except BaseException:  # Ctrl-C in this very moment
                self._delivery.put_back([message])
                raise
            hand_out.leaving = ()
            if error is not None:
                if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001  (public)
                    continue  # the member comes back by itself; `on_lost` says what was lost
                raise KafkaException(error)
            yield message

    # --- where to begin, from inside callbacks ---------------------------------------------------

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Say in `on_assign` where to begin with what was gained; else a `KafkaException`."""
        self._check_open()
        self._notices.begin_assigned(partitions)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """The same as `incremental_assign`; what is held already stays."""
        self.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Accept in `on_revoke` or `on_lost` what happens anyway; elsewhere a `KafkaException`."""
        self._check_open()
        self._notices.accept_revoked(partitions)

    def unassign(self) -> None:
        """The same as `incremental_unassign` of all that is given up."""
        self.incremental_unassign([])

    def revoke_later(self, partitions: list[TopicPartition]) -> PutOff | None:
        """Say in `on_revoke` what takes long to stop, and does so beside the polling thread.

        Its records are not handed out any more, but it stays in `assignment` and its offsets may be
        committed, until `finish_revoke`. The rest moves meanwhile. What is not finished within
        `max.poll.interval.ms` of the call of `on_revoke` is lost (`on_lost`). coopgroup's own.

        Returns:
            What was put off, for `finish_revoke`. None if there is no later: `unsubscribe` and
            `close` wait for nothing.

        Raises:
            KafkaException: called elsewhere, or with partitions that are not revoked.
            TypeError: no list of partitions.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        return self._notices.revoke_later(partitions)

    def finish_revoke(self, stopped: list[TopicPartition] | PutOff) -> None:
        """Say that what was put off by `revoke_later` has stopped; from any thread.

        The next `poll` commits it, as after `on_revoke`, and gives it up. What was lost meanwhile
        is passed over. coopgroup's own.

        Args:
            stopped: what `revoke_later` returned, all of which has stopped; or partitions, which
                end whatever stop of them is under way then. Only the former cannot be taken for
                a later stop, of partitions that were lost and came back meanwhile.

        Raises:
            TypeError: neither of them.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        self._notices.finish_revoke(stopped)

    # --- offsets and flow ------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> list[TopicPartition] | None:
        """Commit offsets to the group, right through a rebalance.

        Args:
            message: commit its offset + 1.
            offsets: commit these; without both, all positions, or what was stored, are committed.
            asynchronous: whether to return at once; the outcome is heard by `on_commit`.

        Returns:
            None if asynchronous, else what was committed.

        Raises:
            KafkaException: the commit failed, or there was nothing to commit.
            TypeError: something else than a record or a list of partitions.
            ValueError: both a message and offsets.
        """
        self._check_open()
        wanted = given_offsets(message, offsets, "commit")
        if wanted is None:
            wanted = self._committing.store.due(self._notices.held)
        if asynchronous:
            self._committing.commit_later(wanted)
            return None
        self._committing.commit_now(wanted)
        if offsets is not None:
            return list(offsets)
        return [TopicPartition(one.topic, one.partition, one.offset) for one in wanted]

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Remember offsets for the next commit; needs `enable.auto.offset.store` off.

        Raises:
            KafkaException: offsets are stored automatically, or a partition is not held.
            TypeError: something else than a record or a list of partitions.
            ValueError: both or neither of message and offsets.
        """
        self._check_open()
        wanted = given_offsets(message, offsets, "store")
        if wanted is None:
            raise ValueError("expected either message or offsets")
        if self._settings.auto_offset_store:
            raise kafka_exception(
                KafkaError._INVALID_ARG,  # noqa: SLF001  (public constant of confluent_kafka)
                "StoreOffsets failed: enable.auto.offset.store must be false",
            )
        for one in wanted:
            if (one.topic, one.partition) not in self._notices.held:
                raise kafka_exception(
                    KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                    f"StoreOffsets failed: {one.topic} [{one.partition}] is not assigned",
                )
        self._committing.store.store(wanted)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Offset of the next record that the application gets from each partition."""
        self._check_open()
        return self._fetching.positions(partitions)

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """Offsets that the group has committed.

        Args:
            partitions: of which partitions.
            timeout: how long to wait, in seconds; negative or None for as long as it takes.

        Returns:
            The partitions with offset, metadata and leader epoch; the offset is -1001 where there
            is no commit. `error` says what the coordinator refuses.

        Raises:
            KafkaException: the coordinator does not answer in time, or refuses to.
            TypeError: no list of partitions.
            RuntimeError: the consumer is closed.
        """
        self._check_open()
        return self._parts.committed.read(partitions, _seconds(timeout), lambda: self._closed)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        self._check_open()
        self._fetching.pause(partitions, self._notices.held)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out records of these partitions again, from where they were paused."""
        self._check_open()
        stopping = self._notices.stopping
        if stopping:
            partitions = [one for one in partitions if (one.topic, one.partition) not in stopping]
        self._fetching.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset of a partition that is held."""
        self._check_open()
        self._fetching.seek(partition)

    # --- look-ups and the group ------------------------------------------------------------------

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float | None = -1,
        cached: bool = False,  # noqa: FBT001, FBT002  (as confluent_kafka has it)
    ) -> tuple[int, int]:
        """Lowest offset of a partition, and the highest + 1."""
        return self._client.get_watermark_offsets(partition, _seconds(timeout), cached)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """First offset at or after a time, given in ms since 1970 in place of the offset."""
        return self._client.offsets_for_times(partitions, _seconds(timeout))

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        """Metadata of the cluster, or of one topic."""
        metadata: ClusterMetadata = self._client.list_topics(topic, _seconds(timeout))
        return metadata

    def cluster_id(self, timeout: float | None = -1) -> str | None:
        """Id of the cluster."""
        return self._client.cluster_id(_seconds(timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Not possible, a `KafkaException`: the group's connections keep the first credentials."""
        del username, password
        self._check_open()
        raise kafka_exception(
            KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  (public constant of confluent_kafka)
            "set_sasl_credentials: make a new consumer with the new credentials",
        )

    def memberid(self) -> str | None:
        """Id that the group coordinator gave this member; None before it has one."""
        self._check_open()
        return self._driver.member.member_id or None

    def consumer_group_metadata(self) -> bytes:
        """What `Producer.send_offsets_to_transaction` needs to fence a zombie (KIP-447).

        After a loss it still names the last generation, so that the group refuses the offsets.
        """
        self._check_open()
        return encode_group_metadata(self._settings.member, self._driver.fence)

    def close(self) -> None:
        """Give up all partitions (`on_revoke`), commit, leave the group, end all threads.

        What a callback raises comes out; the consumer is closed all the same.
        """
        if self._closing:
            return
        self._closing = True
        with ExitStack() as last_first:
            last_first.callback(self._parts.close)
            last_first.callback(self._mark_closed)
            last_first.callback(self._notices.serve_calls)
            last_first.callback(self._parts.stop)
            self._parts.subscription.leave("consumer closed", for_good=False)

    def __enter__(self) -> Self:
        """Return the consumer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self.close()

    @property
    def _client(self) -> Consumer:
        self._check_open()
        client: Consumer = self._fetching.consumer
        return client

    def _mark_closed(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)


def _seconds(timeout: float | None) -> float:
    return -1 if timeout is None else timeout
