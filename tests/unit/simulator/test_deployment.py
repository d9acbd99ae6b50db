"""Played scenarios: every kind of event, checked by its records."""

from collections.abc import Iterator

import attrs
import pytest

from coopgroup.assignors import GroupSnapshot, Int32Array, Int64Array, StickyAssignor
from coopgroup.simulator import Run, Scenario, simulate
from coopgroup.simulator.scenario import (
    LEADER,
    AddPartitions,
    Capacity,
    CoordinatorLost,
    CoordinatorMoved,
    Cost,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Event,
    Flap,
    Group,
    HandOver,
    How,
    MemberSet,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Span,
    Topic,
)
from coopgroup.telemetry import (
    EndCause,
    FaultInjected,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStopped,
    StopReason,
)
from tests.support.reports import reports

SCENARIO = Scenario(
    duration_ms=30_000,
    settle_ms=20_000,
    group=Group(
        session_timeout_ms=2_000,
        rebalance_timeout_ms=4_000,
        heartbeat_interval_ms=500,
        commit_interval_ms=1_000,
    ),
    topics=(Topic(name="T", partitions=4, rate_per_s=(10.0,) * 4),),
    members=(MemberSet(name="w", count=3, topics=("T", "U"), capacity_per_s=100.0),),
)


ROLLING = RollingRestart(
    at_ms=4_000, members=("w",), down_ms=1_000, every_ms=6_000, batch=2, how=How.CRASH
)


def played(*events: Event) -> Run:
    run = simulate(attrs.evolve(SCENARIO, events=events))
    assert run.violations == ()
    return run


