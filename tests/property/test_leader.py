"""Any group comes to rest, and no round on the way gives a resource two owners.

The checks are written here over plain sets and share nothing with `coopgroup.core.policies.safety`.
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import (
    Lags,
    RoundDecision,
    RoundRequest,
    TopicMetadata,
    fallback_round,
    lead,
    read_members,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.policies.policy import RoundContext
from coopgroup.protocol import Assignment, Subscription, decode_assignment, encode_subscription

Pairs: TypeAlias = frozenset[tuple[str, int]]

TOPICS = ("deleted", "orders", "payments", "sink")
ROUNDS_MAX = 3
"""Revoke, grant, and one more when a member's claims could not be read in the first."""


@attrs.frozen(kw_only=True)
class Person:
    """The true state of a member, which its subscription may not show.

    Attributes:
        holds: resources that it works on.
        generation: generation of that assignment.
        topics: its subscription.
        readable: whether its subscription can be decoded.
    """

    holds: Pairs
    generation: int
    topics: tuple[str, ...]
    readable: bool


@attrs.frozen(kw_only=True)
class World:
    """A group, its metadata, and the policy and assignor."""

    people: Mapping[str, Person]
    existing: Pairs
    lags: Mapping[str, Mapping[int, int]]
    assignor: Assignor


def pairs(resources: ResourceSet | None) -> Pairs:
    """Return a set of resources as plain pairs."""
    return frozenset((name, index) for name, index in resources or ())


resources_of = st.frozensets(
    st.tuples(st.sampled_from(TOPICS), st.integers(min_value=0, max_value=7)), max_size=14
)
people_of = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Person,
        holds=resources_of,
        generation=st.integers(min_value=-1, max_value=3),
        topics=st.frozensets(st.sampled_from((*TOPICS, "later"))).map(lambda t: tuple(sorted(t))),
        readable=st.sampled_from((True, True, True, False)),
    ),
    min_size=1,
)
worlds = st.builds(
    World,
    people=people_of,
    existing=resources_of.map(lambda held: frozenset(p for p in held if p[0] != "deleted")),
    lags=st.dictionaries(
        st.sampled_from(TOPICS),
        st.dictionaries(st.integers(0, 7), st.integers(0, 2**40), max_size=8),
    ),
    assignor=st.sampled_from((StickyAssignor(), LagAwareAssignor())),
)


def request_of(people: Mapping[str, Person]) -> RoundRequest:
    """Return the leader's input when all members join."""
    return read_members(
        [
            JoinedMember(
                member_id=member_id,
                group_instance_id=None,
                metadata=encode_subscription(
                    Subscription(
                        topics=person.topics,
                        owned=ResourceSet.from_pairs(person.holds),
                        generation=person.generation,
                    )
                )
                if person.readable
                else b"?",
            )
            for member_id, person in people.items()
        ]
    )


def lead_round(world: World, generation: int, state: PolicyState | None) -> RoundDecision:
    """Play one round of the group; the leader completed the previous generation."""
    return lead(
        request_of(world.people),
        TopicMetadata(resources=ResourceSet.from_pairs(world.existing)),
        Lags.from_mapping(world.lags),
        assignor=world.assignor,
        policy=SimplePolicy(),
        context=RoundContext(
            leader_id=min(world.people), generation=generation - 1, now_ms=0, state=state
        ),
    )


def told(round_: RoundDecision) -> dict[str, Assignment]:
    return {member: decode_assignment(message) for member, message in round_.assignments}


def check_safe(world: World, answers: Mapping[str, Assignment]) -> None:
    """Assert that no member starts a resource of another member, and that all get an answer."""
    assert list(answers) == sorted(world.people)
    assigned = {member: pairs(answer.assigned) for member, answer in answers.items()}
    everything = [pair for held in assigned.values() for pair in held]
    assert len(everything) == len(set(everything)), "assigned twice"
    assert set(everything) <= world.existing, "assigned though it does not exist"
    for member, person in world.people.items():
        others = {
            pair for other, held in world.people.items() if other != member for pair in held.holds
        }
        gained = assigned[member] - person.holds
        assert not gained & others, "granted while another member works on it"
        assert {name for name, _ in assigned[member]} <= set(person.topics)


