"""Claims that are being given up: they still exclude other members, but give no right."""

import pytest

from coopgroup.core.leader import RoundDecision, TopicMetadata, member_assignments
from coopgroup.core.model import MemberClaim, ResourceSet
from coopgroup.core.model.plan import revoked_claims
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, Policy, PolicyState, SimplePolicy
from tests.support.groups import claim, in_words
from tests.unit.core.leader.rounds import FunctionAssignor, decided_by, raising

EXISTING = ResourceSet({"T": range(3)})
every = pytest.mark.parametrize("policy", [SimplePolicy(), DeferredPolicy(), IncrementalPolicy()])


def _decide(
    policy: Policy, generation: int, state: PolicyState | None, *claims: MemberClaim
) -> RoundDecision:
    decided = decided_by(
        policy=policy,
        state=state,
        claims=claims,
        metadata=TopicMetadata(resources=EXISTING),
        generation=generation,
        now_ms=generation,
    )
    assert not decided.refused, decided.records
    return decided


def _told(decided: RoundDecision) -> str:
    answers = {
        member_id: (one.assigned.to_dict(), None if one.revoked is None else one.revoked.to_dict())
        for member_id, one in zip(
            decided.group.member_ids, member_assignments(decided), strict=True
        )
    }
    return in_words(answers)


def _of(member_id: str, generation: int, *indices: int) -> MemberClaim:
    return claim(member_id, {"T": indices}, generation=generation)


def _stale(policy: Policy) -> RoundDecision:
    """B claims a resource of A, and is told to stop it."""
    decided = _decide(policy, 5, None, _of("A", 5, 0, 1), _of("B", 4, 1, 2))
    assert _told(decided) == "A(T0,T1,revoked:) B(T2,revoked:T1)"
    return decided


@every
@pytest.mark.parametrize("generation", [5, 6], ids=["missed the round", "as all"])
def test_owner_when_a_stale_claimant_is_slow_to_stop_works_on(
    policy: Policy, generation: int
) -> None:
    state = _stale(policy).state
    for number in (6, 7):
        decided = _decide(policy, number, state, _of("A", generation, 0, 1), _of("B", 6, 1, 2))
        assert _told(decided) == "A(T0,T1) B(T2,revoked:T1)"
        state = decided.state
    last = _decide(policy, 8, state, _of("A", 8, 0, 1), _of("B", 8, 2))
    assert _told(last) == "A(T0,T1) B(T2)"


@every
def test_claimant_when_it_is_the_only_one_may_keep_what_it_was_to_stop(policy: Policy) -> None:
    """The joiner that should receive it has left: no member has a better right."""
    first = _decide(policy, 5, None, _of("A", 5, 0, 1, 2), claim("B"))
    assert len(revoked_claims(first.group, first.plan.assigned).nonzero()[0]) == 1
    assert _told(_decide(policy, 6, first.state, _of("A", 6, 0, 1, 2))) == "A(T0,T1,T2)"


def test_round_that_moves_nothing_knows_whose_right_it_is_too() -> None:
    """A failing assignor must not stop the owner."""
    decided = decided_by(
        assignor=FunctionAssignor(function=raising),
        state=_stale(SimplePolicy()).state,
        claims=[_of("A", 6, 0, 1), _of("B", 6, 1, 2)],
        metadata=TopicMetadata(resources=EXISTING),
        generation=6,
    )
    assert decided.refused
    assert _told(decided) == "A(T0,T1,revoked:) B(T2,revoked:T1)"
