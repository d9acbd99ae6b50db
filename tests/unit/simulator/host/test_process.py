"""One life of a process: its clock, its pauses, its end, its work as a leader."""

import attrs
import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor
from coopgroup.core.leader import Lags
from coopgroup.core.member import MemberState
from coopgroup.core.model import NOBODY, GroupSnapshot, ResourceSet
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.policies.policy import Offer, RoundContext, StagedRound
from coopgroup.policies import IncrementalPolicy, SimplePolicy
from coopgroup.simulator.world.load import Load
from coopgroup.telemetry import (
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ResourcesStopped,
    RoundDecided,
    RoundRefused,
)
from tests.support.group_requests import SESSION_MS
from tests.support.reports import reports
from tests.support.simulated import quiet_group


def test_process_when_paused_too_long_has_lost_all_before_it_goes_on() -> None:
    """The clock is checked first: a process that wakes up must not hand out records."""
    group = quiet_group()
    process = group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    process.pause()
    group.run(2 * SESSION_MS)
    process.resume()
    assert not process.application.owned
    kinds = [type(one.record) for one in group.world.telemetry]
    woke = kinds.index(ProcessResumed)
    assert kinds.index(ProcessPaused) < woke < kinds.index(MembershipLost)
    stopped = group.world.telemetry[kinds.index(ResourcesStopped)]
    assert stopped.at_ms == group.world.now_ms
    assert group.run_until_rest(5_000, 200)
    assert len(process.application.working) == 4


def test_process_when_closed_commits_leaves_and_ends() -> None:
    group = quiet_group()
    process, other = group.start("a", ("T",)), group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    process.close()
    process.close()  # the second close has no effect
    group.run(100)
    assert not process.alive
    assert process.state is MemberState.UNSUBSCRIBED
    ((_, end),) = reports(group.world.telemetry, ProcessEnded)
    assert end.cause == "closed"
    group.run(SESSION_MS // 2)
    assert len(other.application.working) == 4


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the times of all look-ups of lags."""
    looks, look_up = list[int](), Load.lags

    def counted(load: Load, resources: ResourceSet, now_ms: int) -> Lags:
        looks.append(now_ms)
        return look_up(load, resources, now_ms)

    monkeypatch.setattr(Load, "lags", counted)
    return looks


def test_leader_decides_all_rounds_of_a_rebalance_with_the_same_lags(looks: list[int]) -> None:
    """As the driver does: with other lags in each round, a rebalance could last forever."""
    group = quiet_group()
    group.run_settings.assignor = LagAwareAssignor()
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    rounds, before = len(reports(group.world.telemetry, RoundDecided)), len(looks)
    group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    assert len(reports(group.world.telemetry, RoundDecided)) == rounds + 2
    assert len(looks) == before + 1


def test_round_without_metadata_does_not_end_a_rationed_rebalance(looks: list[int]) -> None:
    """As with the driver: the rebalance goes on with the same lags."""
    group = quiet_group()
    group.run_settings.assignor = LagAwareAssignor()
    group.run_settings.policy = IncrementalPolicy(max_moves_per_round=1, move_interval_ms=300)
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    before = len(looks)
    group.start("b", ("T",))
    group.run(200)
    group.run_settings.no_metadata = 1.0
    while not reports(group.world.telemetry, RoundRefused):
        group.run(1)
    group.run_settings.no_metadata = 0.0
    assert group.run_until_rest(5_000, 600)
    assert [len(one.application.working) for one in group.alive] == [2, 2]
    assert len(looks) == before + 1


@attrs.frozen
class Grabbing:
    """A policy that revokes every resource that the target gives to another member."""

    name = "grabbing"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = SimplePolicy().stage(group, target, context, offer)
        if not group.claim_members.size:
            return staged
        nobody = np.full_like(target, NOBODY)
        plan = attrs.evolve(staged.plan, assigned=nobody, follow_up=True, waiting=nobody == NOBODY)
        return attrs.evolve(staged, plan=plan)


def test_leader_whose_round_is_not_safe_is_objected_to() -> None:
    group = quiet_group()
    group.run_settings.policy = Grabbing()
    group.start("a", ("T",))
    group.run(300)
    group.set_topic("T", 5)
    group.run(200)
    (first, *_) = group.world.violations
    assert first.checker == "leader"
    assert "a: " in first.message
