"""`Declines`: the resources that a member asks its group to give to other members, for some time.

A declined resource stays with this member until the leader has given it to another one. Meanwhile
the member tells all leaders that it declined. A decline ends with its time, with a new definition
of the resource, or with a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from attrs import define, field, frozen

from coopgroup.core.model import Resource
from coopgroup.errors import Decline
from coopgroup.groups.catalogue import Mark
from coopgroup.kafka.clock import now_s


@frozen
class _Declined:
    refusal: Decline
    until_s: float
    mark: Mark | None


@define(eq=False)
class Declines:
    """The declines of one member.

    Attributes:
        listed: returns the present definition of a resource; None if the catalogue does not have
            it.
    """

    listed: Callable[[Resource], Mark | None]
    _declined: dict[Resource, _Declined] = field(factory=dict, init=False)

    def __iter__(self) -> Iterator[Resource]:
        """Iterate over the declined resources."""
        return iter(self._declined)

    def refusal_of(self, resource: Resource) -> Decline | None:
        """Return why a resource is declined; None if it is not."""
        declined = self._declined.get(resource)
        return None if declined is None else declined.refusal

    def add(self, resource: Resource, refusal: Decline) -> None:
        """Decline a resource from now on."""
        until_s = now_s() + refusal.for_s
        self._declined[resource] = _Declined(refusal, until_s, self.listed(resource))

    def ended(self) -> list[Resource]:
        """Return the resources whose time is over, or whose definition has changed."""
        now = now_s()
        return [
            resource
            for resource, one in self._declined.items()
            if now >= one.until_s or one.mark != self.listed(resource)
        ]

    def remove(self, resources: Iterable[Resource]) -> None:
        """Forget the declines of some resources."""
        for resource in resources:
            del self._declined[resource]

    @property
    def due_at_s(self) -> float:
        """Return when the time of a decline is over next; infinite without declines."""
        return min((one.until_s for one in self._declined.values()), default=math.inf)
