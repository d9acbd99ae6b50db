"""FastStream's `KafkaBroker`, whose subscribers consume through coopgroup.

Theory of operation. A subscriber of FastStream gets its consumer from the `builder` of the broker's
configuration. Our broker replaces the builder. The consumer that it builds is FastStream's own
class with a `CooperativeConsumer` inside, so handlers, middlewares and acknowledgements stay as
they are.

FastStream calls the consumer in a thread pool of one thread. Two switches of threads cost more than
a record. So a record that was fetched already is taken on the event loop, unless a call is in
progress. If FastStream cancels a call at its end, the thread has perhaps already taken records that
no handler will get. They are returned to the consumer by a seek, before the offsets are committed.

Acknowledgements store offsets in the consumer, which commits them before a revocation and at the
end. In between, this file requests the commits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from attrs import field, frozen
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from coopgroup.errors import ConfigurationError, MissingExtraError
from coopgroup.extras import install_command
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.keys import CLASSIC
from coopgroup.kafka.config.values import switch
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice

try:
    from faststream import confluent
    from faststream.confluent.helpers.client import AsyncConfluentConsumer
except ImportError as error:
    raise MissingExtraError(
        f"{error.name} is not installed: {install_command('faststream')}"
    ) from None

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

__all__ = ["GroupOptions", "KafkaBroker"]

_OLDEST: Final = (0, 7, 8)
_BELOW: Final = (0, 8)
_STRATEGY: Final = "partition.assignment.strategy"
_FRAMEWORK_STRATEGY: Final = "roundrobin"
_FRAMEWORK_INTERVALS: Final = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 3_000}
_PROTOCOL: Final = "group.protocol"
_FRAMEWORK_GROUP: Final = "faststream-consumer-group"  # of subscribers without a group_id
_STEP_S: Final = 0.05
_COMMIT_INTERVAL_S: Final = 0.05
_AUTO_COMMIT_MS: Final = 5_000
_Partition: TypeAlias = tuple[str, int]
_Callback: TypeAlias = Callable[[CooperativeConsumer, list[TopicPartition]], object]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _check_version(installed: str) -> None:
    """Refuse releases of FastStream that were not tested: they may build consumers differently."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:3])
    if numbers < _OLDEST or numbers >= _BELOW:
        raise MissingExtraError(
            f"faststream {installed} does not work with coopgroup: {install_command('faststream')}"
        )


_check_version(version("faststream"))


@frozen(kw_only=True)
class GroupOptions:
    """Options of coopgroup for one consumer group.

    Attributes:
        policy: decides when partitions move, as in `CooperativeConsumer`.
        assignor: decides where partitions go, as in `CooperativeConsumer`.
        config: keys of `confluent_kafka.Consumer` and of coopgroup (`coopgroup.…`).
        on_warmup: called with (consumer, partitions) to restore state of other members' partitions,
            as in `CooperativeConsumer.subscribe`. It runs on the thread that fetches records, so it
            begins the restore and returns. Call `consumer.warmed_up(partitions)` at the end of the
            restore, on any thread.
        on_warmup_cancelled: called with (consumer, partitions) that need no warm-up any longer.
        warm: partitions whose state the process has already.

    Raises:
        ConfigurationError: a callback of warm-ups is a coroutine function.
        TypeError: a callback cannot be called, or `on_warmup` is missing beside the others.
    """

    policy: PolicyChoice | None = None
    assignor: AssignorChoice | None = None
    config: Mapping[str, Any] = field(default=_NOTHING)
    on_warmup: _Callback | None = None
    on_warmup_cancelled: _Callback | None = None
    warm: list[TopicPartition] | None = None

    def __attrs_post_init__(self) -> None:
        callbacks = (self.on_warmup, self.on_warmup_cancelled)
        Callbacks(None, None, None, *callbacks).warm_set(self.warm)
        for name, one in zip(("on_warmup", "on_warmup_cancelled"), callbacks, strict=True):
            if inspect.iscoroutinefunction(one):
                raise ConfigurationError(name, one, "a plain function: it runs beside the loop")

    def over(self, usual: GroupOptions) -> GroupOptions:
        """Return these options, with those of the broker where this group has none."""
        return GroupOptions(
            policy=usual.policy if self.policy is None else self.policy,
            assignor=usual.assignor if self.assignor is None else self.assignor,
            config={**usual.config, **self.config},
            on_warmup=self.on_warmup,
            on_warmup_cancelled=self.on_warmup_cancelled,
            warm=self.warm,
        )