def lives(run: Run) -> Iterator[str]:
    for one in run.telemetry:
        match one.record:
            case ProcessStarted() if one.at_ms:
                yield f"{one.at_ms} {one.client} starts"
            case ProcessEnded():
                yield f"{one.at_ms} {one.client} {one.record.cause}"
            case ProcessPaused():
                yield f"{one.at_ms} {one.client} pauses"
            case ProcessResumed():
                yield f"{one.at_ms} {one.client} resumes"
            case _:
                pass


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            (Crash(at_ms=5_000, member="w-2", back_after_ms=3_000),),
            ["5000 w-2 crashed", "8000 w-2 starts"],
        ),
        (
            (ROLLING,),
            [
                *("4000 w-1 crashed", "4000 w-2 crashed", "5000 w-1 starts", "5000 w-2 starts"),
                *("10000 w-3 crashed", "11000 w-3 starts"),
            ],
        ),
        (
            (
                Scale(at_ms=4_000, members="w", to=5, every_ms=500),
                Crash(at_ms=12_000, member="w-5", back_after_ms=5_000),
                Scale(at_ms=14_000, members="w", to=3, how=How.CRASH),
            ),
            ["4000 w-4 starts", "4500 w-5 starts", "12000 w-5 crashed", "14000 w-4 crashed"],
        ),
        (
            (Flap(at_ms=4_000, member="w-1", up_ms=3_000, down_ms=1_000, times=2),),
            [
                *("4000 w-1 crashed", "5000 w-1 starts"),
                *("8000 w-1 crashed", "9000 w-1 starts"),
            ],
        ),
        (  # events that strike no process are passed over
            (
                Crash(at_ms=5_000, member="w-1", back_after_ms=10_000),
                Crash(at_ms=6_000, member="w-1"),
                Pause(at_ms=7_000, member="w-1", for_ms=100),
            ),
            ["5000 w-1 crashed", "15000 w-1 starts"],
        ),
        (
            (Pause(at_ms=7_000, member="w-1", for_ms=100),),
            ["7000 w-1 pauses", "7100 w-1 resumes"],
        ),
    ],
    ids=["crash", "rolling restart", "scale up and down", "flap", "no process", "pause"],
)
def test_processes_start_and_end(events: tuple[Event, ...], expected: list[str]) -> None:
    assert list(lives(played(*events))) == expected


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Cut(at_ms=9_000, members=("w-1",), for_ms=800), "w-1 is cut off for 800 ms"),
        (
            CoordinatorLost(at_ms=9_000, for_ms=900),
            "broker 1 dies, broker 2 has the group in 900 ms",
        ),
        (CoordinatorMoved(at_ms=9_000), "group coordinator moves from broker 1 to broker 2"),
        (AddPartitions(at_ms=9_000, topic="T", rate_per_s=(1.0, 2.0)), "topic T has 6 partitions"),
        (
            CreateTopic(at_ms=9_000, topic=Topic(name="U", partitions=2, rate_per_s=(1.0, 1.0))),
            "topic U has 2 partitions",
        ),
        (DeleteTopic(at_ms=9_000, topic="T"), "topic T has 0 partitions"),
        (Rate(at_ms=9_000, topic="T", rate_per_s=0.5), "topic T gets 0.5 records/s"),
        (Capacity(at_ms=9_000, members=("w",), capacity_per_s=20.0), "w works off 20 records/s"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_surroundings_change(event: Event, words: str) -> None:
    ((one, fault),) = reports(played(event).telemetry, FaultInjected)
    assert (one.at_ms, fault.description) == (9_000, words)


def test_rate_and_capacity_show_in_the_lag() -> None:
    run = played(
        Rate(at_ms=5_000, topic="T", partitions=(0,), rate_per_s=500.0),
        Rate(at_ms=15_000, topic="T", rate_per_s=0.0),
        Capacity(at_ms=20_000, members=("w",), capacity_per_s=10_000.0),
    )
    assert run.measures.lag_peak > 2_000
    assert run.measures.lag_final == 0


class Noting(StickyAssignor):
    """Note the traits of the members of each round."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "told", [])

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        told = [(one.member_id.split("-", 1)[0], dict(one.traits)) for one in group.members]
        self.told.append(sorted(told, key=str))  # type: ignore[attr-defined]
        return super().assign(group, lags)


def test_member_data_reaches_the_assignor_also_after_a_restart() -> None:
    big = attrs.evolve(SCENARIO.members[0], name="big", count=None, traits={"places": 4})
    small = attrs.evolve(big, name="small", traits={})
    crash = Crash(at_ms=5_000, member="big", back_after_ms=3_000)
    scenario = attrs.evolve(SCENARIO, members=(big, small), events=(crash,))
    noting = Noting()
    assert simulate(scenario, assignor=noting).violations == ()
    both = [("big", {"places": 4}), ("small", {})]
    told = noting.told  # type: ignore[attr-defined]
    assert told[-1] == both
    assert [("small", {})] in told[told.index(both) :]


HANDS_OVER = attrs.evolve(
    SCENARIO, costs=(Cost(stop_ms=Span(200, 200), restore_ms=Span(300, 300)),)
)


@pytest.mark.parametrize(
    "event",
    [
        HandOver(at_ms=10_000, member="w-3", back_after_ms=5_000),
        HandOver(at_ms=10_000, member=LEADER),
        Scale(at_ms=10_000, members="w", to=2, how=How.HAND_OVER),
        RollingRestart(
            at_ms=10_000, members=("w",), down_ms=500, every_ms=4_000, how=How.HAND_OVER
        ),
    ],
    ids=["alone", "leader", "scale", "rolling restart"],
)
def test_process_that_hands_over_ends_without_resources(event: Event) -> None:
    """The other members have all its resources before it closes, also under a waiting policy."""
    run = simulate(attrs.evolve(HANDS_OVER, events=(event,)), policy="deferred")
    assert run.violations == ()
    ended = [one for one in run.telemetry if isinstance(one.record, ProcessEnded)]
    assert len(ended) == (3 if isinstance(event, RollingRestart) else 1)
    for one in ended:
        assert one.record == ProcessEnded(cause=EndCause.CLOSED)
        stops = [
            each.record.reason
            for each in run.telemetry
            if isinstance(each.record, ResourcesStopped) and each.client == one.client
        ]
        assert stops
        assert set(stops) == {StopReason.REVOKED}
    assert run.measures.unavailable_peak < 4


def test_last_process_hands_over_to_nobody() -> None:
    alone = attrs.evolve(SCENARIO.members[0], count=1)
    back = HandOver(at_ms=10_000, member="w-1", back_after_ms=5_000)
    run = simulate(attrs.evolve(HANDS_OVER, members=(alone,), events=(back,)))
    assert run.violations == ()
    assert [line.split()[2] for line in lives(run)] == ["closed", "starts"]
