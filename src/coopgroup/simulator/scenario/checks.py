"""Rules between the values of a scenario: names must exist, events must end in time, and so on.

Types and bounds of single values are checked when a value is made. Paths in messages are those of a
scenario file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NoReturn

from attrs import frozen

from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member.config import GroupProtocol
from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.built_in import create_policy
from coopgroup.errors import ConfigurationError
from coopgroup.reading import NOTHING, joined
from coopgroup.simulator.scenario import (
    BY_BROKER,
    LEADER,
    PROCESSES_MAX,
    RESOURCES_MAX,
    AddPartitions,
    Capacity,
    Choice,
    Client,
    Close,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Event,
    Flap,
    HandOver,
    How,
    Identity,
    MemberSet,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Shares,
    Span,
    Weight,
)
from coopgroup.simulator.scenario.times import event_end_ms, partition_counts

_SHOWN_NAMES = 8


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario that cannot be played; its events may be in any order.

    Raises:
        ConfigurationError: the scenario has a problem; the message names the first one.
    """
    _check_group(scenario)
    _check_time(scenario)
    _check_topics(scenario)
    _check_members(scenario)
    _check_costs(scenario)
    names = _Names.of(scenario)
    for number, event in enumerate(scenario.events):
        _check_event(scenario, number, event, names)


def _check_time(scenario: Scenario) -> None:
    """Refuse a scenario in which no group could converge: that is no broken invariant."""
    group, delay_ms = scenario.group, scenario.network.delay_ms.high
    if 2 * delay_ms >= group.session_timeout_ms:
        raise ConfigurationError(
            "network.delay_ms",
            delay_ms,
            f"less than half of group.session_timeout_ms ({group.session_timeout_ms}), so that "
            "heartbeats are answered in time",
        )
    # A heartbeat hears of a round, then come join and sync; a revocation takes a second round.
    least_ms = group.heartbeat_interval_ms + 12 * delay_ms
    if scenario.settle_ms < least_ms:
        raise ConfigurationError(
            "settle_ms",
            scenario.settle_ms,
            f"at least {least_ms}, the time of a heartbeat and two rounds, so that the group can "
            "converge",
        )


def check_choice(path: str, choice: Choice) -> None:
    """Refuse an unknown policy or assignor, or a wrong option.

    Raises:
        ConfigurationError: the registry does not know the name, or refuses an option.
    """
    create = create_assignor if "assignor" in path else create_policy
    try:
        create(choice.name, choice.options)
    except ConfigurationError as error:
        is_name = error.field in ("policy", "assignor")
        place = path if is_name else f"{path}: {error.field}"
        raise ConfigurationError(place, error.value, error.expected) from None


def _refuse(path: tuple[str | int, ...], value: object, expected: str) -> NoReturn:
    raise ConfigurationError(joined(*path), value, expected)


# --- the parts ----------------------------------------------------------------------------------


def _check_group(scenario: Scenario) -> None:
    group = scenario.group
    for name, times in Counter(choice.name for choice in scenario.policies).items():
        if times > 1:
            _refuse(("policies",), name, "every policy once")
    for choice in scenario.policies:
        check_choice(joined("policies", choice.name), choice)
    if group.policy != BY_BROKER or _has_policies(scenario):
        check_choice("group.policy", group.policy)
    check_choice("group.assignor", group.assignor)
    if group.heartbeat_interval_ms >= group.session_timeout_ms:
        expected = f"less than session_timeout_ms ({group.session_timeout_ms})"
        _refuse(("group", "heartbeat_interval_ms"), group.heartbeat_interval_ms, expected)


def _has_policies(scenario: Scenario) -> bool:
    """Return whether some members of coopgroup have a policy: the broker does not assign to all."""
    return any(
        one.client is Client.COOPGROUP and one.protocol is not GroupProtocol.CONSUMER
        for one in scenario.members
    )


def _check_topics(scenario: Scenario) -> None:
    shares = scenario.shares
    if not scenario.topics:
        _refuse((shares,), [], f"at least one {shares.removesuffix('s')}")
    for name, times in Counter(topic.name for topic in scenario.topics).items():
        if times > 1:
            _refuse((shares, name), name, "every topic once")
    total = sum(partition_counts(scenario).values())
    if total > RESOURCES_MAX:
        expected = f"at most {RESOURCES_MAX} {_parts(scenario)} in the whole scenario"
        _refuse((shares,), total, expected)


