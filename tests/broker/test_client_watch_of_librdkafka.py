"""librdkafka forgets all brokers after a metadata answer without brokers (librdkafka#5301).

The brokers are librdkafka's own mock brokers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.records import fetching as fetching_module
from coopgroup.kafka.records.fetching import Fetching
from tests.support.metadata_proxy import MetadataProxy, metadata_proxy
from tests.support.waiting import wait_for
from tests.unit.kafka.fakes import starts

pytestmark = pytest.mark.slow

MOMENT_S = 0.5
CLIENTS = 3


@pytest.fixture
def producer() -> Producer:
    return Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})


@pytest.fixture
def proxy(producer: Producer) -> Iterator[MetadataProxy]:
    broker = next(iter(producer.list_topics(timeout=60).brokers.values()))
    with metadata_proxy(f"{broker.host}:{broker.port}") as found:
        yield found


def settings(proxy: MetadataProxy) -> dict[str, object]:
    return {
        "bootstrap.servers": proxy.address,
        "topic.metadata.refresh.interval.ms": 200,
        "log_level": 0,
    }


def outage(proxy: MetadataProxy, looks: Sequence[Callable[[], object]]) -> None:
    """Leave out the brokers for a moment, while each client looks for them on its own thread."""
    over = threading.Event()

    def keep_looking(look: Callable[[], object]) -> None:
        while not over.is_set():
            look()

    with ThreadPoolExecutor(len(looks)) as pool:
        looking = [pool.submit(keep_looking, look) for look in looks]
        for lists_brokers in (False, False, False, True, False, True):
            proxy.lists_brokers = lists_brokers
            time.sleep(MOMENT_S)
        over.set()
    for one in looking:
        one.result()
    assert proxy.without_brokers


def test_records_arrive_again(
    producer: Producer, proxy: MetadataProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client of six survives the outage without our help, so three clients take part."""
    monkeypatch.setattr(fetching_module, "_SILENT_S", 1.0)
    monkeypatch.setattr(fetching_module, "_DOUBT_S", 0.2)
    configuration = settings(proxy) | {"group.id": "g", "enable.auto.commit": False}
    fetchings = [
        Fetching(
            Consumer(configuration), starts(), renew=lambda: nullcontext(Consumer(configuration))
        )
        for _ in range(CLIENTS)
    ]
    try:
        produce(producer)
        for fetching in fetchings:
            fetching.begin([TopicPartition("t", 0, 0)])
            wait_for(partial(has, fetching, 1))
        outage(proxy, [partial(has, fetching, 1) for fetching in fetchings])
        produce(producer)
        for fetching in fetchings:
            wait_for(partial(has, fetching, 2))
            assert [one.offset() for one in fetching.record_buffer.ready] == [0, 1]
    finally:
        for fetching in fetchings:
            fetching.close()


def test_topics_are_found_again(producer: Producer, proxy: MetadataProxy) -> None:
    produce(producer)
    connection = read_connection_settings({"bootstrap.servers": proxy.address})
    lookups = [
        ClusterLookup(settings(proxy), "g", "earliest", 500, connection) for _ in range(CLIENTS)
    ]
    looks = [partial(is_found, lookup) for lookup in lookups]
    try:
        for look in looks:
            wait_for(look)
        outage(proxy, looks)
        for look in looks:
            wait_for(look)
    finally:
        for lookup in lookups:
            lookup.close()


def produce(producer: Producer) -> None:
    producer.produce("t", b"", partition=0)
    assert producer.flush(60) == 0


def has(fetching: Fetching, count: int) -> bool:
    fetching.fetch(1, 0.05)
    return len(fetching.record_buffer.ready) >= count


def is_found(lookup: ClusterLookup) -> bool:
    try:
        return lookup.topic_names() == ("t",)
    except KafkaException:
        return False
