"""The machines of the two group protocols behind one seam of three functions.

A host, a session and the fronts know only these functions, and one list of events and effects. The
settings choose the machine (`MemberConfig.protocol`), and a member keeps its machine for its life.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from coopgroup.core.member import machine as classic
from coopgroup.core.member import member as classic_member
from coopgroup.core.member import requests as classic_requests
from coopgroup.core.member.config import GroupProtocol

if TYPE_CHECKING:
    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.effects import Effect, KeptIdentity
    from coopgroup.core.member.events import Event
    from coopgroup.core.member.member import Member


class _Step(Protocol):
    def __call__(
        self, member: Member, event: Event, *, now_ms: int
    ) -> tuple[Member, tuple[Effect, ...]]: ...


@frozen
class _Machine:
    new_member: Callable[[MemberConfig, KeptIdentity | None], Member]
    step: _Step
    next_deadline_ms: Callable[[Member], int | None]


@cache
def _machine(protocol: GroupProtocol) -> _Machine:
    """Return the machine of a protocol; a process loads only the machines of its members."""
    if protocol is GroupProtocol.CONSUMER:
        from coopgroup.core.member.consumer import machine, requests  # noqa: PLC0415 - see above

        return _Machine(machine.new_member, machine.step, requests.next_deadline_ms)
    return _Machine(classic_member.new_member, classic.step, classic_requests.next_deadline_ms)


def new_member(config: MemberConfig, kept: KeptIdentity | None = None) -> Member:
    """Return a member that has not subscribed yet.

    Args:
        config: its settings.
        kept: its identity from an earlier process that has ended, or None. Ignored unless the
            settings say that identities are stored.

    Raises:
        ConfigurationError: settings contradict each other, or one is missing.
    """
    return _machine(config.protocol).new_member(config, kept)


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
    return _machine(member.config.protocol).step(member, event, now_ms=now_ms)


def next_deadline_ms(member: Member) -> int | None:
    """Return when the host must give `Woken` at the latest, in ms; None for never."""
    return _machine(member.config.protocol).next_deadline_ms(member)
