"""The checkers of a chaos run: each finds its kind of failure, and no failure in a good run."""

import pytest

from tests.chaos.checkers import (
    Commit,
    Freeze,
    HandOut,
    Violation,
    Written,
    handed_out_after_commit,
    lost,
    moment_before_freeze,
    promised,
    repeated,
    restless,
    skipped,
    two_owners,
    undrained,
    unrest,
    went_back,
)

P = ("orders", 0)


def got(process: str, first: int, count: int, at: int, spell: int = 1) -> list[HandOut]:
    """Return consecutive records that a process got, a nanosecond apart."""
    return [
        HandOut(
            process=process,
            partition=P,
            offset=first + index,
            spell=spell,
            began_ns=at + index - 1,
            at_ns=at + index,
        )
        for index in range(count)
    ]


def committed(process: str, offset: int, at: int) -> Commit:
    return Commit(process=process, partition=P, offset=offset, at_ns=at)


def log(*offsets: int | None) -> list[Written]:
    """Return the broker's log of commits for the partition."""
    return [Written(partition=P, offset=offset) for offset in offsets]


def texts(violations: list[Violation]) -> list[str]:
    return [one.text for one in violations]


GOOD = [*got("a-1", 0, 5, at=10), *got("b-1", 5, 5, at=20), *got("a-1", 10, 5, at=30, spell=2)]


def test_records_are_promised_from_the_first_commit_of_their_partition_on() -> None:
    other = ("orders", 1)
    found = promised({P: range(8), other: range(3)}, [*log(5, None, 2), *log(7)])
    assert found == {P: [5, 6, 7]}
    assert lost(found, got("a-1", 5, 2, at=10)) == [
        Violation(kind="lost", text="orders-0: 1 were never handed out: 7")
    ]


def test_nothing_is_found_in_a_run_that_kept_its_promises() -> None:
    """Two moves, each after a commit."""
    commits = [committed("a-1", 5, 19), committed("b-1", 10, 29)]
    assert lost({P: range(15)}, GOOD) == []
    assert skipped(GOOD, log(5, 10)) == []
    assert two_owners(GOOD) == []
    assert handed_out_after_commit(GOOD, commits) == []
    assert went_back(log(5, 10, 15)) == []
    assert undrained({P: 15}, log(5, 10, 15)) == []
    assert repeated(GOOD) == 0


FIRST = got("a-1", 0, 5, at=10)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            lost({P: range(7)}, [*got("a-1", 0, 3, at=10), *got("a-1", 5, 2, at=20)]),
            ["orders-0: 2 were never handed out: 3, 4"],
        ),
        # Only acknowledged records count.
        (lost({P: [0, 1, 2, 5, 6]}, [*got("a-1", 0, 3, at=10), *got("a-1", 5, 2, at=20)]), []),
        # It counts even if another process handed them out: that one died before it committed.
        (
            skipped([*got("a-1", 0, 8, at=10), *got("b-1", 8, 2, at=30)], log(5)),
            ["orders-0: b-1 began at 8, the highest commit is 5"],
        ),
        # A step back in one ownership is as wrong as a step too far.
        (
            skipped(
                [*got("a-1", 0, 2, at=10), *got("a-1", 3, 1, at=20), *got("a-1", 1, 1, at=30)],
                log(9),
            ),
            ["orders-0: a-1 got 3 after 1", "orders-0: a-1 got 1 after 3"],
        ),
        # A commit counts for all processes, from the moment at which it was known.
        (
            handed_out_after_commit([*FIRST, *got("b-1", 3, 4, at=20)], [committed("a-1", 5, 15)]),
            ["orders-0: b-1 got 3, 4 after a-1 had committed beyond"],
        ),
        (
            handed_out_after_commit([*FIRST, *got("b-1", 3, 2, at=12)], [committed("a-1", 5, 15)]),
            [],
        ),
        # The highest commit counts: a stale commit must not excuse a repeated record.
        (
            handed_out_after_commit(
                got("b-1", 3, 1, at=20), [committed("a-1", 5, 15), committed("a-1", 2, 16)]
            ),
            ["orders-0: b-1 got 3 after a-1 had committed beyond"],
        ),
        # Each step back counts; the offsets of a deleted topic may restart.
        (went_back(log(5, 9, 7, 8)), ["orders-0: from 9 to 7"]),
        (went_back(log(5, None, 2)), []),
        (undrained({P: 10}, log(5, 9)), ["orders-0: committed 9, log end 10"]),
        (undrained({P: 1}, []), ["orders-0: committed 0, log end 1"]),
        (undrained({P: 0}, []), []),
        (restless([10, 20, 30, 99], begin_ms=20, end_ms=40, most=2), []),
        (
            restless([20, 21, 22, 40], begin_ms=20, end_ms=40, most=2),
            ["3 rounds in 20 ms after the group was at rest"],
        ),
    ],
)
def test_broken_promise_is_found(found: list[Violation], expected: list[str]) -> None:
    assert texts(found) == expected


