"""Claims that are being given up: they still exclude other members, but give no right."""

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import (
    NO_LAGS,
    RoundDecision,
    TopicMetadata,
    decide_round,
    member_assignments,
    refused_round,
)
from coopgroup.core.model import MemberClaim, ResourceSet, resolve_claims
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    Policy,
    PolicyState,
    RoundContext,
    SimplePolicy,
)
from tests.support.groups import claim

EXISTING = ResourceSet({"T": range(3)})
every = pytest.mark.parametrize("policy", [SimplePolicy(), DeferredPolicy(), IncrementalPolicy()])


def _context(generation: int, state: PolicyState | None) -> RoundContext:
    return RoundContext(leader_id="A", generation=generation, now_ms=generation, state=state)


def _decide(
    policy: Policy, generation: int, state: PolicyState | None, *claims: MemberClaim
) -> RoundDecision:
    decided = decide_round(
        claims,
        TopicMetadata(resources=EXISTING),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=policy,
        context=_context(generation, state),
    )
    assert not decided.refused, decided.records
    return decided


def _told(decided: RoundDecision) -> list[tuple[list[int], list[int] | None]]:
    return [
        (
            answer.assigned.indices("T").tolist(),
            None if answer.revoked is None else answer.revoked.indices("T").tolist(),
        )
        for answer in member_assignments(decided)
    ]


def _of(member_id: str, generation: int, *indices: int) -> MemberClaim:
    return claim(member_id, {"T": indices}, generation=generation)


def _stale(policy: Policy) -> RoundDecision:
    """B claims a resource of A, and is told to stop it."""
    decided = _decide(policy, 5, None, _of("A", 5, 0, 1), _of("B", 4, 1, 2))
    assert _told(decided) == [([0, 1], []), ([2], [1])]
    return decided


@every
@pytest.mark.parametrize("generation", [5, 6], ids=["missed the round", "as all"])
def test_owner_when_a_stale_claimant_is_slow_to_stop_works_on(
    policy: Policy, generation: int
) -> None:
    state = _stale(policy).state
    for number in (6, 7):
        decided = _decide(policy, number, state, _of("A", generation, 0, 1), _of("B", 6, 1, 2))
        assert _told(decided) == [([0, 1], None), ([2], [1])]
        state = decided.state
    assert _told(_decide(policy, 8, state, _of("A", 8, 0, 1), _of("B", 8, 2))) == [
        ([0, 1], None),
        ([2], None),
    ]


@every
def test_claimant_when_it_is_the_only_one_may_keep_what_it_was_to_stop(policy: Policy) -> None:
    """The joiner that should receive it has left: no member has a better right."""
    first = _decide(policy, 5, None, _of("A", 5, 0, 1, 2), claim("B"))
    assert sum(len(revoked or ()) for _, revoked in _told(first)) == 1
    assert _told(_decide(policy, 6, first.state, _of("A", 6, 0, 1, 2))) == [([0, 1, 2], None)]


def test_round_that_moves_nothing_knows_whose_right_it_is_too() -> None:
    """A failing assignor must not stop the owner."""
    policy = SimplePolicy()
    state = _stale(policy).state
    group = resolve_claims([_of("A", 6, 0, 1), _of("B", 6, 1, 2)], EXISTING)
    decided = refused_round(
        group, ("no answer",), assignor=StickyAssignor(), policy=policy, context=_context(6, state)
    )
    assert [assigned for assigned, _ in _told(decided)] == [[0, 1], [2]]
