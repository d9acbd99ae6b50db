"""A leader reports members whose policy or assignor is another one."""

import attrs
import pytest

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.core.leader import RoundDecision
from coopgroup.core.model.choices import MemberChoices, choices_of
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.policies import DeferredPolicy, SimplePolicy
from coopgroup.protocol import UserData, encode_user_data
from coopgroup.telemetry import PolicyOrAssignorDiffers
from tests.unit.core.leader.rounds import fell_back, joined, led

SIMPLE = choices_of(SimplePolicy(), StickyAssignor())
DEFERRED = choices_of(DeferredPolicy(), StickyAssignor())


def telling(member_id: str, choices: MemberChoices | None) -> JoinedMember:
    return joined(member_id, user_data=encode_user_data(UserData(choices=choices)))


def found(*members: JoinedMember) -> list[tuple[str, tuple[str, ...], int]]:
    """Return difference, members and count of each record in a round that "a" leads."""
    decided: RoundDecision = led(*members)
    records = [one for one in decided.records if isinstance(one, PolicyOrAssignorDiffers)]
    assert all("one by one" in one.advice for one in records)
    return [(one.difference, one.members, one.count) for one in records]


@pytest.mark.parametrize(
    ("theirs", "difference"),
    [
        (DEFERRED, "policy deferred instead of simple"),
        (
            choices_of(SimplePolicy(), LagAwareAssignor()),
            "assignor lag-aware instead of sticky",
        ),
        (
            choices_of(DeferredPolicy(), LagAwareAssignor()),
            "policy deferred instead of simple, assignor lag-aware instead of sticky",
        ),
        (
            attrs.evolve(SIMPLE, policy_digest=1),
            f"other options of policy simple (00000001 instead of {SIMPLE.policy_digest:08x})",
        ),
        (
            attrs.evolve(SIMPLE, assignor_digest=1),
            f"other options of assignor sticky (00000001 instead of {SIMPLE.assignor_digest:08x})",
        ),
    ],
)
def test_round_names_members_and_what_differs(theirs: MemberChoices, difference: str) -> None:
    members = [telling("a", SIMPLE), telling("c", theirs), telling("b", theirs)]
    assert found(*members, telling("d", SIMPLE)) == [(difference, ("b", "c"), 2)]


def test_round_without_differences_says_nothing() -> None:
    assert found(telling("a", SIMPLE), telling("b", SIMPLE)) == []


def test_members_of_earlier_releases_and_of_others_do_not_differ() -> None:
    """Members of earlier releases end before the field; other clients send something else."""
    earlier = encode_user_data(UserData())[:-20]
    others = [
        telling("b", None),
        joined("c", user_data=earlier),
        joined("d", user_data=b"\0\0\0\7"),
    ]
    assert found(telling("a", SIMPLE), *others, joined("e")) == []


def test_leader_that_does_not_tell_its_own_compares_nothing() -> None:
    assert found(telling("a", None), telling("b", SIMPLE), telling("c", DEFERRED)) == []


def test_unknown_options_do_not_differ() -> None:
    unknown = attrs.evolve(SIMPLE, policy_digest=None)
    assert found(telling("a", SIMPLE), telling("b", unknown)) == []
    assert found(telling("a", unknown), telling("b", SIMPLE)) == []


def test_many_members_are_named_up_to_ten() -> None:
    ids = [f"b{number:02}" for number in range(40)]
    ((_, members, count),) = found(telling("a", SIMPLE), *(telling(one, DEFERRED) for one in ids))
    assert (list(members), count) == (ids[:10], 40)


def test_many_differences_are_five_records() -> None:
    """Options of a user's class can differ in each process."""
    ids = [f"b{number:02}" for number in range(30)]
    members = [telling(one, attrs.evolve(SIMPLE, policy=one, assignor="x" * 30_000)) for one in ids]
    records = found(telling("a", SIMPLE), *members)
    assert [len(difference) < 300 for difference, _, _ in records] == [True] * 5
    assert sum(count for *_, count in records) == len(ids)
    assert records[-1][0] == "other policies or assignors, or other options"
    assert records[-1][1] == tuple(ids[4:14])


def test_round_that_moves_nothing_tells_it_too() -> None:
    decided = fell_back(telling("a", SIMPLE), telling("b", DEFERRED))
    assert any(isinstance(one, PolicyOrAssignorDiffers) for one in decided.records)
