"""`DeferredPolicy`: every example of Design II, word for word, and harder variants.

The document shows only the changes of a round. Our `assigned` is the complete set that a member
holds after the round. "revoked:" without a follow-up round is null.
"""

from coopgroup.policies import DeferredPolicy
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import T1, Drill, four, steady

NOTHING: dict[str, list[int]] = {}
THREE_WAIT = {"A": (_t(1), None), "B": (_t(2), None), "C": (_t(3), None)}


def test_member_when_it_leaves_is_waited_for_and_then_replaced() -> None:
    """Design II, "Example: Member leaves".

    "D(T4) leaves. [...] Leader computes detects "lost" partition T4. Sends empty assignments,
    without revocations and a scheduled rebalance timeout of t1: A(assigned:,revoked:,t1),
    B(assigned:,revoked:,t1), C(assigned:,revoked:,t1). After t1, remaining members join again
    [...] Leader sends updated assignment: A(assigned:T1,T4,revoked:,-), B(assigned:,revoked:,-),
    C(assigned:,revoked:,-)"
    """
    drill = four()
    drill.leave("D")
    assert (drill.round(1_000), drill.timeout_ms) == (THREE_WAIT, T1)
    assert (drill.listed("lost"), drill.listed("waiting")) == (_t(4), NOTHING)
    assert (drill.round(1_000 + T1), drill.timeout_ms) == (
        {"A": (_t(1, 4), None), "B": (_t(2), None), "C": (_t(3), None)},
        0,
    )
    assert drill.listed("lost") == NOTHING


def test_member_when_it_bounces_gets_the_same_back_at_once() -> None:
    """Design II, "Member bounces".

    "D(T4) bounces. First leaves the group. [...] A(assigned:,revoked:,t1),
    B(assigned:,revoked:,t1), C(assigned:,revoked:,t1). Before t1, member D joins again as D' [...]
    Leader sends updated assignment: A(assigned:,revoked:,-), B(assigned:,revoked:,-),
    C(assigned:,revoked:,-), D'(assigned:T4,revoked:,-)"
    """
    drill = four()
    drill.leave("D")
    assert (drill.round(1_000), drill.timeout_ms) == (THREE_WAIT, T1)
    drill.join("D'")
    assert (drill.round(9_000), drill.timeout_ms) == (THREE_WAIT | {"D'": (_t(4), None)}, 0)


def test_member_when_it_is_back_within_the_round_is_not_missed() -> None:
    """Design II: a new member is used at once.

    "This could happen if the process manages to get restarted within the time it takes to do the
    rebalance."
    """
    drill = four()
    drill.leave("D")
    drill.join("D'")
    assert (drill.round(1_000), drill.timeout_ms) == (THREE_WAIT | {"D'": (_t(4), None)}, 0)


def test_subscription_when_new_is_resolved_at_once_while_others_are_lost() -> None:
    """Design II, "a) new subscriptions".

    "If a topic is completely missing from previous assignments, assume it is this case. These
    should be resolved immediately, so just continue with immediate assignment."
    """
    drill = four()
    drill.leave("D")
    drill.existing = {**drill.existing, "U": [1]}
    for actor in drill.actors.values():
        actor.topics = ("T", "U")
    told = drill.round(1_000)
    assert told == THREE_WAIT | {"A": ({"T": [1], "U": [1]}, None)}
    assert (drill.listed("created"), drill.listed("lost")) == ({"U": [1]}, _t(4))
    assert drill.timeout_ms == T1


def test_leader_when_it_exits_leaves_its_delay_to_a_member_of_the_group() -> None:
    """Design II, "Leader exits and new leader is elected in this rebalance".

    "This case is treated as loss of member. [...] What if the previous leader was in the middle of
    waiting for a scheduled timeout? If the new leader was already in the group, they can just use
    the timeout they should already know about and not override it."
    """
    drill = four()
    drill.leave("D").round(0)
    told = drill.leave("A").round(45_000)
    assert told == {"B": (_t(2), None), "C": (_t(3), None)}
    assert (drill.leader, drill.timeout_ms) == ("B", T1 - 45_000)
    assert drill.listed("lost") == _t(1, 4)
    told = drill.round(T1)
    assert told == {"B": (_t(1, 2), None), "C": (_t(3, 4), None)}