class KafkaBroker(confluent.KafkaBroker):
    """FastStream's broker with subscribers whose groups rebalance in cooperation.

    It takes the arguments of `faststream.confluent.KafkaBroker`, and those below. Policies and
    assignors belong to a group: give all its processes the same.

    Args:
        bootstrap_servers: addresses of brokers.
        policy: decides when partitions move. The default is `SimplePolicy()`.
        assignor: decides where partitions go. The default is `StickyAssignor()`, or the assignor
            that `partition_assignment_strategy` of a subscriber names.
        groups: options for single groups by `group_id`; they take precedence. `start` refuses an id
            that no subscriber has.
        hand_over_timeout_ms: before the subscribers stop, how long the group may take to take over
            their partitions, in milliseconds. Handlers go on meanwhile. 0 stops without a
            hand-over, for processes that return soon.
        config: keys of librdkafka for all clients, and keys of coopgroup for consumers.
        options: further arguments of `faststream.confluent.KafkaBroker`.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost",
        *,
        policy: PolicyChoice | None = None,
        assignor: AssignorChoice | None = None,
        groups: Mapping[str, GroupOptions] = _NOTHING,
        hand_over_timeout_ms: int = 10_000,
        config: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401  (those of FastStream)
    ) -> None:
        _check_options(groups, hand_over_timeout_ms)
        given = dict(config or {})
        ours = {key: given.pop(key) for key in tuple(given) if _is_ours(key)}
        super().__init__(bootstrap_servers, config=cast("Any", given), **options)
        self._hand_over_s = hand_over_timeout_ms / 1000
        self._groups = frozenset(groups)
        settings = self.config.broker_config
        settings.builder = _Builder(
            usual=GroupOptions(policy=policy, assignor=assignor, config=ours),
            groups=dict(groups),
            build_theirs=settings.builder,
            needs={
                "config": settings.connection_config,
                "admin_service": settings.admin,
                "logger": settings.logger,
            },
        )

    async def start(self) -> None:
        """Start as FastStream does.

        Raises:
            ConfigurationError: an id in `groups` belongs to no subscriber.
        """
        ids = {getattr(one, "group_id", None) or _FRAMEWORK_GROUP for one in self.subscribers}
        for group_id in sorted(self._groups - ids):
            known = ", ".join(map(repr, sorted(ids))) or "none: there is no subscriber"
            raise ConfigurationError("groups", group_id, f"the group_id of a subscriber ({known})")
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Hand all partitions over to the group, then stop as FastStream does."""
        members = [
            consumer
            for one in self.subscribers
            # Without a handler, the subscriber's own loop does not poll, and nothing would happen.
            if one.running
            and one.calls
            and isinstance(consumer := getattr(one, "consumer", None), _GroupConsumer)
        ]
        try:
            await asyncio.gather(*(one.hand_over(self._hand_over_s) for one in members))
        finally:
            await super().stop(exc_type, exc_val, exc_tb)


def _check_options(groups: Mapping[str, GroupOptions], hand_over_timeout_ms: int) -> None:
    for group_id, options in groups.items():
        if not isinstance(options, GroupOptions):
            raise ConfigurationError(f"groups[{group_id!r}]", options, "GroupOptions(…)")
    if isinstance(hand_over_timeout_ms, bool) or not isinstance(hand_over_timeout_ms, int):
        raise ConfigurationError(
            "hand_over_timeout_ms", hand_over_timeout_ms, "a whole number of milliseconds"
        )
    if hand_over_timeout_ms < 0:
        raise ConfigurationError("hand_over_timeout_ms", hand_over_timeout_ms, "0 or more")


@frozen(kw_only=True, eq=False)
class _Builder:
    """Builds the consumer of a subscriber, as `ConsumerBuilder` of FastStream does.

    Attributes:
        usual: options of the broker.
        groups: options of single groups by id.
        build_theirs: FastStream's own builder.
        needs: arguments of every consumer: configuration, admin client and logger.
    """

    usual: GroupOptions
    groups: Mapping[str, GroupOptions]
    build_theirs: Any
    needs: Mapping[str, Any]

    def __call__(self, *topics: Any, **options: Any) -> AsyncConfluentConsumer:  # noqa: ANN401
        if options["partitions"]:  # assigned without a group
            theirs: AsyncConfluentConsumer = self.build_theirs(*topics, **options)
            return theirs
        of_group = self.groups.get(options["group_id"] or _FRAMEWORK_GROUP, GroupOptions())
        return _GroupConsumer(*topics, **self.needs, of_group=of_group.over(self.usual), **options)


