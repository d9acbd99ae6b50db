"""A leader that assigns other topics and missing partitions, on a real broker."""

from __future__ import annotations

import logging
import queue
from typing import Any

import pytest
from confluent_kafka import Message

from coopgroup import CooperativeConsumer
from coopgroup.core.member.effects import Lane
from coopgroup.core.model import ResourceSet
from coopgroup.core.model import group_api as api
from coopgroup.protocol import Assignment, Subscription, encode_assignment, encode_subscription
from coopgroup.testing import KafkaCluster
from tests.support.conformance_broker import BrokerClients, connect
from tests.support.group_requests import heartbeat, join, sync
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for


class HostileLeader:
    """Joins first, so that it leads, and gives the same assignment to all other members."""

    def __init__(self, clients: BrokerClients, group_id: str, assigned: ResourceSet) -> None:
        self._clients, self._group_id = clients, group_id
        self._assignment = encode_assignment(Assignment(assigned=assigned))
        self._join: queue.Queue[Any] | None = None
        self._member_id, self.rounds = "", 0
        self._member_id = self._begin_join().get(timeout=30).member_id
        self._lead(self._begin_join().get(timeout=30))

    def play(self) -> None:
        """Lead the next round, if one has begun."""
        if self._join is None:
            beat = heartbeat(self._member_id, self._generation, group_id=self._group_id)
            answer = self._clients.begin(0, Lane.COMMIT, beat).get(timeout=30)
            if answer.error_code:
                self._join = self._begin_join()
        elif not self._join.empty():
            answer, self._join = self._join.get(), None
            self._lead(answer)

    def _begin_join(self) -> queue.Queue[Any]:
        request = join(
            self._member_id,
            group_id=self._group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocols=(("coopgroup", encode_subscription(Subscription(topics=("other",)))),),
        )
        return self._clients.begin(0, Lane.JOIN, request)

    def _lead(self, joined: api.JoinGroupAnswer) -> None:
        assert joined.leader_id == self._member_id, joined
        self._generation = joined.generation
        others = [one.member_id for one in joined.members if one.member_id != self._member_id]
        request = sync(
            self._member_id,
            joined.generation,
            tuple((one, self._assignment) for one in others),
            group_id=self._group_id,
        )
        assert self._clients.begin(0, Lane.JOIN, request).get(timeout=30).error_code == 0
        self.rounds += bool(others)


def test_no_record_of_another_topic_reaches_the_handler(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The member takes its own partition, warns, and joins again, with the same result."""
    mine, secret, group_id = unique("mine"), unique("secret"), unique("hostile")
    for topic in (mine, secret):
        kafka_cluster.create_topic(topic, 1)
        produce(kafka_cluster, topic, [20])
    settings = {
        **kafka_cluster.client_config(),
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 300,
    }
    seen: list[Message] = []
    with connect(kafka_cluster.client_config(), 1) as clients:
        leader = HostileLeader(clients, group_id, ResourceSet({mine: [0, 7], secret: [0]}))
        consumer = CooperativeConsumer(settings)
        assigned: list[str] = []
        consumer.subscribe([mine], on_assign=lambda _, gained: assigned.extend(map(str, gained)))

        def poll() -> None:
            leader.play()
            message = consumer.poll(0.02)
            if message is not None:
                seen.append(message)

        try:
            with caplog.at_level(logging.WARNING, logger="coopgroup"):
                wait_for(
                    lambda: len(seen) >= 20 and leader.rounds >= 4,
                    "the own records, and three rounds after refusals",
                    poll=poll,
                )
            assert [(one.topic, one.partition) for one in consumer.assignment()] == [(mine, 0)]
        finally:
            consumer.close()
    assert {one.topic() for one in seen} == {mine}
    assert len(seen) == 20
    assert len(assigned) == 1
    warned = [one for one in caplog.records if getattr(one, "event", "") == "assignment_refused"]
    assert len(warned) >= 3
    assert secret in warned[0].getMessage()
    assert leader._member_id in warned[0].getMessage()  # noqa: SLF001  (of this file)
