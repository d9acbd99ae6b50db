"""Checkers of holdings: each rule broken once, and allowed cases."""

import pytest

from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.checkers import check_pairs, check_single_owner
from coopgroup.simulator.checkers.holdings import Holding, holdings
from coopgroup.telemetry import (
    AssignmentReceived,
    EndCause,
    Envelope,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    StateChanged,
    StopReason,
)
from tests.unit.simulator.checkers.rows import T0, envelope

START = ProcessStarted(topics=("T",))
GAIN = AssignmentReceived(leader=False, gained=T0)
BEGIN = ResourcesStarted(resources=T0)
TOLD = AssignmentReceived(leader=False, revoked=T0)
STOP = ResourcesStopped(resources=T0, reason=StopReason.REVOKED)
LOSS = MembershipLost(resources=T0, cause="lease expired")
LOST = ResourcesStopped(resources=T0, reason=StopReason.LOST)
SLOW = ResourcesStopped(resources=T0, reason=StopReason.LOST, duration_ms=1)
LATE = ResourcesStopped(resources=T0, reason=StopReason.LOST, duration_ms=10)
CHANGED = ResourcesStopped(resources=T0, reason=StopReason.CHANGED)
LEAVES = StateChanged(before="stable", after="leaving", cause="closed")
YIELDS = StateChanged(before="stable", after="revoking", cause="rejoin")
DEAD = ProcessEnded(cause=EndCause.CRASHED)


def telemetry(*rows: tuple[int, str, Record]) -> list[Envelope]:
    """Return envelopes of records with time and process."""
    return [envelope(at_ms, 1, record, client, member="") for at_ms, client, record in rows]


def test_holding_begins_with_the_assignment_and_ends_with_the_stop() -> None:
    rows = telemetry(
        (1, "a", START), (2, "a", GAIN), (5, "a", BEGIN), (8, "a", TOLD), (9, "a", STOP)
    )
    assert holdings(rows) == [Holding(Resource("T", 0), 2, 9, "a")]


def test_holding_of_a_paused_process_is_interrupted() -> None:
    """Resources that it lost in the pause must not appear as held at its end."""
    rows = telemetry(
        (1, "a", GAIN),
        (3, "a", ProcessPaused()),
        (6, "a", ProcessResumed()),
        (8, "a", ProcessPaused()),
        (9, "a", ProcessResumed()),
        (9, "a", LOST),
    )
    assert [(one.start_ms, one.end_ms) for one in holdings(rows)] == [(1, 3), (6, 8)]


def test_holding_that_is_given_up_while_the_process_stands_still_does_not_come_back() -> None:
    rows = telemetry(
        (1, "a", GAIN), (3, "a", ProcessPaused()), (5, "a", STOP), (6, "a", ProcessResumed())
    )
    assert [(one.start_ms, one.end_ms) for one in holdings(rows)] == [(1, 3)]


@pytest.mark.parametrize("end", [TOLD, LOSS, LEAVES, YIELDS])
def test_holding_without_work_ends_without_a_stop(end: Record) -> None:
    rows = telemetry((1, "a", GAIN), (5, "a", end), (9, "a", GAIN))
    assert holdings(rows)[0] == Holding(Resource("T", 0), 1, 5, "a")


@pytest.mark.parametrize("end", [TOLD, LOSS, LEAVES, YIELDS])
def test_holding_with_work_ends_with_its_stop(end: Record) -> None:
    rows = telemetry((1, "a", GAIN), (2, "a", BEGIN), (5, "a", end), (9, "a", STOP))
    assert holdings(rows) == [Holding(Resource("T", 0), 1, 9, "a")]


def test_holding_whose_work_begins_after_its_revocation_ends_with_its_stop() -> None:
    rows = telemetry((1, "a", GAIN), (5, "a", TOLD), (6, "a", BEGIN), (9, "a", STOP))
    assert holdings(rows) == [Holding(Resource("T", 0), 1, 9, "a")]


def test_revoked_holding_ends_when_its_work_stops_as_changed() -> None:
    rows = telemetry((1, "a", GAIN), (2, "a", BEGIN), (5, "a", TOLD), (7, "a", CHANGED))
    assert holdings(rows) == [Holding(Resource("T", 0), 1, 7, "a")]


@pytest.mark.parametrize(
    "rows",
    [
        ((1, "a", GAIN), (5, "a", STOP), (5, "b", GAIN)),
        ((1, "a", GAIN), (5, "a", LOSS), (5, "b", GAIN)),
        ((1, "a", GAIN), (5, "b", GAIN), (5, "a", STOP)),
        ((1, "a", GAIN), (5, "a", DEAD), (6, "b", GAIN)),
        ((1, "a", GAIN), (5, "a", ProcessPaused()), (6, "b", GAIN)),
    ],
    ids=[
        "in turn",
        "lost before its work",
        "within a millisecond",
        "after its death",
        "while it is paused",
    ],
)
def test_single_owner_when_one_follows_the_other_is_kept(
    rows: tuple[tuple[int, str, Record], ...],
) -> None:
    assert list(check_single_owner(telemetry(*rows))) == []


