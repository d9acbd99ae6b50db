"""The costs of a run, computed from telemetry made by hand."""

import re

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.core.telemetry.records import (
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    WarmupsChanged,
)
from coopgroup.simulator.measures import Measures, find_outages, measure
from coopgroup.simulator.scenario import Crash, CreateTopic, DeleteTopic, MemberSet, Scenario, Topic
from coopgroup.simulator.scenario.times import Lifetimes
from coopgroup.telemetry import Envelope, Record, StopReason
from tests.support.ledgers import Interval, ledger_of

SCENARIO = Scenario(
    duration_ms=900,
    settle_ms=100,
    topics=(Topic(name="t", partitions=2, rate_per_s=(0.0, 0.0)),),
    members=(MemberSet(name="m", count=2, topics=("t",)),),
    events=(Crash(at_ms=100, member="m-1", back_after_ms=100),),
)


PARTITIONS = ResourceSet({"t": [0, 1]})
NO_LAG = LagHistory(
    times_ms=np.zeros(0, np.int64), lags=np.zeros((0, 2), np.int64), resources=PARTITIONS
)


def wrote(at_ms: int, client: str, record: Record) -> Envelope:
    """Return a record of a process."""
    return Envelope(at_ms=at_ms, group="g", member=client, generation=1, record=record)


def history(steps: str) -> list[Envelope]:
    """Return known processes with their steps: ms, client, "+" or "-", indices of topic t."""
    moves = re.findall(r"(\d+) (\w)([+-])(\d+)", steps)
    clients = sorted({client for _, client, _, _ in moves})
    envelopes = [wrote(0, client, ProcessStarted()) for client in clients]
    for at_ms, client, sign, indices in moves:
        resources = ResourceSet({"t": map(int, indices)})
        record: Record = ResourcesStarted(resources=resources)
        if sign == "-":
            record = ResourcesStopped(resources=resources, reason=StopReason.REVOKED)
        envelopes.append(wrote(int(at_ms), client, record))
    return envelopes


def measured(steps: str, scenario: Scenario = SCENARIO) -> Measures:
    """Return measures of a history without lag."""
    return measure(scenario, history(steps), NO_LAG)


def test_outages_are_summed_and_the_longest_is_named() -> None:
    found = measured("0 a+01, 100 a-01, 150 b+0, 160 b-0, 200 b+0, 180 c+1")
    assert found.unavailable_partition_s == pytest.approx((50 + 40 + 80) / 1000)
    assert (found.worst_outage_ms, found.worst_resource) == (80, Resource("t", 1))
    assert found.unavailable_peak == 2


def test_time_before_the_first_event_does_not_count() -> None:
    steps = "0 a+01, 40 a-1, 60 b+1, 100 a-0, 130 b+0"
    led = RoundDecided(policy="simple", assignor="sticky", members=("a",))
    envelopes = [*history(steps), wrote(50, "a", led), wrote(120, "b", led)]
    samples = LagHistory(
        times_ms=np.array([50, 100, 999]),
        lags=np.array([[90, 0], [30, 5], [1, 2]]),
        resources=PARTITIONS,
    )
    found = measure(SCENARIO, envelopes, samples)
    assert (found.unavailable_partition_s, found.moved, found.rounds) == (0.03, 1, 1)
    assert (found.lag_peak, found.lag_final) == (35, 3)


def test_warm_moves_are_told_from_cold_ones() -> None:
    """Partition 0 moves warm, and partition 1 is warm only after its move; 0 moves back cold."""
    envelopes = [
        *history("0 a+01, 200 a-01, 210 b+0, 250 b+1, 400 b-0, 410 a+0"),
        wrote(50, "b", WarmupsChanged(begun=PARTITIONS)),  # before the window
        wrote(110, "c", WarmupsChanged(begun=PARTITIONS)),
        wrote(
            120, "c", WarmupsChanged(begun=ResourceSet({"t": [2]}), warm=ResourceSet({"t": [2]}))
        ),
        wrote(150, "b", WarmupsChanged(warm=ResourceSet({"t": [0]}))),
        wrote(205, "b", WarmupsChanged(moved=PARTITIONS)),
    ]
    found = measure(SCENARIO, envelopes, NO_LAG)
    assert (found.moved, found.moved_cold, found.warmups) == (3, 2, 2)


