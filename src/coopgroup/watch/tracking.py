"""`GroupTracker`: what changed between snapshots: trends, ages of commits, moves: pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.report.history.rounds import round_rows
from coopgroup.telemetry import Envelope, ResourcesStarted, RoundDecided
from coopgroup.watch.values import GroupView, MemberView, Move, PartitionView, called

_MOVES_MAX: Final = 200
_TREND_MS: Final = 30_000
_WHY_MS: Final = 60_000  # a change of members that is older explains no move
_NAMED_MAX: Final = 4

_Key: TypeAlias = tuple[str, int]
_Identity: TypeAlias = tuple[str, str]


@define(eq=False)
class GroupTracker:
    """Compares each snapshot of a group with the earlier ones."""

    _last: GroupView | None = field(default=None, init=False)
    # Snapshots of the trend: time and lag of each partition, oldest first.
    _lags: deque[tuple[int, dict[_Key, int]]] = field(factory=deque, init=False)
    _committed_at_ms: dict[_Key, int] = field(factory=dict, init=False)
    _departed: Counter[_Identity] = field(factory=Counter, init=False)
    _returns: Counter[_Identity] = field(factory=Counter, init=False)
    _moves: deque[Move] = field(factory=lambda: deque(maxlen=_MOVES_MAX), init=False)
    # The last change of members: its time, and its words.
    _why: tuple[int, str] = field(default=(0, ""), init=False)
    # The last member that owned each partition, and the name of each of them.
    _owners: dict[_Key, str] = field(factory=dict, init=False)
    _names: dict[str, str] = field(factory=dict, init=False)
    # The look that first showed the present owner of each partition, if an earlier one did not.
    _since_ms: dict[_Key, tuple[str, int]] = field(factory=dict, init=False)
    # The last round in the telemetry.
    _round: Envelope | None = field(default=None, init=False)
    # What members have worked on, as the telemetry tells.
    _started: ResourceSet = field(default=EMPTY, init=False)

    def note(self, view: GroupView) -> GroupView:
        """Take a snapshot, and return it with everything that follows from the earlier ones."""
        last, self._last = self._last, view
        self._names |= view.names
        if last is not None:
            self._note_returns(last, view)
            self._moves.extendleft(self._changes(last, view))
            self._note_commits(last, view)
            self._note_owners(last, view)
        self._moves.extendleft(self._rounds(view))
        self._owners |= {_key(one): one.owner for one in view.partitions if one.owner}
        kept = {*self._owners.values(), *view.names}
        self._names = {member: name for member, name in self._names.items() if member in kept}
        self._lags.append(
            (view.at_ms, {_key(one): one.lag for one in view.partitions if one.lag is not None})
        )
        while len(self._lags) > 2 and self._lags[1][0] <= view.at_ms - _TREND_MS:
            self._lags.popleft()
        return attrs.evolve(
            view,
            members=tuple(
                attrs.evolve(one, returns=self._returns[_identity(one)]) for one in view.members
            ),
            partitions=tuple(self._with_past(one, view.at_ms) for one in view.partitions),
            moves=tuple(self._moves),
        )

    def _note_returns(self, last: GroupView, view: GroupView) -> None:
        before = {one.member_id: one for one in last.members}
        after = {one.member_id: one for one in view.members}
        self._departed.update(_identity(before[one]) for one in before.keys() - after.keys())
        for one in after.keys() - before.keys():
            identity = _identity(after[one])
            if self._departed[identity]:  # else one more process, which is no sign of trouble
                self._departed[identity] -= 1
                self._returns[identity] += 1

    def _rounds(self, view: GroupView) -> Iterator[Move]:
        """Describe the rounds in the telemetry since the last look, and why they came."""
        kinds = RoundDecided, ResourcesStarted
        told = [one for one in view.records if isinstance(one.record, kinds)]
        last = [] if self._round is None else [self._round]
        for row in round_rows([*last, *told], self._names, self._started)[len(last) :]:
            text = f"round {row.generation}: {row.granted} granted, {row.revoked} to be revoked"
            yield Move(at_ms=row.at_ms, text=text, kind="round", why=" ".join(row.sentences))
        gone, started = [], [self._started]
        for one in told:
            if isinstance(one.record, RoundDecided):
                self._round = one
                gone.append(one.record.gone)
            elif isinstance(one.record, ResourcesStarted):
                started.append(one.record.resources)
        self._started = ResourceSet.union_all(started) - ResourceSet.union_all(gone)

    def _changes(self, last: GroupView, view: GroupView) -> Iterator[Move]:
        """Describe what happened between two snapshots."""
        if last.state != view.state:
            text = f"the group is {view.state} (it was {last.state})"
            yield Move(at_ms=view.at_ms, text=text, kind="state")
        before = {one.member_id for one in last.members}
        after = {one.member_id for one in view.members}
        changes: tuple[tuple[Literal["joined", "left"], set[str]], ...]
        changes = ("joined", after - before), ("left", before - after)
        for kind, members in changes:
            for name in sorted(self._names[one] for one in members):
                self._why = view.at_ms, f"{name} {kind}"
                yield Move(at_ms=view.at_ms, text=self._why[1], kind=kind)
        yield from self._moved(last, view)

    def _moved(self, last: GroupView, view: GroupView) -> Iterator[Move]:
        owners = {_key(one): one.owner for one in last.partitions}
        moves: dict[tuple[str, str, str], list[_Key]] = {}
        for one in view.partitions:
            key = _key(one)
            old = owners.get(key, "")
            if old != one.owner:
                why = self._why_moved(old or self._owners.get(key, ""), one.owner, last, view)
                names = self._names.get(old, ""), self._names.get(one.owner, "")
                moves.setdefault((*names, why), []).append(key)
        for (old_name, new_name, why), keys in sorted(moves.items()):
            text = f"{_named(keys)}: {old_name or 'no owner'} → {new_name or 'no owner'}"
            yield Move(at_ms=view.at_ms, text=text, why=why)

    def _why_moved(self, old: str, new: str, last: GroupView, view: GroupView) -> str:
        """Return the change of members that explains a move best; "" if there is none."""
        if old and old not in view.names:
            return f"{self._names[old]} left"
        if new and new not in last.names:
            return f"{self._names[new]} joined"
        at_ms, words = self._why
        return words if view.at_ms - at_ms < _WHY_MS else ""

    def _note_commits(self, last: GroupView, view: GroupView) -> None:
        before = {_key(one): one.committed for one in last.partitions}
        for one in view.partitions:
            key = _key(one)
            if key in before and one.committed != before[key]:
                self._committed_at_ms[key] = view.at_ms

    def _note_owners(self, last: GroupView, view: GroupView) -> None:
        before = {_key(one): one.owner for one in last.partitions}
        for one in view.partitions:
            if one.owner and before.get(_key(one), "") != one.owner:
                self._since_ms[_key(one)] = one.owner, view.at_ms

    def _with_past(self, one: PartitionView, at_ms: int) -> PartitionView:
        """Return a partition with what its past tells."""
        key = _key(one)
        first_ms, lags = self._lags[0]
        found: dict[str, Any] = {}
        if one.lag is not None and key in lags and at_ms > first_ms:
            found["trend_per_s"] = 1000 * (one.lag - lags[key]) / (at_ms - first_ms)
        if key in self._committed_at_ms:
            found["commit_age_s"] = (at_ms - self._committed_at_ms[key]) / 1000
        owner, since_ms = self._since_ms.get(key, ("", 0))
        if one.since_ms is None and one.owner and one.owner == owner:
            found["since_ms"] = since_ms
        if one.state == "waiting" and key in self._owners:
            found["waits_for"] = self._names[self._owners[key]]
        return attrs.evolve(one, **found) if found else one


def _key(one: PartitionView) -> _Key:
    return one.topic, one.partition


def _identity(one: MemberView) -> _Identity:
    """Return what a process keeps when it restarts; processes on one host may share it."""
    return (one.instance_id, "") if one.instance_id else (one.client_id, one.host)


def _named(keys: list[_Key]) -> str:
    shown = ", ".join(called(*key) for key in keys[:_NAMED_MAX])
    more = len(keys) - _NAMED_MAX
    return shown if more <= 0 else f"{shown} and {more} more"
