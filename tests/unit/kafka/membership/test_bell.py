"""The bell on a topic, beside a transport that a test answers by hand."""

import threading
from typing import Any, cast

import pytest
from attrs import define, field

from coopgroup.kafka.membership.bell import TopicBell
from coopgroup.kafka.rpc.questions import FindLogOffsets, LogOffset
from coopgroup.kafka.rpc.topics import (
    FindPartition,
    FoundPartition,
    ListenForRings,
    Produce,
    ProduceAnswer,
    RingsAnswer,
)
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FOUND, LOST, MOVED, THERE, HandTransport

PLACE = ("bell", 3)


@define
class Host:
    transport: HandTransport = field(factory=HandTransport)
    heard: int = 0
    warnings: list[dict[str, Any]] = field(factory=list)

    def hear(self) -> None:
        self.heard += 1

    def warn(self, event: str, **fields: object) -> None:
        self.warnings.append({"event": event, **fields})

    def bell(self, *, listens: bool = True, named: bool = True) -> TopicBell:
        """Return a bell that has begun; if it listens, from offset 5 on."""
        bell = TopicBell(
            transport=cast("GroupTransport", self.transport),
            topic="bell",
            group_id="g",
            heard=self.hear,
            warn=self.warn if named else None,
            timeout_ms=1_000,
        )
        bell.start()
        if listens:
            self.transport.answer(FindPartition, FOUND)
            self.transport.answer(FindLogOffsets, {PLACE: LogOffset(0, 5)})
        return bell

    def listening(self) -> TopicBell:
        """Return a bell that has got an answer to its first request for rings."""
        bell = self.bell()
        answer = RingsAnswer(error_code=0, next_offset=5, end_offset=5)
        self.transport.answer(ListenForRings, answer)
        return bell

    def ringing(self) -> TopicBell:
        """Return a bell that has rung; what it listens to is left out."""
        bell = self.bell()
        del self.transport.requests[:]
        bell.ring()
        return bell


@pytest.fixture
def host() -> Host:
    return Host()


# --- listening -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "end", "heard", "next_offset"),
    [
        pytest.param((b"other", b"g", b"g"), 8, 1, 8, id="once for each answer"),
        pytest.param((b"other", None, b"gg"), 8, 0, 8, id="of other groups"),
        pytest.param((b"other",), 5_000, 0, 5_000, id="far behind"),
        pytest.param((), 5, 0, 5, id="none"),
    ],
)
def test_ring_of_the_group_is_heard(
    host: Host, keys: tuple[bytes | None, ...], end: int, heard: int, next_offset: int
) -> None:
    host.bell()
    answer = RingsAnswer(error_code=0, keys=keys, next_offset=5 + len(keys), end_offset=end)
    host.transport.answer(ListenForRings, answer)
    assert host.heard == heard
    if keys:  # a flood of rings must leave time for other requests
        assert host.transport.run() == 0.01
    assert host.transport.requests[0][1].offset == next_offset


@pytest.mark.parametrize("failure", [LOST, RingsAnswer(error_code=6, next_offset=5)])
def test_bell_follows_the_leader_and_keeps_its_offset(host: Host, failure: Any) -> None:  # noqa: ANN401
    host.bell()
    host.transport.answer(ListenForRings, failure)
    assert host.transport.run() == 0.2
    host.transport.answer(FindPartition, MOVED)
    ((_, request, node, _, _),) = host.transport.requests
    assert (request.offset, node, host.warnings) == (5, THERE, [])


@pytest.mark.parametrize("code", [3, 6, 78])
def test_rings_of_the_time_without_a_leader_are_heard(host: Host, code: int) -> None:
    """A broker that does not know the partition yet answers UNKNOWN_TOPIC_OR_PARTITION."""
    host.listening()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=code, next_offset=5))
    assert host.transport.run() == 0.2
    host.transport.answer(FindPartition, MOVED)
    rings = RingsAnswer(error_code=0, keys=(b"g",), next_offset=6, end_offset=6)
    request, node = host.transport.answer(ListenForRings, rings)
    assert (request.offset, node, host.heard) == (5, THERE, 1)


def test_topic_that_is_made_again_is_found_soon(host: Host) -> None:
    host.listening()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=3, next_offset=5))
    pauses = [host.transport.run()]
    for _ in range(12):
        host.transport.answer(FindPartition, FoundPartition(error_code=3))
        pauses.append(host.transport.run())
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[-2:] == [300.0, 300.0]


def test_offset_that_is_gone_is_looked_up_again(host: Host) -> None:
    host.bell()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=1, next_offset=5))
    host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    host.transport.answer(FindLogOffsets, {PLACE: LogOffset(0, 70)})
    assert host.transport.requests[0][1].offset == 70


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
    host.bell(listens=False)
    for _ in range(3):
        host.transport.answer(FindPartition, FoundPartition(error_code=code))
        assert host.transport.run() == 300.0
    warning = {"event": "bell_unavailable", "topic": "bell", "action": "listen", "error": name}
    assert host.warnings == [warning]


@pytest.mark.parametrize("named", [True, False])
def test_topic_that_cannot_be_reached_is_told_once_after_a_time(
    host: Host, hand: Hand, *, named: bool
) -> None:
    host.bell(listens=False, named=named)
    began_s = hand.now_s
    while hand.now_s < began_s + 120.0:
        host.transport.answer(FindPartition, LOST)
        assert len(host.warnings) == (named and hand.now_s >= began_s + 10.0)
        hand.now_s += host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    host.transport.answer(FindLogOffsets, {PLACE: LogOffset(0, 5)})
    host.transport.answer(ListenForRings, RingsAnswer(error_code=0, next_offset=5, end_offset=5))
    fields = {"topic": "bell", "action": "listen"}
    told = [
        {"event": "bell_unavailable", **fields, "error": "gone"},
        {"event": "bell_available", **fields, "is_over": True},
    ]
    assert host.warnings == (told if named else [])


