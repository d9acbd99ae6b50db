"""What a scenario has to satisfy to be played: every value possible, every name known.

Rules of this file: one generator per part of a scenario; a problem says where in the scenario it
is, by the names of the scenario file, what is there and what would be right. Types are not asked
for: the values have them, and `scenario_file` reads nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from coopgroup.assignors.registry import create_assignor
from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.scenario import (
    LEADER,
    AddPartitions,
    Capacity,
    Close,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Event,
    Flap,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Span,
)
from coopgroup.simulator.scenario_times import event_end_ms, partition_counts

if TYPE_CHECKING:
    from coopgroup.simulator.scenario import Choice, MemberSet, Scenario, Topic

__all__ = [
    "PROCESSES_MAX",
    "RATE_MAX_PER_S",
    "RESOURCES_MAX",
    "Path",
    "Problem",
    "check_scenario",
    "dotted",
    "scenario_problems",
]

RESOURCES_MAX: Final = 1_000_000
"""Most partitions that the topics of a scenario may have together."""

PROCESSES_MAX: Final = 10_000
"""Most processes that a scenario may name."""

RATE_MAX_PER_S: Final = 10**9
"""Most records per second of one partition: an offset stays in an int64, however long a run is."""

Path: TypeAlias = tuple[str | int, ...]

_PPM: Final = 1_000_000


@frozen(kw_only=True)
class Problem:
    """Something in a scenario that cannot be.

    Attributes:
        path: where: keys as in the scenario file, places in lists counted from 0.
        value: what stands there.
        expected: what would be right, as the end of the sentence "expected …".
        key: what to call it; "" for the dotted path.
    """

    path: Path
    value: object
    expected: str
    key: str = ""


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario that cannot be played.

    Raises:
        ConfigurationError: it has a problem; the first one is named.
    """
    for problem in scenario_problems(scenario):
        raise ConfigurationError(
            problem.key or dotted(problem.path), problem.value, problem.expected
        )


