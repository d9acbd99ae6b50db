"""Marks of faults and of processes that start or end."""

import numpy as np

from coopgroup.model import ResourceSet
from coopgroup.report.marks import HOVER_ONLY, Mark, MarkKind, clustered, known_ms, lanes, marks_of
from coopgroup.report.rounds import round_rows
from coopgroup.telemetry import (
    EndCause,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ResourcesStopped,
    RoundRefused,
    StopReason,
)
from tests.unit.report.histories import Story

ONE = ResourceSet({"orders": [1]})


def told(story: Story) -> list[tuple[int, str, str]]:
    """Return time, kind and label of each mark."""
    marks = marks_of(story.envelopes, round_rows(story.envelopes, {}))
    return [(mark.at_ms, mark.kind.value, mark.label) for mark in marks]


def test_simulated_processes_are_marked_as_their_host_tells() -> None:
    """A crash or a pause is a fault. A close is not. An injected fault has its own mark."""
    story = Story()
    story.start(0, "a")
    story.write(1, "a", ProcessEnded(cause=EndCause.CRASHED))
    story.write(2, "b", ProcessPaused())
    story.write(3, "b", ProcessResumed())
    story.write(4, "b", ProcessEnded(cause=EndCause.CLOSED))
    story.crash(5, "c")
    assert told(story) == [
        (0, "started", "a started"),
        (1, "ended", "a crashed"),
        (1, "fault", "a crashed"),
        (2, "ended", "b paused"),
        (2, "fault", "b paused"),
        (3, "started", "b resumed"),
        (4, "ended", "b closed"),
        (5, "fault", "c is killed"),
        (5, "ended", "c crashed"),
    ]


def test_lost_membership_is_the_fault_where_no_host_tells_of_processes() -> None:
    """Real consumers record only the lost membership; a simulator records the cause."""
    lost = MembershipLost(resources=ONE, cause="lease expired")
    closed = ResourcesStopped(resources=ONE, reason=StopReason.CLOSED)
    real, simulated = Story(), Story()
    simulated.start(0, "a")
    for story in (real, simulated):
        story.write(1, "a", lost)
        story.write(2, "a", closed)
    assert told(real) == [(1, "fault", "a: lease expired"), (2, "ended", "a closed")]
    assert told(simulated) == [(0, "started", "a started")]


def test_refused_round_is_a_fault() -> None:
    """A refused round is a bug."""
    story = Story()
    story.generation = 7
    story.write(3, "a", RoundRefused(violations=("x",)))
    assert told(story) == [(3, "fault", "round 7 refused")]


def test_known_ms_is_when_a_leader_first_spoke_of_a_resource() -> None:
    story = Story()
    story.lead(5, ["a"], granted=ResourceSet({"orders": [0]}))
    story.lead(9, ["a"], lost=ResourceSet({"orders": [0, 1]}), granted=ResourceSet({"x": [0]}))
    known = known_ms(story.envelopes, ResourceSet({"orders": [0, 1, 2]}), 100)
    assert np.array_equal(known, [5, 9, 100])


def mark(at_ms: int, label: str, kind: MarkKind = MarkKind.FAULT) -> Mark:
    return Mark(at_ms=at_ms, kind=kind, label=label, story=label)


def test_marks_that_are_too_near_become_one() -> None:
    marks = [mark(0, "a"), mark(1, "p", MarkKind.ENDED), mark(4, "b"), mark(5, "b"), mark(9, "c")]
    joined = clustered(marks, 5)
    assert [(one.at_ms, one.label, one.story) for one in joined] == [
        (0, "a + 1", "a; b"),
        (1, "p", "p"),
        (9, "c", "c"),
    ]
    many = clustered([mark(0, f"m{number}") for number in range(9)], 5)
    assert [(one.label, one.story) for one in many] == [
        ("m0 + 8", "m0; m1; m2; m3; m4; m5; and 3 more")
    ]


def test_lanes_keep_labels_apart() -> None:
    """Without a free lane the label appears only under the pointer."""
    assert lanes([(0, 10), (5, 8), (6, 9), (8, 12), (10, 11)], 2) == (0, 1, HOVER_ONLY, 1, 0)
    assert lanes([], 2) == ()
