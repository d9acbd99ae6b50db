"""`PendingRevocations`: the stops of the application that are in progress, each with a time limit.

Without the limit, an application that never finishes a stop would keep its resources for ever, and
no member would work on them. A consumer counts the partitions whose stop continues after
`on_revoke` (`listener`). A group of named resources counts each revoked resource (`groups.work`).

Each stop has its own number, so that finishing an earlier stop does not finish a later stop of the
same partitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from attrs import define, field, frozen

from coopgroup.core.model import Resource, ResourceSet

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


@define(eq=False)
class _Stop:
    number: int
    began_s: float
    is_warned: bool = False


@define(eq=False)
class PendingRevocations:
    """The stops in progress; one thread at a time changes them, and any thread may read them.

    Attributes:
        limit_s: time limit of a stop.
    """

    limit_s: float
    _stops: dict[Resource, _Stop] = field(factory=dict, init=False)
    _number: int = field(default=0, init=False)

    def __len__(self) -> int:
        """Return the number of resources that are being stopped."""
        return len(self._stops)

    @property
    def resources(self) -> ResourceSet:
        """Return the resources that are being stopped."""
        return ResourceSet.from_pairs(self._stops.copy())

    @property
    def since_s(self) -> float | None:
        """Return when the longest stop in progress began; None without one."""
        return min((one.began_s for one in self._stops.copy().values()), default=None)

    @property
    def due_at_s(self) -> float:
        """Return when `take_late` has a result next; infinite if never."""
        return min(map(self._due_at_s, self._stops.values()), default=math.inf)

    def _due_at_s(self, stop: _Stop) -> float:
        return stop.began_s + self.limit_s * (1.0 if stop.is_warned else _WARN_SHARE)

    def put_off(self, resources: ResourceSet) -> PutOff:
        """Return the token for the next stop."""
        return PutOff(number=self._number + 1, resources=resources)

    def begin(self, resources: Iterable[Resource], began_s: float) -> None:
        """Begin the next stop; without resources, only advance the number."""
        self._number += 1
        self._stops |= dict.fromkeys(resources, _Stop(self._number, began_s))

    def end(self, resources: Iterable[Resource]) -> None:
        """Forget resources that are given up or lost."""
        for resource in resources:
            self._stops.pop(resource, None)

    def still_of(self, put_off: PutOff) -> ResourceSet:
        """Return the resources of a token that are still being stopped in the same stop."""
        return ResourceSet.from_pairs(
            one
            for one in put_off.resources
            if one in self._stops and self._stops[one].number == put_off.number
        )

    def parts(self, resources: ResourceSet) -> dict[float, ResourceSet]:
        """Return the given resources that are being stopped, by the time when their stop began."""
        parts: dict[float, list[Resource]] = {}
        for resource, stop in self._stops.items():
            if resource in resources:
                parts.setdefault(stop.began_s, []).append(resource)
        return {began_s: ResourceSet.from_pairs(part) for began_s, part in parts.items()}

    def take_late(self, now_s: float) -> tuple[ResourceSet, ResourceSet]:
        """Return the resources whose stop takes long, each only once, and the overdue resources."""
        due = [(one, stop) for one, stop in self._stops.items() if now_s >= self._due_at_s(stop)]
        overdue = [one for one, stop in due if now_s >= stop.began_s + self.limit_s]
        for _, stop in due:
            stop.is_warned = True
        long = ResourceSet.from_pairs(one for one, _ in due) - ResourceSet.from_pairs(overdue)
        return long, ResourceSet.from_pairs(overdue)
