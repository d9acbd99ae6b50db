"""Groups of real drivers in virtual time: who works on what, and when.

Tests on brokers cannot judge such times: a busy machine pauses more than any rebalance. Here one
step of `STEP_S` is the only delay, so "does not pause" means a record in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from coopgroup.core.leader import TopicMetadata
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FoundTopic
from coopgroup.policies import DeferredPolicy
from coopgroup.telemetry import (
    AssignmentRefused,
    ClaimRefused,
    MembershipLost,
    PolicyOrAssignorDiffers,
    RoundDecided,
    read_ledger,
)
from tests.support.driven_group import STEP_S, TOPIC, DrivenGroup, DrivenMember, driven_group
from tests.support.driven_liar import Liar, add_liar

SESSION_S = 6.0
HEARTBEAT_S = 0.5


def _started(group: DrivenGroup, names: str) -> None:
    group.add(*names)
    group.settle()
    group.run(2.0)


def _follower(group: DrivenGroup) -> str:
    return next(name for name in group.members if name != group.leader())


def _rounds(group: DrivenGroup) -> int:
    records = [record for one in group.members.values() for record in one.records]
    return sum(isinstance(record, RoundDecided) for record in records)


def _codes(group: DrivenGroup) -> set[int]:
    return {code for one in group.members.values() for _, code in one.codes}


# --- what telemetry tells ------------------------------------------------------------------------


@pytest.mark.parametrize("frozen_s", [0.0, 20.0], ids=["killed", "frozen"])
def test_outage_of_a_member_that_cannot_tell_it_is_in_the_telemetry(frozen_s: float) -> None:
    with driven_group(partitions=6) as group:
        _started(group, "abc")
        name, begin_s = _follower(group), group.hand.now_s
        gone = group.take_away(name)
        group.run(max(frozen_s, 2 * SESSION_S))
        if frozen_s:
            group.members[name] = gone
        group.settle()
        ledger = read_ledger(group.told, until_ms=group.now_ms)
        shown_s = dict.fromkeys(range(6), 0.0)
        gaps = ledger.gaps.take(ledger.gaps.start_ms > 1_000 * (begin_s - 2 * HEARTBEAT_S))
        for partition, ms in zip(gaps.resource, gaps.end_ms - gaps.start_ms, strict=True):
            shown_s[int(partition)] += int(ms) / 1_000
        outages_s = {one: out_s for one, out_s in group.gaps_s(begin_s).items() if out_s > 1.0}
        assert len(outages_s) == 2
        # Until its lease ends, a frozen member counts as working.
        unseen_s = SESSION_S if frozen_s else 0.0
        for one, out_s in outages_s.items():
            assert out_s - unseen_s - STEP_S <= shown_s[one] <= out_s + HEARTBEAT_S + STEP_S
        assert not ledger.doubles.other.size


def test_leader_warns_of_members_with_another_policy_until_all_have_it() -> None:
    """Two of three members get a new policy, one after the other."""
    with driven_group(partitions=6) as group:
        _started(group, "abc")
        leader = group.leader()
        group.policy = DeferredPolicy(scheduled_rebalance_timeout_ms=0)
        for name in sorted(set("abc") - {leader}):
            group.close(name)
            group.add(name.upper())
            group.settle()
            group.run(2.0)
        assert group.leader() == leader
        told = [
            (name, record.difference, record.count)
            for name, one in group.members.items()
            for record in one.records
            if isinstance(record, PolicyOrAssignorDiffers)
        ]
        assert told == [(leader, "policy deferred instead of simple", 1)]


# --- members come and go ------------------------------------------------------------------------


def _bounce(group: DrivenGroup) -> None:
    name = _follower(group)
    group.close(name)
    group.add(name)


CHANGES: dict[str, tuple[Callable[[DrivenGroup], object], int]] = {
    "join": (lambda group: group.add("d"), 3),
    "leave": (lambda group: group.close(_follower(group)), 4),
    "the leader leaves": (lambda group: group.close(group.leader()), 4),
    "bounce": (_bounce, 4),
    "a follower dies": (lambda group: group.take_away(_follower(group)), 4),
    "the leader dies": (lambda group: group.take_away(group.leader()), 4),
}


@pytest.mark.parametrize("name", CHANGES)
def test_partitions_that_stay_never_stop(name: str) -> None:
    """They are fetched in every step, never revoked, and all of their commits are accepted."""
    change, moved_max = CHANGES[name]
    with driven_group() as group:
        _started(group, "abc")
        before, began_s = dict(group.members.items()), group.hand.now_s
        shares = group.shares()
        change(group)
        group.play_to(lambda: len(group.members) >= 2 and group.is_fair())
        group.run(1.0)
        gaps = group.gaps_s(began_s)
        stayed = [who for who in group.members if group.members[who] is before.get(who)]
        kept = {one for who in stayed for one in shares[who] & group.shares()[who]}
        assert len(kept) >= 12 - 2 * moved_max
        assert max(gaps[one] for one in kept) < 1.5 * STEP_S
        assert _codes(group) == {0}
        revoked = [one for who in group.members.values() for one in who.told("revoke")]
        assert not kept & {one for partitions in revoked for one in partitions}
        assert not any(who.told("lose") for who in group.members.values())
        if "dies" in name:
            assert max(gaps.values()) < SESSION_S + 2 * HEARTBEAT_S
            assert group.repeated() <= moved_max * 0.25 / STEP_S + moved_max
        else:
            assert max(gaps.values()) < HEARTBEAT_S + 20 * STEP_S
            assert group.repeated() == 0


def test_members_work_and_commit_on_while_a_heavy_partition_stops() -> None:
    """It holds back no light one, and nobody joins in a loop meanwhile."""
    with driven_group(6) as group:
        _started(group, "a")
        heavy, held, began_s = group.members["a"], {1}, group.hand.now_s
        heavy.revoke = lambda partitions: partitions - held
        group.add("b")
        assert group.play_to(lambda: len(group.members["b"].owned) == 2) < 4 * HEARTBEAT_S
        assert held < set(heavy.told("revoke")[0])
        rounds, answered = _rounds(group), len(heavy.codes)
        group.run(5.0)
        assert (len(group.members["b"].owned), _rounds(group)) == (2, rounds)
        assert (len(heavy.codes) - answered >= 19, _codes(group)) == (True, {0})
        gaps = group.gaps_s(began_s)
        assert max(gaps[one] for one in heavy.owned.keys() - held) < 1.5 * STEP_S
        heavy.revoke = set
        heavy.finish(held)
        assert group.settle() < 4 * HEARTBEAT_S
        assert group.repeated() == 0


# --- leases -------------------------------------------------------------------------------------


def test_the_lease_of_a_member_that_is_cut_off_ends_before_its_successors_begin() -> None:
    with driven_group() as group:
        _started(group, "abc")
        member = group.members[_follower(group)]
        lost, cut_s = set(member.owned), group.hand.now_s
        member.wire.is_cut = True
        others = [one for one in group.members.values() if one is not member]
        group.play_to(lambda: all(len(one.owned) == 6 for one in others))
        group.run(STEP_S)
        last_s = max(one.at_s for one in group.fetched if one.who == member.name)
        begun = [one for one in group.fetched if one.who != member.name and one.partition in lost]
        assert SESSION_S - 2 * HEARTBEAT_S < last_s - cut_s < SESSION_S
        assert last_s < begun[0].at_s
        member.wire.is_cut = False
        group.settle()
        assert member.told("lose") == [tuple(sorted(lost))]


def test_a_member_that_does_not_poll_gives_way_and_comes_back() -> None:
    with driven_group(4, settings={"max.poll.interval.ms": 10_000}) as group:
        _started(group, "ab")
        stalled = group.members["b"]
        stalled.is_polling = False
        assert 9.5 < group.play_to(lambda: len(group.members["a"].owned) == 4) < 11.0
        assert [type(one) for one in stalled.records].count(MembershipLost) == 1
        group.run(5.0)
        assert stalled.told("lose") == []  # the application hears it in its next poll
        stalled.is_polling = True
        group.settle()
        assert [kind for _, kind, _ in stalled.heard] == ["grant", "lose", "grant"]


# --- leaving and the coordinator ----------------------------------------------------------------


@pytest.mark.parametrize("in_a_round", [False, True])
def test_a_new_coordinator_costs_no_pause_and_no_partition(in_a_round: bool) -> None:
    with driven_group() as group:
        _started(group, "abc")
        before, rounds, began_s = group.shares(), _rounds(group), group.hand.now_s
        if in_a_round:
            group.leader_rests = True
            group.add("d")
            group.run(2.0)
        group.move_coordinator()
        group.run(2.0)
        group.leader_rests = False
        group.run(10.0)
        assert not any(one.told("lose") for one in group.members.values())
        assert group.repeated() == 0
        if in_a_round:
            group.settle()
        else:
            assert (group.shares(), _rounds(group)) == (before, rounds)
            assert max(group.gaps_s(began_s).values()) < 1.5 * STEP_S


# --- a member that claims what it does not own ----------------------------------------------------


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
def test_honest_members_keep_their_partitions_and_get_those_of_a_leaver(kind: str) -> None:
    """The liar never gives up what it claims. It gets a fair share, which it may keep idle."""
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group, **LIARS[kind])
        assert _share_kept(group, 30.0) > 0.99 * (2 / 3 if liar.topics else 1.0)
        assert not _given_twice(group, liar)
        group.close(next(name for name in "ab" if name != group.leader()))
        group.run(10.0)
        assert _share_kept(group, 10.0) > 0.99 * (1 / 2 if liar.topics else 1.0)
        assert not _given_twice(group, liar)


def _reports(group: DrivenGroup) -> list[ClaimRefused]:
    records = [one for who in "ab" if who in group.members for one in group.members[who].records]
    return [one for one in records if isinstance(one, ClaimRefused)]


def test_leader_names_the_liar_once() -> None:
    with driven_group(PARTITIONS) as group:
        liar = _pair_with_liar(group)
        group.add("c")
        group.run(10.0)
        reason = "never assigned"
        assert _reports(group) == [
            ClaimRefused(member_id=liar.member_id, count=PARTITIONS, reason=reason)
        ]


def test_false_claim_to_a_new_leader_ends_when_an_owner_would_have_stopped() -> None:
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
        group.run(120.0)
        assert set(heir.owned) == kept
        assert [one.member_id for one in heir.driver.overdue_claims] == [liar.member_id]
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


# --- a member that asks a broker how many partitions its topics have ------------------------------


def _leader_sees(group: DrivenGroup, partitions: int) -> DrivenMember:
    """Let the leader see another number of partitions, and start a round; return the follower."""
    group.add("a")
    group.settle()
    group.add("b")
    group.settle()
    follower = group.members["b" if group.leader() == "a" else "a"]
    leader = group.members[group.leader()].driver
    topics = TopicMetadata(resources=ResourceSet({TOPIC: range(partitions)}))
    cast("Any", leader.lookup).metadata = lambda _: topics
    leader.post(RejoinRequested(reason="partitions changed"))
    return follower


def _refusals(member: DrivenMember) -> list[AssignmentRefused]:
    return [one for one in member.records if isinstance(one, AssignmentRefused)]


def test_follower_refuses_partitions_that_do_not_exist() -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.run(5.0)
        assert len(follower.owned) == 2
        assert max(follower.owned) < 4
        assert _refusals(follower)[0].topics == (TOPIC,)


def test_follower_takes_partitions_that_the_leader_saw_first() -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.partitions = 6
        group.settle()
        assert len(follower.owned) == 3
        assert _refusals(follower) == []


@pytest.mark.parametrize(
    "outcome",
    [
        {TOPIC: FoundTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)},
        TransportFailure(kind=FailureKind.TIMED_OUT, message="late"),
    ],
)
def test_follower_takes_partitions_if_no_broker_can_tell(outcome: object) -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.found_topics = outcome
        group.play_to(lambda: len(follower.owned) == 3)
        assert _refusals(follower) == []