def test_partition_comes_back_to_its_process_but_not_after_a_pause() -> None:
    """Partition 0 comes back at 200. Partition 1 moves away and back."""
    steps = history("0 a+01, 150 a-01, 200 a+0, 200 b+1, 300 b-1, 350 a+1")
    paused = [wrote(600, "a", ProcessPaused()), wrote(700, "a", ProcessResumed())]
    found = measure(SCENARIO, [*steps, *paused], NO_LAG)
    assert (found.returned, found.moved) == (1, 2)


def test_window_of_a_late_group_begins_when_everything_had_an_owner() -> None:
    found = measured("0 a+0, 300 a+1, 400 a-1")
    assert found.unavailable_partition_s == pytest.approx(0.6)
    nothing = evolve(SCENARIO, events=())
    found = measured("0 a+0, 300 a+1", scenario=nothing)
    assert found.unavailable_partition_s == 0


def test_a_group_that_never_gets_going_is_measured_from_the_first_event() -> None:
    """It would look perfect otherwise."""
    found = measured("0 a+0")
    assert (found.unavailable_partition_s, found.converge_ms) == (0.9, None)


def test_convergence_is_the_last_change_after_the_last_event() -> None:
    """The crash is over when the process is back, at 200."""
    found = measured("0 a+01, 100 a-0, 150 b+0, 250 a+0")
    assert found.converge_ms == 50
    assert measured("0 a+01, 150 a-0, 160 b+0").converge_ms == 0


def test_a_topic_is_unavailable_only_while_it_exists() -> None:
    topic = Topic(name="u", partitions=1, rate_per_s=(0.0,))
    events = (CreateTopic(at_ms=200, topic=topic), DeleteTopic(at_ms=500, topic="u"))
    found = measured("0 a+01", scenario=evolve(SCENARIO, events=events))
    assert (found.unavailable_partition_s, found.converge_ms) == (0.3, 0)
    assert found.worst_resource == Resource("u", 0)


# --- against a count of single moments ------------------------------------------------------------

UNTIL_MS = 12
INTERVALS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 2), st.integers(0, UNTIL_MS), st.integers(0, UNTIL_MS)
    ).filter(lambda one: one[2] < one[3]),
    max_size=12,
)
LIVES = st.lists(
    st.tuples(st.integers(0, UNTIL_MS), st.integers(0, UNTIL_MS)).filter(
        lambda one: one[0] < one[1]
    ),
    min_size=3,
    max_size=3,
)


@given(INTERVALS, LIVES, st.integers(0, UNTIL_MS))
def test_outages_when_cut_into_moments_are_what_nobody_works_on(
    intervals: list[Interval], lives: list[tuple[int, int]], begin_ms: int
) -> None:
    ledger = ledger_of(intervals, until_ms=UNTIL_MS)
    lifetimes = Lifetimes(
        resources=ledger.resources,
        begin_ms=np.array([begin for begin, _ in lives]),
        end_ms=np.array([end for _, end in lives]),
    )
    outages = find_outages(ledger, lifetimes, begin_ms, UNTIL_MS)
    cut = [
        (resource, ms)
        for resource, start, end in zip(
            outages.resource.tolist(),
            outages.start_ms.tolist(),
            outages.end_ms.tolist(),
            strict=True,
        )
        for ms in range(start, end)
    ]
    expected = {
        (resource, ms)
        for resource, (begin, end) in enumerate(lives)
        for ms in range(max(begin, begin_ms), end)
        if not any(one[0] == resource and one[2] <= ms < one[3] for one in intervals)
    }
    assert len(cut) == len(set(cut))
    assert set(cut) == expected
