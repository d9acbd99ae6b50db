"""A member that claims what it does not own, in a group of real drivers."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup.telemetry import ClaimRefused
from tests.support.driven_group import STEP_S, TOPIC, DrivenGroup, driven_group
from tests.support.driven_liar import Liar, add_liar

PARTITIONS = 12


def _pair_with_liar(group: DrivenGroup, **more: Any) -> Liar:  # noqa: ANN401  (its attributes)
    """Let a liar join two honest members, and return it after ten seconds."""
    group.add("a", "b")
    group.settle()
    group.run(2.0)
    liar = add_liar(group, **more)
    group.run(10.0)
    return liar


def _share_kept(group: DrivenGroup, seconds: float) -> float:
    """Return the share of time in which a member fetched from each partition, on average."""
    began_s = group.hand.now_s
    group.run(seconds)
    fetched = sum(one.at_s > began_s for one in group.fetched)
    return fetched * STEP_S / seconds / PARTITIONS


LIARS: dict[str, dict[str, Any]] = {
    "subscribes to nothing, claims the newest generation": {"topics": (), "ahead": None},
    "subscribes, claims the newest generation": {"topics": (TOPIC,), "ahead": None},
    "claims the generation of the round": {"topics": (TOPIC,), "ahead": 1},
    "subscribes to nothing, ties": {"topics": (), "ahead": 0},
    "subscribes, ties": {"topics": (TOPIC,), "ahead": 0},
    "subscribes, claims an older generation": {"topics": (TOPIC,), "ahead": -1},
}


def _given_twice(group: DrivenGroup, liar: Liar) -> set[int]:
    honest = {one for name in group.members for one in group.members[name].owned}
    return honest & {one.index for one in liar.given}


@pytest.mark.parametrize("kind", LIARS)
def test_honest_members_keep_their_partitions(kind: str) -> None:
    """The liar never gives up what it claims. It gets a fair share, which it may keep idle."""
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group, **LIARS[kind])
        fair = 1.0 if not liar.topics else 2 / 3
        assert _share_kept(group, 30.0) > 0.99 * fair
        assert not _given_twice(group, liar)


@pytest.mark.parametrize("kind", LIARS)
def test_partitions_of_a_leaving_member_go_on(kind: str) -> None:
    """Only the liar claims them then, and holds none of them back."""
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group, **LIARS[kind])
        group.close(next(name for name in "ab" if name != group.leader()))
        group.run(10.0)
        assert _share_kept(group, 10.0) > 0.99 * (1.0 if not liar.topics else 1 / 2)
        assert not _given_twice(group, liar)


def _reports(group: DrivenGroup) -> list[ClaimRefused]:
    records = [one for who in "ab" if who in group.members for one in group.members[who].records]
    return [one for one in records if isinstance(one, ClaimRefused)]


def test_leader_names_the_liar_once() -> None:
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group)
        group.add("c")
        group.run(10.0)
        reason = "impossible generation"
        assert _reports(group) == [
            ClaimRefused(member_id=liar.member_id, count=PARTITIONS, reason=reason)
        ]


def test_false_claim_to_a_new_leader_ends_after_max_poll_interval() -> None:
    """A leader without memory cannot know that the liar never owned what only it claims."""
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group, ahead=0)
        group.close(group.leader())
        (heir,) = (one for name, one in group.members.items() if name != "liar")
        kept = set(heir.owned)
        group.run(50.0)
        assert set(heir.owned) == kept
        assert not heir.told("revoke")
        assert not heir.driver.overdue_claims
        group.play_to(lambda: len(heir.owned) == PARTITIONS, 15.0)
        told, ignored = _reports(group)[-2:]
        assert (told.member_id, told.waited_ms) == (liar.member_id, 60_000)
        assert {told.reason, ignored.reason} == {"not given up"}
        group.run(1.0)
        assert not heir.driver.overdue_claims


def test_slow_owner_is_reported_and_keeps_its_partition() -> None:
    """It may still be working: a second owner would do more harm than the wait."""
    with driven_group(6) as group:
        group.add("a")
        group.settle()
        slow = group.members["a"]
        slow.revoke = lambda partitions: partitions - {5}
        group.add("b")
        group.run(58.0)
        assert not slow.driver.overdue_claims
        group.run(10.0)
        (overdue,) = slow.driver.overdue_claims
        assert (overdue.member_id, overdue.count) == (slow.driver.member.member_id, 1)
        assert [one.reason for one in _reports(group)] == ["not given up"]
        group.run(100.0)
        assert 5 in slow.owned
        assert len(_reports(group)) == 1
        slow.finish({5})
        group.settle()
        assert not slow.driver.overdue_claims
