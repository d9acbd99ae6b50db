"""The bell of a member of KIP-848: occasions to ring, heeded rings, looks."""

import attrs

from coopgroup.core.member import ErrorCode, next_deadline_ms
from coopgroup.core.member.events import BellRang, CommitRequested, Offset, RejoinRequested
from coopgroup.core.model import EMPTY
from tests.support.consumer_members import (
    BEAT,
    CLOSED,
    INTERVAL_MS,
    LEAVE,
    STATIC,
    T0,
    T1,
    WITH_BELL,
    DrivenConsumer,
    joining,
    leaving,
    revoking,
    stable,
)
from tests.support.members import HELD

FAR_MS = 60_000


def settled() -> DrivenConsumer:
    """Return a stable member that rang long ago, and whose next heartbeat is far."""
    driven = stable(WITH_BELL).wait(0)
    driven.member = attrs.evolve(driven.member, heartbeat_at_ms=driven.now_ms + FAR_MS)
    return driven.beat() if BEAT in driven.member.outstanding else driven


def heard(driven: DrivenConsumer, after_ms: int = 0) -> DrivenConsumer:
    driven.now_ms += after_ms
    return driven.give(BellRang())


def looks_of(driven: DrivenConsumer, for_ms: int, epoch: int | None = None) -> list[int]:
    """Return the times after now at which the member beats; each heartbeat is answered."""
    found, begun_ms = [], driven.now_ms
    while (at_ms := next_deadline_ms(driven.member)) is not None and at_ms <= begun_ms + for_ms:
        driven.wait(max(0, at_ms - driven.now_ms))
        if BEAT in driven.member.outstanding:
            found.append(driven.now_ms - begun_ms)
            driven.beat(None, epoch)
    return found


# --- ringing -----------------------------------------------------------------------------------


def test_answer_to_the_join_rings() -> None:
    assert not joining(WITH_BELL).rings()
    assert joining(WITH_BELL).beat(HELD).rings()


def test_answer_to_the_leave_rings_though_the_last_ring_was_a_moment_ago() -> None:
    driven = joining(WITH_BELL).beat(HELD).give(CLOSED)
    assert not driven.rings()
    assert driven.refuse(LEAVE, ErrorCode.NONE).rings()


def test_leave_that_changes_nothing_does_not_ring() -> None:
    refused = leaving(WITH_BELL).refuse(LEAVE, ErrorCode.UNKNOWN_MEMBER_ID)
    static = leaving(attrs.evolve(STATIC, has_bell=True)).refuse(LEAVE, ErrorCode.NONE)
    assert (refused.rings(), static.rings()) == (False, False)


def test_answer_to_an_acknowledgement_rings() -> None:
    driven = revoking(WITH_BELL).wait(100).stop(T1)
    assert not driven.rings()
    assert driven.beat(T0).rings()
    assert not driven.wait(100).beat(T0).rings()


def test_acknowledgement_without_an_answer_rings_when_it_is_answered() -> None:
    driven = revoking(WITH_BELL).wait(100).stop(T1).refuse(BEAT, ErrorCode.NO_ANSWER).find()
    assert driven.beat(T0).rings()


