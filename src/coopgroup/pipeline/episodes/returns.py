"""Returns of members: which arrival ends which absence, and how certain that is.

A return is **proven** by a static id (`group.instance.id`), or by the name of the process in
telemetry. Without proof it is **likely** if three things hold:

- the newcomer has the client id and the host of the member that left, at most an hour before;
- in between, the group was smaller than before the absence;
- when the old member left, the group had no younger member of that client and host.

Everything else is a departure and an arrival. A deployment of Kubernetes with `maxSurge` starts a
new pod before an old one leaves. So the group is smaller only if it has fewer members than before
the absence, and fewer than it last had for five minutes.

This file uses no Spark: `absences` passes it the steps of a group, and gets the rows of the table.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from attrs import define

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CAME", "GONE", "LIKELY", "NEVER", "PROVEN", "RETURN_MS_MAX", "SIZE", "with_returns"]

GONE: Final = 0
CAME: Final = 1
SIZE: Final = 2
"""Kinds of steps, in their order within a state."""

_STATIC_ID: Final = "static_id"
_TELEMETRY: Final = "telemetry"
LIKELY: Final = "client_and_host"
NEVER: Final = "never"
PROVEN: Final = (_STATIC_ID, _TELEMETRY)
"""Values of `returned_as`."""

RETURN_MS_MAX: Final = 3_600_000
"""Longest absence that a likely return ends: one hour."""

_QUIET_MS: Final = 300_000

_Row = dict[str, Any]


def with_returns(steps: Iterable[Mapping[str, Any]]) -> list[_Row]:
    """Return the absences of a group: its departures with their returns.

    Args:
        steps: rows of three kinds (`step`) with `life`, `state` and `at_ms`, in any order.
            A departure has the columns of the table `absences`. An arrival has its names and its
            `member_id`. A size has the `member_count` of its state.
    """
    lives = defaultdict(list)
    for step in steps:
        lives[step["life"]].append(step)
    return [row for some in lives.values() for row in _Life().absences(some)]


@define
class _Away:
    """An open absence without proof: its row, and the sizes of the group."""

    row: _Row
    full: int
    is_smaller: bool = False


class _Life:
    """One life of a group, step by step."""

    def __init__(self) -> None:
        self._proofs: dict[tuple[str, str], _Row] = {}
        self._away: list[_Away] = []
        self._size, self._since_ms = 0, 0
        self._quiet_size: int | None = None
        # Members that came, by client and host, in the order of their arrival.
        self._came: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    def absences(self, steps: Iterable[Mapping[str, Any]]) -> list[_Row]:
        rows = []
        order = ("state", "step", "at_ms")
        for step in sorted(steps, key=lambda one: (*map(one.get, order), one["member_id"] or "")):
            if step["step"] == GONE:
                rows.append(self._leave(step))
            elif step["step"] == CAME:
                self._join(step)
            else:
                self._resize(step["member_count"], step["at_ms"])
        return rows

    def _resize(self, size: int, at_ms: int) -> None:
        if size != self._size:
            if self._size and at_ms - self._since_ms >= _QUIET_MS:
                self._quiet_size = self._size
            self._size, self._since_ms = size, at_ms
        self._away = [one for one in self._away if at_ms - one.row["gone_ms"] <= RETURN_MS_MAX]
        for one in self._away:
            one.is_smaller |= size < one.full

    def _leave(self, step: Mapping[str, Any]) -> _Row:
        row: _Row = {**step, "returned_as": NEVER}
        proof = _proof(step)
        came, member = self._came[_client(step)], step["member_id"]
        # The successor of a killed member joins before the old session is over.
        has_successor = bool(came) and came[-1] != member
        if member in came:
            came.remove(member)
        if proof is not None:
            self._proofs[proof] = row
        elif not has_successor:
            is_quiet = step["at_ms"] - self._since_ms >= _QUIET_MS
            quiet_size = None if is_quiet else self._quiet_size
            full = self._size if quiet_size is None else min(self._size, quiet_size)
            self._away.append(_Away(row, full))
        return row

    def _join(self, step: Mapping[str, Any]) -> None:
        self._came[_client(step)].append(step["member_id"])
        proof = _proof(step)
        if proof is not None:
            row = self._proofs.pop(proof, None)
            kind = proof[0]
        else:
            row, kind = self._likely(step), LIKELY
        if row is not None:
            row |= {
                "returned_ms": step["at_ms"],
                "returned_member_id": step["member_id"],
                "returned_as": kind,
                "absent_ms": step["at_ms"] - row["gone_ms"],
            }

    def _likely(self, step: Mapping[str, Any]) -> _Row | None:
        """Return the oldest open absence of the same client and host, if its return is likely.

        The absence is over in any case: the newcomer took the place of its member.
        """
        for place, one in enumerate(self._away):
            if _client(one.row) == _client(step):
                del self._away[place]
                is_short = step["at_ms"] - one.row["gone_ms"] <= RETURN_MS_MAX
                return one.row if one.is_smaller and is_short else None
        return None


def _client(step: Mapping[str, Any]) -> tuple[str, str]:
    return step["client_id"], step["client_host"]


def _proof(step: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the identity of a member with its kind; `None` without proof."""
    if step["instance_id"] is not None:
        return _STATIC_ID, step["instance_id"]
    return None if step.get("identity") is None else (_TELEMETRY, step["identity"])