def test_topic_that_nobody_named_may_be_missing_and_is_found_when_it_comes(host: Host) -> None:
    host.bell(listens=False, named=False)
    host.transport.answer(FindPartition, FoundPartition(error_code=3))
    assert (host.transport.run(), host.warnings) == (300.0, [])
    host.transport.answer(FindPartition, FOUND)
    host.transport.answer(FindLogOffsets, {PLACE: LogOffset(0, 5)})
    host.transport.answer(ListenForRings, RingsAnswer(error_code=29, next_offset=5))
    assert host.transport.run() == 300.0  # without the right to read
    for _ in range(2):
        answer = RingsAnswer(error_code=0, next_offset=5, end_offset=5)
        request, _ = host.transport.answer(ListenForRings, answer)
        assert request.wait_ms == 30_000


# --- ringing ---------------------------------------------------------------------------------


def test_ring_without_a_topic_costs_nothing(host: Host) -> None:
    bell = host.bell(listens=False)
    host.transport.answer(FindPartition, FoundPartition(error_code=3))
    bell.ring()
    assert host.transport.requests == []
    bell.finish(10.0)


def test_ring_follows_a_leader_that_the_bell_has_found(host: Host) -> None:
    bell = host.bell()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=6, next_offset=5))
    host.transport.run()
    host.transport.answer(FindPartition, MOVED)
    del host.transport.requests[:]
    bell.ring()
    _, node = host.transport.answer(Produce, ProduceAnswer(error_code=0))
    assert node == THERE
    bell.finish(10.0)


def test_ring_waits_for_the_next_leader(host: Host) -> None:
    bell = host.listening()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=6, next_offset=5))
    bell.ring()  # between two leaders
    bell.ring()
    host.transport.run()
    host.transport.answer(FindPartition, FoundPartition(error_code=5, partition=3))
    host.transport.run()
    host.transport.answer(FindPartition, MOVED)
    _, node = host.transport.answer(Produce, ProduceAnswer(error_code=0))
    assert node == THERE
    host.transport.answer(ListenForRings, LOST)
    assert host.transport.requests == []  # one record is enough for both
    bell.finish(10.0)


@pytest.mark.parametrize(
    "failure", [ProduceAnswer(error_code=6), ProduceAnswer(error_code=19), LOST]
)
def test_ring_that_failed_is_sent_to_the_next_leader(host: Host, failure: Any) -> None:  # noqa: ANN401
    bell = host.ringing()
    host.transport.answer(Produce, failure)
    assert host.transport.run() == 0.2
    host.transport.answer(FindPartition, MOVED)
    request, node = host.transport.answer(Produce, ProduceAnswer(error_code=0))
    assert (request.acks, node) == (-1, THERE)
    assert host.transport.requests == []  # the member listens already
    bell.finish(10.0)


def test_ring_that_always_fails_is_given_up(host: Host) -> None:
    bell = host.ringing()
    pauses = []
    for _ in range(5):
        host.transport.answer(Produce, ProduceAnswer(error_code=6))
        pauses.append(host.transport.run())
        host.transport.answer(FindPartition, FOUND)
    host.transport.answer(Produce, ProduceAnswer(error_code=6))
    assert (pauses, host.transport.actions) == ([0.2, 0.4, 0.8, 1.6, 3.2], [])
    bell.finish(10.0)


def test_ring_while_no_broker_answers_is_given_up(host: Host) -> None:
    bell = host.ringing()
    host.transport.answer(Produce, LOST)
    for _ in range(6):
        host.transport.run()
        host.transport.answer(FindPartition, LOST)
    bell.finish(10.0)
    bell.ring()
    bell.finish(10.0)
    host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    assert host.transport.requests == []


def test_member_without_the_right_to_read_rings_at_the_next_leader(host: Host) -> None:
    bell = host.bell()
    host.transport.answer(ListenForRings, RingsAnswer(error_code=29, next_offset=5))
    bell.ring()
    host.transport.answer(Produce, ProduceAnswer(error_code=6))
    assert [delay_s for delay_s, _ in host.transport.actions] == [300.0, 0.2]
    del host.transport.actions[0]
    host.transport.run()
    host.transport.answer(FindPartition, MOVED)
    _, node = host.transport.answer(Produce, ProduceAnswer(error_code=0))
    assert (node, host.transport.requests) == (THERE, [])
    bell.finish(10.0)


@pytest.mark.parametrize("answer", [ProduceAnswer(error_code=0), ProduceAnswer(error_code=29)])
def test_finish_waits_for_the_answer(host: Host, answer: ProduceAnswer) -> None:
    bell = host.ringing()
    waiting = threading.Thread(target=bell.finish, args=(10.0,))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    host.transport.answer(Produce, answer)
    waiting.join(5.0)
    assert not waiting.is_alive()


def test_ring_at_a_closed_transport_is_forgotten(host: Host) -> None:
    bell = host.bell()
    host.transport.is_closed = True
    bell.ring()
    bell.finish(10.0)
    host.transport.answer(ListenForRings, LOST)  # no action can be queued, and none is
