"""`Call`: a request on its way between a process and the brokers.

`Caller` contains everything that the network, the brokers and a transcript must know of a process.
The process module can therefore import them, and no import cycle arises.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from attrs import define, field

from coopgroup.core.member import MemberConfig
from coopgroup.core.member.effects import Send
from coopgroup.core.session import Session, SessionEvent


class Clock(Protocol):
    """A source of the virtual time."""

    @property
    def now_ms(self) -> int:
        """Virtual time, in ms."""
        ...


class Caller(Protocol):
    """One life of a process: sends requests and receives their results."""

    @property
    def name(self) -> str:
        """Client id, the same in all lives."""
        ...

    @property
    def world(self) -> Clock:
        """The world with the virtual time."""
        ...

    @property
    def config(self) -> MemberConfig:
        """Settings of its member."""
        ...

    @property
    def session(self) -> Session:
        """The session that creates its requests."""
        ...

    @property
    def alive(self) -> bool:
        """Whether this life continues."""
        ...

    def give(self, event: SessionEvent) -> None:
        """Take the result of a request."""
        ...


@define(eq=False)
class Connection:
    """One connection of a process.

    Attributes:
        free_at_ms: earliest arrival of the next request.
        held_until_ms: earliest arrival on a connection that was given up.
    """

    waiting: deque[Call] = field(factory=deque)
    serving: Call | None = None
    free_at_ms: int = 0
    held_until_ms: int = 0


@define(eq=False)
class Call:
    """A request on its way.

    Attributes:
        is_timed: whether the queue contains this deadline. Only calls that have to wait need it,
            because nearly all calls are answered long before.
        refused_with: error code of a refusal without a look at the request, or None.
        is_late: whether its process has given up on it, and it may still arrive.
    """

    process: Caller
    send: Send
    connection: Connection
    due_ms: int
    is_timed: bool = False
    answer_lost: bool = False
    answer_delay_ms: int = 0
    refused_with: int | None = None
    is_replied: bool = False
    is_late: bool = False
    is_over: bool = False

    @property
    def sent_ms(self) -> int:
        """When it was sent."""
        return self.due_ms - self.send.timeout_ms
