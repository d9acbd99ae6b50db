"""Build the parts of a consumer.

Rules of this file: user input is checked before anything is opened. Opened parts are closed if a
later part cannot be made. Threads start last and end first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException, Message

# Instrumentation replaces confluent_kafka.Consumer, and would see fetches in place of records.
from confluent_kafka.cimpl import Consumer

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.member.events import Woken
from coopgroup.core.policies.base import Policy
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.finalizer import Finalizer, finalize_when_dropped
from coopgroup.kafka.callbacks.group_errors import GroupErrors
from coopgroup.kafka.callbacks.listener import GroupListener
from coopgroup.kafka.callbacks.user_callbacks import with_plain_errors
from coopgroup.kafka.config.settings import ConsumerSettings, refusal_of_librdkafka
from coopgroup.kafka.config.strategy import assignor_of
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.missing_topics import MissingTopics
from coopgroup.kafka.membership.subscription import Subscription
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.membership.watching import TopicWatcher
from coopgroup.kafka.plugins import (
    AssignorChoice,
    PolicyChoice,
    chosen_assignor,
    chosen_policy,
)
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.decoding import Decoder
from coopgroup.kafka.records.delivery import DecodedDelivery, Delivery
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offset_lookup import OffsetLookup
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.kafka.records.pace import IDLE_S, Pace
from coopgroup.kafka.records.starting_offsets import StartingOffsets

if TYPE_CHECKING:
    from coopgroup.kafka.health.consumer_work import ConsumerWork
    from coopgroup.kafka.health.probe import MemberProbe
    from coopgroup.kafka.membership.identity import IdentitySlot

__all__ = ["ConsumerParts", "check_plugins", "choose_plugins", "open_sink_and_slot"]

_AN_ASSIGNOR: Final = (
    "an assignor: an object with name, needs_lags and assign(group, lags), or create_assignor(name)"
)
_A_POLICY: Final = (
    "a policy: an object with name, offer(group, context) and stage(group, target, context)"
)
_NOT_EAGER: Final = (
    "a policy for members that hold on to what they have: "
    "EagerPolicy is the baseline of coopgroup plan, simulate and compare"
)
_READS_LAGS: Final = "an assignor that reads lags beside it, which {} does not"


@define(eq=False)
class _LateHealth:
    """What reads the health of a consumer, made at its first use: it is slow to import.

    There is one for all threads, because a reading compares itself with the reading before.
    """

    _listener: GroupListener
    _fetching: Fetching
    _committing: Committing
    _lookup: ClusterLookup
    # Reentrant, because a signal handler may read the health, too.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _made: tuple[ConsumerWork, MemberProbe] | None = field(default=None, init=False)

    def get(self) -> tuple[ConsumerWork, MemberProbe]:
        with self._lock:
            if self._made is None:
                from coopgroup.kafka.health.consumer_work import ConsumerWork  # noqa: PLC0415
                from coopgroup.kafka.health.probe import MemberProbe  # noqa: PLC0415

                work = ConsumerWork(
                    self._listener,
                    self._fetching,
                    self._committing,
                    self._lookup.log_ranges,
                    self._lookup.offset_reset,
                )
                self._made = work, MemberProbe(self._listener.driver, work)
            return self._made


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
    delivery: Delivery
    decoder: Decoder | None
    subscription: Subscription
    _health: _LateHealth
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
            settings.lookup_timeout_ms,
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
        starts = driver.inbox.starts = _starting_offsets(driver, settings)
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
            driver.transport, driver.inbox, fetching, sink.warn, settings.lookup_timeout_ms
        )
        watcher = TopicWatcher(
            lookup=lookup,
            leader=driver.leader,
            leads=lambda: driver.leads,
            post=driver.post,
            refresh_ms=settings.metadata_refresh_ms,
            hidden=settings.own_topics,
            look_for_missing=missing.look,
        )
        driver.watcher = watcher
        lookup.on_open = watcher.give_back_soon
        takes: dict[str, Any] = {
            "driver": driver,
            "fetching": fetching,
            "committing": committing,
            "listener": listener,
            "meter": driver.meter,
            "pace": (pace := Pace(IDLE_S)),
        }
        driver.on_bell = pace.hear_bell
        decoder = None if settings.deserializers is None else Decoder(settings.deserializers)
        delivery = (
            Delivery(**takes) if decoder is None else DecodedDelivery(**takes, decoder=decoder)
        )
        health = _LateHealth(listener, fetching, committing, lookup)
        sink.watch(lambda: health.get()[1])
        return cls(
            sink=sink,
            slot=slot,
            driver=driver,
            watcher=watcher,
            fetching=fetching,
            committing=committing,
            listener=listener,
            delivery=delivery,
            decoder=decoder,
            subscription=Subscription(
                driver=driver, watcher=watcher, listener=listener, committing=committing
            ),
            health=health,
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
    def work(self) -> ConsumerWork:
        """The work of this consumer, as `probe` reads it."""
        return self._health.get()[0]

    @property
    def probe(self) -> MemberProbe:
        """The reader of this consumer's health."""
        return self._health.get()[1]

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


