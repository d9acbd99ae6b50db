"""`SimplePolicy`: every example of Design I, word for word, and harder variants.

The document shows only the changes of a round. Our `assigned` is the complete set that a member
holds after the round. An empty (not null) list of revocations announces a follow-up round.
"""

from coopgroup.assignors import StickyAssignor
from coopgroup.core.model import GroupSnapshot, MemberClaim, RoundPlan
from coopgroup.policies import (
    PolicyState,
    RoundContext,
    SimplePolicy,
    check_target,
    violations,
)
from tests.support.groups import Indices, Told, claim, group_of, no_lags, told, unreadable
from tests.support.groups import indices_of_t as _t

T4 = {"T": range(1, 5)}
NOTHING: dict[str, list[int]] = {}


def _stage(
    group: GroupSnapshot, state: PolicyState | None = None, generation: int = 1
) -> tuple[RoundPlan, PolicyState]:
    """Stage a round with the sticky assignor, which the document's examples assume."""
    context = RoundContext(leader_id="A", generation=generation, now_ms=0, state=state)
    target = StickyAssignor().assign(group, no_lags(group))
    check_target(group, target)
    staged = SimplePolicy().stage(group, target, context, SimplePolicy().offer(group, context))
    assert violations(group, staged.plan) == ()
    assert staged.plan.rejoin_in_ms is None
    assert staged.state is not None
    return staged.plan, staged.state


def _round(
    existing: Indices,
    *claims: MemberClaim,
    state: PolicyState | None = None,
    generation: int = 1,
) -> tuple[dict[str, Told], PolicyState]:
    group = group_of(existing, *claims)
    plan, state = _stage(group, state, generation)
    return told(group, plan), state


def test_member_when_joining_gets_its_resource_in_the_second_round() -> None:
    """Design I, "Example: Member joins".

    "Initial group and assignment: A(T1,T4), B(T2), C(T3). D(T) joins. Leader computes new
    assignment as: A(T1), B(T2), C(T3), D(T4) but sends assignment with revocation request:
    A(assigned:,revoked:T4), B(assigned:,revoked:), C(assigned:,revoked:), D(assigned:,revoked:)."

    "Members join with subscriptions: A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3),
    D(T,assigned:). Leader computes new assignment as: A(assigned:,revoked:),
    B(assigned:,revoked:), C(assigned:,revoked:), D(assigned:T4,revoked:)."
    """
    first, state = _round(
        T4, claim("A", _t(1, 4)), claim("B", _t(2)), claim("C", _t(3)), claim("D")
    )
    assert first == {
        "A": (_t(1), _t(4)),
        "B": (_t(2), NOTHING),
        "C": (_t(3), NOTHING),
        "D": (NOTHING, NOTHING),
    }
    second, _ = _round(
        T4,
        claim("A", _t(1)),
        claim("B", _t(2)),
        claim("C", _t(3)),
        claim("D"),
        state=state,
        generation=2,
    )
    assert second == {
        "A": (_t(1), None),
        "B": (_t(2), None),
        "C": (_t(3), None),
        "D": (_t(4), None),
    }


def test_member_when_leaving_has_its_resource_granted_in_one_round() -> None:
    """Design I, "Example: Member leaves".

    "Initial group and assignment: A(T1), B(T2), C(T3), D(T4). D(T4) leaves. [...] Remaining member
    rejoin with subscriptions: A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3). Leader
    computes new assignment as: A(assigned:T1,T4,revoked:), B(assigned:T2,revoked:),
    C(assigned:T3,revoked:)". "No further rebalances will be required."
    """
    only, _ = _round(T4, claim("A", _t(1)), claim("B", _t(2)), claim("C", _t(3)))
    assert only == {"A": (_t(1, 4), None), "B": (_t(2), None), "C": (_t(3), None)}


def test_member_when_bouncing_costs_one_round_and_then_two() -> None:
    """Design I, "Member bounces".

    "This case is just a member leaves event, followed by a member joins event. There will be one
    rebalance when the member leaves and partitions are reassigned, then two rebalances: the first
    one when the member rejoins and revocations are returned and then the second one that will
    deliver the new assignment to all members."
    """
    left, state = _round(T4, claim("A", _t(1)), claim("B", _t(2)), claim("C", _t(3)))
    assert left == {"A": (_t(1, 4), None), "B": (_t(2), None), "C": (_t(3), None)}
    a, b, c = claim("A", _t(1, 4)), claim("B", _t(2)), claim("C", _t(3))
    back, state = _round(T4, a, b, c, claim("D'"), state=state, generation=2)
    assert back == {
        "A": (_t(1), _t(4)),
        "B": (_t(2), NOTHING),
        "C": (_t(3), NOTHING),
        "D'": (NOTHING, NOTHING),
    }
    after, _ = _round(T4, claim("A", _t(1)), b, c, claim("D'"), state=state, generation=3)
    assert after == {
        "A": (_t(1), None),
        "B": (_t(2), None),
        "C": (_t(3), None),
        "D'": (_t(4), None),
    }


def test_leader_when_exiting_leaves_stickiness_to_a_new_one() -> None:
    """Design I, "Leader exits and new leader is elected in this rebalance".

    "Including AssignedTopicPartitions in the member metadata requires re-sending that information,
    but allows a new leader, even if it was new to the group, to properly maintain stickiness."

    The leader A exits. E joins in the same round and leads it without any state. All members keep
    their partitions, and those of A are granted in this round.
    """
    only, _ = _round(T4, claim("B", _t(2)), claim("C", _t(3)), claim("D", _t(4)), claim("E"))
    assert only == {
        "B": (_t(2), None),
        "C": (_t(3), None),
        "D": (_t(4), None),
        "E": (_t(1), None),
    }


def test_contested_resource_when_claimed_twice_is_granted_to_nobody_yet() -> None:
    """Two claims in one generation (KIP-792): both members stop, the next round grants it."""
    first, state = _round(T4, claim("A", _t(1, 2, 3)), claim("B", _t(3, 4)))
    assert first == {"A": (_t(1, 2), _t(3)), "B": (_t(4), _t(3))}
    second, _ = _round(T4, claim("A", _t(1, 2)), claim("B", _t(4)), state=state, generation=2)
    assert second == {"A": (_t(1, 2), None), "B": (_t(3, 4), None)}


def test_unreadable_member_when_new_is_told_to_hold_nothing_before_anything_is_granted() -> None:
    group = group_of(T4, claim("A", _t(1)), claim("B", _t(2)), unreadable("X"))
    plan, state = _stage(group)
    assert told(group, plan) == {
        "A": (_t(1), NOTHING),
        "B": (_t(2), NOTHING),
        "X": (NOTHING, NOTHING),
    }
    assert group.resources.take(plan.waiting).to_dict() == _t(3, 4)
    assert state.silent == ("X",)
    again, state = _stage(group, state, 2)
    assert told(group, again) == {
        "A": (_t(1, 3), None),
        "B": (_t(2, 4), None),
        "X": (NOTHING, None),
    }
    third, _ = _stage(
        group_of(T4, claim("A", _t(1, 3)), claim("B", _t(2)), unreadable("Y")), state, 3
    )
    assert third.follow_up is True
