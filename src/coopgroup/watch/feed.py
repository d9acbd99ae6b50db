"""`Feed`: the events that the live page gets, the same for all browsers: pure.

An event has only what changed since the one before. A browser that reconnects names the last event
that it saw (`Last-Event-ID`) and gets the events after it, or everything if they are forgotten.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from attrs import define, field

from coopgroup.printable import printable
from coopgroup.watch.rows import (
    cards,
    member_rows,
    move_rows,
    partition_rows,
    shared,
    time_of_day,
)
from coopgroup.watch.values import GroupView

_EVENTS_MAX: Final = 60
_DIGITS_MAX: Final = 18

_Rows: TypeAlias = Sequence[tuple[str, ...]]


@define(eq=False)
class Feed:
    """The events of one group.

    Attributes:
        source: differs between two runs of the server.
    """

    source: str
    _number: int = field(default=0, init=False)
    _events: deque[bytes] = field(factory=lambda: deque(maxlen=_EVENTS_MAX), init=False)
    _view: GroupView | None = field(default=None, init=False)
    _members: _Rows = field(default=(), init=False)
    _partitions: _Rows = field(default=(), init=False)
    _silence: dict[str, str] | None = field(default=None, init=False)
    _drawing: int = field(default=0, init=False)

    @property
    def last_id(self) -> str:
        """Return the id of the last event."""
        return f"{self.source}-{self._number}"

    def show(self, view: GroupView, drawing: int) -> None:
        """Add the event of a snapshot; `drawing` is the version of the picture."""
        before, self._view = self._view, view
        members, partitions = member_rows(view), partition_rows(view)
        event = {
            **self._of_group(view, drawing),
            "members": _changed(self._members, members),
            "partitions": _changed(self._partitions, partitions),
            "moves": move_rows(view.moves_since(before)),
        }
        self._members, self._partitions = members, partitions
        self._silence = None
        self._add(event)

    def show_silence(self, since_ms: int, reason: str) -> None:
        """Add the event of a look without an answer."""
        silence = {"since": time_of_day(since_ms), "reason": printable(reason)}
        if silence != self._silence:
            self._silence = silence
            self._add({"silence": silence})

    def after(self, last_id: str) -> bytes:
        """Return the events after one, which may be b""; everything if it is unknown."""
        source, _, number = last_id.rpartition("-")
        is_ours = source == self.source and number.isdecimal() and len(number) <= _DIGITS_MAX
        missed = self._number - int(number) if is_ours else -1
        if 0 <= missed <= len(self._events):
            return b"".join(islice(self._events, len(self._events) - missed, None))
        return self._everything()

    def _everything(self) -> bytes:
        event: dict[str, Any] = {"whole": True, "silence": self._silence}
        if self._view is not None:
            event |= self._of_group(self._view, self._drawing) | {
                "silence": self._silence,
                "members": _changed((), self._members),
                "partitions": _changed((), self._partitions),
                "moves": move_rows(self._view.moves),
            }
        return _written(self.last_id, event)

    def _of_group(self, view: GroupView, drawing: int) -> dict[str, Any]:
        self._drawing = drawing
        return {
            "shared": shared(view),
            "at_ms": view.at_ms,
            "at": time_of_day(view.at_ms),
            "cards": cards(view),
            "drawing": drawing,
            "silence": None,
            "trouble": printable(view.telemetry_error),
        }

    def _add(self, event: dict[str, Any]) -> None:
        self._number += 1
        self._events.append(_written(self.last_id, event))


def _changed(before: _Rows, after: _Rows) -> dict[str, Any]:
    """Return the number of rows, and each row that is not as before."""
    known = len(before)
    rows = [[y, row] for y, row in enumerate(after) if y >= known or row != before[y]]
    return {"count": len(after), "rows": rows}


def _written(event_id: str, event: dict[str, Any]) -> bytes:
    return f"id: {event_id}\ndata: {json.dumps(event)}\n\n".encode()
