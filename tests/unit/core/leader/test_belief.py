"""Which claims count, by what a leader knows: one member `m`, one round after another."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from coopgroup.core.leader.belief import Believed, believed_claims, remember_given
from coopgroup.core.model import EMPTY, MemberClaim, ResourceSet, resolve_claims
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.policies.policy import RoundContext
from coopgroup.telemetry import ClaimRefused
from tests.support.memory import remembered

EXISTING = ResourceSet({"t": range(6)})
TIMEOUT_MS = 60_000


def some(*indices: int) -> ResourceSet:
    return ResourceSet({"t": indices})


def claim(member_id: str, *owned: int, generation: int, static: bool = False) -> MemberClaim:
    return MemberClaim(
        member_id=member_id,
        topics=("t",),
        owned=some(*owned),
        generation=generation,
        instance_id="i" if static else None,
    )


def context(
    generation: int,
    state: PolicyState | None = None,
    *,
    completed: int | None = None,
    at_ms: int = 0,
) -> RoundContext:
    """Return the context of a round, whose leader completed the round before by default."""
    return RoundContext(
        leader_id="a",
        generation=generation - 1 if completed is None else completed,
        now_ms=at_ms,
        state=state,
        round_generation=generation,
        rebalance_timeout_ms=TIMEOUT_MS,
    )


def led(
    claims: Sequence[MemberClaim], assigned: dict[str, ResourceSet], here: RoundContext
) -> PolicyState:
    """Return the memory of a round that assigned as given."""
    believed = believed_claims(claims, here)
    group = resolve_claims(believed.claims, EXISTING)
    state = remembered(*group.member_ids, generation=here.generation)
    shares = [assigned.get(one.member_id, EMPTY) for one in believed.claims]
    return remember_given(state, group, believed, shares, here)


def believed(one: MemberClaim, here: RoundContext) -> ResourceSet:
    return believed_claims([one], here).claims[0].owned


STATE = led([claim("m", 0, 1, generation=6)], {"m": some(0, 2)}, context(7))
"""In round 7 the member `m` keeps 0, must stop 1, and is granted 2."""


@pytest.mark.parametrize(
    "generation",
    [-1, 6, 7, 8, 2**31 - 1],
)
def test_member_may_own_what_the_last_round_gave_and_what_it_had_to_stop(generation: int) -> None:
    one = claim("m", 0, 1, 2, 3, generation=generation)
    assert believed(one, context(8, STATE)) == some(0, 1, 2)


def test_member_that_was_not_there_owns_nothing() -> None:
    here = context(8, STATE)
    assert believed(claim("n", 3, generation=7), here) == EMPTY
    assert believed(claim("n", 3, generation=2, static=True), here) == EMPTY


def test_lie_is_reported_until_the_member_is_known_for_it() -> None:
    here = context(8, STATE)
    lie = claim("m", 0, 1, 3, 4, generation=7)
    first = believed_claims([lie], here)
    assert first.records == (ClaimRefused(member_id="m", count=2, reason="never assigned"),)
    again = believed_claims([lie], context(9, led([lie], {"m": some(0)}, here)))
    assert (again.liars, again.records) == (frozenset({"m"}), ())


@pytest.mark.parametrize(
    "here",
    [
        context(8),
        context(9, STATE),
        context(8, STATE, completed=6),
        attrs.evolve(context(8, STATE), round_generation=None),
        context(8, attrs.evolve(STATE, given=())),
    ],
    ids=["no memory", "missed a round", "its own sync failed", "unknown", "nobody could be read"],
)
def test_leader_that_does_not_know_believes_all(here: RoundContext) -> None:
    one = claim("m", 3, 4, generation=6)
    assert believed_claims([one], here) == Believed(claims=(one,))


def test_coordinator_with_an_older_log() -> None:
    """The leader and the member completed round 9, and the next one has the number 5."""
    one = claim("m", 3, generation=9)
    assert believed_claims([one], context(5, completed=9)) == Believed(claims=(one,))


@pytest.mark.parametrize(
    "here",
    [context(5, completed=-1), context(5, completed=4), context(5, completed=3)],
    ids=["completed no round", "completed the last round", "missed rounds"],
)
@pytest.mark.parametrize("generation", [5, 9])
def test_claim_of_a_round_to_come_counts_but_loses_if_the_leader_cannot_know_better(
    here: RoundContext, generation: int
) -> None:
    """A coordinator with an older log repeats rounds that the leader missed: the claim is honest.

    Regression: a leader that had completed a round before ignored the claim, and two members
    owned the partition.
    """
    claims = [claim("newer", 0, 1, generation=generation), claim("m", 0, generation=4)]
    kept = believed_claims(claims, here)
    group = resolve_claims(kept.claims, EXISTING)
    assert kept.records == ()
    assert group.owner.tolist() == [0, 1, -1, -1, -1, -1]
    assert not group.contested.any()


def test_claim_without_a_subscription_neither_wins_nor_ties() -> None:
    outside = attrs.evolve(claim("liar", 0, 1, generation=9), topics=("other",))
    group = resolve_claims([outside, claim("m", 0, generation=4)], EXISTING)
    assert group.owner.tolist() == [1, 0, -1, -1, -1, -1]
    assert not group.contested.any()


def test_claim_of_a_member_that_hands_over_wins_by_its_generation() -> None:
    """Regression: an older false claim won, and two members worked on the partition."""
    leaves = attrs.evolve(claim("leaves", 0, generation=9), topics=(), hands_over=True)
    group = resolve_claims([leaves, claim("m", 0, generation=4)], EXISTING)
    assert group.owner.tolist() == [0, -1, -1, -1, -1, -1]


def test_unreadable_member_may_own_anything() -> None:
    silent = MemberClaim(member_id="m", topics=(), readable=False)
    state = led([silent], {}, context(7))
    assert believed(claim("m", 3, generation=7), context(8, state)) == some(3)


# --- static members -----------------------------------------------------------------------------


def test_static_member_that_was_fenced_owns_what_its_earlier_id_had() -> None:
    state = led([claim("m", 0, generation=6, static=True)], {"m": some(0, 2)}, context(7))
    back = claim("x", 0, 2, 3, generation=7, static=True)
    assert believed(back, context(8, state)) == some(0, 2)


def test_static_member_that_missed_rounds_owns_what_an_earlier_round_gave() -> None:
    """The coordinator repeats its last join; then the late one arrives."""
    stale = claim("m", 0, generation=5, static=True)
    six = led([stale], {"m": some(0, 1)}, context(6))
    seven = led([stale], {"m": some(0)}, context(7, six))
    eight = led([stale], {"m": some(0)}, context(8, seven))
    late = claim("m", 0, 1, 3, generation=6, static=True)
    assert believed(late, context(9, eight)) == some(0, 1)
    assert believed(claim("m", 0, 1, generation=8, static=True), context(9, eight)) == some(0)


def test_static_member_that_missed_an_unknown_round_may_own_anything() -> None:
    stale = claim("m", 0, generation=5, static=True)
    state = led([stale], {"m": some(0)}, context(8))
    assert believed(claim("m", 3, generation=6, static=True), context(9, state)) == some(3)
    assert believed(claim("m", 3, generation=8, static=True), context(9, state)) == EMPTY


# --- claims that are not given up ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "counts"), [(3 * TIMEOUT_MS - 1, some(0, 1)), (3 * TIMEOUT_MS, EMPTY)]
)
def test_claim_that_was_never_proven_ends(at_ms: int, counts: ResourceSet) -> None:
    """Two members claim in one generation. A leader without memory tells both to stop.

    Regression: the claim ended after one time-out. A slow member that had owned the resources, and
    no longer subscribed to them, was still stopping them when they had a new owner.
    """
    rivals = [claim(name, 0, 1, generation=6) for name in ("m", "n")]
    state = led(rivals, {}, context(7))
    state = led(rivals, {}, context(8, state, at_ms=TIMEOUT_MS - 1))
    assert believed(rivals[0], context(9, state, at_ms=at_ms)) == counts


def test_claim_of_an_owner_never_ends() -> None:
    """The member owned 0 in the round before, or it was the only one to claim 1."""
    here = context(8, STATE)
    state = led([claim("m", 0, 1, generation=7)], {}, here)
    later = context(9, state, at_ms=10 * TIMEOUT_MS)
    assert believed(claim("m", 0, 1, generation=8), later) == some(0, 1)


def test_claim_of_the_only_owner_that_hands_over_never_ends() -> None:
    """Regression: a leader without memory took it for a claim without a subscription."""
    leaves = attrs.evolve(claim("leaves", 0, generation=6), topics=(), hands_over=True)
    state = led([leaves], {}, context(7))
    later = context(8, state, at_ms=10 * TIMEOUT_MS)
    assert believed(attrs.evolve(leaves, generation=7), later) == some(0)


def test_unreadable_member_may_later_own_only_what_no_other_member_was_assigned() -> None:
    """It would tie with the holders of all that it claims, and they would have to stop."""
    claims = [claim("a", 0, generation=6), attrs.evolve(claim("m", generation=6), readable=False)]
    state = led(claims, {"a": some(0, 1)}, context(7))
    assert believed(claim("m", 0, 1, 2, generation=7), context(8, state)) == some(2)


def test_unreadable_member_owns_no_more_than_before() -> None:
    """Regression: it claimed what moved meanwhile, never gave it up, and the group waited."""
    unread = [attrs.evolve(claim(name, generation=7), readable=False) for name in ("m", "x")]
    members = [*unread, claim("a", generation=7)]
    eight = led(members, {}, context(8, STATE))
    nine = led(members, {"a": some(2)}, context(9, eight))
    for here, counts in ((context(9, eight), some(0, 1, 2)), (context(10, nine), some(0, 1))):
        assert believed(claim("m", *range(6), generation=8), here) == counts
        assert believed(claim("x", *range(6), generation=8), here) == EMPTY


def test_leader_remembers_the_round_before_rounds_that_failed() -> None:
    """A member that joins again before each sync would make it forget, and then claim all."""
    failed = led([claim("m", 0, 2, generation=7)], {"m": some(3)}, context(8, STATE))
    again = led([claim("m", 0, 2, generation=7)], {"m": some(4)}, context(9, failed, completed=7))
    here = context(10, again, completed=7)
    assert believed(claim("m", *range(6), generation=9), here) == some(0, 1, 2, 3, 4)
    assert believed(claim("x", *range(6), generation=9), here) == EMPTY


def test_leader_that_did_not_complete_its_only_round_remembers_nothing() -> None:
    """It does not know what members owned before that round."""
    failed = led([claim("m", 0, generation=7)], {"m": some(3)}, context(8))
    here = context(9, failed, completed=7)
    assert believed(claim("m", *range(6), generation=7), here) == some(*range(6))


def test_static_member_that_a_new_leader_meets_cannot_hold_back_what_others_owned() -> None:
    """Its claims of an old generation end with the time to give them up."""
    liar = claim("m", *range(6), generation=-1, static=True)
    first = led([claim("a", 0, 1, generation=6), liar], {"a": some(0, 1)}, context(7))
    second = led([claim("a", 0, 1, generation=7), liar], {"a": some(0)}, context(8, first))
    for at_ms, counts in ((0, some(0, 1)), (3 * TIMEOUT_MS, EMPTY)):
        assert believed(liar, context(9, second, at_ms=at_ms)) & some(0, 1) == counts


def test_partition_in_transit_does_not_go_to_a_member_that_was_unreadable() -> None:
    claims = [
        attrs.evolve(claim("m", generation=6), readable=False),
        claim("a", 0, 1, generation=6),
    ]
    state = led(claims, {"a": some(0)}, context(7))
    assert believed(claim("m", 1, generation=7), context(8, state)) == EMPTY


def test_claim_of_a_round_that_the_coordinator_repeats_is_possible() -> None:
    """The leader missed the end of round 8, and a coordinator with an older log repeats it."""
    state = led([claim("m", 0, 2, generation=7)], {"m": some(2, 3)}, context(8, STATE))
    here = context(8, state, completed=7)
    assert believed(claim("m", 2, 3, generation=8), here) == some(2, 3)
    assert believed(claim("x", 2, 3, generation=8), here) == EMPTY
