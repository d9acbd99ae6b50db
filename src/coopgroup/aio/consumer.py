"""`AsyncCooperativeConsumer`: the front of `coopgroup.aio`.

Theory of operation. A consumer has the same parts as a `CooperativeConsumer`. A thread polls them
(`polling`), and the tasks of the loop take the records (`hand_out`). Callbacks run on the loop
(`callbacks`). Names and shapes are those of aiokafka, where it has them.

`start` makes the parts beside the loop, then the polling thread. Parts that are made while the
start is cancelled are closed again.

`Ending`: the polling thread reports its end, and the tasks that close wait for it. A cancelled task
still waits. Otherwise `asyncio.run` would end the loop while the consumer gives up its partitions.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from attrs import define, evolve, field
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from coopgroup.aio.callbacks import AsyncCallback, GivenCallbacks, LoopCallbacks, ToldCallbacks
from coopgroup.aio.hand_out import ConsumerStoppedError, HandOut, key_of, keys_of
from coopgroup.aio.loop_port import LoopPort, aside
from coopgroup.aio.offsets import Offsets
from coopgroup.aio.polling import Polling
from coopgroup.aio.records import ConsumerRecord, GivenOffsets
from coopgroup.core.member.events import WarmedUp
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.finalizer import keep_callbacks
from coopgroup.kafka.callbacks.listener import Callbacks, as_resources
from coopgroup.kafka.config.settings import merge_configuration, read_settings
from coopgroup.kafka.consumer import NOT_SUBSCRIBED, ConsumerParts, choose_plugins
from coopgroup.kafka.forked import is_of_parent, keep_to_process
from coopgroup.kafka.health.value import Health
from coopgroup.kafka.membership.group_metadata import encode_group_metadata
from coopgroup.kafka.membership.subscription import read_topics
from coopgroup.kafka.records.partitions import to_partitions

if TYPE_CHECKING:
    from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice


def _close(parts: ConsumerParts) -> None:
    parts.stop()
    parts.close()


@define(eq=False)
class Ending:
    """Whether a consumer has ended, and how."""

    _over: Future[None] = field(factory=Future, init=False)
    _failure: BaseException | None = field(default=None, init=False)

    @property
    def is_over(self) -> bool:
        """Return whether the polling thread has closed the consumer."""
        return self._over.done()

    def report(self, failure: BaseException | None) -> None:
        """Report the end, with the exception of the close or None; on the polling thread."""
        self._failure = failure
        self._over.set_result(None)

    def take_failure(self) -> BaseException | None:
        """Return the exception of the close, only once."""
        failure, self._failure = self._failure, None
        return failure

    async def wait(self) -> asyncio.CancelledError | None:
        """Wait for the end, also if the task is cancelled; return the last cancellation."""
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over:
            try:
                await asyncio.wait([asyncio.wrap_future(self._over)])
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled


_METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class RebalanceListener(Protocol):
    """aiokafka's `ConsumerRebalanceListener`; its methods may be coroutines."""

    def on_partitions_assigned(self, assigned: Any, /) -> Any:  # noqa: ANN401  (or a coroutine)
        """Hear of newly assigned partitions."""
        ...

    def on_partitions_revoked(self, revoked: Any, /) -> Any:  # noqa: ANN401  (or a coroutine)
        """Hear of partitions to give up."""
        ...


def read_subscription(
    topics: Iterable[str],
    pattern: str | None,
    listener: RebalanceListener | None,
    callbacks: Callbacks,
) -> tuple[tuple[str, ...], Callbacks]:
    """Return the topics and the callbacks.

    Raises:
        ConfigurationError: a topic or the pattern is not valid; or none or both were given; or both
            a listener and callbacks.
        TypeError: the topics are not strings.
    """
    if isinstance(topics, str):
        raise TypeError(f"topics is {topics!r}: it must be a list of names, such as [{topics!r}]")
    wanted = list(topics)
    if not all(isinstance(one, str) for one in wanted):
        raise TypeError("topics must be a list of strings")
    if pattern is not None:
        if wanted:
            raise ConfigurationError("pattern", pattern, "without topics")
        wanted = [pattern if pattern.startswith("^") else f"^{pattern}"]
    if not wanted:
        raise ConfigurationError("topics", wanted, "at least one name or pattern")
    read_topics(wanted)
    return tuple(wanted), _callbacks(listener, callbacks)