def dotted(path: Path) -> str:
    """A path as messages write it: `events[2].at_ms`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def scenario_problems(scenario: Scenario) -> Iterator[Problem]:
    """Everything that is wrong with a scenario; its events may stand in any order.

    A problem may come from another one before it, so only the first is sure.
    """
    yield from _whole_problems(scenario)
    yield from _group_problems(scenario)
    yield from _topic_problems(scenario)
    yield from _member_problems(scenario)
    yield from _cost_problems(scenario)
    yield from _span_problems(("network", "delay_ms"), scenario.network.delay_ms)
    if not 0 <= scenario.network.loss < 1:
        yield Problem(
            path=("network", "loss"),
            value=scenario.network.loss,
            expected="a number from 0 up to but not including 1",
        )
    processes = _Names.of(scenario)
    for number, event in enumerate(scenario.events):
        yield from _event_problems(scenario, number, event, processes)


# --- numbers ------------------------------------------------------------------------------------


def _at_least(path: Path, value: int, low: int) -> Iterator[Problem]:
    if value < low:
        yield Problem(path=path, value=value, expected=f"an integer from {low} on")


def _span_problems(path: Path, span: Span, low: int = 0) -> Iterator[Problem]:
    if span.low < low:
        yield Problem(path=path, value=span.low, expected=f"an integer from {low} on")
    if span.high < span.low:
        yield Problem(
            path=path, value=[span.low, span.high], expected="the smaller number before the larger"
        )


def _rate_problems(path: Path, rates: tuple[float, ...]) -> Iterator[Problem]:
    for rate in rates:
        if not 0 <= rate <= RATE_MAX_PER_S:
            expected = f"a finite number from 0 to {RATE_MAX_PER_S}"
            yield Problem(path=path, value=rate, expected=expected)


def _capacity_problems(path: Path, capacity_per_s: float) -> Iterator[Problem]:
    if not capacity_per_s > 0:
        yield Problem(path=path, value=capacity_per_s, expected="a number greater than 0, or inf")


# --- the parts ----------------------------------------------------------------------------------


def _whole_problems(scenario: Scenario) -> Iterator[Problem]:
    yield from _at_least(("duration_ms",), scenario.duration_ms, 1)
    yield from _at_least(("settle_ms",), scenario.settle_ms, 0)
    for place, choice in enumerate(scenario.policies):
        if choice.name in {other.name for other in scenario.policies[:place]}:
            yield Problem(path=("policies",), value=choice.name, expected="every policy once")
        yield from _policy_problems(("policies", choice.name), choice)


def _group_problems(scenario: Scenario) -> Iterator[Problem]:
    group = scenario.group
    yield from _policy_problems(("group", "policy"), group.policy)
    try:
        create_assignor(group.assignor.name, group.assignor.options)
    except ConfigurationError as error:
        yield _refused(("group", "assignor"), error)
    yield from _at_least(("group", "session_timeout_ms"), group.session_timeout_ms, 1)
    yield from _at_least(("group", "rebalance_timeout_ms"), group.rebalance_timeout_ms, 1)
    yield from _at_least(("group", "heartbeat_interval_ms"), group.heartbeat_interval_ms, 1)
    window_ms = group.window_heartbeat_interval_ms
    yield from _at_least(("group", "window_heartbeat_interval_ms"), window_ms, 1)
    yield from _at_least(("group", "commit_interval_ms"), group.commit_interval_ms, 0)
    if group.heartbeat_interval_ms >= group.session_timeout_ms:
        yield Problem(
            path=("group", "heartbeat_interval_ms"),
            value=group.heartbeat_interval_ms,
            expected=f"less than session_timeout_ms ({group.session_timeout_ms})",
        )


def _policy_problems(path: Path, choice: Choice) -> Iterator[Problem]:
    try:
        create_policy(choice.name, choice.options)
    except ConfigurationError as error:
        yield _refused(path, error)


def _refused(path: Path, error: ConfigurationError) -> Problem:
    return Problem(path=path, value=error.value, expected=error.expected, key=error.field)


def _topic_problems(scenario: Scenario) -> Iterator[Problem]:
    if not scenario.topics:
        yield Problem(path=("topics",), value=[], expected="at least one topic")
    for topic in scenario.topics:
        yield from _one_topic_problems(("topics", topic.name), topic)
    names = Counter(topic.name for topic in scenario.topics)
    for name, times in names.items():
        if times > 1:
            yield Problem(path=("topics", name), value=name, expected="every topic once")
    total = sum(partition_counts(scenario).values())
    if total > RESOURCES_MAX:
        yield Problem(
            path=("topics",),
            value=total,
            expected=f"at most {RESOURCES_MAX} partitions in the whole scenario",
        )


def _one_topic_problems(path: Path, topic: Topic) -> Iterator[Problem]:
    if not topic.name:
        yield Problem(path=path, value=topic.name, expected="a name")
    yield from _at_least((*path, "partitions"), topic.partitions, 1)
    if len(topic.rate_per_s) != topic.partitions:
        yield Problem(
            path=(*path, "rate_per_s"),
            value=list(topic.rate_per_s),
            expected=f"one number for each of {topic.partitions} partitions",
        )
    yield from _rate_problems((*path, "rate_per_s"), topic.rate_per_s)


def _member_problems(scenario: Scenario) -> Iterator[Problem]:
    if not scenario.members:
        yield Problem(path=("members",), value=[], expected="at least one set of members")
    topics = partition_counts(scenario)
    for place, one in enumerate(scenario.members):
        path = ("members", place)
        yield from _name_problems(path, one)
        yield from _at_least((*path, "count"), 0 if one.count is None else one.count, 0)
        if not one.topics:
            yield Problem(path=(*path, "topics"), value=[], expected="at least one topic")
        for topic in one.topics:
            if topic not in topics:
                yield _unknown_topic((*path, "topics"), topic, topics)
        yield from _capacity_problems((*path, "capacity_per_s"), one.capacity_per_s)
        yield from _span_problems((*path, "clock_skew_ppm"), one.clock_skew_ppm, 1 - _PPM)
        yield from _start_problems(scenario, path, one)
    processes = [
        (place, name)
        for place, one in enumerate(scenario.members)
        for name in _Names.of_set(scenario, one)
    ]
    if len(processes) > PROCESSES_MAX:
        yield Problem(
            path=("members",),
            value=len(processes),
            expected=f"at most {PROCESSES_MAX} processes in the whole scenario",
        )
    taken: set[str] = set()
    for place, name in processes:
        if name in taken:
            yield Problem(
                path=("members", place, "name"),
                value=name,
                expected="names of processes that differ",
            )
        taken.add(name)


def _name_problems(path: Path, one: MemberSet) -> Iterator[Problem]:
    if not one.name or one.name == LEADER:
        yield Problem(
            path=(*path, "name"), value=one.name, expected=f"a name other than {LEADER!r}"
        )


def _start_problems(scenario: Scenario, path: Path, one: MemberSet) -> Iterator[Problem]:
    yield from _at_least((*path, "start_ms"), one.start_ms, 0)
    yield from _at_least((*path, "start_every_ms"), one.start_every_ms, 0)
    last_ms = one.start_ms + max(0, (one.count or 1) - 1) * one.start_every_ms
    if last_ms >= scenario.duration_ms:
        yield Problem(
            path=(*path, "start_ms"),
            value=one.start_ms,
            expected=(
                f"all starts before duration_ms ({scenario.duration_ms}), the last is at {last_ms}"
            ),
        )


def _cost_problems(scenario: Scenario) -> Iterator[Problem]:
    everything = ResourceSet(
        {name: range(max(0, count)) for name, count in partition_counts(scenario).items()}
    )
    named = ResourceSet()
    has_default = False
    for place, cost in enumerate(scenario.costs):
        path = ("costs", place)
        for key in ("stop_ms", "commit_ms", "restore_ms"):
            yield from _span_problems((*path, key), getattr(cost, key))
        if cost.resources is None:
            if has_default:
                yield Problem(path=path, value=place, expected="resources, as only one cost lacks")
            has_default = True
            continue
        if unknown := cost.resources - everything:
            yield Problem(
                path=(*path, "resources"), value=unknown.to_dict(), expected="partitions of topics"
            )
        if twice := cost.resources & named:
            yield Problem(
                path=(*path, "resources"), value=twice.to_dict(), expected="every partition once"
            )
        named |= cost.resources


def _unknown_topic(path: Path, topic: str, topics: dict[str, int]) -> Problem:
    known = ", ".join(sorted(topics)) or "that there are: none"
    return Problem(path=path, value=topic, expected=f"one of the topics {known}")


# --- events -------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Names:
    """Names that events may use.

    Attributes:
        sets: of sets with a count.
        processes: of all processes that ever are.
    """

    sets: tuple[str, ...]
    processes: frozenset[str]

    @staticmethod
    def of(scenario: Scenario) -> _Names:
        return _Names(
            sets=tuple(one.name for one in scenario.members if one.count is not None),
            processes=frozenset(
                name for one in scenario.members for name in _Names.of_set(scenario, one)
            ),
        )

    @staticmethod
    def of_set(scenario: Scenario, one: MemberSet) -> tuple[str, ...]:
        """Names of the processes that a set ever has."""
        if one.count is None:
            return (one.name,)
        scaled = (
            event.to
            for event in scenario.events
            if isinstance(event, Scale) and event.members == one.name
        )
        most = min(max((one.count, *scaled)), PROCESSES_MAX + 1)
        return tuple(one.process(number) for number in range(1, most + 1))


def _event_problems(
    scenario: Scenario, number: int, event: Event, names: _Names
) -> Iterator[Problem]:
    path = ("events", number)
    yield from _at_least((*path, "at_ms"), event.at_ms, 0)
    found = [
        *_event_number_problems(path, event),
        *_event_member_problems(path, event, names),
        *_event_topic_problems(scenario, path, event, number),
    ]
    yield from found
    if found:  # without its parts in order nobody can say when it ends
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
            yield from _at_least((*path, key), value, low)
    if isinstance(event, Scale) and event.to > PROCESSES_MAX:
        yield Problem(path=(*path, "to"), value=event.to, expected=f"at most {PROCESSES_MAX}")
    if isinstance(event, Capacity):
        yield from _capacity_problems((*path, "capacity_per_s"), event.capacity_per_s)
    if isinstance(event, Rate):
        yield from _rate_problems((*path, "rate_per_s"), (event.rate_per_s,))
    if isinstance(event, AddPartitions):
        yield from _at_least((*path, "count"), len(event.rate_per_s), 1)
        yield from _rate_problems((*path, "rate_per_s"), event.rate_per_s)


def _event_member_problems(path: Path, event: Event, names: _Names) -> Iterator[Problem]:
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
    match event:
        case CreateTopic():
            yield from _one_topic_problems(path, event.topic)
            if event.topic.name in _topics_at(scenario, event, number, ever=True):
                yield Problem(
                    path=(*path, "topic"), value=event.topic.name, expected="a name never used"
                )
        case AddPartitions() | DeleteTopic() | Rate():
            topics = _topics_at(scenario, event, number, ever=False)
            if event.topic not in topics:
                yield _unknown_topic((*path, "topic"), event.topic, topics)
            elif isinstance(event, Rate) and event.partitions is not None:
                count = topics[event.topic]
                for partition in event.partitions:
                    if not 0 <= partition < count:
                        yield Problem(
                            path=(*path, "partitions"),
                            value=partition,
                            expected=f"partitions from 0 to {count - 1}",
                        )
        case _:
            return


def _topics_at(scenario: Scenario, event: Event, number: int, *, ever: bool) -> dict[str, int]:
    """Partitions of each topic when an event strikes, or of all that there ever were by then."""
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
