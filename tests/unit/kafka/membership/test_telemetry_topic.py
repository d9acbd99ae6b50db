"""The topic of telemetry, beside a transport that a test answers by hand."""

import json
import math
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, evolve, field

from coopgroup.core.member import Member, MemberConfig, MemberState
from coopgroup.core.member.parts import NextJoin, Revocation, Warmups
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.membership.driver import report_of
from coopgroup.kafka.membership.telemetry_sink import Report, TelemetrySink
from coopgroup.kafka.membership.telemetry_topic import TelemetryTopic
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.rpc.topics import FindPartition, FoundPartition, Produce, ProduceAnswer
from coopgroup.kafka.rpc.transport import GroupTransport, TopicLane
from coopgroup.telemetry import Envelope, MemberReported, ResourcesStarted, from_json
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FOUND, HERE, LOST, MOVED, THERE, HandTransport

TAKEN = ProduceAnswer(error_code=0)
NOT_LEADER = ProduceAnswer(error_code=6)
TOO_LARGE = ProduceAnswer(error_code=10)
MISSING = FoundPartition(error_code=3)


def dropped(records: int) -> tuple[str, dict[str, Any]]:
    return "telemetry_topic_dropped", {"topic": "telemetry", "records": records}


def envelope(number: int) -> Envelope:
    record = ResourcesStarted(resources=ResourceSet({"t": [number]}))
    return Envelope(at_ms=number, group="g", member="m", generation=1, record=record)


@define
class Host:
    transport: HandTransport = field(factory=lambda: HandTransport(find_lane=TopicLane.TELEMETRY))
    warnings: list[tuple[str, dict[str, Any]]] = field(factory=list)

    def topic(self, *numbers: int, capacity: int = 1_000) -> TelemetryTopic:
        """Return a topic into which records were put."""
        topic = TelemetryTopic(
            transport=cast("GroupTransport", self.transport),
            topic="telemetry",
            group_id="g",
            capacity=capacity,
            warn=lambda event, **fields: self.warnings.append((event, fields)),
            timeout_ms=1_000,
        )
        self.put(topic, *numbers)
        return topic

    def put(self, topic: TelemetryTopic, *numbers: int) -> None:
        for number in numbers:
            topic.put(envelope(number))

    def found(self, *numbers: int, capacity: int = 1_000) -> TelemetryTopic:
        """Return a topic that has found its partition, and sends these records."""
        topic = self.topic(*numbers, capacity=capacity)
        assert self.transport.run() == 0.1
        self.transport.answer(FindPartition, FOUND)
        return topic

    def closing(self, topic: TelemetryTopic) -> threading.Thread:
        """Let another thread finish the topic, and return when it has sent a request."""
        thread = threading.Thread(target=topic.finish, args=(10.0,))
        thread.start()
        while not self.transport.requests:
            pass
        return thread

    def sent(self, leader: Coordinator = HERE) -> list[int]:
        """Return the numbers of the batch that waits for its answer."""
        ((lane, request, node, _, _),) = self.transport.requests
        assert (lane, node) == (TopicLane.TELEMETRY, leader)
        assert isinstance(request, Produce)
        numbers = [at_ms for at_ms, _ in request.records]
        assert [from_json(json.loads(value)).at_ms for _, value in request.records] == numbers
        return numbers


@pytest.fixture
def host() -> Host:
    return Host()


def test_records_of_a_moment_are_one_batch_with_the_group_as_its_key(host: Host) -> None:
    topic = host.found(1, 2, 3)
    assert host.sent() == [1, 2, 3]
    request, _ = host.transport.answer(Produce, TAKEN)
    assert (request.topic, request.partition, request.group_id) == ("telemetry", 3, "g")
    assert request.acks == -1
    assert [from_json(json.loads(value)) for _, value in request.records] == [
        envelope(number) for number in (1, 2, 3)
    ]
    assert not any(b"\n" in value for _, value in request.records)
    assert (host.transport.requests, host.transport.actions) == ([], [])
    topic.finish(0.0)
    assert host.warnings == []


def test_full_queue_drops_and_says_so_less_and_less_often(host: Host) -> None:
    host.found(*range(7), capacity=2)
    assert host.sent() == [0, 1]
    assert host.warnings == [dropped(1), dropped(2), dropped(4)]