class _Member(CooperativeConsumer):
    """A consumer that subscribes with the warm-ups of its group: FastStream passes none.

    Attributes:
        warmth: further arguments of `subscribe`.
    """

    warmth: Mapping[str, Any] = _NOTHING

    @property
    def has_leader(self) -> bool:
        """Return whether a member of the group assigns, and not the broker."""
        return self._settings.member.has_leader

    def subscribe(
        self,
        topics: list[str],
        on_assign: _Callback | None = None,
        on_revoke: _Callback | None = None,
        on_lost: _Callback | None = None,
        **more: Any,  # noqa: ANN401  (those of a consumer)
    ) -> None:
        """Join the group, with warm-ups."""
        more = {**self.warmth, **more}
        super().subscribe(topics, on_assign, on_revoke, on_lost, **more)

    def take_ready(self) -> list[Message]:
        """Return the next record if it was fetched and may leave; run no callbacks.

        An auto-commit that is due, or a notice of the group, waits for the next `poll`.
        """
        parts, now = self._parts, now_s()
        if not parts.fetching.record_buffer.ready or now >= parts.committing.due_at_s:
            return []
        taken = parts.pump.take(1)
        parts.fetching.record_buffer.leaving = ()
        parts.driver.polled_at_s = now
        return taken

    def commit_stored(self) -> None:
        """Begin a commit of the stored offsets, as an auto-commit does."""
        self._parts.committing.commit_due(self._parts.listener.owned)


class _GroupConsumer(AsyncConfluentConsumer):
    """FastStream's consumer, with a `CooperativeConsumer` in place of librdkafka's."""

    def __init__(self, *topics: Any, of_group: GroupOptions, **options: Any) -> None:  # noqa: ANN401
        on_revoke, on_lost = options.pop("on_revoke"), options.pop("on_lost")
        super().__init__(
            *topics,
            on_revoke=self._forgetting(on_revoke),
            on_lost=self._forgetting(on_lost or on_revoke),
            **options,
        )
        self.consumer.close()  # it has not subscribed
        config = _readable(self.config, of_group.config)
        if not switch(config, "enable.auto.commit"):
            # The consumer commits the offsets that `commit` has stored. Without an interval (0), it
            # would commit none before a revocation.
            config |= {
                "enable.auto.commit": True,
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": _AUTO_COMMIT_MS,
            }
        self.member = _Member(
            config,
            policy=of_group.policy,
            assignor=of_group.assignor,
            logger=_Log(self.logger_state),
        )
        self.member.warmth = {
            "on_warmup": of_group.on_warmup,
            "on_warmup_cancelled": of_group.on_warmup_cancelled,
            "warm": of_group.warm,
        }
        self.consumer = cast("Consumer", self.member)
        # The last call in the thread, and its records that no handler has got yet.
        self._last_call: Future[Any] | None = None
        self._on_the_way: list[Message] = []
        # The last record of each partition that a handler got, and that is not acknowledged.
        self._handed: dict[_Partition, Message] = {}
        self._commit_at_s = -math.inf
        self._commits_soon = False

    # --- records ----------------------------------------------------------------------------------

    async def getone(self, timeout: float = 0.1) -> Message | None:  # noqa: ASYNC109
        """Return the next record, None if there is none in time."""
        await asyncio.sleep(0)  # other tasks run, though many records are ready
        records = self._take_ready() or await self._take(1, timeout)
        return records[0] if records else None

    async def getmany(
        self,
        timeout: float = 0.1,  # noqa: ASYNC109
        max_records: int | None = 10,
    ) -> tuple[Message, ...]:
        """Return up to a number of records."""
        return tuple(await self._take(max_records or 10, timeout))

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at another offset, for example at a record that was not acknowledged."""
        self._handed.pop((topic, partition), None)
        await self._run(self.member.seek, TopicPartition(topic, partition, offset))

    def _take_ready(self) -> list[Message]:
        """Take a fetched record without a switch of threads, which costs more than the record."""
        is_busy = self._last_call is None or not self._last_call.done()
        if is_busy or self._on_the_way:
            return []
        return self._hand(self._checked(self.member.take_ready()))

    async def _take(self, count: int, timeout_s: float) -> list[Message]:
        records: list[Message] = await self._run(self._poll, count, timeout_s)
        self._on_the_way = []
        return self._hand(records)

    def _poll(self, count: int, timeout_s: float) -> list[Message]:
        self._return_records()
        if count == 1:
            message = self.member.poll(timeout_s)
            messages = [] if message is None else [message]
        else:
            messages = self.member.consume(count, timeout_s)
        self._on_the_way = self._checked(messages)
        return self._on_the_way

    def _return_records(self) -> None:
        """Seek back to records of a call that was cancelled."""
        records, self._on_the_way = self._on_the_way, []
        owned = {*map(_key, self.member.assignment())} if records else set()
        for place in map(_place, reversed(records)):
            if _key(place) in owned:
                self.member.seek(place)

    def _checked(self, messages: list[Message]) -> list[Message]:
        """Return the records, and log the events."""
        for message in messages:
            if (error := message.error()) is not None:
                self.logger_state.log(f"event of the consumer: {error.str()}", logging.WARNING)
        return [one for one in messages if one.error() is None]

    def _hand(self, records: list[Message]) -> list[Message]:
        for record in records:
            self._handed[_key(_place(record))] = record
        return records

    async def _run(self, call: Any, *arguments: Any) -> Any:  # noqa: ANN401
        self._last_call = self._thread_pool.submit(call, *arguments)
        return await asyncio.wrap_future(self._last_call)

    # --- acknowledgements -------------------------------------------------------------------------

    async def commit(self, asynchronous: bool = True) -> None:  # noqa: FBT001, FBT002  (theirs)
        """Commit the offsets after all records that were returned.

        FastStream commits after each record, and a request would cost more than the record. So the
        offsets of acknowledgements within 50 ms go into one commit.
        """
        handed, self._handed = self._handed, {}
        for record in tuple(handed.values()):
            with suppress(KafkaException):  # the partition was given up meanwhile
                self.member.store_offsets(record)
        if not asynchronous:
            await self._run(partial(self.member.commit, asynchronous=False))
        elif not self._commits_soon:
            self._commits_soon = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._commit_at_s, loop.time()), self._commit_stored, loop)

    def _commit_stored(self, loop: asyncio.AbstractEventLoop) -> None:
        self._commits_soon = False
        self._commit_at_s = loop.time() + _COMMIT_INTERVAL_S
        self.member.commit_stored()

    def _forgetting(self, callback: _Callback | None) -> Callable[..., None]:
        """Return a callback that also forgets the records of partitions that are given up.

        Their offsets could be committed in a later assignment, behind those of another member.
        """

        def forget(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
            try:
                if callback is not None:
                    callback(consumer, partitions)
            finally:
                for partition in partitions:
                    self._handed.pop(_key(partition), None)

        return forget

    # --- the end ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Commit, leave the group and close; records that no handler got are not committed."""
        await self._run(self._return_records)
        await super().stop()

    async def hand_over(self, timeout_s: float) -> None:
        """Let the group take over all partitions, while handlers continue to get records.

        With `group.protocol=consumer`, the group takes them over after the end.
        """
        if not self.member.has_leader:
            return
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + timeout_s
        if timeout_s:
            await self._run(self.member.hand_over)
        # The assignment changes in another thread, which tells no event of this loop.
        while loop.time() < ends_s and await self._run(self.member.assignment):  # noqa: ASYNC110
            await asyncio.sleep(_STEP_S)


