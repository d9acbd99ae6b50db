"""Begin and end of processes, resources and events, derived from the scenario alone."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from attrs import field, frozen

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.core.model.resource_set import Int64Array
from coopgroup.core.telemetry.ledger import Spans
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
    HandOver,
    MemberSet,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Weight,
)


@frozen(kw_only=True, eq=False)
class Lifetimes:
    """The R resources that exist at some time in a scenario; times are int64 (R,).

    Attributes:
        begin_ms: begin of the first life.
        end_ms: end of the last life.
        gaps: times between the lives of resources that are made again, without owners.
    """

    resources: ResourceSet
    begin_ms: Int64Array
    end_ms: Int64Array
    gaps: Spans = field(factory=lambda: Spans.of(()))


# --- topics -------------------------------------------------------------------------------------


def partition_counts(scenario: Scenario) -> dict[str, int]:
    """Return the highest partition count of every topic, including deleted topics."""
    counts = {topic.name: topic.partitions for topic in scenario.topics}
    highest = dict(counts)
    for event in sorted(scenario.events, key=lambda event: event.at_ms):
        if isinstance(event, CreateTopic):
            name, count = event.topic.name, event.topic.partitions
        elif isinstance(event, AddPartitions):
            name = event.topic
            count = counts.get(name, 0) + len(event.rate_per_s)
        else:
            continue
        counts[name] = count
        highest[name] = max(count, highest.get(name, 0))
    return highest


def lifetimes(scenario: Scenario) -> Lifetimes:
    """Return the times of existence of each resource; the events are in order."""
    first = scenario.shares.index_min
    resources = ResourceSet(
        {name: range(first, count) for name, count in partition_counts(scenario).items()}
    )
    begin_ms = np.zeros(len(resources), dtype=np.int64)
    end_ms = np.full(len(resources), scenario.end_ms, dtype=np.int64)
    is_born = np.zeros(len(resources), dtype=bool)
    gaps: list[tuple[int, int, int, int]] = []
    starts = dict(zip(resources.names, resources.starts.tolist(), strict=False))
    counts = {topic.name: topic.partitions - first for topic in scenario.topics}
    for name, count in counts.items():
        is_born[starts[name] : starts[name] + count] = True
    for event in scenario.events:
        if isinstance(event, CreateTopic):
            name, had, added = event.topic.name, 0, event.topic.partitions - first
        elif isinstance(event, AddPartitions):
            name, had, added = event.topic, counts[event.topic], len(event.rate_per_s)
        elif isinstance(event, DeleteTopic):
            low = starts[event.topic]
            end_ms[low : low + counts[event.topic]] = event.at_ms
            continue
        else:
            continue
        for number in range(starts[name] + had, starts[name] + had + added):
            if is_born[number]:
                gaps.append((number, NOBODY, int(end_ms[number]), event.at_ms))
            else:
                begin_ms[number], is_born[number] = event.at_ms, True
            end_ms[number] = scenario.end_ms
        counts[name] = had + added
    return Lifetimes(
        resources=resources, begin_ms=begin_ms, end_ms=end_ms, gaps=Spans.of(gaps).tidy()
    )


# --- processes ----------------------------------------------------------------------------------


def deployed_count(scenario: Scenario, member_set: MemberSet, at_ms: int) -> int:
    """Return the number of processes of a set just before a moment, including stopped processes."""
    count = 1 if member_set.count is None else member_set.count
    scales = [
        event
        for event in scenario.events
        if isinstance(event, Scale) and event.members == member_set.name and event.at_ms < at_ms
    ]
    for event in sorted(scales, key=lambda event: event.at_ms):
        count = event.to
    return count


def processes_of(scenario: Scenario, names: tuple[str, ...], at_ms: int) -> tuple[str, ...]:
    """Return the processes that the names of sets and processes mean just before a moment."""
    sets = {member_set.name: member_set for member_set in scenario.members}
    found: list[str] = []
    for name in names:
        member_set = sets.get(name)
        if member_set is None or member_set.count is None:
            found.append(name)
        else:
            count = deployed_count(scenario, member_set, at_ms)
            found += [member_set.process(number) for number in range(1, count + 1)]
    return tuple(dict.fromkeys(found))


# --- events -------------------------------------------------------------------------------------


def event_end_ms(scenario: Scenario, event: Event) -> int:  # noqa: PLR0911 - one return a kind
    """Return the end of an event's last effect, for example the return of the last process."""
    match event:
        case Crash() | Close() | HandOver():
            return event.at_ms + (event.back_after_ms or 0)
        case Pause() | Cut() | CoordinatorLost():
            return event.at_ms + event.for_ms
        case RollingRestart():
            count = len(processes_of(scenario, event.members, event.at_ms))
            batches = -(-count // event.batch)
            return event.at_ms + max(0, batches - 1) * event.every_ms + event.down_ms
        case Scale():
            members = next(one for one in scenario.members if one.name == event.members)
            steps = abs(event.to - deployed_count(scenario, members, event.at_ms))
            return event.at_ms + max(0, steps - 1) * event.every_ms
        case Flap():
            return event.at_ms + event.times * event.down_ms + (event.times - 1) * event.up_ms
        case CoordinatorMoved() | AddPartitions() | CreateTopic() | DeleteTopic():
            return event.at_ms
        case Rate() | Weight() | Capacity():
            return event.at_ms
        case _:
            assert_never(event)


def first_event_ms(scenario: Scenario) -> int | None:
    """Return the time of the first change to the initial deployment; None for no change.

    If the first process of a set starts later than at 0, the set is not part of the initial
    deployment. Its start then counts as an event.
    """
    late = [member_set.start_ms for member_set in scenario.members if member_set.start_ms > 0]
    return min((*late, *(event.at_ms for event in scenario.events)), default=None)


def last_event_ms(scenario: Scenario) -> int:
    """Return the end of the last event or, without events, the last start."""
    starts = [
        member_set.start_ms + (len(member_set.processes) - 1) * member_set.start_every_ms
        for member_set in scenario.members
        if member_set.processes
    ]
    ends = [event_end_ms(scenario, event) for event in scenario.events]
    return max((*starts, *ends), default=0)
