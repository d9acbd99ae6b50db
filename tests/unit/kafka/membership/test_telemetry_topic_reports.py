"""Reports of a member, read from a driver that a test sets by hand."""

import json
import math
from typing import Any, cast

import pytest
from attrs import define, evolve, field

from coopgroup.core.member import Member, MemberConfig, MemberState
from coopgroup.core.member.parts import NextJoin, Revocation, Warmups
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.membership.telemetry_topic import report_of
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.rpc.topics import FindPartition, FoundPartition, Produce, ProduceAnswer
from coopgroup.kafka.rpc.transport import GroupTransport, TopicLane
from coopgroup.telemetry import Envelope, MemberReported, from_json
from tests.unit.kafka.fakes import HandTransport

CONFIG = MemberConfig(group_id="g")
STABLE = Member(config=CONFIG, state=MemberState.STABLE, member_id="m", claim_generation=7)
FOUND = FoundPartition(
    error_code=0, partition=0, leader=Coordinator(node_id=1, host="here", port=1)
)


def some(*numbers: int) -> ResourceSet:
    return ResourceSet({"t": numbers})


@define
class Driver:
    member: Member = STABLE
    application: Any = None
    meter: WorkMeter = field(factory=WorkMeter)
    lease_until_s: float = math.inf
    polled_at_s: float = math.inf


def test_member_at_work() -> None:
    driver = Driver(lease_until_s=144.5, polled_at_s=88.0)
    driver.meter.rate_per_s = 12.34567
    driver.member = evolve(STABLE, revocation=Revocation(pending=some(3)))
    report = report_of(driver, 100.0, 5_000)
    assert (report.since_poll_ms, report.lease_ms, report.rate_per_s) == (12_000, 44_500, 12.346)
    assert report.revoking == some(3)


def test_group_of_named_resources_does_not_poll() -> None:
    assert report_of(Driver(application=object()), 100.0, 5_000).since_poll_ms == -1


def test_warmups_are_told_as_they_are() -> None:
    """State of a partition that nobody asked to keep is no standby."""
    warmups = Warmups(wanted=some(1, 2), begun=some(1, 2), warm=some(2, 9))
    driver = Driver(evolve(STABLE, next_join=NextJoin(warmups=warmups)))
    report = report_of(driver, 100.0, 5_000)
    assert (report.warming, report.warm) == (some(1), some(2))


@pytest.fixture
def transport() -> HandTransport:
    return HandTransport(find_lane=TopicLane.TELEMETRY)


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
    sink.start_reports(Driver(), 5_000)
    assert [transport.run(), transport.run()] == [5.0, 0.1]
    transport.answer(FindPartition, FOUND)
    for _ in range(2):
        (told,) = sent(transport)
        assert (told.group, told.member, told.generation) == ("g", "m", 7)
        assert isinstance(told.record, MemberReported)
        assert [transport.run(), transport.run()] == [5.0, 0.1]
    assert heard == []


def test_report_is_left_out_while_earlier_records_wait(transport: HandTransport) -> None:
    """A topic that is missing for an hour costs the queue no place."""
    sink_on(transport).start_reports(Driver(), 5_000)
    for _ in range(4):
        transport.run()
    assert [delay_s for delay_s, _ in transport.actions] == [5.0]
    transport.answer(FindPartition, FOUND)
    assert len(sent(transport)) == 1


def test_member_that_is_not_subscribed_reports_nothing(transport: HandTransport) -> None:
    driver = Driver(Member(config=CONFIG))
    sink_on(transport).start_reports(driver, 5_000)
    transport.run()
    assert [delay_s for delay_s, _ in transport.actions] == [5.0]


@pytest.mark.parametrize(("has_topic", "interval_ms"), [(True, 0), (False, 5_000)])
def test_no_interval_or_no_topic_is_no_report(
    transport: HandTransport, interval_ms: int, *, has_topic: bool
) -> None:
    sink = sink_on(transport) if has_topic else TelemetrySink("g")
    sink.start_reports(Driver(), interval_ms)
    assert transport.actions == []
