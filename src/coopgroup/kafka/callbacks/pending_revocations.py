"""Stops that continue after `on_revoke` has returned, and how long each may take.

Rules of this file: each stop has a time limit. Otherwise an application that forgets to finish a
stop would keep partitions for ever without consuming them. Each stop has its own number, so that
finishing an earlier stop does not finish a later stop of the same partitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import attrs
from attrs import define, field, frozen

from coopgroup.core.model import EMPTY, ResourceSet

__all__ = ["PendingRevocations", "PutOff"]

# Share of the time limit after which a stop is worth a warning.
_WARN_SHARE: Final = 0.5


@frozen(kw_only=True)
class PutOff:
    """The partitions put off by one call of `revoke_later`, for `finish_revoke`.

    Attributes:
        number: number of the stop; each run of `on_revoke` has its own.
    """

    number: int
    resources: ResourceSet


@frozen(kw_only=True)
class _Stop:
    number: int
    began_s: float
    resources: ResourceSet
    is_warned: bool = False


@define(eq=False)
class PendingRevocations:
    """The stops in progress; only the application's thread changes them."""

    resources: ResourceSet = field(default=EMPTY, init=False)
    _stops: tuple[_Stop, ...] = field(default=(), init=False)
    _number: int = field(default=0, init=False)

    def put_off(self, resources: ResourceSet) -> PutOff:
        """Return the token for the next stop."""
        return PutOff(number=self._number + 1, resources=resources)

    def begin(self, resources: ResourceSet, began_s: float) -> None:
        """Begin the next stop; without resources, only advance the number."""
        self._number += 1
        if resources:
            stop = _Stop(number=self._number, began_s=began_s, resources=resources)
            self._set((*self._stops, stop))

    def end(self, resources: ResourceSet) -> None:
        """Forget resources that are given up or lost."""
        if resources & self.resources:
            self._set(attrs.evolve(one, resources=one.resources - resources) for one in self._stops)

    @property
    def since_s(self) -> float | None:
        """Return when the longest stop in progress began; None without one."""
        return min((one.began_s for one in self._stops), default=None)

    def still_of(self, put_off: PutOff) -> ResourceSet:
        """Return the resources of a token that are still being stopped in the same stop."""
        same = [one.resources for one in self._stops if one.number == put_off.number]
        return put_off.resources & same[0] if same else EMPTY

    def parts(self, resources: ResourceSet) -> tuple[tuple[float, ResourceSet], ...]:
        """Return the given resources that are being stopped, grouped by start time."""
        parts = ((one.began_s, one.resources & resources) for one in self._stops)
        return tuple(one for one in parts if one[1])

    def due_at_s(self, limit_s: float) -> float:
        """Return when `take_long` or `overdue` has a result next; infinite if never."""
        ends = (
            one.began_s + limit_s * (1.0 if one.is_warned else _WARN_SHARE) for one in self._stops
        )
        return min(ends, default=math.inf)

    def take_long(self, now_s: float, limit_s: float) -> ResourceSet:
        """Return the resources whose stop takes long enough for a warning, each only once."""
        long = {one.number for one in self._stops if one.began_s + limit_s * _WARN_SHARE <= now_s}
        fresh = [one.resources for one in self._stops if one.number in long and not one.is_warned]
        self._set(
            attrs.evolve(one, is_warned=one.is_warned or one.number in long) for one in self._stops
        )
        return _all(iter(fresh))

    def overdue(self, now_s: float, limit_s: float) -> ResourceSet:
        """Return the resources whose stop has exceeded its time limit."""
        return _all(one.resources for one in self._stops if one.began_s + limit_s <= now_s)

    def _set(self, stops: Iterator[_Stop] | tuple[_Stop, ...]) -> None:
        self._stops = tuple(one for one in stops if one.resources)
        self.resources = _all(one.resources for one in self._stops)


def _all(parts: Iterator[ResourceSet]) -> ResourceSet:
    union = EMPTY
    for one in parts:
        union |= one
    return union
