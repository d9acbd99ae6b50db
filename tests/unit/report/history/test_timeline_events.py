"""Events of faults and of processes that start or end."""

from coopgroup.core.model import ResourceSet
from coopgroup.report.history.rounds import round_rows
from coopgroup.report.history.timeline_events import (
    HOVER_ONLY,
    TimelineEvent,
    TimelineEventKind,
    clustered,
    lanes,
    timeline_events,
)
from coopgroup.telemetry import (
    EndCause,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ResourcesStopped,
    StopReason,
)
from tests.unit.report.histories import Story

ONE = ResourceSet({"orders": [1]})


def told(story: Story) -> list[tuple[int, str, str]]:
    """Return time, kind and label of each event."""
    events = timeline_events(story.envelopes, round_rows(story.envelopes, {}))
    return [(event.at_ms, event.kind.value, event.label) for event in events]


def test_simulated_processes_are_marked_as_their_host_tells() -> None:
    """A crash or a pause is a fault. A close is not. An injected fault has its own event."""
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


def event(
    at_ms: int, label: str, kind: TimelineEventKind = TimelineEventKind.FAULT
) -> TimelineEvent:
    return TimelineEvent(at_ms=at_ms, kind=kind, label=label, story=label)


def test_marks_that_are_too_near_become_one() -> None:
    events = [
        event(0, "a"),
        event(1, "p", TimelineEventKind.ENDED),
        event(4, "b"),
        event(5, "b"),
        event(9, "c"),
    ]
    joined = clustered(events, 5)
    assert [(one.at_ms, one.label, one.story) for one in joined] == [
        (0, "a + 1", "a; b"),
        (1, "p", "p"),
        (9, "c", "c"),
    ]
    many = clustered([event(0, f"m{number}") for number in range(9)], 5)
    assert [(one.label, one.story) for one in many] == [
        ("m0 + 8", "m0; m1; m2; m3; m4; m5; and 3 more")
    ]


def test_lanes_keep_labels_apart() -> None:
    assert lanes([(0, 10), (5, 8), (6, 9), (8, 12), (10, 11)], 2) == (0, 1, HOVER_ONLY, 1, 0)
    assert lanes([], 2) == ()
