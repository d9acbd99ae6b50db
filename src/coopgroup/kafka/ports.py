"""What the group's thread needs of those around it, whatever the group shares.

A consumer of partitions and a group of other resources fill these places differently; the thread
and the leader's duty know no more of them than this.
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
    """What the group's thread has to know of a configuration."""

    @property
    def member(self) -> MemberConfig:
        """Settings of the member."""
        ...

    @property
    def connection(self) -> ConnectionSettings:
        """How to reach the brokers."""
        ...

    @property
    def max_poll_interval_ms(self) -> int:
        """How long an application may not poll, if it polls, and how long a stop may take."""
        ...

    @property
    def leader_timeout_ms(self) -> int:
        """A round that is not decided by then moves nothing."""
        ...


class Application(Protocol):
    """Who works on what the group grants; called on the group's thread, which must not wait."""

    def put(self, notice: Notice) -> None:
        """Hear of a grant, a revocation, a loss or the end of the membership."""
        ...

    def clear(self) -> None:
        """Forget what was heard and not yet begun: the group is left."""
        ...

    def wake(self) -> None:
        """Look at the clock: the time given to `GroupDriver.remind` has come."""
        ...


class RoundLookup(Protocol):
    """What a leader looks up; each call is bounded in time, and may raise."""

    def metadata(self, topics: Iterable[str]) -> TopicMetadata:
        """What exists of the given names."""
        ...

    def lags(self, resources: ResourceSet) -> Lags:
        """Figures for assignors that need them."""
        ...

    def close(self) -> None:
        """Let look-ups that wait for an answer fail at once."""
        ...