def check_announced(world: World, answers: Mapping[str, Assignment]) -> None:
    """Assert that stopping members know what to stop, and that all members expect a round."""
    follow_ups = {answer.revoked is not None for answer in answers.values()}
    assert len(follow_ups) == 1
    for member, person in world.people.items():
        answer = answers[member]
        assert answer.rejoin_in_ms is None
        if person.readable:
            stops = person.holds - pairs(answer.assigned)
            assert pairs(answer.revoked) == stops
            assert follow_ups == {True} or not stops
        else:
            assert pairs(answer.assigned) == pairs(answer.revoked) == frozenset()


def obeyed(world: World, answers: Mapping[str, Assignment], generation: int) -> World:
    """Return the group after all members have carried out their assignments."""
    people = {
        member: attrs.evolve(person, holds=pairs(answers[member].assigned), generation=generation)
        for member, person in world.people.items()
    }
    return attrs.evolve(world, people=people)


def rightful(world: World) -> dict[tuple[str, int], str]:
    """Return the rightful owners by KIP-792, among the readable members; subscribers win."""
    owners = {}
    for pair in {pair for person in world.people.values() for pair in person.holds}:
        claims = [
            ((pair[0] in person.topics, person.generation), member)
            for member, person in world.people.items()
            if person.readable and pair in person.holds
        ]
        newest = [member for rank, member in claims if rank == max(claims)[0]]
        if len(newest) == 1:
            owners[pair] = newest[0]
    return owners


@given(world=worlds)
def test_rounds_when_members_obey_come_to_rest(world: World) -> None:
    """After any initial claims: in few rounds all is owned, and no round is unsafe."""
    state: PolicyState | None = None
    for generation in range(5, 5 + ROUNDS_MAX):
        round_ = lead_round(world, generation, state)
        assert not round_.refused
        answers = told(round_)
        check_safe(world, answers)
        check_announced(world, answers)
        world, state = obeyed(world, answers, generation), round_.state
        if all(answer.revoked is None for answer in answers.values()):
            break
    else:
        raise AssertionError(f"no rest after {ROUNDS_MAX} rounds")
    owned = {pair for person in world.people.values() for pair in person.holds}
    wanted = {n for person in world.people.values() if person.readable for n in person.topics}
    assert owned == {pair for pair in world.existing if pair[0] in wanted}


@given(world=worlds)
def test_round_when_the_target_keeps_a_claim_never_interrupts_it(world: World) -> None:
    """A resource stays assigned and is not revoked if its rightful owner is its target."""
    round_ = lead_round(world, 5, None)
    plan, group = round_.plan, round_.group
    targets = dict(zip(group.member_ids, group.by_member(plan.target), strict=True))
    answers = told(round_)
    for pair, member in rightful(world).items():
        if pair in pairs(targets[member]):
            assert pair in pairs(answers[member].assigned)
            assert pair not in pairs(answers[member].revoked)


@given(world=worlds, knows_metadata=st.booleans())
def test_fallback_round_gives_nobody_anything(world: World, *, knows_metadata: bool) -> None:
    """The round that moves nothing leaves rightful owners alone, and grants no resource."""
    existing = TopicMetadata(resources=ResourceSet.from_pairs(world.existing))
    round_ = fallback_round(
        request_of(world.people),
        existing if knows_metadata else None,
        assignor=world.assignor,
        policy=SimplePolicy(),
        context=RoundContext(leader_id="a", generation=4, now_ms=0, state=None),
        reason="assignor: no answer within 5000 ms",
    )
    answers = told(round_)
    check_announced(world, answers)
    owners = rightful(world)
    for member, person in world.people.items():
        keeps = {
            pair
            for pair in person.holds
            if owners.get(pair) == member
            and pair[0] in person.topics
            and (pair in world.existing or not knows_metadata)
        }
        assert pairs(answers[member].assigned) == (keeps if person.readable else frozenset())