def _check_members(scenario: Scenario) -> None:
    if not scenario.members:
        _refuse(("members",), [], "at least one set of members")
    topics = partition_counts(scenario)
    for place, one in enumerate(scenario.members):
        if not one.topics:
            _refuse(("members", place, "topics"), [], "at least one topic")
        for number, topic in enumerate(one.topics):
            if topic not in topics:
                path = ("members", place, "topics", number)
                _refuse_topic(path, topic, topics, scenario.shares)
        last_ms = one.start_ms + max(0, (one.count or 1) - 1) * one.start_every_ms
        if last_ms >= scenario.duration_ms:
            expected = (
                f"all starts before duration_ms ({scenario.duration_ms}), the last is at {last_ms}"
            )
            _refuse(("members", place, "start_ms"), one.start_ms, expected)
        if one.client is Client.KIP_848:
            _check_kip848(scenario, place, one)
        elif one.protocol is GroupProtocol.CONSUMER:
            _check_consumer(scenario, place, one)
    if not _has_policies(scenario):
        _check_leaders(scenario)
    _check_processes(scenario)


def _check_kip848(scenario: Scenario, place: int, one: MemberSet) -> None:
    """Refuse what only members of coopgroup have: identities, and a lease that ends in a pause."""
    expected = f'no value with client = "{one.client}"'
    if one.identity is not Identity.NONE:
        _refuse(("members", place, "identity"), one.identity.value, expected)
    if one.traits:
        _refuse(("members", place, "traits"), dict(one.traits), expected)
    if one.protocol is GroupProtocol.CONSUMER:  # such a client speaks no other one
        _refuse(("members", place, "protocol"), one.protocol.value, expected)
    if one.keeps_state:
        _refuse(("members", place, "keeps_state"), one.keeps_state, expected)
    if one.clock_skew_ppm != Span(0, 0):
        skew = [one.clock_skew_ppm.low, one.clock_skew_ppm.high]
        _refuse(("members", place, "clock_skew_ppm"), skew, expected)
    names = {one.name, *_processes_ever(scenario, one)}
    expected = f'members of coopgroup; client = "{one.client}" has no lease, and hands nothing over'
    _check_hand_overs(scenario, names, expected)
    for number, event in enumerate(scenario.events):
        if isinstance(event, Pause) and event.member in names:
            _refuse(("events", number, "member"), event.member, expected)
        if isinstance(event, Cut) and not names.isdisjoint(event.members):
            _refuse(("events", number, "members"), list(event.members), expected)


def _check_consumer(scenario: Scenario, place: int, one: MemberSet) -> None:
    """Refuse what needs a leader, beside members that speak KIP-848."""
    classic = f'protocol = "{GroupProtocol.CLASSIC}"'
    if scenario.shares is not Shares.TOPICS:
        expected = f"{classic} in a group of named resources"
        _refuse(("members", place, "protocol"), one.protocol.value, expected)
    names = {one.name, *_processes_ever(scenario, one)}
    _check_hand_overs(scenario, names, f"members of {classic}; a broker hands nothing over")


def _check_hand_overs(scenario: Scenario, names: Collection[str], expected: str) -> None:
    for number, event in enumerate(scenario.events):
        if isinstance(event, HandOver) or getattr(event, "how", None) is How.HAND_OVER:
            key = "member" if hasattr(event, "member") else "members"
            given = getattr(event, key)
            shown = given if isinstance(given, str) else list(given)
            if not {*names}.isdisjoint([given] if isinstance(given, str) else given):
                _refuse(("events", number, key), shown, expected)


def _check_leaders(scenario: Scenario) -> None:
    """Refuse events of the leader in a group without one: they would have no effect."""
    expected = f'a process; no member leads with protocol = "{GroupProtocol.CONSUMER}"'
    for number, event in enumerate(scenario.events):
        if getattr(event, "member", None) == LEADER:
            _refuse(("events", number, "member"), LEADER, expected)
        if isinstance(event, Cut) and LEADER in event.members:
            _refuse(("events", number, "members"), list(event.members), expected)


def _check_processes(scenario: Scenario) -> None:
    processes = [
        (place, name)
        for place, one in enumerate(scenario.members)
        for name in _processes_ever(scenario, one)
    ]
    if len(processes) > PROCESSES_MAX:
        expected = f"at most {PROCESSES_MAX} processes in the whole scenario"
        _refuse(("members",), len(processes), expected)
    taken: set[str] = set()
    for place, name in processes:
        if name in taken:
            _refuse(("members", place, "name"), name, "names of processes that differ")
        taken.add(name)