def test_news_of_a_heartbeat_that_the_member_asked_for_ring() -> None:
    assert settled().wait(FAR_MS // 20).give(RejoinRequested(reason="")).beat(None, 5).rings()
    assert not settled().give(RejoinRequested(reason="")).beat(None).rings()


def test_news_of_a_regular_heartbeat_ring_after_a_while() -> None:
    driven = stable(WITH_BELL).beat(None, 5)
    assert not driven.rings()
    assert driven.wait(250).rings()


def test_members_that_beat_for_the_same_ring_do_not_beat_at_the_same_time_for_ever() -> None:
    times = set()
    for number in range(20):
        driven = settled()
        driven.member = attrs.evolve(driven.member, member_id=f"p{number}")
        heard(driven, 1)
        times.add(driven.member.heartbeat_at_ms - driven.now_ms)
    assert len(times) > 15
    assert INTERVAL_MS // 2 < min(times) <= max(times) <= INTERVAL_MS


def test_news_of_a_heartbeat_for_a_ring_do_not_ring() -> None:
    """The other members heard that ring too."""
    assert not heard(settled(), 100).beat(T0, 5).rings()


def looked() -> DrivenConsumer:
    """Return a member whose look has just brought news."""
    return heard(settled(), 100).beat().wait(25).beat(T0, 5)


def test_news_of_a_look_ring_after_a_while() -> None:
    driven = looked()
    assert not driven.rings()
    at_ms = next_deadline_ms(driven.member)
    assert at_ms is not None
    assert 0 <= at_ms - driven.now_ms < 250
    assert driven.wait(at_ms - driven.now_ms).rings()


def test_news_of_a_look_do_not_ring_if_another_member_rings_first() -> None:
    """All members of a large group look at the same time."""
    driven = heard(looked())
    assert not driven.wait(250).rings()


def test_members_ring_at_different_times_for_the_news_of_a_look() -> None:
    times = set()
    for number in range(20):
        driven = heard(settled(), 100).beat().wait(25)
        driven.member = attrs.evolve(driven.member, member_id=f"p{number}")
        driven.beat(T0, 5)
        times.add((next_deadline_ms(driven.member) or 0) - driven.now_ms)
    assert len(times) > 15


def test_second_ring_within_50_ms_is_late_and_not_lost() -> None:
    driven = joining(WITH_BELL).beat(HELD)
    assert driven.rings()
    driven.give(RejoinRequested(reason="")).beat(None, 2)
    assert not driven.rings()
    assert next_deadline_ms(driven.member) == driven.now_ms + 50
    assert driven.wait(50).rings()


def test_member_without_a_bell_neither_rings_nor_beats_for_a_ring() -> None:
    driven = stable()
    assert not joining().beat(HELD).rings()
    assert heard(driven).beats() == []
    assert not leaving().refuse(LEAVE, ErrorCode.NONE).rings()


# --- heeding -----------------------------------------------------------------------------------


def test_ring_is_heeded_by_a_heartbeat_now() -> None:
    assert len(heard(settled(), 1).beats()) == 1


def test_heartbeat_on_its_way_is_followed_by_another() -> None:
    """The first one may have been served before the change."""
    driven = settled().give(RejoinRequested(reason=""))
    assert heard(driven).beats() == []
    assert len(driven.beat(None).beats()) == 1


def test_ring_during_the_join_is_heeded_after_it() -> None:
    driven = heard(joining(WITH_BELL))
    assert len(driven.beat(HELD).beats()) == 1


def test_looks_follow_the_ring_because_the_target_may_come_later() -> None:
    driven = heard(settled(), 100).beat()
    assert looks_of(driven, 1_500) == [25, 120, 1_050]


def test_news_end_the_looks() -> None:
    driven = heard(settled(), 100).beat(T0, 5)
    assert looks_of(driven, 1_500) == []


def test_join_without_partitions_looks_for_them() -> None:
    driven = joining(WITH_BELL).beat(EMPTY)
    assert [at_ms for at_ms in looks_of(driven, 1_500) if at_ms] == [25, 120, 1_050]
    assert looks_of(joining(WITH_BELL).beat(HELD), 1_500) == []


def test_last_ring_is_never_ignored_and_false_rings_cost_little() -> None:
    """The pauses grow to a second; the long look follows the last ring."""
    driven, beats = settled(), list[int]()
    begun_ms = driven.now_ms
    for _ in range(1_000):
        heard(driven, 10)
        while BEAT in driven.member.outstanding:
            beats.append(driven.now_ms - begun_ms)
            driven.beat(None)
    assert len([at_ms for at_ms in beats if at_ms <= 1_000]) <= 12
    late = [at_ms for at_ms in beats if at_ms > 4_000]
    assert 5 <= len(late) <= 12
    assert looks_of(driven, 2_500)[-1] >= 1_000


def test_news_make_the_next_ring_be_heeded_soon_again() -> None:
    driven = settled()
    for _ in range(300):
        heard(driven, 10)
        while BEAT in driven.member.outstanding:
            driven.beat(None)
    driven.wait(2_000)
    driven.give(RejoinRequested(reason=""))
    while BEAT in driven.member.outstanding:
        driven.beat(None, 9)
    assert driven.member.beat.fruitless == 0
    heard(driven, 1_000)
    assert len(driven.beats()) == 1
    heard(driven.beat(None), 50)
    assert len(driven.beats()) == 1


def test_retry_of_a_heartbeat_for_a_ring_is_still_one_for_a_ring() -> None:
    driven = heard(settled(), 100).refuse(BEAT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    driven.wait(100)
    assert not driven.beat(T0, 5).rings()


def test_commits_do_not_ring() -> None:
    driven = settled().give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 4),)))
    assert not driven.rings()
