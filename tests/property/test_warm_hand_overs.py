"""Members with state hand over in a calm group: partitions are out of service for a hand-over."""

from __future__ import annotations

import random
from typing import Final

import pytest

from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member.events import SubscriptionChanged
from coopgroup.core.policies.built_in import create_policy
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason
from tests.support.mutants import Mutant, broken
from tests.swarm.play import set_topics, small_group

RESTORE_MS: Final = 3_000
HAND_OVER_MS: Final = 100
"""A stop and a round, without a wait for a heartbeat. A restore takes thirty times as long."""
SETTLED_MS: Final = 60_000
POLICIES: Final = ("simple", "deferred", "incremental")
SILENT: Final = Mutant(
    "no rejoin when warm",
    "member.warming:_take_warm",
    "_rejoin_later(turn, Cause.BECAME_WARM)",
    "pass",
)
HASTY: Final = Mutant(
    "leavers may keep nothing",
    "policies.warmups:with_leavers",
    "if not leavers:",
    "if True:",
)


def _group(seed: int, policy: str) -> tuple[Simulation, Process]:
    """Return a settled group, drawn from a seed, and the process that is to leave."""
    chance = random.Random(f"hand over/{seed}")
    warmup = {
        "standbys": chance.choice((0, 1)),
        "per_member": chance.choice((1, 2, 8)),
        "timeout_ms": 20 * RESTORE_MS,
    }
    run_settings = RunSettings(
        assignor=create_assignor(chance.choice(("sticky", "cooperative-sticky"))),
        policy=create_policy(policy, {"warmup": warmup}),
        lead_ms=Span(1, 10),
        jitter_ms=10,
    )
    restore_ms = Span(RESTORE_MS, RESTORE_MS)
    simulation = small_group(seed=seed, run_settings=run_settings, restore_ms=restore_ms)
    set_topics(simulation, {"T": chance.randint(4, 8)})
    names = [f"p{number}" for number in range(chance.randint(2, 4))]
    for name in names:
        simulation.start(name, ("T",))
        simulation.run(chance.choice((100, 1_000)))
    simulation.run(SETTLED_MS)
    leaver = simulation.process(chance.choice(names))
    assert leaver is not None
    return simulation, leaver


def _hand_over(simulation: Simulation, leaver: Process) -> None:
    leaver.give(SubscriptionChanged(topics=(), hands_over=True))
    simulation.run(SETTLED_MS)


def _outages_ms(simulation: Simulation, begin_ms: int) -> list[int]:
    """Return how long each partition that was handed over was out of service."""
    stopped: dict[object, int] = {}
    found = []
    for one in simulation.world.telemetry:
        if one.at_ms < begin_ms:
            continue
        if isinstance(one.record, ResourcesStopped):
            assert one.record.reason is StopReason.REVOKED
            stopped |= dict.fromkeys(one.record.resources, one.at_ms)
        elif isinstance(one.record, ResourcesStarted):
            found += [one.at_ms - stopped.pop(resource) for resource in one.record.resources]
    assert not stopped
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_partition_that_is_handed_over_is_out_of_service_only_for_the_hand_over(
    policy: str, subtests: pytest.Subtests
) -> None:
    for seed in range(6):
        with subtests.test(seed=seed):
            simulation, leaver = _group(seed, policy)
            owned, begin_ms = len(leaver.session.member.owned), simulation.world.now_ms
            _hand_over(simulation, leaver)
            assert not leaver.session.member.owned
            outages_ms = _outages_ms(simulation, begin_ms)
            assert len(outages_ms) >= owned > 0
            assert max(outages_ms) <= HAND_OVER_MS, outages_ms
            assert not simulation.world.violations


def test_leaver_keeps_its_partitions_if_members_do_not_tell_that_they_are_warm() -> None:
    """A deliberate bug, so that the test above is known to find it."""
    simulation, leaver = _group(1, "simple")
    with broken(SILENT):
        _hand_over(simulation, leaver)
    assert leaver.session.member.owned


def test_partitions_are_out_of_service_for_a_restore_if_leavers_may_keep_nothing() -> None:
    """A deliberate bug: the restores of this group take time."""
    simulation, leaver = _group(1, "simple")
    begin_ms = simulation.world.now_ms
    with broken(HASTY):
        _hand_over(simulation, leaver)
    assert max(_outages_ms(simulation, begin_ms)) > RESTORE_MS
