"""A cluster that cannot create __consumer_offsets: all fronts and tools name it, and it heals."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from coopgroup import CooperativeConsumer, CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.cli import app
from coopgroup.health import serve
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce
from tests.support.waiting import wait_for

WAIT_S = 40.0
CAUSE = "COORDINATOR_NOT_AVAILABLE: usually offsets.topic.replication.factor is above the number"
PARTITIONS = 4


@contextmanager
def without_coordinators() -> Iterator[KafkaCluster]:
    """One broker with the default of many images, which needs three."""
    properties = {
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": str(PARTITIONS),
    }
    with KafkaCluster(properties=properties) as cluster:
        cluster.create_topic("orders", 1)
        produce(cluster, "orders", [1])
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with without_coordinators() as cluster:
        yield cluster


def config_of(cluster: KafkaCluster, told: list[KafkaError], group: str) -> dict[str, Any]:
    return {
        **cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "error_cb": told.append,
    }


def _get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.slow
def test_fronts_tell_of_the_missing_coordinator_once_and_the_probe_names_it(
    cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[KafkaError] = []
    told_on_loop: list[KafkaError] = []
    shared = CooperativeGroup(
        {**cluster.client_config(), "group.id": "named"},
        catalogue=[("job", 0)],
        start=lambda *_: None,
        stop=lambda *_: None,
    )

    async def wait_on_loop() -> None:
        consumer = AsyncCooperativeConsumer(config_of(cluster, told_on_loop, "loop"))
        async with consumer:
            consumer.subscribe(["orders"])
            async with asyncio.timeout(WAIT_S):
                while not told_on_loop:
                    await consumer.getmany(timeout_ms=100)

    with CooperativeConsumer(config_of(cluster, told, "plain")) as consumer, shared:
        consumer.subscribe(["orders"])
        with serve(0, consumer) as server:
            assert _get(server.port, "/readyz")[0] == 503

            def is_told() -> bool:
                assert consumer.poll(0.1) is None
                return bool(told)

            wait_for(is_told, "error_cb", WAIT_S)
            status, content = _get(server.port, "/readyz")
            (problem,) = content["members"][0]["problems"]
            assert (status, CAUSE in problem) == (503, True)
            assert _get(server.port, "/livez")[0] == 200
        asyncio.run(wait_on_loop())
    for errors in (told, told_on_loop):
        (error,) = errors
        assert (error.code(), error.fatal()) == (KafkaError.COORDINATOR_NOT_AVAILABLE, False)
        assert "offsets.topic.replication.factor" in error.str()
    warned = [one for one in caplog.messages if one.startswith("request_retried")]
    assert len(warned) == 3  # one of each member
    assert all("COORDINATOR_NOT_AVAILABLE" in one for one in warned)


@pytest.mark.parametrize(
    "words", [["group", "describe"], ["group", "migrate", "--check"], ["watch", "--json"]]
)
def test_tools_name_the_missing_coordinator(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    server = cluster.client_config()["bootstrap.servers"]
    assert app.run([*words, "g", "--bootstrap-server", server, "--timeout-ms", "2000"]) == 2
    said = capsys.readouterr().err
    assert f"GROUP: got 'g', expected a group whose coordinator answers ({CAUSE}" in said


@pytest.mark.slow
def test_group_begins_by_itself_when_the_topic_is_there(caplog: pytest.LogCaptureFixture) -> None:
    told: list[KafkaError] = []
    with (
        without_coordinators() as cluster,
        CooperativeConsumer(config_of(cluster, told, "late")) as consumer,
    ):
        consumer.subscribe(["orders"])

        def is_told() -> bool:
            consumer.poll(0.1)
            return bool(told)

        wait_for(is_told, "error_cb", WAIT_S)
        compacted = {"cleanup.policy": "compact"}
        offsets = NewTopic("__consumer_offsets", PARTITIONS, 1, config=compacted)
        admin = AdminClient(dict[str, Any](cluster.client_config()))
        admin.create_topics([offsets])["__consumer_offsets"].result(30)
        with caplog.at_level(logging.INFO, logger="coopgroup"):
            wait_for(lambda: consumer.poll(0.1) is not None, "the record", WAIT_S)
    assert len(told) == 1
    assert [one.levelno for one in caplog.records if "is_over=True" in one.getMessage()] == [
        logging.INFO
    ]
