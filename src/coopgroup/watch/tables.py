"""The rows of a snapshot as text, for terminals and pages alike: pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from coopgroup.watch.values import GroupView, MemberView, Move, PartitionView

__all__ = [
    "MEMBER_COLUMNS",
    "PARTITION_COLUMNS",
    "headline",
    "member_rows",
    "move_rows",
    "partition_rows",
]

MEMBER_COLUMNS: Final = ("member", "host", "partitions", "lag", "rate/s", "generation", "client")
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
_NONE: Final = "-"
_MINUTE_S: Final = 60


def headline(view: GroupView) -> str:
    """Return the group in one line."""
    unowned = sum(1 for one in view.partitions if not one.owner)
    parts = [
        f"{view.group}: {view.state}",
        view.assignor or view.kind,
        f"{len(view.members)} members",
        f"{len(view.partitions)} partitions" + (f" ({unowned} without owner)" if unowned else ""),
        f"lag {view.lag:,}",
        f"coordinator {view.coordinator}",
    ]
    if view.flapping:
        parts.append(f"flapping: {', '.join(view.flapping)}")
    return ", ".join(parts)


def member_rows(view: GroupView) -> list[tuple[str, ...]]:
    """Return the cells of each member."""
    return [_member(one) for one in view.members]


def _member(one: MemberView) -> tuple[str, ...]:
    kind = "coopgroup" if one.is_coopgroup else "other"
    return (
        f"{one.name} (static)" if one.instance_id else one.name,
        one.host,
        str(one.partitions),
        f"{one.lag:,}",
        _NONE if one.rate_per_s is None else f"{one.rate_per_s:,.0f}",
        _NONE if one.generation is None else str(one.generation),
        kind + (f", came {one.returns} times" if one.returns else ""),
    )


def partition_rows(view: GroupView) -> list[tuple[str, ...]]:
    """Return the cells of each partition."""
    names = {one.member_id: one.name for one in view.members}
    return [_partition(one, names) for one in view.partitions]


def _partition(one: PartitionView, names: dict[str, str]) -> tuple[str, ...]:
    state = one.state
    if one.target:
        state = f"waits for {names.get(one.owner, 'its owner')}" if one.owner else "being granted"
    return (
        f"{one.topic}-{one.partition}",
        state,
        names.get(one.target or one.owner, _NONE),
        _number(one.lag),
        _NONE if one.trend_per_s is None else f"{one.trend_per_s:+,.1f}",
        _number(one.committed),
        _number(one.end),
        _NONE if one.commit_age_s is None else f"{_age(one.commit_age_s)} ago",
    )


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE_S else f"{seconds / _MINUTE_S:.0f} min"


def move_rows(moves: Iterable[Move]) -> list[tuple[str, str]]:
    """Return time of day and text of each change, newest first."""
    return [
        (time.strftime("%H:%M:%S", time.localtime(one.at_ms / 1000)), one.text) for one in moves
    ]