def choose_plugins(
    settings: ConsumerSettings, assignor: AssignorChoice | None, policy: PolicyChoice | None
) -> tuple[Assignor | None, Policy | None]:
    """Return the assignor and the policy; None for the defaults.

    Raises:
        ConfigurationError: a name or an option is wrong, or as for `check_plugins`.
    """
    where = chosen_assignor(
        settings.assignor if assignor is None else assignor, assignor_of(settings.strategies)
    )
    when = chosen_policy(settings.policy if policy is None else policy)
    check_plugins(where, when)
    return where, when


def check_plugins(assignor: object, policy: object) -> None:
    """Refuse plugins that cannot lead a round, before their errors cost the group its rounds.

    None stands for the default assignor or policy, which load only when a member leads.

    Raises:
        ConfigurationError: not an assignor, not a policy, a policy for the simulator only, or a
            policy that balances lags with an assignor that ignores lags.
    """
    if assignor is not None:
        _check_plugin("assignor", assignor, Assignor, _AN_ASSIGNOR)
    if policy is None:
        return
    _check_plugin("policy", policy, Policy, _A_POLICY)
    from coopgroup.core.policies.balance import BalanceRule  # noqa: PLC0415 - slow to import
    from coopgroup.core.policies.eager import EagerPolicy  # noqa: PLC0415 - slow to import

    if isinstance(policy, EagerPolicy):
        raise ConfigurationError("policy", policy, _NOT_EAGER)
    balance = getattr(policy, "balance", None)
    if isinstance(balance, BalanceRule) and not getattr(assignor, "needs_lags", False):
        given = "the default, StickyAssignor()," if assignor is None else assignor
        raise ConfigurationError(
            "lag_check_interval_ms", balance.interval_ms, _READS_LAGS.format(given)
        )


def _check_plugin(field: str, given: object, kind: type, expected: str) -> None:
    if isinstance(given, type):
        raise ConfigurationError(field, given, f"an object, not its class: {given.__name__}(…)")
    if not isinstance(given, kind):
        raise ConfigurationError(field, given, expected)
    name = getattr(given, "name", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{field}.name", name, "a string")


def open_sink_and_slot(
    settings: ConsumerSettings, opened: ExitStack
) -> tuple[TelemetrySink, IdentitySlot | None]:
    """Open the telemetry and an identity slot, if configured; a static member needs no slot.

    Raises:
        ConfigurationError: the telemetry file or the state directory cannot be written.
    """
    member = settings.member
    sink = TelemetrySink(
        member.group_id,
        settings.telemetry_file,
        settings.telemetry_listener,
        settings.telemetry_limits,
    )
    opened.callback(sink.close)
    if settings.state_dir is None or member.instance_id is not None:
        return sink, None
    from coopgroup.kafka.membership.identity import take_slot  # noqa: PLC0415 - rarely needed

    slot = take_slot(settings.state_dir, member.group_id, sink.warn)
    opened.callback(slot.release)
    return sink, slot


def _is_without_token(error: Exception) -> bool:
    """Return whether `oauth_cb` gave no token in time: then the configuration is not at fault."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, KafkaError) and cause.code() == KafkaError.SASL_AUTHENTICATION_FAILED


def _starting_offsets(driver: GroupDriver, settings: ConsumerSettings) -> StartingOffsets:
    def changed() -> None:
        """Wake the application to take offsets, and the group's thread to check the time."""
        driver.inbox.wake()
        driver.post(Woken())

    lookup = OffsetLookup(
        transport=driver.transport,
        group_id=settings.member.group_id,
        require_stable=settings.requires_stable,
        timeout_ms=settings.connection.request_timeout_ms,
        changed=changed,
        known_coordinator=lambda: driver.member.coordinator,
        persists=True,
    )
    return StartingOffsets(lookup, settings.offset_reset, driver.sink.warn)


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
