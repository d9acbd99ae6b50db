"""`DeferredPolicy`: every example of Design II, word for word, and harder variants.

The document shows only the changes of a round. We show all that a member holds after the round.
"revoked:" without a resource announces a follow-up round; without "revoked" there is none.
"""

from coopgroup.policies import DeferredPolicy
from tests.support.groups import in_words
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import T1, Drill, four, steady

NOTHING: dict[str, list[int]] = {}
THREE_WAIT = "A(T1) B(T2) C(T3)"


def said(drill: Drill, now_ms: int, leader: str | None = None) -> tuple[str, int]:
    """Play a round; return what it tells the members, and the delay that it announces."""
    return in_words(drill.round(now_ms, leader=leader)), drill.timeout_ms


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
    assert said(drill, 1_000) == (THREE_WAIT, T1)
    assert (drill.listed("lost"), drill.listed("waiting")) == (_t(4), NOTHING)
    assert said(drill, 1_000 + T1) == ("A(T1,T4) B(T2) C(T3)", 0)
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
    assert said(drill, 1_000) == (THREE_WAIT, T1)
    drill.join("D'")
    assert said(drill, 9_000) == (f"{THREE_WAIT} D'(T4)", 0)


def test_member_when_it_is_back_within_the_round_is_not_missed() -> None:
    """Design II: a new member is used at once.

    "This could happen if the process manages to get restarted within the time it takes to do the
    rebalance."
    """
    drill = four()
    drill.leave("D")
    drill.join("D'")
    assert said(drill, 1_000) == (f"{THREE_WAIT} D'(T4)", 0)


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
    assert said(drill, 1_000) == ("A(T1,U1) B(T2) C(T3)", T1)
    assert (drill.listed("created"), drill.listed("lost")) == ({"U": [1]}, _t(4))


def test_leader_when_it_exits_leaves_its_delay_to_a_member_of_the_group() -> None:
    """Design II, "Leader exits and new leader is elected in this rebalance".

    "This case is treated as loss of member. [...] What if the previous leader was in the middle of
    waiting for a scheduled timeout? If the new leader was already in the group, they can just use
    the timeout they should already know about and not override it."
    """
    drill = four()
    drill.leave("D").round(0)
    assert said(drill.leave("A"), 45_000) == ("B(T2) C(T3)", T1 - 45_000)
    assert (drill.leader, drill.listed("lost")) == ("B", _t(1, 4))
    assert said(drill, T1) == ("B(T1,T2) C(T3,T4)", 0)


def test_leader_when_new_to_the_group_uses_itself_for_what_is_lost() -> None:
    """Design II, the heuristic of a leader that does not know the last round.

    "For a new leader we can use a heuristic such as looking for a member that has no previous
    assignments (assuming there's enough members that they should have had an assignment)".
    """
    drill = four()
    drill.leave("A")
    assert said(drill.join("E"), 1_000, leader="E") == ("B(T2) C(T3) D(T4) E(T1)", 0)


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
    assert said(drill, 0) == ("A(T1,T2,T3,T4)", 0)


def test_first_member_when_it_is_to_wait_lets_others_join() -> None:
    """Design II, "First member", the other choice (KIP-134).

    "or use the deferment process to allow other members to join in that period"
    """
    drill = Drill(policy=DeferredPolicy(initial_delay_ms=3_000))
    drill.join("A")
    assert said(drill, 0) == ("A()", 3_000)
    assert drill.listed("waiting_for_members") == _t(1, 2, 3, 4)
    assert drill.listed("created") == NOTHING
    assert said(drill.join("B"), 1_000) == ("A() B()", 2_000)
    assert said(drill.leave("A").join("C"), 2_500, leader="C") == ("B() C()", 500)
    assert said(drill, 3_000) == ("B(T1,T3) C(T2,T4)", 0)
    assert drill.listed("created") == _t(1, 2, 3, 4)


def test_additional_member_when_it_joins_is_served_at_once() -> None:
    """Design II, scale up.

    "Additional members: Reassignment happens immediately via two step revoke + assign rebalances.
    Deferring only applies to "lost" partitions." And "Scale up is detected as a new member and
    reassignment happens immediately."
    """
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    told = said(drill.join("D"), 1)
    assert told == ("A(T1,revoked:T4) B(T2,revoked:) C(T3,revoked:) D(revoked:)", 0)
    assert said(drill, 2) == (f"{THREE_WAIT} D(T4)", 0)


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
