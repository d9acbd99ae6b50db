"""Each way to be alive and stuck turns liveness red within its limit, on a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup import CooperativeConsumer, CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.health import Health, HealthLimits, HealthServer, serve
from coopgroup.kafka.health import consumer_work, probe, value
from coopgroup.processing import process
from coopgroup.testing import KafkaCluster
from tests.support.live_group import polling, produce, unique
from tests.support.probes import get
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

WAIT_S = 60.0
LIMIT_S = 1.5
_LIMIT_SHARE = LIMIT_S / Health(group_id="g").max_poll_interval_s


def _settings(cluster: KafkaCluster, **more: object) -> dict[str, Any]:
    return {
        **cluster.client_config(),
        "group.id": unique("health"),
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
        **more,
    }


def _wait_red(
    server: HealthServer, words: str, poll: Callable[[], object] = lambda: time.sleep(0.05)
) -> None:
    def is_red() -> bool:
        poll()
        status, content = get(server.port, "livez")
        return status == 503 and words in content

    wait_for(is_red, words, WAIT_S)


def _wait_green(server: HealthServer, poll: Callable[[], object] | None = None) -> None:
    wait_for(lambda: get(server.port, "livez")[0] == 200, "green again", WAIT_S, poll)


def _owns(consumer: CooperativeConsumer, count: int) -> Callable[[], bool]:
    return lambda: len(consumer.assignment()) == count


@contextmanager
def _watched(
    cluster: KafkaCluster, records: Sequence[int], **limits: float
) -> Iterator[tuple[CooperativeConsumer, HealthServer, str]]:
    """Yield a consumer of a new topic, its server of probes, and the name of the topic."""
    topic = unique("health")
    cluster.create_topic(topic, len(records))
    produce(cluster, topic, records)
    consumer = CooperativeConsumer(_settings(cluster))
    with consumer, serve(0, consumer, limits=HealthLimits(**limits)) as server:
        yield consumer, server, topic


def test_handler_that_hangs_turns_liveness_red(kafka_cluster: KafkaCluster) -> None:
    with _watched(kafka_cluster, [1], poll_s=LIMIT_S) as (consumer, server, topic):
        consumer.subscribe([topic])
        asked_s = time.monotonic()  # before the time that the limit counts from
        assert consumer.poll(WAIT_S) is not None
        assert get(server.port, "livez")[0] == 200 or time.monotonic() - asked_s >= LIMIT_S
        _wait_red(server, "poll was not called")  # this thread is the handler
        assert time.monotonic() - asked_s >= LIMIT_S
        _wait_green(server, lambda: consumer.poll(0))


def test_one_hanging_handler_among_many_turns_liveness_red(kafka_cluster: KafkaCluster) -> None:
    """With `process` the consumer polls on, and the other partitions go on."""
    goes_on, stop = threading.Event(), threading.Event()

    def handle(message: Any) -> None:  # noqa: ANN401  (Message has no public type)
        if message.partition() == 1:
            goes_on.wait(WAIT_S)

    with _watched(kafka_cluster, [3, 3], partition_s=LIMIT_S) as (consumer, server, topic):
        consumer.subscribe([topic])
        processing = threading.Thread(
            target=process, args=(consumer, handle), kwargs={"stop": stop}
        )
        processing.start()
        _wait_red(server, f"{topic}-1 makes no progress")
        assert f"{topic}-0" not in get(server.port, "livez")[1]
        goes_on.set()
        _wait_green(server)
        stop.set()
        processing.join()


def test_revocation_that_never_ends_turns_liveness_red(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value, "_REVOCATION_SHARE", _LIMIT_SHARE)
    with _watched(kafka_cluster, [0, 0]) as (slow, server, topic):
        group_id = slow.health().group_id
        other = CooperativeConsumer(_settings(kafka_cluster, **{"group.id": group_id}))
        slow.subscribe([topic], on_revoke=lambda _, parts: slow.revoke_later(parts))
        with other, polling(slow, other):
            wait_for(_owns(slow, 2), "both", WAIT_S)
            other.subscribe([topic])
            _wait_red(server, "a revocation runs")


def test_consumer_that_hears_of_no_record_turns_liveness_red(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after librdkafka#5301: its client polls on and fetches nothing."""
    monkeypatch.setattr(probe, "QUIET_S", 0.2)
    monkeypatch.setattr(consumer_work, "_ENDS_S", 0.3)
    with _watched(kafka_cluster, [1], partition_s=LIMIT_S) as (consumer, server, topic):
        consumer.subscribe([topic])
        assert consumer.poll(WAIT_S) is not None
        inner = consumer._fetching.consumer  # noqa: SLF001  (what becomes deaf)
        inner.pause([TopicPartition(topic, 0)])
        with polling(consumer):
            wait_for(lambda: bool(consumer.health().lags), "a sample", WAIT_S)
            time.sleep(2 * LIMIT_S)
            assert get(server.port, "livez")[0] == 200  # nothing waits
            produce(kafka_cluster, topic, [3])
            _wait_red(server, "records wait")


def test_rebalance_that_never_ends_turns_liveness_red(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client answers heartbeats, and does not poll, so it never rejoins (aiokafka#1187)."""
    monkeypatch.setattr(value, "_REBALANCE_INTERVALS", _LIMIT_SHARE)
    topic = unique("endless")
    kafka_cluster.create_topic(topic, 2)
    settings = _settings(kafka_cluster)
    other = Consumer({**settings, "partition.assignment.strategy": "range"})
    ours = CooperativeConsumer({**settings, "coopgroup.protocols": "coopgroup,range"})
    with ours, serve(0, ours) as server:
        other.subscribe([topic])
        wait_for(lambda: len(other.assignment()) == 2, poll=lambda: other.poll(0.1), timeout_s=30)
        ours.subscribe([topic])
        with polling(ours):
            _wait_red(server, "a rebalance runs")
            other.close()
            _wait_green(server)


def test_blocked_event_loop_turns_liveness_red(kafka_cluster: KafkaCluster) -> None:
    topic = unique("blocked")
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster, topic, [1])

    async def live() -> None:
        consumer = AsyncCooperativeConsumer(_settings(kafka_cluster), topic)
        with serve(0, consumer, limits=HealthLimits(poll_s=LIMIT_S)) as server:
            async with consumer:
                began_s = time.monotonic()
                await asyncio.wait_for(consumer.getone(), WAIT_S)
                assert get(server.port, "livez")[0] == 200 or time.monotonic() - began_s >= LIMIT_S
                _wait_red(server, "poll was not called")  # on the loop itself

    asyncio.run(live())


def test_start_of_a_resource_that_hangs_turns_liveness_red(kafka_cluster: KafkaCluster) -> None:
    goes_on = threading.Event()
    settings = _settings(kafka_cluster)
    del settings["auto.offset.reset"]
    group = CooperativeGroup(
        settings,
        catalogue=[("jobs", 0)],
        start=lambda _: goes_on.wait(WAIT_S),
        stop=lambda _: None,
    )
    with group, serve(0, group, limits=HealthLimits(partition_s=LIMIT_S)) as server:
        _wait_red(server, "jobs-0 makes no progress")
        goes_on.set()
