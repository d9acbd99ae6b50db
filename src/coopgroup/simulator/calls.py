"""`Call`: a request on its way between a process and the brokers.

The rule of this file: it says all that the network, the brokers and a transcript have to know of a
process (`Client`), so that a process may know them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

if TYPE_CHECKING:
    from coopgroup.member import MemberConfig
    from coopgroup.member.effects import Send
    from coopgroup.session import Session, SessionEvent

__all__ = ["Call", "Client", "Clock", "Connection"]


class Clock(Protocol):
    """Whatever knows the virtual time."""

    @property
    def now_ms(self) -> int:
        """Virtual time, in ms."""
        ...


class Client(Protocol):
    """Who sends requests and takes their outcomes: one life of a process."""

    @property
    def name(self) -> str:
        """Client id, the same over all lives."""
        ...

    @property
    def world(self) -> Clock:
        """Where it lives."""
        ...

    @property
    def config(self) -> MemberConfig:
        """Settings of its member."""
        ...

    @property
    def session(self) -> Session:
        """What its requests come from."""
        ...

    @property
    def alive(self) -> bool:
        """Whether this life goes on."""
        ...

    def give(self, event: SessionEvent) -> None:
        """Take an outcome."""
        ...


@define(eq=False)
class Connection:
    """One connection of a process.

    Attributes:
        waiting: calls that wait for those before them.
        serving: the one that the broker works on.
        free_at_ms: nothing that is sent now arrives before.
        held_until_ms: nothing arrives before, once the connection was given up.
    """

    waiting: deque[Call] = field(factory=deque)
    serving: Call | None = None
    free_at_ms: int = 0
    held_until_ms: int = 0


@define(eq=False)
class Call:
    """A request on its way.

    Attributes:
        process: whose it is.
        send: the effect.
        connection: that it took.
        answer_lost: whether its answer will not arrive.
        due_ms: when no answer will come any more.
        is_timed: whether that is put into the queue. Nearly all are answered long before, so it
            is only where a call has to wait.
        refused_with: code that it is refused with unseen, None for none.
        is_replied: whether its answer is on the way.
        is_over: whether nothing comes of it any more.
    """

    process: Client
    send: Send
    connection: Connection
    due_ms: int
    is_timed: bool = False
    answer_lost: bool = False
    refused_with: int | None = None
    is_replied: bool = False
    is_over: bool = False
