"""Stops that go on after `on_revoke` has returned, and how long each may take.

Rules of this file: a stop has an end. An application that forgets to say that it has stopped would
else keep partitions for ever on which nobody works. And each stop is one of its own: a word about
an earlier one says nothing about a later one of the same partitions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field, frozen

from coopgroup.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PutOff", "SlowStops"]

# The share of its time after which a stop is worth a warning.
_WARN_SHARE: Final = 0.5


@frozen(kw_only=True)
class PutOff:
    """What one call of `revoke_later` has put off, for `finish_revoke`.

    Attributes:
        number: of the stop; each run of `on_revoke` has another one.
        resources: what was put off.
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
class SlowStops:
    """The stops under way; only the application's thread changes them.

    Attributes:
        resources: all that is being stopped.
    """

    resources: ResourceSet = field(default=EMPTY, init=False)
    _stops: tuple[_Stop, ...] = field(default=(), init=False)
    _number: int = field(default=0, init=False)

    def put_off(self, resources: ResourceSet) -> PutOff:
        """What is to be remembered of the stop that comes next."""
        return PutOff(number=self._number + 1, resources=resources)

    def begin(self, resources: ResourceSet, began_s: float) -> None:
        """Begin the next stop, of nothing where nothing was put off."""
        self._number += 1
        if resources:
            stop = _Stop(number=self._number, began_s=began_s, resources=resources)
            self._set((*self._stops, stop))

    def end(self, resources: ResourceSet) -> None:
        """Forget what is given up or lost."""
        if resources & self.resources:
            self._set(attrs.evolve(one, resources=one.resources - resources) for one in self._stops)

    def still_of(self, put_off: PutOff) -> ResourceSet:
        """What of it is still being stopped, in the same stop."""
        same = [one.resources for one in self._stops if one.number == put_off.number]
        return put_off.resources & same[0] if same else EMPTY

    def parts(self, resources: ResourceSet) -> tuple[tuple[float, ResourceSet], ...]:
        """Some of what is being stopped, by the time at which its stop began."""
        parts = ((one.began_s, one.resources & resources) for one in self._stops)
        return tuple(one for one in parts if one[1])

    def due_at_s(self, limit_s: float) -> float:
        """When `take_long` or `overdue` has something next; infinite for never."""
        ends = (
            one.began_s + limit_s * (1.0 if one.is_warned else _WARN_SHARE) for one in self._stops
        )
        return min(ends, default=math.inf)

    def take_long(self, now_s: float, limit_s: float) -> ResourceSet:
        """What takes so long that it is worth a warning; each once."""
        long = {one.number for one in self._stops if one.began_s + limit_s * _WARN_SHARE <= now_s}
        fresh = [one.resources for one in self._stops if one.number in long and not one.is_warned]
        self._set(
            attrs.evolve(one, is_warned=one.is_warned or one.number in long) for one in self._stops
        )
        return _all(iter(fresh))

    def overdue(self, now_s: float, limit_s: float) -> ResourceSet:
        """What has had all the time that a stop may take."""
        return _all(one.resources for one in self._stops if one.began_s + limit_s <= now_s)

    def _set(self, stops: Iterator[_Stop] | tuple[_Stop, ...]) -> None:
        self._stops = tuple(one for one in stops if one.resources)
        self.resources = _all(one.resources for one in self._stops)


def _all(parts: Iterator[ResourceSet]) -> ResourceSet:
    union = EMPTY
    for one in parts:
        union |= one
    return union
