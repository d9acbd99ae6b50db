"""Checks of a whole scenario before it is played: every value possible, every name known.

There is one generator per part of a scenario; events are in `scenario_event_checks`. The checks do
not cover types, because `scenario_file` already reads the right types.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from coopgroup.assignors.registry import create_assignor
from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.scenario import LEADER, Shares
from coopgroup.simulator.scenario_event_checks import Names, event_problems
from coopgroup.simulator.scenario_problem import (
    PROCESSES_MAX,
    RESOURCES_MAX,
    Path,
    Problem,
    at_least,
    capacity_problems,
    dotted,
    one_topic_problems,
    span_problems,
    unknown_topic,
)
from coopgroup.simulator.scenario_times import partition_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.simulator.scenario import Choice, MemberSet, Scenario

__all__ = ["check_scenario", "scenario_problems"]

_PPM: Final = 1_000_000


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario that cannot be played.

    Raises:
        ConfigurationError: the scenario has a problem; the message names the first one.
    """
    for problem in scenario_problems(scenario):
        raise ConfigurationError(
            problem.key or dotted(problem.path), problem.value, problem.expected
        )


def scenario_problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield all problems of a scenario; its events may be in any order.

    A problem may be a consequence of an earlier one, so only the first is certain.
    """
    yield from _whole_problems(scenario)
    yield from _group_problems(scenario)
    yield from _topic_problems(scenario)
    yield from _member_problems(scenario)
    yield from _cost_problems(scenario)
    yield from span_problems(("network", "delay_ms"), scenario.network.delay_ms)
    if not 0 <= scenario.network.loss < 1:
        yield Problem(
            path=("network", "loss"),
            value=scenario.network.loss,
            expected="a number from 0 up to but not including 1",
        )
    processes = Names.of(scenario)
    for number, event in enumerate(scenario.events):
        yield from event_problems(scenario, number, event, processes)


# --- the parts ----------------------------------------------------------------------------------


def _whole_problems(scenario: Scenario) -> Iterator[Problem]:
    yield from at_least(("duration_ms",), scenario.duration_ms, 1)
    yield from at_least(("settle_ms",), scenario.settle_ms, 0)
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
    yield from at_least(("group", "session_timeout_ms"), group.session_timeout_ms, 1)
    yield from at_least(("group", "rebalance_timeout_ms"), group.rebalance_timeout_ms, 1)
    yield from at_least(("group", "heartbeat_interval_ms"), group.heartbeat_interval_ms, 1)
    window_ms = group.window_heartbeat_interval_ms
    yield from at_least(("group", "window_heartbeat_interval_ms"), window_ms, 1)
    yield from at_least(("group", "commit_interval_ms"), group.commit_interval_ms, 0)
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
        one = scenario.shares.removesuffix("s")
        yield Problem(path=(scenario.shares,), value=[], expected=f"at least one {one}")
    for topic in scenario.topics:
        yield from one_topic_problems((scenario.shares, topic.name), topic)
    names = Counter(topic.name for topic in scenario.topics)
    for name, times in names.items():
        if times > 1:
            yield Problem(path=(scenario.shares, name), value=name, expected="every topic once")
    total = sum(partition_counts(scenario).values())
    if total > RESOURCES_MAX:
        yield Problem(
            path=(scenario.shares,),
            value=total,
            expected=f"at most {RESOURCES_MAX} {_parts(scenario)} in the whole scenario",
        )


def _member_problems(scenario: Scenario) -> Iterator[Problem]:
    if not scenario.members:
        yield Problem(path=("members",), value=[], expected="at least one set of members")
    topics = partition_counts(scenario)
    for place, one in enumerate(scenario.members):
        path = ("members", place)
        yield from _name_problems(path, one)
        yield from at_least((*path, "count"), 0 if one.count is None else one.count, 0)
        if not one.topics:
            yield Problem(path=(*path, "topics"), value=[], expected="at least one topic")
        for topic in one.topics:
            if topic not in topics:
                yield unknown_topic((*path, "topics"), topic, topics, scenario.shares)
        yield from capacity_problems((*path, "capacity_per_s"), one.capacity_per_s)
        yield from span_problems((*path, "clock_skew_ppm"), one.clock_skew_ppm, 1 - _PPM)
        yield from _start_problems(scenario, path, one)
    processes = [
        (place, name)
        for place, one in enumerate(scenario.members)
        for name in Names.of_set(scenario, one)
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
    yield from at_least((*path, "start_ms"), one.start_ms, 0)
    yield from at_least((*path, "start_every_ms"), one.start_every_ms, 0)
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
    first = scenario.shares.index_min
    everything = ResourceSet(
        {name: range(first, max(0, count)) for name, count in partition_counts(scenario).items()}
    )
    named = ResourceSet()
    has_default = False
    for place, cost in enumerate(scenario.costs):
        path = ("costs", place)
        for key in ("stop_ms", "commit_ms", "restore_ms"):
            yield from span_problems((*path, key), getattr(cost, key))
        if cost.resources is None:
            if has_default:
                yield Problem(path=path, value=place, expected="resources, as only one cost lacks")
            has_default = True
            continue
        if unknown := cost.resources - everything:
            yield Problem(
                path=(*path, "resources"),
                value=unknown.to_dict(),
                expected=f"{_parts(scenario)} of {scenario.shares}",
            )
        if twice := cost.resources & named:
            yield Problem(
                path=(*path, "resources"),
                value=twice.to_dict(),
                expected=f"every {_parts(scenario).removesuffix('s')} once",
            )
        named |= cost.resources


def _parts(scenario: Scenario) -> str:
    """Return the file's key for the number of parts of a name."""
    return {
        Shares.TOPICS: "partitions",
        Shares.CONNECTORS: "tasks",
        Shares.RESOURCES: "resources",
    }[scenario.shares]