def _check_costs(scenario: Scenario) -> None:
    first = scenario.shares.index_min
    everything = ResourceSet(
        {name: range(first, count) for name, count in partition_counts(scenario).items()}
    )
    parts = _parts(scenario)
    named = ResourceSet()
    has_default = False
    for place, cost in enumerate(scenario.costs):
        path = ("costs", place, "resources")
        back = cost.return_ms
        if back is not None and back.high > cost.restore_ms.high:
            at_most = f"at most {cost.restore_ms.high}, the highest restore_ms"
            _refuse(("costs", place, "return_ms"), [back.low, back.high], at_most)
        if cost.resources is None:
            if has_default:
                _refuse(path, NOTHING, "a value, as only one cost may be without")
            has_default = True
            continue
        if unknown := cost.resources - everything:
            _refuse(path, unknown.to_dict(), f"{parts} of {scenario.shares}")
        if twice := cost.resources & named:
            _refuse(path, twice.to_dict(), f"every {parts.removesuffix('s')} once")
        named |= cost.resources


def _parts(scenario: Scenario) -> str:
    return {
        Shares.TOPICS: "partitions",
        Shares.CONNECTORS: "tasks",
        Shares.RESOURCES: "resources",
    }[scenario.shares]


# --- events -------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Names:
    """Names that events may use."""

    sets: frozenset[str]
    processes: frozenset[str]

    @staticmethod
    def of(scenario: Scenario) -> _Names:
        return _Names(
            sets=frozenset(one.name for one in scenario.members if one.count is not None),
            processes=frozenset(
                name for one in scenario.members for name in _processes_ever(scenario, one)
            ),
        )


def _processes_ever(scenario: Scenario, one: MemberSet) -> tuple[str, ...]:
    if one.count is None:
        return (one.name,)
    scaled = (
        event.to
        for event in scenario.events
        if isinstance(event, Scale) and event.members == one.name
    )
    most = min(max((one.count, *scaled)), PROCESSES_MAX + 1)
    return tuple(one.process(number) for number in range(1, most + 1))


def _check_event(scenario: Scenario, number: int, event: Event, names: _Names) -> None:
    _check_event_members(number, event, names)
    _check_event_topic(scenario, number, event)
    path = ("events", number, "at_ms")
    end_ms = scenario.duration_ms
    if event.at_ms >= end_ms:
        _refuse(path, event.at_ms, f"a time before duration_ms ({end_ms})")
    if (ends_ms := event_end_ms(scenario, event)) > end_ms:
        expected = f"an end by duration_ms ({end_ms}), this event ends at {ends_ms}"
        _refuse(path, event.at_ms, expected)


def _check_event_members(number: int, event: Event, names: _Names) -> None:
    path = ("events", number)
    match event:
        case Crash() | Close() | HandOver() | Pause() | Flap():
            _check_name((*path, "member"), event.member, {*names.processes, LEADER})
        case Scale():
            _check_name((*path, "members"), event.members, names.sets)
        case RollingRestart() | Capacity() | Cut():
            known = names.processes | names.sets
            if not event.members:
                _refuse((*path, "members"), [], "at least one name")
            for name in event.members:
                may_lead = {LEADER} if isinstance(event, Cut) else set()
                _check_name((*path, "members"), name, known | may_lead)
        case _:
            return


def _check_name(path: tuple[str | int, ...], name: str, known: Collection[str]) -> None:
    if name in known:
        return
    shown = sorted(known)
    hidden = len(shown) - _SHOWN_NAMES
    more = f" and {hidden} more" if hidden > 0 else ""
    listed = f"one of {', '.join(shown[:_SHOWN_NAMES])}{more}"
    _refuse(path, name, listed if shown else "a set of members with a count")


def _check_event_topic(scenario: Scenario, number: int, event: Event) -> None:
    path = ("events", number, scenario.shares.key)
    match event:
        case CreateTopic():
            # A topic would need other offsets and commits in each of its lives.
            ever = scenario.shares is Shares.TOPICS
            if event.topic.name in _topics_at(scenario, event, number, ever=ever):
                kind = scenario.shares.removesuffix("s")
                expected = (
                    "a name never used" if ever else f"a name that no {kind} has at this time"
                )
                _refuse(path, event.topic.name, expected)
        case AddPartitions() | DeleteTopic() | Rate() | Weight():
            topics = _topics_at(scenario, event, number, ever=False)
            if event.topic not in topics:
                _refuse_topic(path, event.topic, topics, scenario.shares)
            if isinstance(event, Rate):
                _check_parts(number, "partitions", event.partitions, topics[event.topic])
            if isinstance(event, Weight):
                _check_parts(number, "indices", event.partitions, topics[event.topic])
        case _:
            return


def _check_parts(number: int, key: str, parts: Iterable[int] | None, count: int) -> None:
    for place, index in enumerate(parts or ()):
        if not 0 <= index < count:
            _refuse(("events", number, key, place), index, f"{key} from 0 to {count - 1}")


def _refuse_topic(
    path: tuple[str | int, ...], topic: str, topics: Collection[str], shares: Shares
) -> NoReturn:
    known = ", ".join(sorted(topics)) or "that there are: none"
    _refuse(path, topic, f"one of the {shares} {known}")


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
