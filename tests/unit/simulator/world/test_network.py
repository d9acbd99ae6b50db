"""Connections: order, one request at a time, and lost, cut or refused requests."""

from collections import defaultdict

import pytest

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import JoinGroupRequest, OffsetCommitRequest
from coopgroup.simulator.checkers import check_instants
from coopgroup.simulator.coordinator.state import ClassicGroup
from coopgroup.simulator.scenario import Identity
from coopgroup.simulator.world import late_commit_of
from coopgroup.simulator.world.network import Mishap, Upset
from coopgroup.telemetry import FaultInjected, OffsetsCommitted, RequestRefused
from tests.support.group_requests import REBALANCE_MS, SESSION_MS
from tests.support.reports import reports
from tests.support.simulated import quiet_group


def test_upset_happens_once_to_the_request_that_fits() -> None:
    group = quiet_group()
    group.network.upset(Upset(request=JoinGroupRequest, mishap=Mishap.REQUEST_LOST, client="b"))
    a, b = group.start("a", ("T",)), group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    telemetry = group.world.telemetry
    (lost,) = reports(telemetry, FaultInjected)
    assert lost[1].description == "JoinGroupRequest of b is request lost"
    (refused,) = reports(telemetry, RequestRefused)
    assert (refused[1].request, refused[1].error) == ("JoinGroup", "NO_ANSWER")
    assert len(a.application.working) == len(b.application.working) == 2


@pytest.mark.parametrize("identity", list(Identity))
def test_requests_of_a_dead_process_still_arrive(identity: Identity) -> None:
    """With a kept identity a former life's commit may move offsets back, otherwise never."""
    group = quiet_group()
    process = group.start("a", ("T",), identity=identity)
    group.start("b", ("T",), identity=identity)
    assert group.run_until_rest(5_000, 200)
    commit = Upset(request=OffsetCommitRequest, mishap=Mishap.DELAYED, client="a", delay_ms=250)
    group.network.upset(commit)
    while group.network.upsets:
        group.run(10)
    process.crash()
    group.run(5)
    group.start_again(process)
    group.run(SESSION_MS // 2)
    died = process.session.member.member_id
    late = FaultInjected(description=late_commit_of(died))
    keeps = identity is Identity.STATE_DIR
    assert (late in [one.record for one in group.world.telemetry]) == keeps
    newest: dict[object, int] = {}
    backward = 0
    for _, record in reports(group.world.telemetry, OffsetsCommitted):
        for resource, offset in zip(record.resources, record.offsets, strict=True):
            backward += offset < newest.get(resource, 0)
            newest[resource] = offset
    assert (backward > 0) == keeps
    assert list(check_instants(group.world.telemetry, stop_max_ms=REBALANCE_MS)) == []


@pytest.mark.parametrize("beyond_lease", [False, True])
def test_commit_that_timed_out_arrives_after_a_newer_one(beyond_lease: bool) -> None:
    """A member waits for a lease before its next commit. No member is safe from a later one."""
    group = quiet_group()
    process = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    config = process.config
    lease_ms = config.session_timeout_ms + config.heartbeat_interval_ms
    late_ms = 2 * lease_ms if beyond_lease else lease_ms - 50
    commit = Upset(request=OffsetCommitRequest, mishap=Mishap.DELAYED, delay_ms=late_ms)
    group.network.upset(commit)
    group.run(4 * lease_ms)
    assert not group.network.upsets
    offsets: dict[object, list[int]] = defaultdict(list)
    for _, record in reports(group.world.telemetry, OffsetsCommitted):
        for resource, offset in zip(record.resources, record.offsets, strict=True):
            offsets[resource].append(offset)
    assert any(one != sorted(one) for one in offsets.values()) is beyond_lease
    said = FaultInjected(description=late_commit_of(process.session.member.member_id))
    assert (said in [one.record for one in group.world.telemetry]) is beyond_lease
    assert list(check_instants(group.world.telemetry, stop_max_ms=REBALANCE_MS)) == []


def test_delayed_answer_is_to_a_request_that_was_served_in_time() -> None:
    group = quiet_group()
    upset = Upset(request=JoinGroupRequest, mishap=Mishap.ANSWER_DELAYED, delay_ms=250)
    group.network.upset(upset)
    process = group.start("a", ("T",))
    group.run(50)
    classic = group.brokers.coordinator.group
    assert isinstance(classic, ClassicGroup)
    assert classic.pending
    assert not process.session.member.member_id
    group.run(250)
    assert process.session.member.member_id


def test_held_up_connection_holds_up_no_other() -> None:
    group = quiet_group()
    a = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.hold_up(a, Lane.JOIN, SESSION_MS // 2)
    since_ms = group.world.now_ms
    group.run(SESSION_MS // 2 - 10)
    commits = reports(group.world.telemetry, OffsetsCommitted)
    assert any(one.at_ms > since_ms for one, _ in commits)
    assert not a.session.member.lease.until_ms > since_ms + SESSION_MS
    assert group.run_until_rest(5_000, 200)
    assert len(a.application.working) == 4