@pytest.mark.parametrize(
    ("others", "pairs"),
    [
        ([*got("b-1", 5, 3, at=15)], 1),  # one spell lies within another
        ([*got("b-1", 3, 3, at=29)], 1),  # two spells share one moment
        ([*got("b-1", 0, 2, at=20), *got("c-1", 0, 2, at=25)], 2),  # also behind a third
        ([*got("a-1", 3, 9, at=12, spell=2)], 0),  # spells of one process are consecutive
        ([*got("b-1", 3, 3, at=30)], 0),
    ],
)
def test_owners_that_overlap_are_found(others: list[HandOut], pairs: int) -> None:
    found = two_owners([*got("a-1", 0, 20, at=10), *others])
    assert [one.kind for one in found] == ["two owners"] * pairs


@pytest.mark.parametrize(
    ("owners", "found"),
    [
        (["a", "a", "b", "b"], []),
        (["a", "a", "b"], []),
        (["a", "a", "a", "b"], ["shares are uneven: a 3, b 1"]),
        (["a", "a"], ["shares are uneven: a 2, b 0"]),
        (["a", "", "b"], ["orders-1: handed out by no process"]),
        (["a", "ab", "b"], ["orders-1: handed out by a, b"]),
    ],
)
def test_group_at_rest_is_owned_once_and_evenly(owners: list[str], found: list[str]) -> None:
    """Each letter is a process that handed out records of a partition."""
    hand_outs = [
        HandOut(process=one, partition=("orders", number), offset=0, spell=1, began_ns=0, at_ns=1)
        for number, ones in enumerate(owners)
        for one in ones
    ]
    partitions = [("orders", number) for number in range(len(owners))]
    assert texts(unrest(hand_outs, partitions, ["a", "b"], 1)) == found


def test_record_in_hand_when_the_process_is_frozen_is_dated_back() -> None:
    """Only the first record whose poll began before the freeze; later records are stale."""
    freeze = Freeze(process="a-1", begin_ns=100, end_ns=900)
    in_hand = HandOut(process="a-1", partition=P, offset=0, spell=1, began_ns=99, at_ns=905)
    stale = HandOut(process="a-1", partition=P, offset=1, spell=1, began_ns=906, at_ns=907)
    other = got("b-1", 1, 3, at=500)
    dated = moment_before_freeze([in_hand, *other], [freeze])
    assert {one.at_ns for one in dated if one.process == "a-1"} == {100}
    assert two_owners(dated) == []
    assert two_owners(moment_before_freeze([in_hand, stale, *other], [freeze])) != []


def test_poll_that_began_after_the_process_woke_is_not_dated_back() -> None:
    freeze = Freeze(process="a-1", begin_ns=100, end_ns=900)
    stale = HandOut(process="a-1", partition=P, offset=1, spell=1, began_ns=901, at_ns=902)
    assert moment_before_freeze([stale], [freeze]) == [stale]


def test_records_that_came_again_are_counted() -> None:
    assert repeated([*got("a-1", 0, 5, at=10), *got("b-1", 3, 5, at=20)]) == 2
