"""`EagerPolicy`: the assignor's target in one round, for groups without cooperation."""

from coopgroup.policies import EagerPolicy, violations
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import Drill, steady


def test_round_when_a_member_left_waits_for_nobody() -> None:
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1], B=[2], C=[3], D=[4])
    drill.leave("D")
    drill.existing = {"T": range(1, 6)}
    drill.round(0)
    assert (drill.owned(), drill.listed("created")) == ({"A": [1, 4], "B": [2, 5], "C": [3]}, _t(5))


def test_round_when_a_member_joins_assigns_the_target_at_once() -> None:
    """The leader skips only the safety rules that do not apply when every member has stopped."""
    drill = Drill(policy=EagerPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    assert steady(drill.join("D").round(0))
    assert drill.owned() == {"A": [1], "B": [2], "C": [3], "D": [4]}
    assert (drill.timeout_ms, drill.listed("waiting"), drill.listed("lost")) == (0, {}, {})
    assert drill.decided is not None
    group, plan = drill.decided.group, drill.decided.plan
    assert violations(group, plan) == (
        "granted while another member still claims it: T-4",
        "revoked without a follow-up round: T-4",
    )
    assert violations(group, plan, stops_the_world=True) == ()
