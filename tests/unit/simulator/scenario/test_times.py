"""Begin and end times of the parts of a scenario."""

import pytest
from attrs import evolve

from coopgroup.simulator.scenario import (
    AddPartitions,
    Capacity,
    Close,
    CoordinatorLost,
    CoordinatorMoved,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Event,
    Flap,
    MemberSet,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Topic,
)
from coopgroup.simulator.scenario.times import (
    event_end_ms,
    first_event_ms,
    last_event_ms,
    lifetimes,
    processes_of,
)

LATER = Topic(name="later", partitions=1, rate_per_s=(0.0,))
SCENARIO = Scenario(
    duration_ms=90_000,
    settle_ms=10_000,
    topics=(Topic(name="t", partitions=2, rate_per_s=(0.0, 0.0)),),
    members=(
        MemberSet(name="w", count=5, topics=("t",), start_every_ms=10),
        MemberSet(name="solo", topics=("t",)),
    ),
)
SCALED = evolve(SCENARIO, events=(Scale(at_ms=500, members="w", to=2, every_ms=7),))


ENDS: list[tuple[Event, int]] = [
    (Crash(at_ms=1000, member="solo"), 1000),
    (Crash(at_ms=1000, member="solo", back_after_ms=20), 1020),
    (Close(at_ms=1000, member="solo", back_after_ms=20), 1020),
    (Pause(at_ms=1000, member="solo", for_ms=20), 1020),
    (Cut(at_ms=1000, members=("solo",), for_ms=20), 1020),
    (CoordinatorLost(at_ms=1000, for_ms=20), 1020),
    (CoordinatorMoved(at_ms=1000), 1000),
    (Flap(at_ms=1000, member="solo", up_ms=10, down_ms=3, times=3), 1029),
    (AddPartitions(at_ms=1000, topic="t", rate_per_s=(0.0,)), 1000),
    (CreateTopic(at_ms=1000, topic=LATER), 1000),
    (DeleteTopic(at_ms=1000, topic="t"), 1000),
    (Rate(at_ms=1000, topic="t", rate_per_s=1.0), 1000),
    (Capacity(at_ms=1000, members=("w",), capacity_per_s=1.0), 1000),
    (RollingRestart(at_ms=1000, members=("w",), down_ms=3, every_ms=50, batch=2), 1103),
    (RollingRestart(at_ms=1000, members=("w", "w-1"), down_ms=3, every_ms=50), 1203),
    (Scale(at_ms=1000, members="w", to=8, every_ms=50), 1100),
    (Scale(at_ms=1000, members="w", to=5, every_ms=50), 1000),
]


def test_an_event_ends_with_the_last_thing_that_it_does(subtests: pytest.Subtests) -> None:
    for event, end_ms in ENDS:
        with subtests.test(event=event, end_ms=end_ms):
            assert event_end_ms(SCENARIO, event) == end_ms
            assert last_event_ms(evolve(SCENARIO, events=(event,))) == end_ms


def test_a_set_stands_for_the_processes_that_it_has_at_that_moment() -> None:
    assert len(processes_of(SCALED, ("w", "solo"), 500)) == 6
    assert processes_of(SCALED, ("w", "solo", "w-1"), 501) == ("w-1", "w-2", "solo")
    assert event_end_ms(SCALED, SCALED.events[0]) == 514
    restart = RollingRestart(at_ms=600, members=("w",), down_ms=3, every_ms=50)
    assert event_end_ms(SCALED, restart) == 653


def test_starts_are_events_where_a_set_starts_late() -> None:
    """The first deployment is not an event, but may be the last thing that happens."""
    assert (first_event_ms(SCENARIO), last_event_ms(SCENARIO)) == (None, 40)
    assert first_event_ms(SCALED) == 500
    late = MemberSet(name="late", count=3, topics=("t",), start_ms=300, start_every_ms=200)
    joined = evolve(SCALED, members=(*SCENARIO.members, late))
    assert (first_event_ms(joined), last_event_ms(joined)) == (300, 700)


def test_resources_live_from_creation_to_deletion() -> None:
    events = (
        AddPartitions(at_ms=100, topic="t", rate_per_s=(0.0,)),
        CreateTopic(at_ms=200, topic=LATER),
        DeleteTopic(at_ms=300, topic="t"),
        AddPartitions(at_ms=400, topic="later", rate_per_s=(0.0, 0.0)),
    )
    lives = lifetimes(evolve(SCENARIO, events=events))
    assert lives.resources.to_dict() == {"later": [0, 1, 2], "t": [0, 1, 2]}
    assert lives.begin_ms.tolist() == [200, 400, 400, 0, 0, 100]
    assert lives.end_ms.tolist() == [100_000] * 3 + [300] * 3
    assert lives.gaps.resource.size == 0


def test_resources_that_are_made_again_have_gaps() -> None:
    """The third of them is in two of three lives, with another life between."""
    two, three = (
        evolve(LATER, name="t", partitions=count, rate_per_s=(0.0,) * count) for count in (2, 3)
    )
    events = (
        AddPartitions(at_ms=100, topic="t", rate_per_s=(0.0,)),
        DeleteTopic(at_ms=200, topic="t"),
        CreateTopic(at_ms=300, topic=two),
        DeleteTopic(at_ms=400, topic="t"),
        CreateTopic(at_ms=500, topic=three),
        DeleteTopic(at_ms=600, topic="t"),
    )
    lives = lifetimes(evolve(SCENARIO, events=events))
    assert lives.resources.to_dict() == {"t": [0, 1, 2]}
    assert lives.begin_ms.tolist() == [0, 0, 100]
    assert lives.end_ms.tolist() == [600] * 3
    columns = (lives.gaps.resource, lives.gaps.start_ms, lives.gaps.end_ms)
    gaps = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert gaps == [(0, 200, 300), (0, 400, 500), (1, 200, 300), (1, 400, 500), (2, 200, 500)]
