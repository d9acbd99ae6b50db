"""`EagerPolicy`: the assignor's target in one round, for groups without cooperation."""

import pytest

from coopgroup.policies import EagerPolicy, Policy, create_policy, violations
from tests.support.groups import claim, group_of, holder_of
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import Drill

NOTHING: dict[str, list[int]] = {}


def test_round_when_a_member_joins_assigns_the_target_at_once() -> None:
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.join("D")
    assert drill.round(0) == {
        "A": (_t(1), None),
        "B": (_t(2), None),
        "C": (_t(3), None),
        "D": (_t(4), None),
    }
    assert (drill.timeout_ms, drill.listed("waiting"), drill.listed("lost")) == (
        0,
        NOTHING,
        NOTHING,
    )


def test_round_when_a_member_left_waits_for_nobody() -> None:
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1], B=[2], C=[3], D=[4])
    drill.leave("D")
    drill.existing = {"T": range(1, 6)}
    drill.round(0)
    assert (drill.owned(), drill.listed("created")) == ({"A": [1, 4], "B": [2, 5], "C": [3]}, _t(5))


def test_plan_when_the_world_does_not_stop_would_be_unsafe() -> None:
    """The leader skips only the safety rules that do not apply when every member has stopped."""
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.join("D").round(0)
    assert drill.decided is not None
    group, plan = drill.decided.group, drill.decided.plan
    assert violations(group, plan) == (
        "granted while another member still claims it: T-4",
        "revoked without a follow-up round: T-4",
    )
    assert violations(group, plan, stops_the_world=True) == ()


@pytest.mark.parametrize("held", [{"B": {"T": [1]}}, {}])
def test_plan_when_the_world_stops_still_obeys_the_other_rules(
    held: dict[str, dict[str, list[int]]],
) -> None:
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1])
    assert drill.decided is not None
    group = group_of({"T": [1]}, claim("A"), claim("B", topics=["U"]))
    plan = drill.decided.plan
    bad = type(plan)(
        target=holder_of(group, {"A": _t(1)}),
        assigned=holder_of(group, held),
        follow_up=False,
        scheduled_rebalance_timeout_ms=0,
        lost=plan.lost[:1],
        created=plan.created[:1],
        waiting=plan.waiting[:1],
    )
    assert len(violations(group, bad, stops_the_world=True)) == 1


def test_policy_when_made_by_name_is_this_one() -> None:
    assert create_policy("eager") == EagerPolicy()
    assert (isinstance(EagerPolicy(), Policy), EagerPolicy().name) == (True, "eager")
