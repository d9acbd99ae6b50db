"""The bell on a topic, beside a transport that a test answers by hand."""

import threading
from typing import Any

import pytest
from attrs import define, field

from coopgroup.kafka.membership.bell import TopicBell
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.topics import (
    EndAnswer,
    FindEnd,
    FindPartition,
    FoundPartition,
    ListenForRings,
    Produce,
    ProduceAnswer,
    RingsAnswer,
)
from coopgroup.kafka.rpc.transport import TopicLane
from coopgroup.model.group_api import Coordinator
from tests.unit.kafka.fakes import HandTransport

HERE = Coordinator(node_id=1, host="here", port=1)
THERE = Coordinator(node_id=2, host="there", port=2)
LOST = TransportFailure(kind=FailureKind.DISCONNECTED, message="gone")
FOUND = FoundPartition(error_code=0, partition=3, leader=HERE)


@define
class Host:
    transport: HandTransport = field(factory=HandTransport)
    heard: int = 0
    warnings: list[dict[str, Any]] = field(factory=list)

    def hear(self) -> None:
        self.heard += 1

    def warn(self, event: str, **fields: Any) -> None:  # noqa: ANN401
        self.warnings.append({"event": event, **fields})

    def bell(self) -> TopicBell:
        return TopicBell(
            transport=self.transport,
            topic="bell",
            group_id="g",
            heard=self.hear,
            warn=self.warn,
            timeout_ms=1_000,
        )

    def listening(self) -> TopicBell:
        """Return a bell that listens from offset 5 on."""
        bell = self.bell()
        bell.start()
        self.transport.answer(FindPartition, FOUND)
        self.transport.answer(FindEnd, EndAnswer(error_code=0, offset=5))
        return bell

    def rings(self, *keys: bytes | None, end: int | None = None) -> None:
        """Answer the Fetch with rings."""
        request = self.transport.requests[0][1]
        after = request.offset + len(keys)
        answer = RingsAnswer(
            error_code=0, keys=keys, next_offset=after, end_offset=after if end is None else end
        )
        self.transport.answer(ListenForRings, answer)


@pytest.fixture
def host() -> Host:
    return Host()


# --- listening -------------------------------------------------------------------------------


def test_bell_listens_at_the_leader_from_the_end_on(host: Host) -> None:
    host.listening()
    ((lane, request, node, timeout_ms, _),) = host.transport.requests
    assert request == ListenForRings(topic="bell", partition=3, offset=5, wait_ms=30_000)
    assert (lane, node, timeout_ms) == (TopicLane.LISTEN, HERE, 31_000)


def test_ring_of_the_group_is_heard_once_for_each_answer(host: Host) -> None:
    host.listening()
    host.rings(b"other", b"g", b"g")
    assert host.heard == 1


def test_rings_of_other_groups_are_only_read(host: Host) -> None:
    host.listening()
    host.rings(b"other", None, b"gg")
    assert host.heard == 0
    assert host.transport.run() == 0.01  # a flood of rings must leave time for other requests
    assert host.transport.requests[0][1].offset == 8


def test_bell_that_hears_nothing_asks_again_immediately(host: Host) -> None:
    host.listening()
    host.rings()
    assert host.transport.requests[0][1].offset == 5
    assert host.transport.actions == []


def test_bell_that_is_far_behind_listens_from_the_end(host: Host) -> None:
    host.listening()
    host.rings(b"other", end=5_000)
    host.transport.run()
    assert host.transport.requests[0][1].offset == 5_000


@pytest.mark.parametrize("failure", [LOST, RingsAnswer(error_code=6, next_offset=5)])
def test_bell_follows_the_leader_and_keeps_its_offset(host: Host, failure: Any) -> None:  # noqa: ANN401
    host.listening()
    host.transport.answer(ListenForRings, failure)
    assert host.transport.run() == 0.2
    moved = FoundPartition(error_code=0, partition=3, leader=THERE)
    host.transport.answer(FindPartition, moved)
    ((_, request, node, _, _),) = host.transport.requests
    assert (request.offset, node) == (5, THERE)
    assert host.warnings == []


