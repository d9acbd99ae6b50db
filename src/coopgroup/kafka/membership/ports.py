"""The interfaces that the group's thread needs, independent of the shared resources.

A consumer of partitions and a group of other resources implement these interfaces differently. The
group's thread and the leader know only the interfaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.core.model.lags import Lags
from coopgroup.core.model.metadata import TopicMetadata

Notice: TypeAlias = (
    GrantResources | RevokeResources | LoseResources | BeginWarmups | CancelWarmups | FailMember
)
"""A message from the group's thread to the application."""


class Application(Protocol):
    """Works on granted resources; called on the group's thread, so no call may wait."""

    def put(self, notice: Notice) -> None:
        """Take a notice: a grant, a revocation, a loss, warm-ups, the end of the membership."""
        ...

    def clear(self) -> None:
        """Forget the notices that have not been served, because the group is left."""
        ...

    def wake(self) -> None:
        """Check the clock: the time given to `GroupDriver.remind` has come."""
        ...


class ResourceApplication(Application, Protocol):
    """The application of a group of named resources; it takes notices immediately."""

    def failed(self) -> Mapping[Resource, str]:
        """Return the resources whose start has failed permanently, and why; for any thread."""
        ...


class RoundLookup(Protocol):
    """The leader's look-ups; each call is bounded in time, and may raise."""

    def metadata(self, topics: Iterable[str]) -> TopicMetadata:
        """Return the existing resources of the given names."""
        ...

    def lags(self, resources: ResourceSet) -> Lags:
        """Return the lags, for assignors that need them."""
        ...

    def close(self) -> None:
        """Make pending look-ups fail immediately."""
        ...
