"""The adapter without a broker: FastStream's test broker, options, acknowledgements, the hook."""

import asyncio
import dataclasses
import importlib
import inspect
import sys
from concurrent.futures import Executor, Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from faststream.confluent import KafkaBroker as TheirBroker
from faststream.confluent import KafkaRouter
from faststream.confluent import TopicPartition as TheirPartition
from faststream.confluent.configs import KafkaBrokerConfig
from faststream.confluent.helpers import AsyncConfluentConsumer
from faststream.confluent.subscriber.usecase import LogicSubscriber

from coopgroup import CooperativeConsumer, DeferredPolicy, RangeAssignor, SimplePolicy
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.integrations import faststream as adapter
from coopgroup.integrations.faststream import GroupOptions, KafkaBroker
from coopgroup.worker import Worker
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import run_virtual, time_passes

NOWHERE = "127.0.0.1:1"
OPTIONS = {
    "partitions": (),
    "group_id": "billing",
    "on_assign": None,
    "on_revoke": None,
    "on_lost": None,
}


@define
class FakeRecord:
    place: tuple[str, int, int]

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.place[2]

    def leader_epoch(self) -> int:
        return 7

    def error(self) -> None:
        return None


@define(eq=False)
class FakeMember:
    """A consumer that always has the same record.

    Attributes:
        owned: partitions whose offsets it stores.
        ready: records that it has fetched.
        stored: next offset by partition, since the last commit of these.
        commits: the stored offsets of each such commit.
    """

    config: dict[str, Any]
    options: dict[str, Any]
    calls: list[tuple[Any, ...]] = field(factory=list)
    warmth: dict[str, Any] = field(factory=dict)
    owned: set[int] = field(factory=lambda: {0, 1})
    ready: list[FakeRecord] = field(factory=list)
    stored: dict[int, int] = field(factory=dict)
    commits: list[dict[int, int]] = field(factory=list)

    def take_ready(self) -> list[FakeRecord]:
        return [self.ready.pop(0)] if self.ready else []

    def store_offsets(self, record: FakeRecord) -> None:
        if record.partition() not in self.owned:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.stored[record.partition()] = record.offset() + 1

    def commit_stored(self) -> None:
        self.commits.append(self.stored)
        self.stored = {}

    def poll(self, timeout: float) -> FakeRecord:
        return FakeRecord(("orders", 1, 42))

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 1)]

    def seek(self, place: TopicPartition) -> None:
        self.calls.append(("seek", place.topic, place.partition, place.offset))

    def commit(self, **arguments: Any) -> None:  # noqa: ANN401
        self.calls.append(("commit",))

    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[FakeMember]:
    """Collect the consumers that the adapter makes."""
    made: list[FakeMember] = []

    def make(config: dict[str, Any], **options: Any) -> FakeMember:  # noqa: ANN401
        made.append(FakeMember(config, options))
        return made[-1]

    monkeypatch.setattr(adapter, "_Member", make)
    return made


def _build(broker: KafkaBroker, **options: Any) -> Any:  # noqa: ANN401
    return broker.config.broker_config.builder("orders", **{**OPTIONS, **options})


# --- what stays as FastStream has it --------------------------------------------------------------


def test_subscriber_of_partitions_keeps_the_consumer_of_faststream() -> None:
    consumer = _build(KafkaBroker(NOWHERE), partitions=[TheirPartition("orders", 0)], group_id=None)
    consumer.consumer.close()
    assert type(consumer) is AsyncConfluentConsumer


# --- options --------------------------------------------------------------------------------------


def test_consumer_has_the_options_of_the_broker_and_of_its_group(members: list[FakeMember]) -> None:
    usual, other = SimplePolicy(), DeferredPolicy()
    broker = KafkaBroker(
        [NOWHERE, "127.0.0.1:2"],
        policy=usual,
        assignor="range",
        config={"coopgroup.bell.topic": "bell", "fetch.queue.backoff.ms": 5},
        groups={"audit": GroupOptions(policy=other, config={"coopgroup.bell.topic": "audit-bell"})},
    )
    _build(broker)
    _build(broker, group_id="audit", session_timeout_ms=6_000)
    billing, audit = members
    assert (billing.options["policy"], billing.options["assignor"]) == (usual, "range")
    assert (audit.options["policy"], audit.options["assignor"]) == (other, "range")
    assert billing.config["coopgroup.bell.topic"] == "bell"
    assert audit.config["coopgroup.bell.topic"] == "audit-bell"
    assert audit.config["bootstrap.servers"] == f"{NOWHERE},127.0.0.1:2"
    assert (audit.config["session.timeout.ms"], audit.config["fetch.queue.backoff.ms"]) == (6000, 5)
    assert "coopgroup.bell.topic" not in broker.config.broker_config.connection_config.config


