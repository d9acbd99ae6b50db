"""The machines of the two group protocols behind one seam of three functions.

A host, a session and the fronts know only these functions, and one list of events and effects. The
settings choose the machine (`MemberConfig.protocol`), and a member keeps its machine for its life.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from coopgroup.core.member import machine as classic
from coopgroup.core.member import member as classic_member
from coopgroup.core.member import requests as classic_requests
from coopgroup.core.member.config import GroupProtocol
from coopgroup.core.member.consumer import machine as consumer
from coopgroup.core.member.consumer import requests as consumer_requests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.effects import Effect, KeptIdentity
    from coopgroup.core.member.events import Event
    from coopgroup.core.member.member import Member


class _Step(Protocol):
    def __call__(
        self, member: Member, event: Event, *, now_ms: int
    ) -> tuple[Member, tuple[Effect, ...]]: ...


@frozen(kw_only=True)
class _Machine:
    new_member: Callable[[MemberConfig, KeptIdentity | None], Member]
    step: _Step
    next_deadline_ms: Callable[[Member], int | None]


_MACHINES: Final[Mapping[GroupProtocol, _Machine]] = types.MappingProxyType(
    {
        GroupProtocol.CLASSIC: _Machine(
            new_member=classic_member.new_member,
            step=classic.step,
            next_deadline_ms=classic_requests.next_deadline_ms,
        ),
        GroupProtocol.CONSUMER: _Machine(
            new_member=consumer.new_member,
            step=consumer.step,
            next_deadline_ms=consumer_requests.next_deadline_ms,
        ),
    }
)


def new_member(config: MemberConfig, kept: KeptIdentity | None = None) -> Member:
    """Return a member that has not subscribed yet.

    Args:
        config: its settings.
        kept: its identity from an earlier process that has ended, or None. Ignored unless the
            settings say that identities are stored.

    Raises:
        ConfigurationError: settings contradict each other, or one is missing.
    """
    return _MACHINES[config.protocol].new_member(config, kept)


def step(member: Member, event: Event, *, now_ms: int) -> tuple[Member, tuple[Effect, ...]]:
    """Take one event.

    Args:
        member: the member before the event.
        event: the event.
        now_ms: the host's monotonic clock, in ms; never less than at an earlier step.

    Returns:
        The member after the event, and the effects for the host, in order.

    Raises:
        LocalProtocolError: the event is not legal in the member's state; the member is unchanged.
    """
    return _MACHINES[member.config.protocol].step(member, event, now_ms=now_ms)


def next_deadline_ms(member: Member) -> int | None:
    """Return when the host must give `Woken` at the latest, in ms; None for never."""
    return _MACHINES[member.config.protocol].next_deadline_ms(member)
