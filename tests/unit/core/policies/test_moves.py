"""Valid and invalid reasons to take a resource from an owner that could keep it.

The target always differs from the assignment here: a second assignor simulates changed lags.
"""

import attrs
import pytest

from coopgroup.assignors import RangeAssignor, RoundRobinAssignor
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, Policy
from tests.support.groups import Told
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import T1, Drill, steady

POLICIES = [DeferredPolicy(), IncrementalPolicy(max_moves_per_round=1)]
both = pytest.mark.parametrize("policy", POLICIES, ids=["deferred", "incremental"])


def _settled(policy: Policy, **owned: list[int]) -> Drill:
    """A settled group. From now on the target differs from its assignment."""
    count = sum(map(len, owned.values()))
    drill = Drill(policy=policy, assignor=RangeAssignor(), existing={"T": range(count)})
    drill.settle(0, **owned)
    assert drill.owned() == owned
    drill.assignor = RoundRobinAssignor()
    return drill


def _six(policy: Policy) -> Drill:
    return _settled(policy, A=[0, 1], B=[2, 3], C=[4, 5])


def _revoked(told: dict[str, Told]) -> list[str]:
    return [member for member, (_, revoked) in told.items() if revoked]


@both
def test_member_when_it_bounces_disturbs_nobody_however_the_target_goes(policy: Policy) -> None:
    drill = _six(policy)
    drill.leave("C")
    assert steady(drill.round(10))
    drill.join("Z")
    for now in (20, 30):
        told = drill.round(now)
        assert told == {"A": (_t(0, 1), None), "B": (_t(2, 3), None), "Z": (_t(4, 5), None)}
        assert drill.listed("waiting")["T"] == ([1, 2, 3] if now == 20 else [1, 2, 3, 4])


@both
@pytest.mark.parametrize(
    "change",
    ["additional", "expired", "created", "deleted", "subscription", "stranger", "heir", "owners"],
)
def test_group_that_has_changed_permanently_goes_to_the_target(policy: Policy, change: str) -> None:
    drill = _six(policy)
    now = 10
    match change:
        case "additional":
            drill.join("D")
        case "expired":
            drill.leave("C").round(now)
            now += T1
        case "created":
            drill.existing = {"T": range(9)}
        case "deleted":
            drill.existing = {"T": range(5)}
        case "subscription":
            drill.actors["C"].topics = ("T", "U")
        case "stranger":
            drill.actors["B"].owned = ResourceSet(_t(2))
            drill.join("D", _t(3))
        case "heir":  # a claim of what a departed member had; nothing is lost
            drill.leave("C").actors["A"].owned = ResourceSet(_t(0, 1, 4, 5))
        case _:
            drill.actors["A"].owned = ResourceSet(_t(0, 1, 2))
            drill.actors["B"].owned = ResourceSet(_t(3))
    assert _revoked(drill.round(now)) != []
    rounds = 0
    while not steady(drill.round(now + rounds)):
        rounds += 1
    assert drill.decided is not None
    plan = drill.decided.plan
    assert plan.assigned.tolist() == plan.target.tolist()


@pytest.mark.parametrize("claims", [True, False], ids=["with its claims", "without claims"])
def test_leader_when_it_bounces_slowly_disturbs_nobody(claims: bool) -> None:
    """The new leader has no memory of the group, but was a member during the wait."""
    drill = _six(DeferredPolicy())
    gone = drill.actors["A"]
    drill.leave("A")
    assert _revoked(drill.round(10, leader="B")) == []
    if claims:
        drill.actors["A"] = gone
    else:
        drill.join("Z")
    for now in (20, 30):
        assert _revoked(drill.round(now)) == []
    assert sorted(map(len, drill.owned().values())) == [2, 2, 2]


def test_leader_without_memory_sees_that_a_member_gives_up_all() -> None:
    """Regression: nothing was moved to the returning receiver of these resources (`polled`)."""
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[0, 2], B=[1, 3])
    drill.actors["A"].owned, drill.state = EMPTY, None  # it crashed, and leads again
    drill.actors["B"].topics = ()
    drill.join("Z").round(0, missed=["Z"])
    drill.leave("Z").round(10)
    drill.leave("B").join("Y")
    for now in range(20, 60, 10):
        drill.round(now)
    assert sorted(map(len, drill.owned().values())) == [2, 2]


def test_static_member_that_restarts_with_another_subscription_is_a_change() -> None:
    """Regression: its new member id hid that it subscribes again, and it got nothing."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(6)})
    drill.settle(A=[0, 1, 2], B=[3, 4, 5])
    drill.join("C", topics=(), instance_id="c").round(10)
    drill.leave("C").join("Z", instance_id="c")
    for now in range(20, 60, 10):
        drill.round(now)
    assert sorted(map(len, drill.owned().values())) == [2, 2, 2]


def test_change_of_subscriptions_that_are_not_remembered_moves_nothing() -> None:
    drill = _six(DeferredPolicy())
    members = attrs.evolve(drill.memory.members, subscriptions=(), class_of=())
    drill.state = attrs.evolve(drill.memory, members=members)
    drill.actors["C"].topics = ("T", "U")
    assert _revoked(drill.round(10)) == []


def test_topic_when_all_drop_it_and_take_it_up_again_is_not_lost() -> None:
    """No member left: the owner is present and gave the topic up."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(2), "U": range(2)})
    for place, member in enumerate("AB"):
        drill.join(member, {"T": [place], "U": [place]}, topics=["T", "U"])
    drill.round(0)
    for actor in drill.actors.values():
        actor.topics = ("T",)
        actor.owned = actor.owned.restrict_names(["T"])  # a member stops it without being told
    assert steady(drill.round(10))
    assert steady(drill.round(20))
    for actor in drill.actors.values():
        actor.topics = ("T", "U")
    assert steady(drill.round(30))
    assert (drill.timeout_ms, drill.owned("U")) == (0, {"A": [0], "B": [1]})
