"""The checker of committed offsets."""

from coopgroup.simulator.checkers import check_commits
from coopgroup.simulator.checkers.commits import lowered
from coopgroup.simulator.world import late_commit_of
from coopgroup.telemetry import Envelope, FaultInjected, OffsetsCommitted
from tests.unit.simulator.checkers.rows import T01, envelope


def committed(at_ms: int, *offsets: int, member: str = "m") -> Envelope:
    """Return a commit of offsets of both partitions."""
    record = OffsetsCommitted(resources=T01, offsets=offsets)
    return envelope(at_ms, 1, record, member=member)


def late(at_ms: int, member: str = "m") -> Envelope:
    """A commit of a former life arrives."""
    record = FaultInjected(description=late_commit_of(member))
    return envelope(at_ms, -1, record, member="")


def test_commits_when_they_ascend_are_right() -> None:
    assert list(check_commits([committed(1, 3, 3), committed(2, 3, 9)])) == []


def test_commits_when_one_goes_back_are_broken() -> None:
    (violation,) = check_commits([committed(1, 3, 9), committed(2, 4, 8)])
    assert (violation.at_ms, violation.message) == (2, "T-1 goes back from 9 to 8, by m")


def test_commits_when_a_former_life_of_a_kept_member_commits_late_may_go_back() -> None:
    assert list(check_commits([committed(1, 3, 9), late(2), committed(2, 3, 8)])) == []
    others = [committed(1, 3, 9, member="n"), late(2), committed(2, 3, 8)]
    assert len(list(check_commits(others))) == 1
    of_another = [committed(1, 3, 9), late(2, "n"), committed(2, 3, 8)]
    assert len(list(check_commits(of_another))) == 1
    twice = [committed(1, 3, 9), late(2), committed(2, 3, 8), committed(2, 3, 7)]
    assert [one.message for one in check_commits(twice)] == ["T-1 goes back from 8 to 7, by m"]
    long_ago = [late(1), committed(2, 3, 9), committed(2, 3, 8)]
    assert len(list(check_commits(long_ago))) == 1


def test_late_commit_lowers_unless_a_newer_one_follows() -> None:
    at_the_end = [committed(1, 3, 9), late(2), committed(2, 3, 8)]
    assert lowered(at_the_end) == T01
    assert not lowered([*at_the_end, committed(3, 9, 9)])
    assert not lowered([committed(1, 3, 9)])