@pytest.mark.parametrize(
    ("given", "strategy", "protocols"),
    [
        ({}, None, "coopgroup,roundrobin"),
        ({"partition_assignment_strategy": ("range",)}, "range", None),
    ],
)
def test_default_strategy_of_faststream_chooses_no_assignor(
    members: list[FakeMember], given: dict[str, Any], strategy: str | None, protocols: str | None
) -> None:
    _build(KafkaBroker(NOWHERE), **given)
    config = members[0].config
    assert config.get("partition.assignment.strategy") == strategy
    assert config.get("coopgroup.protocols") == protocols


def test_framework_defaults_of_the_classic_protocol_are_left_out_beside_kip_848(
    members: list[FakeMember],
) -> None:
    """FastStream always passes them, and its own client would refuse them beside this protocol."""
    kip848 = {"group.protocol": "consumer", "group.remote.assignor": "range"}
    broker = KafkaBroker(NOWHERE, config=kip848)
    assert broker.config.broker_config.connection_config.config.keys().isdisjoint(kip848)
    _build(broker)
    _build(broker, session_timeout_ms=6_000)  # a choice of the application, which is refused later
    usual, chosen = (one.config for one in members)
    assert usual.items() >= kip848.items()
    classic = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    assert usual.keys().isdisjoint({*classic, "coopgroup.protocols"})
    assert chosen["session.timeout.ms"] == 6_000


def test_consumer_of_faststream_is_a_member_of_ours() -> None:
    """Also checks that our consumer takes everything that FastStream passes."""
    consumer = _build(KafkaBroker(NOWHERE, assignor=RangeAssignor()))
    try:
        assert isinstance(consumer, AsyncConfluentConsumer)
        assert isinstance(cast("Any", consumer.consumer), CooperativeConsumer)
    finally:
        asyncio.run(consumer.stop())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {"a": SimplePolicy()}}, r"groups\['a'\]: got .* expected GroupOptions"),
        ({"hand_over_timeout_ms": 1.5}, "hand_over_timeout_ms: got 1.5, expected a whole number"),
        ({"hand_over_timeout_ms": -1}, "hand_over_timeout_ms: got -1, expected 0 or more"),
        ({"config": {"coopgroup.bel": "x"}}, r"coopgroup\.bel: got .*, but there is no such"),
    ],
)
def test_wrong_option_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _build(KafkaBroker(NOWHERE, **options))


def test_id_of_no_subscriber_is_one_line() -> None:
    """A misspelt id would leave the group without its options."""

    def broker(**groups: GroupOptions) -> KafkaBroker:
        made = KafkaBroker(NOWHERE, groups=groups)
        made.subscriber("orders", group_id="audit")
        made.include_router(router)
        return made

    router = KafkaRouter()
    router.subscriber("bills", group_id="billing")
    with pytest.raises(ConfigurationError, match=r"got 'audti', .* \('audit', 'billing'\)$"):
        asyncio.run(broker(billing=GroupOptions(), audti=GroupOptions()).start())
    nothing = KafkaBroker(NOWHERE, groups={"audit": GroupOptions()})
    with pytest.raises(ConfigurationError, match="there is no subscriber"):
        asyncio.run(nothing.start())


def test_groups_names_the_group_of_subscribers_without_an_id(members: list[FakeMember]) -> None:
    """FastStream chooses the id."""
    options = {"faststream-consumer-group": GroupOptions(policy="deferred")}
    consumer = _build(KafkaBroker(NOWHERE, groups=options), group_id=None)
    assert (consumer.config["group.id"], members[0].options["policy"]) == (*options, "deferred")


def _cool(_: CooperativeConsumer, __: list[TopicPartition]) -> None: ...


def test_subscription_has_the_warm_ups_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(CooperativeConsumer, "subscribe", lambda _, *a, **k: seen.append(k))
    warm = [TopicPartition("orders", 1)]
    options = GroupOptions(on_warmup=print, on_warmup_cancelled=_cool, warm=warm)
    consumer = _build(
        KafkaBroker(NOWHERE, groups={"billing": options}), allow_auto_create_topics=False
    )
    consumer.topics = [SimpleNamespace(name="orders", declare=False)]

    async def play() -> None:
        await consumer.start()
        await consumer.stop()

    asyncio.run(play())
    given = {name: seen[0][name] for name in ("on_warmup", "on_warmup_cancelled", "warm")}
    assert given == {"on_warmup": print, "on_warmup_cancelled": _cool, "warm": warm}