def test_leader_when_new_to_the_group_uses_itself_for_what_is_lost() -> None:
    """Design II, the heuristic of a leader that does not know the last round.

    "For a new leader we can use a heuristic such as looking for a member that has no previous
    assignments (assuming there's enough members that they should have had an assignment)".
    """
    drill = four()
    drill.leave("A")
    told = drill.join("E").round(1_000, leader="E")
    assert told == {
        "B": (_t(2), None),
        "C": (_t(3), None),
        "D": (_t(4), None),
        "E": (_t(1), None),
    }


def test_leader_when_new_to_the_group_and_needless_waits_for_as_long_as_the_others_know() -> None:
    """The document gives this up ("fall back to assuming there wasn't a wait period in effect").

    Our leader learns the remaining delay from the members. E owns nothing because there are fewer
    partitions than members, so it is not a returning member.
    """
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(1, 4)})
    drill.settle(A=[1], B=[2], C=[3])
    drill.leave("C").round(0)
    drill.leave("A")
    drill.join("D")
    drill.join("E")
    drill.join("F").round(20_000, leader="E")
    assert drill.timeout_ms == 40_000
    assert drill.listed("lost") == _t(1, 3)


def test_first_member_when_it_joins_starts_at_once() -> None:
    """Design II, "First member": "the leader can immediately assign topic partitions"."""
    drill = Drill(policy=DeferredPolicy())
    drill.join("A")
    assert (drill.round(0), drill.timeout_ms) == ({"A": (_t(1, 2, 3, 4), None)}, 0)


def test_first_member_when_it_is_to_wait_lets_others_join() -> None:
    """Design II, "First member", the other choice (KIP-134).

    "or use the deferment process to allow other members to join in that period"
    """
    drill = Drill(policy=DeferredPolicy(initial_delay_ms=3_000))
    drill.join("A")
    assert (drill.round(0), drill.timeout_ms) == ({"A": (NOTHING, None)}, 3_000)
    assert (drill.listed("waiting_for_members"), drill.listed("created")) == (
        _t(1, 2, 3, 4),
        NOTHING,
    )
    told = drill.join("B").round(1_000)
    assert (told, drill.timeout_ms) == ({"A": (NOTHING, None), "B": (NOTHING, None)}, 2_000)
    drill.leave("A")
    told = drill.join("C").round(2_500, leader="C")
    assert (told, drill.timeout_ms) == ({"B": (NOTHING, None), "C": (NOTHING, None)}, 500)
    told = drill.round(3_000)
    assert told == {"B": (_t(1, 3), None), "C": (_t(2, 4), None)}
    assert (drill.timeout_ms, drill.listed("created")) == (0, _t(1, 2, 3, 4))


def test_additional_member_when_it_joins_is_served_at_once() -> None:
    """Design II, scale up.

    "Additional members: Reassignment happens immediately via two step revoke + assign rebalances.
    Deferring only applies to "lost" partitions." And "Scale up is detected as a new member and
    reassignment happens immediately."
    """
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.join("D")
    assert drill.round(1) == {
        "A": (_t(1), _t(4)),
        "B": (_t(2), NOTHING),
        "C": (_t(3), NOTHING),
        "D": (NOTHING, NOTHING),
    }
    assert drill.timeout_ms == 0
    assert drill.round(2) == THREE_WAIT | {"D": (_t(4), None)}


def test_rolling_bounce_moves_nothing() -> None:
    """Design II, "Rolling bounce": "Effectively the same as above." No resource moves."""
    drill = four()
    now = 0
    for member in "ABCD":
        before = drill.owned()
        drill.leave(member)
        now += 1_000
        assert steady(drill.round(now))
        drill.join(f"{member}'")
        now += 5_000
        assert steady(drill.round(now, leader=None if drill.leader in drill.actors else "C"))
        lost = before.pop(member)
        assert drill.owned() == {**before, f"{member}'": lost}
