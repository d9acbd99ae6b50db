"""Connections: order, one request at a time, and lost, cut or refused requests."""

from collections.abc import Sequence

import pytest

from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import (
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from coopgroup.simulator.checkers import check_commits, check_instants, check_single_owner
from coopgroup.simulator.coordinator.state import ClassicGroup
from coopgroup.simulator.scenario import Identity
from coopgroup.simulator.world import late_commit_of
from coopgroup.simulator.world.network import Mishap, Upset
from coopgroup.telemetry import FaultInjected, MembershipLost, OffsetsCommitted, RequestRefused
from tests.support.group_requests import REBALANCE_MS, SESSION_MS
from tests.support.mutants import MUTANTS, broken
from tests.support.simulated import quiet_group


def refusals(records: Sequence[object]) -> list[tuple[str, str]]:
    """Return request and error of every refusal."""
    return [(one.request, one.error) for one in records if isinstance(one, RequestRefused)]


def test_upset_happens_once_to_the_request_that_fits() -> None:
    group = quiet_group()
    group.network.upset(Upset(request=JoinGroupRequest, mishap=Mishap.REQUEST_LOST, client="b"))
    a, b = group.start("a", ("T",)), group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    records = [one.record for one in group.world.telemetry]
    lost = [one.description for one in records if isinstance(one, FaultInjected)]
    assert lost == ["JoinGroupRequest of b is request lost"]
    assert refusals(records) == [("JoinGroup", "NO_ANSWER")]
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
    records = [one.record for one in group.world.telemetry]
    assert (late in records) == (identity is Identity.STATE_DIR)
    newest: dict[object, int] = {}
    backward = 0
    for record in records:
        if isinstance(record, OffsetsCommitted):
            for resource, offset in zip(record.resources, record.offsets, strict=True):
                backward += offset < newest.get(resource, 0)
                newest[resource] = offset
    assert (backward > 0) == (identity is Identity.STATE_DIR)
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


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
def test_stuck_request_ends_the_work_before_its_round_ends(
    kind: type[JoinGroupRequest | SyncGroupRequest],
) -> None:
    """Heartbeats are answered. A member that only waits stops its work, and loses nothing."""
    group = quiet_group()
    group.start("a", ("T",))
    group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    delay_ms = 4 * REBALANCE_MS
    group.network.upset(Upset(request=kind, mishap=Mishap.DELAYED, client="b", delay_ms=delay_ms))
    group.start("c", ("T",))
    assert group.run_until_rest(4 * REBALANCE_MS, 200)
    telemetry = group.world.telemetry
    assert list(check_single_owner(telemetry)) == []
    lost = [one.client for one in telemetry if isinstance(one.record, MembershipLost)]
    assert lost == ["b"]
    assert sum(len(process.application.working) for process in group.alive) == 4


def test_held_up_connection_holds_up_no_other() -> None:
    group = quiet_group()
    a = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.hold_up(a, Lane.JOIN, SESSION_MS // 2)
    since_ms = group.world.now_ms
    group.run(SESSION_MS // 2 - 10)
    made = [one for one in group.world.telemetry if one.at_ms > since_ms]
    assert any(isinstance(one.record, OffsetsCommitted) for one in made)
    assert not a.session.member.lease.until_ms > since_ms + SESSION_MS
    assert group.run_until_rest(5_000, 200)
    assert len(a.application.working) == 4


LAST_COMMIT = "a commit is failed with its connection and arrives last"


def _goes_back() -> bool:
    """Return whether an offset moves back if a heartbeat times out beside a held-up commit.

    Another member's join is late, so the round stays open and its generation fences nothing.
    """
    group = quiet_group()
    a, b = group.start("a", ("T",)), group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    late = Upset(request=JoinGroupRequest, mishap=Mishap.DELAYED, client=b.name, delay_ms=1_200)
    group.network.upset(late)
    group.start("c", ("T",))
    while a.state is not MemberState.JOINING:
        group.run(10)
    group.hold_up(a, Lane.COMMIT, 500)
    group.run(2 * REBALANCE_MS)
    return bool(list(check_commits(group.world.telemetry)))


def test_commit_on_a_connection_that_is_given_up_is_waited_for() -> None:
    """It may arrive after the commits of the next connection, and the offset would move back."""
    assert not _goes_back()
    mutant = next(one for one in MUTANTS if one.name == LAST_COMMIT)
    with broken(mutant):
        assert _goes_back()