def _callbacks(listener: RebalanceListener | None, callbacks: Callbacks) -> Callbacks:
    if listener is None:
        return callbacks
    if callbacks.on_assign or callbacks.on_revoke or callbacks.on_lost:
        raise ConfigurationError("listener", listener, "without on_assign, on_revoke and on_lost")
    assign, revoke, lose = (getattr(listener, method, None) for method in _METHODS)
    return evolve(
        callbacks,
        on_assign=_of_method(assign),
        on_revoke=_of_method(revoke),
        on_lost=_of_method(lose),
    )


def _of_method(method: Callable[[set[TopicPartition]], Any] | None) -> AsyncCallback | None:
    if method is None:
        return None
    return lambda _, partitions: method(set(partitions))


_TOLD: Final = ("error_cb", "stats_cb", "throttle_cb", "on_commit")
_NOT_STARTED: Final = "the consumer is not started: use `async with`, or `await consumer.start()`"
_STEP_S: Final = 0.02
_LOOK_UP_S: Final = 30.0


class AsyncCooperativeConsumer:
    """A consumer for asyncio whose group rebalances incrementally and in cooperation.

    It has the configuration, policies and assignors of `CooperativeConsumer`, and the methods of
    aiokafka's `AIOKafkaConsumer`. All methods belong to the thread of one event loop. Any number of
    its tasks may await records.

    Args:
        configuration: keys of `confluent_kafka.Consumer`, and coopgroup's own (`coopgroup.…`).
            `error_cb`, `stats_cb`, `throttle_cb` and `on_commit` run on the loop, and may be
            coroutine functions.
        topics: names, and patterns that begin with `^`, to subscribe to.
        policy: decides when resources move: a policy, its name, or `{"name": …}` with options.
            The default is `SimplePolicy()`.
        assignor: decides where resources go, in the same forms; the default is `StickyAssignor()`.
        more: further keys, such as `logger=`; they take precedence over `configuration`.

    Raises:
        ConfigurationError: a key is unknown or refused, or its value is not allowed; or the policy,
            the assignor or a topic is not valid.
        TypeError: the configuration is missing.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *topics: str,
        policy: PolicyChoice | None = None,
        assignor: AssignorChoice | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        self._port = LoopPort()
        self._errors: deque[BaseException] = deque()
        told = ToldCallbacks(self._port, self._errors)
        merged = {
            key: told.wrap(value) if key in _TOLD and callable(value) else value
            for key, value in merge_configuration(configuration, more).items()
        }
        given, self._kept = keep_callbacks(merged)
        self._settings = read_settings(given)
        self._assignor, self._policy = choose_plugins(self._settings, assignor, policy)
        self._topics: tuple[str, ...] = ()
        self._warm: ResourceSet | None = None
        self._given = GivenCallbacks(weakref.ref(self))
        self._polling: Polling | None = None
        self._offsets: Offsets | None = None
        self._is_starting = self._is_closed = False
        self._ending = Ending()
        if topics:
            self.subscribe(topics)

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and join the group if topics are subscribed; `async with` calls it.

        Raises:
            ConfigurationError: librdkafka refuses the configuration, or the telemetry file or the
                state directory cannot be written.
            KafkaException: `oauth_cb` gave no token within 10 seconds.
            RuntimeError: the consumer was started before.
        """
        if self._is_starting or self._is_closed:
            raise (
                ConsumerStoppedError()
                if self._is_closed
                else RuntimeError("the consumer was started before")
            )
        self._is_starting = True
        try:
            parts = await aside(self._port, self._build, _close)
        except BaseException:
            self._is_starting = False
            raise
        if self._was_closed():
            await aside(self._port, lambda: _close(parts))
            raise ConsumerStoppedError
        is_fetching_here = "oauth_cb" not in self._settings.librdkafka
        hand_out = HandOut(parts.pump, self._port, self._errors, is_fetching_here=is_fetching_here)
        given = weakref.ref(self._given)
        callbacks = LoopCallbacks(given, self._port, hand_out, parts.listener)
        self._polling = Polling(parts, hand_out, callbacks, self._ending.report)
        self._offsets = Offsets(self._port, self._settings, self._polling, self._was_closed)
        weakref.finalize(self, self._polling.drop).atexit = False
        keep_to_process(self, "_polling", "_offsets")
        if self._topics:
            self._enter()
        self._polling.start()

    def _build(self) -> ConsumerParts:
        """Make the parts; beside the loop, because it may wait for files and for a token."""
        parts = ConsumerParts.build(self, self._settings, self._assignor, self._policy)
        parts.listener.consumer = None  # the polling thread must not keep the consumer alive
        parts.start()
        return parts

    async def close(self) -> None:
        """Give up all partitions (`on_revoke`), commit, leave the group, end all threads.

        A cancellation does not interrupt this: the call ends when the consumer is closed, at most
        about ten seconds after `on_revoke` has ended, and then raises `CancelledError`. In a
        callback the call only begins to close.

        Raises:
            BaseException: an exception of a callback; the consumer is closed anyway.
        """
        self._is_closed = True
        polling = self._polling
        if polling is None or is_of_parent(polling):
            return
        polling.hand_out.close()
        polling.close()
        self._port.bind()
        if asyncio.current_task() in polling.callbacks.tasks:
            return
        cancelled = await self._ending.wait()
        polling.join()  # its last step was to tell
        failure = self._ending.take_failure()
        if cancelled is not None:
            raise cancelled
        if failure is None and self._errors:
            failure = self._errors.popleft()
        if failure is not None:
            raise failure

    stop = close
    """The same, under aiokafka's name."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- subscription ----------------------------------------------------------------------------

    def subscribe(  # noqa: PLR0913  (callbacks are named arguments)
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        *,
        on_assign: AsyncCallback | None = None,
        on_revoke: AsyncCallback | None = None,
        on_lost: AsyncCallback | None = None,
        on_warmup: AsyncCallback | None = None,
        on_warmup_cancelled: AsyncCallback | None = None,
        warm: Iterable[TopicPartition] | None = None,
    ) -> None:
        """Join the group for some topics, which replace the earlier ones.

        Callbacks are functions or coroutine functions, and run on the loop. A callback that takes
        long delays only its own partitions. An exception is raised by the next await of records.

        Args:
            topics: names, and patterns (regular expressions of Python) that begin with `^`.
            pattern: a regular expression of names, instead of topics.
            listener: an object with aiokafka's methods `on_partitions_assigned` and
                `on_partitions_revoked`, and perhaps `on_partitions_lost`; instead of callbacks.
            on_assign: called with (consumer, partitions) for newly assigned partitions. They are
                fetched when it has ended; it may `seek`.
            on_revoke: called with (consumer, partitions) for partitions to give up. When it has
                ended, their offsets are committed.
            on_lost: called with (consumer, partitions) for partitions that are already lost.
                Without it, `on_revoke` is called instead.
            on_warmup: called with (consumer, partitions) to restore state of other members'
                partitions, or to keep it after `on_revoke`. It delays no other callback. Without
                it, there are no warm-ups.
            on_warmup_cancelled: called with (consumer, partitions) that need no warm-up any longer.
            warm: partitions whose state the process has already, for example on its disk.

        Raises:
            ConfigurationError: a name or a pattern is not valid, or there is none.
            TypeError: the topics are not strings, or a callback cannot be called or is missing.
            ConsumerStoppedError: the consumer is closed.
        """
        self._check_open()
        callbacks = Callbacks(on_assign, on_revoke, on_lost, on_warmup, on_warmup_cancelled)
        declared = callbacks.warm_set(None if warm is None else list(warm))
        read = read_subscription(topics, pattern, listener, callbacks)
        self._topics, self._given.callbacks = read
        self._warm = declared
        if self._polling is not None:
            self._enter()

    def _enter(self) -> None:
        polling, topics, warm = self._started, list(self._topics), self._warm
        enter = polling.parts.subscription.enter
        polling.call(lambda: enter(topics, polling.callbacks.for_listener(), warm))

    def unsubscribe(self) -> None:
        """Give up all partitions, as `close` does, and leave the group; both happen soon."""
        self._check_open()
        self._topics = ()
        if self._polling is not None:
            leave = self._polling.leave
            self._polling.call(lambda: leave("unsubscribed", for_good=True))

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics and patterns."""
        return frozenset(self._topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that the application holds, as reported to `on_assign`."""
        return frozenset(to_partitions(self._started.parts.listener.owned))

    async def hand_over(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Let the group take over all partitions, while other tasks continue to get records.

        Use it before a process ends permanently, then close. A partition then pauses only while two
        members pass it on. `subscribe` cancels the hand-over. With the option `warmup` of the
        policy, a partition stays here until its next owner is warm, or until that warm-up has run
        for `timeout_ms` of the option (10 minutes by default).

        Args:
            timeout: how long to wait, in seconds; None for no limit. With `warmup`, allow for the
                restores of all partitions.

        Returns:
            Whether all partitions have been given up in time.

        Raises:
            ConfigurationError: the broker assigns.
        """
        self._settings.member.require_leader("hand_over")
        polling, loop = self._started, self._port.bind()
        self._topics = ()
        polling.call(polling.parts.subscription.hand_over)
        ends_s = None if timeout is None else loop.time() + timeout
        with polling.hand_out.as_polling():
            await asyncio.sleep(_STEP_S)
            while polling.parts.listener.owned and not self._is_closed and not self._topics:
                if ends_s is not None and loop.time() >= ends_s:
                    break
                await asyncio.sleep(_STEP_S)
        return not polling.parts.listener.owned

    def warmed_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Report that the state of warm-ups is restored; for any thread; coopgroup's own.

        Partitions whose warm-up was cancelled meanwhile are ignored.
        """
        self._open.polling.parts.driver.post(WarmedUp(resources=as_resources(list(partitions))))

    def warmups(self) -> frozenset[TopicPartition]:
        """Return the warm-ups that the group wants, warm or not; coopgroup's own.

        In `on_revoke` they tell which partitions keep their state.
        """
        return frozenset(to_partitions(self._open.polling.parts.listener.warmups))

    # --- records ---------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Return the next record, of these partitions only if some are given.

        A cancellation loses no record.

        Raises:
            KafkaException: the group refused this member permanently, or a partition has an error.
            RuntimeError: the consumer is not started, or not subscribed; a `ConsumerStoppedError`
                if it is closed.
        """
        return await self._subscribed.hand_out.one(keys_of(partitions))

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the ready records by partition, or wait for the first ones.

        A cancellation loses no record.

        Args:
            partitions: return only records of these partitions; the default is all.
            timeout_ms: how long to wait for the first record, in milliseconds.
            max_records: maximum number of records; the default is all that are ready.
            timeout: the same as `timeout_ms`, in seconds; it takes precedence.

        Raises:
            KafkaException: the group refused this member permanently, or a partition has an error.
            ValueError: `max_records` is less than 1.
            RuntimeError: the consumer is not started; a `ConsumerStoppedError` if it is closed.
        """
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}: it must be at least 1, or None")
        limit_s = timeout_ms / 1000 if timeout is None else timeout
        return await self._started.hand_out.many(keys_of(partitions), max_records, limit_s)

    def __aiter__(self) -> AsyncGenerator[ConsumerRecord]:
        """Iterate over the records until the consumer is closed.

        Raises:
            RuntimeError: the consumer is not started, or not subscribed, when the iteration begins.
        """
        return self._subscribed.hand_out.records(self)

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; raise `StopAsyncIteration` after `close`."""
        try:
            return await self.getone()
        except RuntimeError:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise

    # --- offsets ---------------------------------------------------------------------------------

    async def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Commit offsets to the group; works during a rebalance too.

        Args:
            offsets: a record, whose offset + 1 is committed; or offsets by partition, as whole
                numbers or (offset, metadata); or a list of partitions with offsets. Without it, the
                positions of all partitions are committed, or all stored offsets.

        Raises:
            KafkaException: the commit failed.
            TypeError: the argument has no such form.
            RuntimeError: the consumer is not started; a `ConsumerStoppedError` if it is closed.
        """
        await self._open.commit(offsets)

    def store_offsets(self, offsets: GivenOffsets) -> None:
        """Store offsets for the next commit; requires `enable.auto.offset.store` to be off.

        Args:
            offsets: in any form that `commit` takes.

        Raises:
            KafkaException: offsets are stored automatically, or a partition is not owned.
            TypeError: the argument has no such form.
        """
        self._open.store(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition; None without a commit.

        Raises:
            KafkaException: the coordinator does not answer within 30 s, or refuses.
        """
        return await self._open.committed(key_of(partition))

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that the application gets from a partition.

        A partition that does not know yet where it begins is waited for.

        Raises:
            KafkaException: the partition is not owned.
        """
        return await self._open.position(key_of(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the log end offset, as of the last fetch; None before the first fetch."""
        return self._open.highwater(key_of(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets the application is behind, by records that it received.

        Records that were fetched and not yet received count as lag. librdkafka's statistics say -1.

        Returns:
            The log end offset of the last fetch minus the position; None if either is not known.
        """
        return self._open.lag(key_of(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset of an owned partition, from the next record on.

        Raises:
            KafkaException: the partition is not owned.
            ValueError: the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"offset is {offset}: it must be at least 0")
        self._open.seek(key_of(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first records of partitions; without arguments, of all owned ones.

        After the call, `position` and `commit` count from there, as after `seek`.

        Raises:
            KafkaException: a partition is not owned, or its leader does not answer within 30 s.
        """
        await self._open.seek_to_edge(keys_of(partitions or self.assignment()), OFFSET_BEGINNING)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last records of partitions; without arguments, of all owned ones.

        After the call, `position` and `commit` count from there, as after `seek`.

        Raises:
            KafkaException: a partition is not owned, or its leader does not answer within 30 s.
        """
        await self._open.seek_to_edge(keys_of(partitions or self.assignment()), OFFSET_END)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, and return them; without a commit, stay there."""
        found = {one: await self.committed(one) for one in partitions or self.assignment()}
        for one, offset in found.items():
            if offset is not None:
                self._open.seek(key_of(one), offset)
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these owned partitions until `resume`."""
        parts = self._open.polling.parts
        # The buffer reads what is owned under its lock, so that a loss comes after the pause.
        parts.fetching.record_buffer.pause(parts.listener.owned_of(map(key_of, partitions)))

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again, from the position of the pause."""
        self._check_open()
        self._started.resume(map(key_of, partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that `pause` has paused, and those that are being revoked."""
        buffer = self._open.polling.parts.fetching.record_buffer
        return frozenset(TopicPartition(*one) for one in buffer.paused_by("application"))

    # --- look-ups --------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return the names of all topics that this user may see."""
        return await self._open.topics()

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the lowest offset of each partition."""
        return {one: (await self._open.watermarks(key_of(one)))[0] for one in partitions}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offset of each partition."""
        return {one: (await self._open.watermarks(key_of(one)))[1] for one in partitions}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time, in ms since 1970; None after the last one."""
        return await self._open.for_times(timestamps)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this name and password (PLAIN, SCRAM) from the next authentication on."""
        self._open.polling.parts.set_sasl_credentials(username, password)

    def memberid(self) -> str | None:
        """Return the member id from the group coordinator; None before the member has an id."""
        return self._open.polling.parts.driver.member.member_id or None

    def consumer_group_metadata(self) -> bytes:
        """Return metadata for `Producer.send_offsets_to_transaction` to fence zombies (KIP-447)."""
        return encode_group_metadata(self._settings.member, self._open.polling.parts.driver.fence)

    def health(self) -> Health:
        """Return the state of this member, for any thread; see `coopgroup.health`."""
        idle = Health(group_id=self._settings.member.group_id)
        return idle if self._polling is None else self._polling.parts.probe.read()

    # --- checks ----------------------------------------------------------------------------------

    @property
    def _started(self) -> Polling:
        if self._polling is None:
            raise ConsumerStoppedError() if self._is_closed else RuntimeError(_NOT_STARTED)
        return self._polling

    @property
    def _subscribed(self) -> Polling:
        polling = self._started
        if not self._topics and polling.parts.subscription.is_empty:
            raise RuntimeError(NOT_SUBSCRIBED)  # an await without end hides the mistake
        return polling

    @property
    def _open(self) -> Offsets:
        # While the consumer is being closed, `on_revoke` may still commit.
        if self._offsets is None or self._ending.is_over:
            raise ConsumerStoppedError() if self._is_closed else RuntimeError(_NOT_STARTED)
        return self._offsets

    def _was_closed(self) -> bool:
        return self._is_closed

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerStoppedError
