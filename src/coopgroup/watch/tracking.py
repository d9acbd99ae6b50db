"""`GroupTracker`: what changed between snapshots: trends, ages of commits, moves: pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

import attrs
from attrs import define, field

from coopgroup.watch.values import GroupView, Move, PartitionView

__all__ = ["GroupTracker"]

_MOVES_MAX: Final = 200
_TREND_MS: Final = 30_000
_NAMED_MAX: Final = 4

_Key = tuple[str, int]


@define(eq=False)
class GroupTracker:
    """Compares each snapshot of a group with the earlier ones."""

    _last: GroupView | None = field(default=None, init=False)
    # Snapshots of the trend: time and lag of each partition, oldest first.
    _lags: deque[tuple[int, dict[_Key, int]]] = field(factory=deque, init=False)
    _committed_at_ms: dict[_Key, int] = field(factory=dict, init=False)
    _returns: Counter[str] = field(factory=Counter, init=False)
    _moves: deque[Move] = field(factory=lambda: deque(maxlen=_MOVES_MAX), init=False)

    def note(self, view: GroupView) -> GroupView:
        """Take a snapshot, and return it with everything that follows from the earlier ones."""
        last, self._last = self._last, view
        if last is not None:
            for text in _changes(last, view):
                self._moves.appendleft(Move(at_ms=view.at_ms, text=text))
            self._returns.update(_comers_and_goers(last, view))
            self._note_commits(last, view)
        self._lags.append(
            (view.at_ms, {_key(one): one.lag for one in view.partitions if one.lag is not None})
        )
        while len(self._lags) > 2 and self._lags[1][0] <= view.at_ms - _TREND_MS:
            self._lags.popleft()
        return attrs.evolve(
            view,
            members=tuple(
                attrs.evolve(one, returns=self._returns[one.name]) for one in view.members
            ),
            partitions=tuple(self._with_trend(one, view.at_ms) for one in view.partitions),
            moves=tuple(self._moves),
        )

    def _note_commits(self, last: GroupView, view: GroupView) -> None:
        before = {_key(one): one.committed for one in last.partitions}
        for one in view.partitions:
            key = _key(one)
            if key in before and one.committed != before[key]:
                self._committed_at_ms[key] = view.at_ms

    def _with_trend(self, one: PartitionView, at_ms: int) -> PartitionView:
        key = _key(one)
        since_ms, lags = self._lags[0]
        trend = None
        if one.lag is not None and key in lags and at_ms > since_ms:
            trend = 1000 * (one.lag - lags[key]) / (at_ms - since_ms)
        committed_ms = self._committed_at_ms.get(key)
        age_s = None if committed_ms is None else (at_ms - committed_ms) / 1000
        return attrs.evolve(one, trend_per_s=trend, commit_age_s=age_s)


def _key(one: PartitionView) -> _Key:
    return one.topic, one.partition


def _comers_and_goers(last: GroupView, view: GroupView) -> list[str]:
    before = {one.member_id: one.name for one in last.members}
    after = {one.member_id: one.name for one in view.members}
    return [name for member_id, name in after.items() if member_id not in before]


def _changes(last: GroupView, view: GroupView) -> Iterator[str]:
    """Describe what happened between two snapshots."""
    names = {one.member_id: one.name for one in (*last.members, *view.members)}
    before = {one.member_id for one in last.members}
    after = {one.member_id for one in view.members}
    if last.state != view.state:
        yield f"the group is {view.state} (it was {last.state})"
    for verb, members in (("joined", after - before), ("left", before - after)):
        for member in sorted(members, key=lambda one: names[one]):
            yield f"{names[member]} {verb}"
    yield from _moved(last, view, names)


def _moved(last: GroupView, view: GroupView, names: dict[str, str]) -> Iterator[str]:
    before = {_key(one): one.owner for one in last.partitions}
    moves: dict[tuple[str, str], list[_Key]] = {}
    for one in view.partitions:
        key = _key(one)
        old = before.get(key, "")
        if old != one.owner:
            moves.setdefault((names.get(old, ""), names.get(one.owner, "")), []).append(key)
    for (old_name, new_name), keys in sorted(moves.items()):
        yield f"{_named(keys)}: {old_name or 'no owner'} → {new_name or 'no owner'}"


def _named(keys: list[_Key]) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in keys[:_NAMED_MAX])
    more = len(keys) - _NAMED_MAX
    return shown if more <= 0 else f"{shown} and {more} more"
