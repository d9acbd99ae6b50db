"""The rows of a snapshot as text, for terminals and pages alike: pure.

Every member of a group chooses its names. So a name can hold anything, such as a sequence that
clears a terminal: characters that do not print are replaced here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.traits import traits_text
from coopgroup.printable import printable
from coopgroup.report.wording import counted
from coopgroup.watch.values import GroupView, MemberView, Move, PartitionView, called

MEMBER_COLUMNS: Final = (
    "member",
    "host",
    "partitions",
    "lag",
    "rate/s",
    "last poll",
    "lease",
    "generation",
    "client",
)
CONSUMER_MEMBER_COLUMNS: Final = tuple(
    "epoch" if one == "generation" else one for one in MEMBER_COLUMNS
)
PARTITION_COLUMNS: Final = (
    "partition",
    "state",
    "owner",
    "lag",
    "trend/s",
    "committed",
    "end",
    "commit",
)
RESOURCE_MEMBER_COLUMNS: Final = (
    "member",
    "host",
    "resources",
    "traits",
    "lease",
    "generation",
    "client",
)
RESOURCE_COLUMNS: Final = ("resource", "state", "owner", "since")
NUMBER_COLUMNS: Final = frozenset(
    {"partitions", "resources", "lag", "rate/s", "generation", "epoch", "trend/s"}
    | {"committed", "end"}
)
_CONSUMER: Final = "consumer"
_NOT_KNOWN: Final = "not known"
_NONE: Final = "-"
_MINUTE_S: Final = 60
_DAY_MS: Final = 86_400_000
_MISSED_REPORTS: Final = 3
_NAMES_MAX: Final = 3


def member_columns(view: GroupView) -> tuple[str, ...]:
    """Return the columns of `member_rows`."""
    if view.kind == _CONSUMER:
        return CONSUMER_MEMBER_COLUMNS
    return RESOURCE_MEMBER_COLUMNS if view.shares_resources else MEMBER_COLUMNS


def partition_columns(view: GroupView) -> tuple[str, ...]:
    """Return the columns of `partition_rows`."""
    return RESOURCE_COLUMNS if view.shares_resources else PARTITION_COLUMNS


def shared(view: GroupView) -> str:
    """Return what the group shares, in one word."""
    return "resource" if view.shares_resources else "partition"


def cards(view: GroupView) -> list[tuple[str, str]]:
    """Return label and text of the most important facts of the group."""
    leader, lag = ("leader", _leader(view)), ("lag in records", _lag(view))
    return [
        ("state", printable(view.state)),
        ("protocol", printable(view.assignor or view.kind)),
        ("members", f"{len(view.members):,}"),
        (f"{shared(view)}s", f"{len(view.partitions):,}"),
        ("without owner", f"{_unowned(view):,}"),
        leader if view.shares_resources else lag,
        ("flapping", printable(", ".join(view.flapping)) or "none"),
        *([("policy and assignor", chosen)] if (chosen := choices(view)) else []),
    ]


def _leader(view: GroupView) -> str:
    """Return the name of the leader, as far as telemetry tells it."""
    found = (printable(view.names[one.member_id]) for one in view.members if one.leads)
    return next(found, "not known")


def _unowned(view: GroupView) -> int:
    return sum(1 for one in view.partitions if not one.owner)


def _lag(view: GroupView) -> str:
    known = [one.lag for one in view.partitions if one.lag is not None]
    if len(known) == len(view.partitions):
        return f"{sum(known):,}"
    return f"at least {sum(known):,}" if any(known) else "unknown"


def headline(view: GroupView) -> str:
    """Return the group in one line."""
    unowned = _unowned(view)
    parts = [
        f"{view.group}: {view.state}",
        view.assignor or view.kind,
        counted(len(view.members), "member"),
        counted(len(view.partitions), shared(view))
        + (f" ({unowned} without owner)" if unowned else ""),
        f"leader {_leader(view)}" if view.shares_resources else f"lag {_lag(view)}",
        f"coordinator {view.coordinator}",
    ]
    if view.kind == _CONSUMER:
        parts.append("the broker assigns (KIP-848)")
    if view.flapping:
        parts.append(f"flapping: {', '.join(view.flapping)}")
    return printable(", ".join(parts))


def heading(view: GroupView) -> list[str]:
    """Return the lines above the tables."""
    chosen = choices(view)
    named = f"policy and assignor: {chosen}" if chosen else ""
    return [line for line in (headline(view), named, trouble(view)) if line]


def trouble(view: GroupView) -> str:
    """Return one line about facts that this look lacks; "" if it lacks none."""
    if view.telemetry_error:
        return printable(f"telemetry is incomplete: {view.telemetry_error}")
    ours = [one for one in view.members if one.is_coopgroup]
    if not ours or view.shares_resources or any(one.report_age_s is not None for one in ours):
        return ""
    return "no reports (--telemetry-topic): a member that hangs shows only by old commits"


def choices(view: GroupView) -> str:
    """Return the policies and assignors of the members in one line; "" if no member tells them.

    Brokers do not name the leader, whose policy and assignor count. So the line lists every
    pair, the most frequent one first.
    """
    members: defaultdict[MemberChoices, list[str]] = defaultdict(list)
    for one in view.members:
        if one.choices is not None:
            members[one.choices].append(view.names[one.member_id])
    if not members:
        return ""
    if len(members) == 1:
        return printable(_both(next(iter(members)), members))
    ordered = sorted(members, key=lambda its: (-len(members[its]), str(its)))
    texts = [f"{_both(its, members)} ({_some(members[its])})" for its in ordered]
    return printable(f"members differ, the leader's counts: {'; '.join(texts)}")


def _both(its: MemberChoices, told: Iterable[MemberChoices]) -> str:
    """Return policy and assignor; with a digest if the options differ under the same name."""
    policies = {one.policy_digest for one in told if one.policy == its.policy}
    assignors = {one.assignor_digest for one in told if one.assignor == its.assignor}
    policy = _with_digest(its.policy, its.policy_digest, policies)
    return f"{policy}, {_with_digest(its.assignor, its.assignor_digest, assignors)}"


def _with_digest(name: str, digest: int | None, digests: set[int | None]) -> str:
    if len(digests) == 1:
        return name
    return f"{name} with options {'unknown' if digest is None else f'{digest:08x}'}"


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMES_MAX else counted(len(names), "member")


def member_rows(view: GroupView) -> list[tuple[str, ...]]:
    """Return the cells of each member."""
    # The description of a consumer group has no subscriptions: only telemetry tells whose it is.
    other = _NOT_KNOWN if view.kind == _CONSUMER else "other"
    if view.shares_resources:
        return [_resource_member(one, printable(view.names[one.member_id])) for one in view.members]
    return [_member(one, printable(view.names[one.member_id]), other) for one in view.members]


def _member(one: MemberView, name: str, other: str) -> tuple[str, ...]:
    kind = "coopgroup" if one.is_coopgroup or one.report_age_s is not None else other
    if other == _NOT_KNOWN and one.protocol != _CONSUMER:
        kind += ", classic protocol"
    return (
        _called(one, name),
        printable(one.host),
        str(one.partitions),
        _number(one.lag),
        _NONE if one.rate_per_s is None else f"{one.rate_per_s:,.0f}",
        _last_poll(one),
        _lease(one),
        _NONE if one.generation is None else str(one.generation),
        _client(one, kind),
    )


def _resource_member(one: MemberView, name: str) -> tuple[str, ...]:
    return (
        _called(one, name),
        printable(one.host),
        str(one.partitions),
        printable(traits_text(one.traits)) if one.traits else _NONE,
        _lease(one),
        _NONE if one.generation is None else str(one.generation),
        _client(one, "coopgroup, leads" if one.leads else "coopgroup"),
    )


def _called(one: MemberView, name: str) -> str:
    return f"{name} (static)" if one.instance_id else name


def _client(one: MemberView, kind: str) -> str:
    kind += "" if one.is_readable else ", unreadable assignment"
    return kind + (f", came back {counted(one.returns, 'time')}" if one.returns else "")


def _is_silent(one: MemberView) -> bool:
    """Return whether reports are overdue, so that the last one tells nothing any more."""
    if one.report_age_s is None or one.report_interval_s is None:
        return False
    return one.report_age_s > _MISSED_REPORTS * one.report_interval_s


def _last_poll(one: MemberView) -> str:
    if _is_silent(one):
        return f"no report for {_age(one.report_age_s or 0.0)}"
    if one.since_poll_s is None:
        return _NONE
    return f"{_age(one.since_poll_s)} ago" if one.since_poll_s >= 1 else "now"


def _lease(one: MemberView) -> str:
    if one.lease_s is None or _is_silent(one):
        return _NONE
    return _age(one.lease_s) if one.lease_s else "ended"


def partition_rows(view: GroupView) -> list[tuple[str, ...]]:
    """Return the cells of each partition."""
    names = {member: printable(name) for member, name in view.names.items()}
    if view.shares_resources:
        return [(*_work(one, names), _since(one, view.at_ms)) for one in view.partitions]
    return [_partition(one, names) for one in view.partitions]


def _since(one: PartitionView, at_ms: int) -> str:
    if one.since_ms is None:
        return _NONE
    days = (at_ms - one.since_ms) // _DAY_MS
    return time_of_day(one.since_ms) if days < 1 else f"{counted(days, 'day')} ago"


def _work(one: PartitionView, names: dict[str, str]) -> tuple[str, str, str]:
    return (
        printable(called(one.topic, one.partition)),
        "; ".join((_state(one, names), *_warmups(one, names))),
        names.get(one.target or one.owner or one.holder, _NONE),
    )


def _partition(one: PartitionView, names: dict[str, str]) -> tuple[str, ...]:
    return (
        *_work(one, names),
        _number(one.lag),
        _NONE if one.trend_per_s is None else f"{one.trend_per_s:+,.1f}",
        _number(one.committed),
        _number(one.end),
        _NONE if one.commit_age_s is None else f"{_age(one.commit_age_s)} ago",
    )


def _state(one: PartitionView, names: dict[str, str]) -> str:
    if one.target:
        return f"waits for {names.get(one.owner, 'its owner')}" if one.owner else "being granted"
    if one.state != "waiting":
        return f"{one.state}: {printable(one.why)}" if one.why else one.state
    until = "" if one.until_ms is None else f" until {time_of_day(one.until_ms)}"
    return f"waits for {printable(one.waits_for) or 'its owner'}{until}"


def _warmups(one: PartitionView, names: dict[str, str]) -> Iterable[str]:
    for each in one.warmups:
        yield f"{names.get(each.member, _NONE)} {'is warm' if each.is_warm else 'warms up'}"


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE_S else f"{seconds / _MINUTE_S:.0f} min"


def move_rows(moves: Iterable[Move]) -> list[tuple[str, str, str]]:
    """Return time of day, text and reason of each change, newest first."""
    return [(time_of_day(one.at_ms), printable(one.text), printable(one.why)) for one in moves]


def time_of_day(at_ms: float) -> str:
    """Format a time, in ms since 1970, for the clock of this machine: "14:03:07".

    Telemetry of a member may have any time; the result is "?" if no clock shows it.
    """
    try:
        return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return "?"