async def _restore(_: object, __: object) -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_warmup": _restore}, "on_warmup: got .*, expected a plain function"),
        ({"on_warmup": 5}, "on_warmup expects a callable"),
        ({"on_warmup_cancelled": print}, "on_warmup_cancelled expects on_warmup"),
        ({"warm": []}, "warm expects on_warmup"),
    ],
)
def test_wrong_warm_up_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=message):
        GroupOptions(**options)


@pytest.mark.parametrize("version", ["0.6.7", "0.7.7", "0.8.0rc1", "1.0"])
def test_untested_version_is_one_line(version: str) -> None:
    with pytest.raises(
        CoopgroupError, match=f"^faststream {version} does not work.*install.*faststream"
    ):
        adapter._check_version(version)  # noqa: SLF001


def test_without_faststream_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, adapter.__name__)
    monkeypatch.setitem(sys.modules, "faststream", None)
    with pytest.raises(CoopgroupError, match=r"^faststream is not installed:.*install.*faststream"):
        importlib.import_module(adapter.__name__)


# --- records and acknowledgements ----------------------------------------------------------------


class HandPool(Executor):
    """Begins each call, which ends only when the hand runs its job."""

    def submit(self, call: Any, /, *arguments: Any, **_: Any) -> Future[Any]:  # noqa: ANN401
        future: Future[Any] = Future()
        assert future.set_running_or_notify_cancel()
        Worker("pool").submit(lambda: future.set_result(call(*arguments)))
        return future


async def _cancel_call(hand: Hand, consumer: Any) -> None:  # noqa: ANN401
    """Cancel a call for a record while its thread is busy with it."""
    consumer._thread_pool = HandPool()  # noqa: SLF001
    hand.is_held = lambda _: True
    call = asyncio.create_task(consumer.getone(5))
    await time_passes(0.01)
    assert hand.jobs("pool")
    call.cancel()
    await asyncio.wait([call])
    hand.is_held = lambda _: False


def test_record_of_a_cancelled_call_is_not_committed(members: list[FakeMember]) -> None:
    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE), enable_auto_commit=True)
        await _cancel_call(hand, consumer)
        await consumer.stop()

    with by_hand() as hand:
        run_virtual(hand, play())
    assert members[0].calls == [("seek", "orders", 1, 42), ("commit",), ("close",)]


def test_ready_record_needs_no_switch_of_threads(members: list[FakeMember]) -> None:
    """A switch costs more than the record. Two threads must not use the consumer, though."""

    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE))
        consumer._thread_pool = HandPool()  # noqa: SLF001
        members[0].ready = [FakeRecord(("orders", 1, number)) for number in range(4)]
        seen = [await consumer.getone(), await consumer.getone()]  # it makes a first call
        seek = asyncio.create_task(consumer.seek("orders", 1, 0))
        seen += [await consumer.getone(), await consumer.getone()]
        assert [one.offset() for one in seen] == [42, 0, 42, 1]
        await seek

    with by_hand() as hand:
        run_virtual(hand, play())


def test_ready_record_waits_for_records_of_a_cancelled_call(members: list[FakeMember]) -> None:
    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE))
        await _cancel_call(hand, consumer)
        hand.run()
        members[0].ready = [FakeRecord(("orders", 1, 43))]
        assert (await consumer.getone()).offset() == 42
        assert members[0].calls == [("seek", "orders", 1, 42)]
        assert (await consumer.getone()).offset() == 43

    with by_hand() as hand:
        run_virtual(hand, play())


def test_record_does_not_leave_before_a_notice_or_a_due_commit() -> None:
    member = adapter._Member({"bootstrap.servers": NOWHERE, "group.id": "billing"})  # noqa: SLF001
    parts = member._parts  # noqa: SLF001
    try:
        assert member.take_ready() == []
        record = Message(topic="orders", partition=1, offset=42, value=b"")
        parts.fetching.record_buffer.add([record])
        parts.committing.due_at_s = 0.0
        assert member.take_ready() == []
        parts.committing.stop_clock()
        parts.driver.inbox.wake()
        assert member.take_ready() == []
        parts.listener.serve()
        assert member.take_ready() == [record]
        assert parts.fetching.record_buffer.leaving == ()
    finally:
        member.close()


@pytest.mark.parametrize(
    ("options", "own", "is_automatic"),
    [
        ({}, {}, True),
        ({"enable_auto_commit": False}, {}, False),
        ({}, {"enable.auto.commit": "false"}, False),
    ],
)
def test_manual_acknowledgements_are_stored_for_the_commits(
    members: list[FakeMember], options: dict[str, Any], own: dict[str, Any], *, is_automatic: bool
) -> None:
    _build(KafkaBroker(NOWHERE, groups={"billing": GroupOptions(config=own)}), **options)
    config = members[0].config
    assert config["enable.auto.commit"] is True
    assert config.get("enable.auto.offset.store", True) is is_automatic