def test_leader_that_moved_is_found_and_gets_the_same_batch(host: Host) -> None:
    host.found(1, 2)
    host.transport.answer(Produce, NOT_LEADER)
    assert host.transport.run() == 0.2
    host.transport.answer(FindPartition, MOVED)
    assert (host.sent(THERE), host.warnings) == ([1, 2], [])


def test_missing_topic_is_one_warning_and_its_records_wait(host: Host) -> None:
    host.topic(1, 2, 3, capacity=2)
    host.transport.run()
    for _ in range(3):
        host.transport.answer(FindPartition, MISSING)
        assert host.transport.run() == 60.0
    host.transport.answer(FindPartition, FOUND)
    assert host.sent() == [1, 2]
    host.transport.answer(Produce, TAKEN)
    error = "UNKNOWN_TOPIC_OR_PARTITION"
    assert host.warnings == [
        dropped(1),
        ("telemetry_topic_unavailable", {"topic": "telemetry", "error": error}),
        ("telemetry_topic_available", {"topic": "telemetry", "dropped": 0, "is_over": True}),
    ]


@pytest.mark.parametrize("answer", [LOST, FoundPartition(error_code=5)])
def test_topic_that_cannot_be_reached_is_told_once_after_a_time(
    host: Host,
    hand: Hand,
    answer: Any,  # noqa: ANN401
) -> None:
    """A leader that moves within seconds is no news."""
    host.topic(1)
    host.transport.run()
    began_s = hand.now_s
    while hand.now_s < began_s + 120.0:
        host.transport.answer(FindPartition, answer)
        assert [event for event, _ in host.warnings] == (
            ["telemetry_topic_unavailable"] if hand.now_s >= began_s + 10.0 else []
        )
        hand.now_s += host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    host.transport.answer(Produce, TAKEN)
    assert [event for event, _ in host.warnings] == [
        "telemetry_topic_unavailable",
        "telemetry_topic_available",
    ]


def test_record_that_is_too_large_is_dropped_alone(host: Host) -> None:
    """Record 3 of four is refused by the broker, wherever it is."""
    topic = host.found(1, 2, 3, 4)
    taken: list[int] = []
    while host.transport.requests:
        numbers = host.sent()
        if 3 not in numbers:
            taken += numbers
        host.transport.answer(Produce, TOO_LARGE if 3 in numbers else TAKEN)
    assert taken == [1, 2, 4]
    topic.finish(0.0)
    assert [event for event, _ in host.warnings] == [
        "telemetry_topic_not_written",
        "telemetry_topic_dropped",
        "telemetry_topic_dropped",
    ]
    assert host.warnings[0][1]["error"] == "MESSAGE_TOO_LARGE"


def test_record_that_cannot_be_encoded_is_dropped_alone(host: Host) -> None:
    topic = host.topic(1)
    topic.put(evolve(envelope(2), at_ms=cast("int", object())))
    host.put(topic, 3)
    host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    taken: list[int] = []
    while host.transport.requests:
        taken += host.sent()
        host.transport.answer(Produce, TAKEN)
    assert taken == [1, 3]
    ((event, fields), dropped_one) = host.warnings
    assert (event, dropped_one) == ("telemetry_topic_not_written", dropped(1))
    assert "not JSON serializable" in fields["error"]


def test_finish_does_not_wait_for_more_records(host: Host) -> None:
    """It sends at once what waits, and waits for the answer."""
    topic = host.topic(1)
    closing = host.closing(topic)
    host.put(topic, 2)
    host.transport.answer(FindPartition, FOUND)
    assert host.sent() == [1]
    assert closing.is_alive()
    host.transport.answer(Produce, TAKEN)
    closing.join(5.0)
    assert (closing.is_alive(), host.warnings) == (False, [])


@pytest.mark.parametrize("answer", [LOST, MISSING])
def test_finish_gives_up_at_the_first_failure(host: Host, answer: Any) -> None:  # noqa: ANN401
    closing = host.closing(host.topic(1, 2))
    host.transport.answer(FindPartition, answer)
    closing.join(5.0)
    assert (closing.is_alive(), host.warnings) == (False, [dropped(2)])


def test_finish_is_bounded_and_counts_what_is_lost(host: Host) -> None:
    topic = host.found(1)
    topic.finish(0.01)
    topic.finish(10.0)
    assert host.warnings == [dropped(1)]


def test_records_before_the_transport_starts_go_with_the_next_one(host: Host) -> None:
    host.transport.is_closed = True
    topic = host.topic(1)
    host.transport.is_closed = False
    host.put(topic, 2)
    host.transport.run()
    host.transport.answer(FindPartition, FOUND)
    assert host.sent() == [1, 2]


