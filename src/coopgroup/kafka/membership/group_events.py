"""Events on their way to the group's thread, from any thread; answers overtake other events.

An application that commits each record can post faster than the thread takes. Behind thousands of
commits, the answer to a heartbeat would come too late to renew the lease. Events of one thread keep
their order: only the transport's thread and the leader's thread post overtaking events.
"""

from __future__ import annotations

import enum
import queue
from collections import deque
from typing import Final

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.events import Answered, BellRang, RequestFailed, Woken
from coopgroup.core.model.group_api import Answer
from coopgroup.core.session import DecisionMade, SessionEvent
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure

_OVERTAKING: Final = (Answered, RequestFailed, DecisionMade, BellRang)
CODE_OF_FAILURE: Final = {
    FailureKind.TIMED_OUT: ErrorCode.NO_ANSWER,
    FailureKind.DISCONNECTED: ErrorCode.NO_ANSWER,
    FailureKind.UNSUPPORTED: ErrorCode.UNSUPPORTED_BY_BROKER,
    FailureKind.AUTHENTICATION: ErrorCode.UNAUTHENTICATED,
    FailureKind.HANDSHAKE: ErrorCode.NO_ANSWER,
}


class _Token(enum.Enum):
    """Wakes the thread for an overtaking event; the thread may have taken the event already."""

    OVERTAKEN = "overtaken"


@define(eq=False)
class GroupEvents:
    """The event queue of one member."""

    _queue: queue.SimpleQueue[SessionEvent | _Token | None] = field(
        factory=queue.SimpleQueue, init=False
    )
    _first: deque[SessionEvent] = field(factory=deque, init=False)

    @property
    def are_waiting(self) -> bool:
        """Return whether `take` would return immediately."""
        return bool(self._first) or not self._queue.empty()

    def put(self, event: SessionEvent) -> None:
        """Add an event without waiting, and without a lock that a signal handler could meet."""
        if isinstance(event, _OVERTAKING):
            self._first.append(event)
            self._queue.put(_Token.OVERTAKEN)
        else:
            self._queue.put(event)

    def end(self) -> None:
        """Make `take` return None after all earlier events."""
        self._queue.put(None)

    def take(self, timeout_s: float | None) -> SessionEvent | None:
        """Take the next event: `Woken` after the timeout, None at the end."""
        if self._first:
            return self._first.popleft()
        try:
            event = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return Woken()
        if event is not _Token.OVERTAKEN:
            return event
        return self._first.popleft() if self._first else Woken()


def outcome_event(request_id: int, outcome: Answer | TransportFailure) -> SessionEvent:
    """Return the session event for the outcome of a request."""
    if isinstance(outcome, TransportFailure):
        code = CODE_OF_FAILURE[outcome.kind]
        return RequestFailed(request_id=request_id, code=code, message=outcome.message)
    return Answered(request_id=request_id, answer=outcome)