def test_acknowledgements_are_committed_before_a_revocation_without_an_interval() -> None:
    """Regression: without the clock of auto-commit, they were lost, and records came again."""
    consumer = _build(KafkaBroker(NOWHERE), enable_auto_commit=False, auto_commit_interval_ms=0)
    try:
        assert consumer.member._parts.committing.interval_ms is not None  # noqa: SLF001
    finally:
        consumer.member.close()


def test_acknowledgements_that_follow_soon_share_a_commit(members: list[FakeMember]) -> None:
    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE), enable_auto_commit=False)
        for place in [("t", 0, 3), ("t", 0, 4), ("t", 1, 8), ("t", 0, 5)]:
            consumer._hand([FakeRecord(place)])  # noqa: SLF001
            await consumer.commit()
            await time_passes(0.001)
        assert members[0].commits == [{0: 4}]
        await time_passes(0.05)
        assert members[0].commits == [{0: 4}, {0: 6, 1: 9}]

    with by_hand() as hand:
        run_virtual(hand, play())


def test_only_acknowledged_records_are_committed(members: list[FakeMember]) -> None:
    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE), enable_auto_commit=False)
        consumer._thread_pool = HandPool()  # noqa: SLF001
        consumer._hand([FakeRecord(("t", one, 4)) for one in (0, 1, 2)])  # noqa: SLF001
        seek = asyncio.create_task(consumer.seek("t", 0, 4))  # it was not acknowledged
        await time_passes(0)
        hand.run("pool")
        await seek
        await consumer.commit()  # nothing of the partition that is not owned
        consumer._hand([FakeRecord(("t", 1, 9))])  # noqa: SLF001
        await time_passes(0.05)

    with by_hand() as hand:
        run_virtual(hand, play())
    assert members[0].commits == [{1: 5}]


@pytest.mark.parametrize("callback", [None, lambda *_: 1 / 0])
def test_records_of_an_earlier_assignment_are_not_acknowledged(
    members: list[FakeMember],
    callback: Any,  # noqa: ANN401
) -> None:
    """The offset would be committed behind those of the member that owned the partition."""

    async def play() -> None:
        consumer = _build(KafkaBroker(NOWHERE), enable_auto_commit=False, on_revoke=callback)
        consumer._hand([FakeRecord(("t", one, 4)) for one in (0, 1)])  # noqa: SLF001
        for given_up in (consumer._on_revoke, consumer._on_lost):  # noqa: SLF001
            with suppress(ZeroDivisionError):
                given_up(None, [TopicPartition("t", 1)])
        await consumer.commit()
        await time_passes(0)

    with by_hand() as hand:
        run_virtual(hand, play())
    assert members[0].commits == [{0: 5}]


# --- the hook ------------------------------------------------------------------------------------


def test_faststream_builds_consumers_as_the_adapter_expects() -> None:
    """If this fails, a release of FastStream has changed what the adapter replaces."""
    assert "builder" in {one.name for one in dataclasses.fields(KafkaBrokerConfig)}
    broker = TheirBroker(NOWHERE)
    settings = broker.config.broker_config
    builder = cast("Any", settings.builder)
    assert (builder.config, builder.admin, builder.logger) == (
        settings.connection_config,
        settings.admin,
        settings.logger,
    )
    parameters = inspect.signature(AsyncConfluentConsumer.__init__).parameters
    assert {*OPTIONS, "config", "admin_service", "logger", "partition_assignment_strategy"} <= {
        *parameters
    }
    for name, arguments in {
        "commit": ["self", "asynchronous"],
        "getmany": ["self", "timeout", "max_records"],
        "getone": ["self", "timeout"],
        "seek": ["self", "topic", "partition", "offset"],
        "start": ["self"],
        "stop": ["self"],
    }.items():
        method = getattr(AsyncConfluentConsumer, name)
        assert inspect.iscoroutinefunction(method)
        assert [*inspect.signature(method).parameters] == arguments, name
    assert {"_thread_pool", "config", "consumer", "logger_state"} <= {
        *AsyncConfluentConsumer.__slots__
    }
    start = inspect.getsource(LogicSubscriber.start)
    assert "self.consumer = consumer = self._outer_config.builder(" in start


def test_broker_of_faststream_stops_with_the_arguments_of_ours() -> None:
    theirs = inspect.signature(TheirBroker.stop).parameters
    assert [*inspect.signature(KafkaBroker.stop).parameters] == [*theirs]
    handler = TheirBroker(NOWHERE).subscriber("orders")
    assert (handler.running, len(handler.calls), handler.consumer) == (False, 0, None)