def test_offset_that_is_gone_is_looked_up_again(host: Host) -> None:
    host.listening()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=1, next_offset=5))
    host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    host.transport.answer(FindEnd, EndAnswer(error_code=0, offset=70))
    assert host.transport.requests[0][1].offset == 70


def test_pause_between_tries_grows_up_to_half_a_minute(host: Host) -> None:
    host.bell().start()
    pauses = []
    for _ in range(10):
        host.transport.answer(FindPartition, LOST)
        pauses.append(host.transport.run())
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert pauses[-1] == 30.0
    assert host.warnings == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "UNKNOWN_TOPIC_OR_PARTITION"),
        (17, "INVALID_TOPIC_EXCEPTION"),
        (29, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_missing_topic_or_right_is_one_warning_and_tried_rarely(
    host: Host, code: int, name: str
) -> None:
    host.bell().start()
    for _ in range(3):
        host.transport.answer(FindPartition, FoundPartition(error_code=code))
        assert host.transport.run() == 300.0
    warning = {"event": "bell_unavailable", "topic": "bell", "action": "listen", "error": name}
    assert host.warnings == [warning]


def test_missing_right_to_read_is_one_warning(host: Host) -> None:
    host.listening()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=29, next_offset=5))
    assert [one["action"] for one in host.warnings] == ["listen"]
    assert host.transport.run() == 300.0


# --- ringing ---------------------------------------------------------------------------------


def test_ring_goes_to_the_leader_on_its_own_connection(host: Host) -> None:
    bell = host.listening()
    bell.ring()
    lane, request, node, timeout_ms, _ = host.transport.requests[1]
    assert isinstance(request, Produce)
    assert (request.topic, request.partition, request.group_id) == ("bell", 3, "g")
    assert (lane, node, timeout_ms) == (TopicLane.RING, HERE, 1_000)


def test_ring_waits_for_the_leader_that_is_being_looked_up(host: Host) -> None:
    bell = host.bell()
    bell.start()
    bell.ring()
    host.transport.answer(FindPartition, FOUND)
    assert isinstance(host.transport.requests[0][1], Produce)


def test_ring_without_a_topic_costs_nothing(host: Host) -> None:
    bell = host.bell()
    bell.start()
    host.transport.answer(FindPartition, FoundPartition(error_code=3))
    bell.ring()
    assert host.transport.requests == []
    bell.finish(10.0)


def test_ring_follows_a_leader_that_moved_once(host: Host) -> None:
    bell = host.listening()
    del host.transport.requests[:]
    bell.ring()
    host.transport.answer(Produce, ProduceAnswer(error_code=6))
    host.transport.answer(FindPartition, FoundPartition(error_code=0, partition=3, leader=THERE))
    _, node = host.transport.answer(Produce, ProduceAnswer(error_code=6))
    assert node == THERE
    assert host.transport.requests == []
    bell.finish(10.0)


def test_missing_right_to_ring_is_one_warning(host: Host) -> None:
    bell = host.listening()
    del host.transport.requests[:]
    for _ in range(2):
        bell.ring()
        host.transport.answer(Produce, ProduceAnswer(error_code=29))
    assert [one["action"] for one in host.warnings] == ["ring"]
    bell.finish(10.0)


@pytest.mark.parametrize("answer", [ProduceAnswer(error_code=0), LOST])
def test_finish_waits_for_the_answer(host: Host, answer: Any) -> None:  # noqa: ANN401
    bell = host.listening()
    del host.transport.requests[:]
    bell.ring()
    waiting = threading.Thread(target=bell.finish, args=(10.0,))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    host.transport.answer(Produce, answer)
    if answer is LOST:
        host.transport.answer(FindPartition, LOST)
    waiting.join(5.0)
    assert not waiting.is_alive()


def test_ring_at_a_closed_transport_is_forgotten(host: Host) -> None:
    bell = host.listening()
    host.transport.is_closed = True
    bell.ring()
    bell.finish(10.0)
    host.transport.answer(ListenForRings, LOST)  # no action can be queued, and none is