def _key(partition: TopicPartition) -> _Partition:
    return partition.topic, partition.partition


def _place(record: Any) -> TopicPartition:  # noqa: ANN401  (its parts may be None, not here)
    return TopicPartition(record.topic(), record.partition(), record.offset())


def _is_ours(key: str) -> bool:
    """Return whether FastStream's own client, which never joins the group, must not get a key.

    It refuses its own session timeout beside `group.protocol=consumer`.
    """
    return key.startswith("coopgroup.") or key in {_PROTOCOL, "group.remote.assignor"}


def _readable(config: Mapping[str, Any], of_group: Mapping[str, Any]) -> dict[str, Any]:
    """Return FastStream's configuration of a consumer, with that of its group, as coopgroup's.

    FastStream always passes an assignment strategy and intervals. Its defaults are no choice of the
    application. In the classic protocol, the strategy is offered for members that are not moved
    yet, and our own assignor assigns. With `group.protocol=consumer`, all of them are left out.
    """
    found = dict(config)
    is_classic = of_group.get(_PROTOCOL, CLASSIC) == CLASSIC
    if found.get(_STRATEGY) == _FRAMEWORK_STRATEGY:
        del found[_STRATEGY]
        if is_classic:
            found["coopgroup.protocols"] = f"coopgroup,{_FRAMEWORK_STRATEGY}"
    if not is_classic:
        for key, usual in _FRAMEWORK_INTERVALS.items():
            if found.get(key) == usual:
                del found[key]
    return {**found, **of_group}


@frozen
class _Log:
    """Passes lines of librdkafka on to FastStream's logger, once the broker has set it up."""

    state: Any

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Log a line."""
        if self.state.logger:
            self.state.log(text % arguments if arguments else text, level)
