"""A group in virtual time, as tests drive it."""

import attrs
import pytest

from coopgroup.assignors import WeightedAssignor
from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import HeartbeatRequest
from coopgroup.policies import create_policy
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Identity, Span
from coopgroup.simulator.world.network import Mishap, Upset
from tests.support.simulated import quiet_group
from tests.swarm.play import CONFIG, small_group
from tests.swarm.rest import settle


def test_run_until_rest_says_when_a_group_does_not_rest() -> None:
    group = quiet_group()
    group.start("a", ("T",))
    group.network.request_loss = 1.0
    before_ms = group.world.now_ms
    assert not group.run_until_rest(1_000, 200)
    assert group.world.now_ms == before_ms + 1_000


def test_static_member_that_is_fenced_starts_again() -> None:
    """A fenced life cannot continue, so the deployment starts a new one."""
    group = quiet_group()
    process = group.start("a", ("T",), identity=Identity.STATIC)
    assert group.run_until_rest(5_000, 200)
    code = ErrorCode.FENCED_INSTANCE_ID
    group.network.upset(Upset(request=HeartbeatRequest, mishap=Mishap.REFUSED, code=code))
    group.run(1_000)
    assert not process.alive
    assert len(group.alive) == 1
    assert group.world.violations == []


def test_member_that_fails_is_a_violation() -> None:
    group = quiet_group()
    group.start("a", ("T",))
    assert group.run_until_rest(5_000, 200)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    group.network.upset(Upset(request=HeartbeatRequest, mishap=Mishap.REFUSED, code=code))
    group.run(1_000)
    (violation,) = group.world.violations
    assert violation.checker == "failure"
    assert "GROUP_AUTHORIZATION_FAILED" in violation.message


@pytest.mark.parametrize("policy", ["simple", "deferred", "incremental"])
def test_connectors_with_weights_are_run_once_whatever_happens(policy: str) -> None:
    group = small_group(
        seed=11,
        run_settings=RunSettings(
            assignor=WeightedAssignor(),
            policy=create_policy(policy),
            lead_ms=Span(1, 10),
            jitter_ms=10,
        ),
        config=attrs.evolve(CONFIG, index_min=-1),
        loss=0.01,
    )
    group.set_topic("light", 4, (1.0,) * 4)
    group.set_topic("heavy", 2, (500.0, 500.0))
    workers = [group.start(name, ("heavy", "light")) for name in ("a", "b", "c")]
    group.run(3_000)
    group.bounce(workers[0], 200)
    group.run(2_000)
    group.set_topic("more", 2, (1.0, 1.0))
    workers[1].crash()
    group.start("d", ("heavy", "light", "more"))
    group.run(2_000)
    assert settle(group) == ()
    held = [set(process.application.owned) for process in group.alive]
    assert sorted(one for some in held for one in some) == sorted(group.brokers.existing())
    connectors = [sum(index == -1 for _, index in some) for some in held]
    assert max(connectors) - min(connectors) <= 1