def test_transport_that_closed_costs_no_exception(host: Host) -> None:
    topic = host.found(1)
    host.transport.is_closed = True
    host.put(topic, 2)
    host.transport.answer(Produce, LOST)
    topic.finish(0.01)
    assert host.warnings == [dropped(2)]


# --- reports of a member, read from a driver that a test sets by hand -----------------------------


CONFIG = MemberConfig(group_id="g")
STABLE = Member(config=CONFIG, state=MemberState.STABLE, member_id="m", claim_generation=7)


def some(*numbers: int) -> ResourceSet:
    return ResourceSet({"t": numbers})


@define
class Driver:
    member: Member = STABLE
    application: Any = None
    meter: WorkMeter = field(factory=WorkMeter)
    lease_until_s: float = math.inf
    polled_at_s: float = math.inf


def driver_with(**fields: Any) -> Any:  # noqa: ANN401  (a GroupDriver to what it is given to)
    return Driver(**fields)


def test_member_at_work() -> None:
    driver = driver_with(lease_until_s=144.5, polled_at_s=88.0)
    driver.meter.rate_per_s = 12.34567
    driver.member = evolve(STABLE, revocation=Revocation(pending=some(3)))
    report = report_of(driver, 100.0)
    assert (report.since_poll_ms, report.lease_ms, report.rate_per_s) == (12_000, 44_500, 12.346)
    assert report.revoking == some(3)


def test_group_of_named_resources_does_not_poll_and_names_failed_starts() -> None:
    failed = SimpleNamespace(failed=lambda: {Resource("t", 3): "no such table"})
    report = report_of(driver_with(application=failed), 100.0)
    assert (report.since_poll_ms, report.failed) == (-1, some(3))


def test_warmups_are_told_as_they_are() -> None:
    """State of a partition that nobody asked to keep is no standby."""
    warmups = Warmups(wanted=some(1, 2), begun=some(1, 2), warm=some(2, 9))
    driver = driver_with(member=evolve(STABLE, next_join=NextJoin(warmups=warmups)))
    report = report_of(driver, 100.0)
    assert (report.warming, report.warm) == (some(1), some(2))


@pytest.fixture
def transport() -> HandTransport:
    return HandTransport(find_lane=TopicLane.TELEMETRY)


def reports_of(driver: Any = None) -> Report:  # noqa: ANN401  (of a test)
    driver = driver_with() if driver is None else driver
    return lambda: (driver.member, report_of(driver, 100.0))


def sink_on(transport: HandTransport) -> TelemetrySink:
    sink = TelemetrySink("g")
    sink.open_topic("telemetry", cast("GroupTransport", transport), 1_000)
    return sink


def sent(transport: HandTransport) -> list[Envelope]:
    request, _ = transport.answer(Produce, ProduceAnswer(error_code=0))
    return [from_json(json.loads(value)) for _, value in request.records]


def test_topic_alone_gets_a_report_after_each_interval(transport: HandTransport) -> None:
    sink, heard = sink_on(transport), list[Envelope]()
    sink.listener = heard.append
    sink.start_reports(reports_of())
    assert [transport.run(), transport.run()] == [10.0, 0.1]
    transport.answer(FindPartition, FOUND)
    for _ in range(2):
        (told,) = sent(transport)
        assert (told.group, told.member, told.generation) == ("g", "m", 7)
        assert isinstance(told.record, MemberReported)
        assert [transport.run(), transport.run()] == [10.0, 0.1]
    assert heard == []


def test_report_is_left_out_while_earlier_records_wait(transport: HandTransport) -> None:
    """A topic that is missing for an hour costs the queue no place."""
    sink_on(transport).start_reports(reports_of())
    for _ in range(4):
        transport.run()
    assert [delay_s for delay_s, _ in transport.actions] == [10.0]
    transport.answer(FindPartition, FOUND)
    assert len(sent(transport)) == 1


def test_member_that_is_not_subscribed_reports_nothing(transport: HandTransport) -> None:
    left = driver_with(member=Member(config=CONFIG))
    sink_on(transport).start_reports(reports_of(left))
    transport.run()
    assert [delay_s for delay_s, _ in transport.actions] == [10.0]


def test_no_topic_is_no_report(transport: HandTransport) -> None:
    TelemetrySink("g").start_reports(reports_of())
    assert transport.actions == []
