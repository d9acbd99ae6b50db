"""The interfaces that the group's thread needs, independent of the shared resources.

A consumer of partitions and a group of other resources implement these interfaces differently. The
group's thread and the leader know only the interfaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.kafka.application_inbox import Notice
    from coopgroup.kafka.connection_settings import ConnectionSettings
    from coopgroup.leader import Lags, TopicMetadata
    from coopgroup.member import MemberConfig
    from coopgroup.model import ResourceSet

__all__ = ["Application", "DriverSettings", "RoundLookup"]


class DriverSettings(Protocol):
    """The settings that the group's thread reads."""

    @property
    def member(self) -> MemberConfig:
        """Return the settings of the member."""
        ...

    @property
    def connection(self) -> ConnectionSettings:
        """Return the settings to reach the brokers."""
        ...

    @property
    def max_poll_interval_ms(self) -> int:
        """Return how long a polling application may pause, and how long a stop may take."""
        ...

    @property
    def leader_timeout_ms(self) -> int:
        """Return the time limit of a round; after it, the round moves nothing."""
        ...


class Application(Protocol):
    """Works on granted resources; called on the group's thread, so no call may wait."""

    def put(self, notice: Notice) -> None:
        """Take a notice: a grant, a revocation, a loss or the end of the membership."""
        ...

    def clear(self) -> None:
        """Forget the notices that have not been served, because the group is left."""
        ...

    def wake(self) -> None:
        """Check the clock: the time given to `GroupDriver.remind` has come."""
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
