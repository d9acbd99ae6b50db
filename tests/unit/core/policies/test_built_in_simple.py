"""`SimplePolicy`: every example of Design I, word for word.

The document shows only the changes of a round. We show all that a member holds after the round.
"revoked:" without a resource announces a follow-up round; without "revoked" there is none.
"""

from coopgroup.policies import SimplePolicy
from tests.support.groups import in_words
from tests.support.policy_drill import Drill


def settled(**owned: list[int]) -> Drill:
    """A group under the sticky assignor, which the document's examples assume."""
    drill = Drill(policy=SimplePolicy())
    drill.settle(0, **owned)
    return drill


def test_member_when_joining_gets_its_resource_in_the_second_round() -> None:
    """Design I, "Example: Member joins".

    "Initial group and assignment: A(T1,T4), B(T2), C(T3). D(T) joins. Leader computes new
    assignment as: A(T1), B(T2), C(T3), D(T4) but sends assignment with revocation request:
    A(assigned:,revoked:T4), B(assigned:,revoked:), C(assigned:,revoked:), D(assigned:,revoked:)."

    "Members join with subscriptions: A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3),
    D(T,assigned:). Leader computes new assignment as: A(assigned:,revoked:),
    B(assigned:,revoked:), C(assigned:,revoked:), D(assigned:T4,revoked:)."
    """
    drill = settled(A=[1, 4], B=[2], C=[3])
    told = in_words(drill.join("D").round(0))
    assert told == "A(T1,revoked:T4) B(T2,revoked:) C(T3,revoked:) D(revoked:)"
    assert in_words(drill.round(0)) == "A(T1) B(T2) C(T3) D(T4)"


def test_member_when_leaving_has_its_resource_granted_in_one_round() -> None:
    """Design I, "Example: Member leaves".

    "Initial group and assignment: A(T1), B(T2), C(T3), D(T4). D(T4) leaves. [...] Remaining member
    rejoin with subscriptions: A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3). Leader
    computes new assignment as: A(assigned:T1,T4,revoked:), B(assigned:T2,revoked:),
    C(assigned:T3,revoked:)". "No further rebalances will be required."
    """
    drill = settled(A=[1], B=[2], C=[3], D=[4])
    assert in_words(drill.leave("D").round(0)) == "A(T1,T4) B(T2) C(T3)"


def test_member_when_bouncing_costs_one_round_and_then_two() -> None:
    """Design I, "Member bounces".

    "This case is just a member leaves event, followed by a member joins event. There will be one
    rebalance when the member leaves and partitions are reassigned, then two rebalances: the first
    one when the member rejoins and revocations are returned and then the second one that will
    deliver the new assignment to all members."
    """
    drill = settled(A=[1], B=[2], C=[3], D=[4])
    assert in_words(drill.leave("D").round(0)) == "A(T1,T4) B(T2) C(T3)"
    told = in_words(drill.join("D'").round(0))
    assert told == "A(T1,revoked:T4) B(T2,revoked:) C(T3,revoked:) D'(revoked:)"
    assert in_words(drill.round(0)) == "A(T1) B(T2) C(T3) D'(T4)"


def test_leader_when_exiting_leaves_stickiness_to_a_new_one() -> None:
    """Design I, "Leader exits and new leader is elected in this rebalance".

    "Including AssignedTopicPartitions in the member metadata requires re-sending that information,
    but allows a new leader, even if it was new to the group, to properly maintain stickiness."

    The leader A exits. E joins in the same round and leads it without any state. All members keep
    their partitions, and those of A are granted in this round.
    """
    drill = settled(A=[1], B=[2], C=[3], D=[4])
    told = drill.leave("A").join("E").round(0, leader="E")
    assert in_words(told) == "B(T2) C(T3) D(T4) E(T1)"