@pytest.mark.parametrize(
    "rows",
    [
        ((1, "a", GAIN), (4, "b", GAIN), (5, "a", STOP)),
        ((1, "a", GAIN), (2, "a", ProcessPaused()), (3, "b", GAIN), (4, "a", ProcessResumed())),
        ((1, "a", GAIN), (4, "b", GAIN)),
        ((1, "a", GAIN), (2, "a", BEGIN), (3, "a", LOSS), (4, "b", GAIN), (5, "a", LOST)),
        ((1, "a", GAIN), (2, "a", TOLD), (3, "b", GAIN), (4, "a", BEGIN)),
    ],
    ids=["too early", "goes on too late", "for ever", "works after its loss", "begins too late"],
)
def test_single_owner_when_two_hold_one_resource_is_broken(
    rows: tuple[tuple[int, str, Record], ...],
) -> None:
    (violation,) = check_single_owner(telemetry(*rows, (9, "z", START)))
    assert violation.message in {"T-0 is with a and b", "T-0 is with b and a"}


def test_pairs_when_each_comes_in_its_turn_are_kept(subtests: pytest.Subtests) -> None:
    for number, records in enumerate(
        [
            (GAIN, BEGIN, TOLD, STOP, GAIN, BEGIN),
            (GAIN, TOLD, STOP),
            (GAIN, BEGIN, TOLD, LATE),
            (GAIN, BEGIN, LATE, ProcessEnded(cause=EndCause.CLOSED)),
            (GAIN, BEGIN, LOSS, LOST, GAIN),
            (GAIN, BEGIN, LATE, DEAD),
            (GAIN, BEGIN, LATE, LEAVES, GAIN, BEGIN),
            (GAIN, BEGIN, ProcessPaused(), LOST, ProcessEnded(cause=EndCause.CLOSED)),
            (GAIN, BEGIN, ProcessPaused(), LOST, LOSS, ProcessResumed(), GAIN, BEGIN),
            (GAIN, BEGIN, ProcessPaused(), ProcessResumed(), LOSS, LOST),
            (GAIN, BEGIN, ProcessPaused(), ProcessResumed(), SLOW, LEAVES, GAIN),
            (GAIN, LOSS, GAIN),
            (GAIN, TOLD, GAIN, BEGIN),
            (GAIN, YIELDS, GAIN, BEGIN),
            (GAIN, LEAVES, GAIN),
            (GAIN, BEGIN, TOLD, CHANGED, GAIN, BEGIN),
            (GAIN, BEGIN, ResourcesStopped(resources=T0, reason=StopReason.CLOSED)),
        ]
    ):
        with subtests.test(str(number), records=records):
            rows = [(at_ms, "a", record) for at_ms, record in enumerate((START, *records))]
            assert list(check_pairs(telemetry(*rows), stop_max_ms=10)) == []


def test_pairs_when_something_is_out_of_turn_are_broken(subtests: pytest.Subtests) -> None:
    for records, words in [
        ((GAIN, GAIN), "is given what it holds"),
        ((GAIN, BEGIN, LOSS, GAIN), "is given what it holds"),
        ((GAIN, BEGIN, TOLD, GAIN), "is given what it holds"),
        ((GAIN, BEGIN, LEAVES, GAIN), "is given what it holds"),
        ((GAIN, LOSS, BEGIN), "works on what it does not hold"),
        ((GAIN, LOSS, LOST), "stops what it does not hold"),
        ((BEGIN,), "works on what it does not hold"),
        ((GAIN, BEGIN, BEGIN), "begins twice"),
        ((STOP,), "stops what it does not hold"),
        ((GAIN, BEGIN, STOP), "was not told to"),
        ((GAIN, BEGIN, ProcessPaused(), STOP), "was not told to"),
        ((ProcessPaused(), ProcessResumed(), GAIN, BEGIN, LOST), "has not lost"),
        ((GAIN, BEGIN, ProcessPaused(), ProcessResumed(), LOST), "has not lost"),
        ((GAIN, BEGIN, ProcessPaused(), LOST, GAIN, BEGIN), "goes on without"),
        ((GAIN, BEGIN, ProcessPaused(), ProcessResumed(), SLOW, GAIN, BEGIN), "goes on without"),
        ((GAIN, BEGIN, ProcessPaused(), LOST, GAIN, TOLD, STOP), "goes on without"),
        ((GAIN, BEGIN, LATE, GAIN, BEGIN), "goes on without"),
        ((GAIN, BEGIN, LOST), "has not lost"),
        ((GAIN, BEGIN, TOLD, LOST), "has not lost"),
        ((GAIN, TOLD, STOP, STOP), "stops what it does not hold"),
    ]:
        with subtests.test(words, records=records):
            rows = [(at_ms, "a", record) for at_ms, record in enumerate((START, *records))]
            assert words in next(iter(check_pairs(telemetry(*rows), stop_max_ms=10))).message


def test_pairs_when_a_member_that_did_not_stop_in_time_goes_on_are_broken() -> None:
    """It was not told to stop, so it can only be closing."""
    rows: list[tuple[int, str, Record]] = [
        (0, "a", START),
        (1, "a", GAIN),
        (2, "a", BEGIN),
        (12, "a", LATE),
    ]
    assert list(check_pairs(telemetry(*rows, (22, "z", START)), stop_max_ms=10)) == []
    (violation,) = check_pairs(telemetry(*rows, (23, "z", START)), stop_max_ms=10)
    assert violation.message == "a goes on without {'T': [0]}, which it has not lost"
