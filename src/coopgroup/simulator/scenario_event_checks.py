"""Checks of events: the named processes and topics must exist, and the event must end in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from coopgroup.simulator.scenario import (
    LEADER,
    AddPartitions,
    Capacity,
    Close,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Flap,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Weight,
)
from coopgroup.simulator.scenario_problem import (
    PROCESSES_MAX,
    Path,
    Problem,
    at_least,
    capacity_problems,
    one_topic_problems,
    rate_problems,
    unknown_topic,
    weight_problems,
)
from coopgroup.simulator.scenario_times import event_end_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.simulator.scenario import Event, MemberSet, Scenario

__all__ = ["Names", "event_problems"]


@frozen(kw_only=True)
class Names:
    """Names that events may use.

    Attributes:
        sets: names of the sets with a count.
        processes: names of all processes during the scenario.
    """

    sets: tuple[str, ...]
    processes: frozenset[str]

    @staticmethod
    def of(scenario: Scenario) -> Names:
        """Return the names of a scenario."""
        return Names(
            sets=tuple(one.name for one in scenario.members if one.count is not None),
            processes=frozenset(
                name for one in scenario.members for name in Names.of_set(scenario, one)
            ),
        )

    @staticmethod
    def of_set(scenario: Scenario, one: MemberSet) -> tuple[str, ...]:
        """Return the names of all processes that a set has during the scenario."""
        if one.count is None:
            return (one.name,)
        scaled = (
            event.to
            for event in scenario.events
            if isinstance(event, Scale) and event.members == one.name
        )
        most = min(max((one.count, *scaled)), PROCESSES_MAX + 1)
        return tuple(one.process(number) for number in range(1, most + 1))


def event_problems(
    scenario: Scenario, number: int, event: Event, names: Names
) -> Iterator[Problem]:
    """Yield all problems of one event.

    Args:
        scenario: with the event.
        number: its index in the list of events.
        event: the event.
        names: of all processes and sets.
    """
    path = ("events", number)
    yield from at_least((*path, "at_ms"), event.at_ms, 0)
    found = [
        *_event_number_problems(path, event),
        *_event_member_problems(path, event, names),
        *_event_topic_problems(scenario, path, event, number),
    ]
    yield from found
    if found:  # the end is unknown if parts are wrong
        return
    if event.at_ms >= scenario.duration_ms:
        yield Problem(
            path=(*path, "at_ms"),
            value=event.at_ms,
            expected=f"a time before duration_ms ({scenario.duration_ms})",
        )
    elif (ends_ms := event_end_ms(scenario, event)) > scenario.duration_ms:
        yield Problem(
            path=(*path, "at_ms"),
            value=event.at_ms,
            expected=(
                f"an end by duration_ms ({scenario.duration_ms}), this event ends at {ends_ms}"
            ),
        )


def _event_number_problems(path: Path, event: Event) -> Iterator[Problem]:
    lows = {
        "back_after_ms": 0,
        "for_ms": 1,
        "down_ms": 0,
        "up_ms": 1,
        "every_ms": 0,
        "batch": 1,
        "times": 1,
        "to": 0,
    }
    for key, low in lows.items():
        value = getattr(event, key, None)
        if value is not None:
            yield from at_least((*path, key), value, low)
    if isinstance(event, Scale) and event.to > PROCESSES_MAX:
        yield Problem(path=(*path, "to"), value=event.to, expected=f"at most {PROCESSES_MAX}")
    if isinstance(event, Capacity):
        yield from capacity_problems((*path, "capacity_per_s"), event.capacity_per_s)
    if isinstance(event, Rate):
        yield from rate_problems((*path, "rate_per_s"), (event.rate_per_s,))
    if isinstance(event, AddPartitions):
        yield from at_least((*path, "count"), len(event.rate_per_s), 1)
        yield from rate_problems((*path, "rate_per_s"), event.rate_per_s)
        yield from weight_problems((*path, "weight"), event.weights)
    if isinstance(event, Weight):
        yield from weight_problems((*path, "weight"), (event.weight,))


def _event_member_problems(path: Path, event: Event, names: Names) -> Iterator[Problem]:
    match event:
        case Crash() | Close() | Pause() | Flap():
            known = {*names.processes, LEADER}
            if event.member not in known:
                yield _unknown_member((*path, "member"), event.member, known)
        case Scale():
            if event.members not in names.sets:
                yield _unknown_member((*path, "members"), event.members, set(names.sets))
        case RollingRestart() | Capacity() | Cut():
            known = {*names.processes, *names.sets}
            if isinstance(event, Cut):
                known.add(LEADER)
            if not event.members:
                yield Problem(path=(*path, "members"), value=[], expected="at least one name")
            for name in event.members:
                if name not in known:
                    yield _unknown_member((*path, "members"), name, known)
        case _:
            return


def _unknown_member(path: Path, name: str, known: set[str]) -> Problem:
    shown = sorted(known)
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    expected = f"one of {', '.join(shown[:8])}{more}" if shown else "a set of members with a count"
    return Problem(path=path, value=name, expected=expected)


def _event_topic_problems(
    scenario: Scenario, path: Path, event: Event, number: int
) -> Iterator[Problem]:
    key = scenario.shares.key
    match event:
        case CreateTopic():
            yield from one_topic_problems(path, event.topic)
            if event.topic.name in _topics_at(scenario, event, number, ever=True):
                yield Problem(
                    path=(*path, key), value=event.topic.name, expected="a name never used"
                )
        case AddPartitions() | DeleteTopic() | Rate() | Weight():
            topics = _topics_at(scenario, event, number, ever=False)
            if event.topic not in topics:
                yield unknown_topic((*path, key), event.topic, topics, scenario.shares)
            elif isinstance(event, Rate):
                yield from _part_problems((*path, "partitions"), event, topics[event.topic])
            elif isinstance(event, Weight):
                yield from _part_problems((*path, "indices"), event, topics[event.topic])
        case _:
            return


def _part_problems(path: Path, event: Rate | Weight, count: int) -> Iterator[Problem]:
    for index in event.partitions or ():
        if not 0 <= index < count:
            expected = f"{path[-1]} from 0 to {count - 1}"
            yield Problem(path=path, value=index, expected=expected)


def _topics_at(scenario: Scenario, event: Event, number: int, *, ever: bool) -> dict[str, int]:
    """Return the partition count of each topic at an event; with `ever`, also of deleted topics."""
    counts = {topic.name: topic.partitions for topic in scenario.topics}
    earlier = [
        other
        for place, other in enumerate(scenario.events)
        if (other.at_ms, place) < (event.at_ms, number)
    ]
    for other in sorted(earlier, key=lambda other: other.at_ms):
        match other:
            case CreateTopic():
                counts[other.topic.name] = other.topic.partitions
            case AddPartitions():
                counts[other.topic] = counts.get(other.topic, 0) + len(other.rate_per_s)
            case DeleteTopic() if not ever:
                counts.pop(other.topic, None)
            case _:
                continue
    return counts
