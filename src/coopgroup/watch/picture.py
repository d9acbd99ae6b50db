"""`Picture`: the charts of the live page. The report draws them, once for all browsers.

Drawing a large group takes some tenths of a second of CPU time. So a picture is drawn only while a
browser is connected, after a change or when it is old. A pause follows, which bounds its share of a
core. Between two pictures the page's own script makes the open bars longer.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field

from coopgroup.report import drawing
from coopgroup.report.history.lag_lines import lag_lines
from coopgroup.report.page import legend_of, templates
from coopgroup.watch.chronicle import Chapter, Chronicle
from coopgroup.watch.rows import time_of_day

_SHARE_OF_CHANGES: Final = 0.03  # of a core, while owners change all the time
_SHARE_AT_REST: Final = 0.01
_CHANGED_S_MIN: Final = 1.0
_CHANGED_S_MAX: Final = 5.0  # a reader would not wait longer for a change
_REST_S_MIN: Final = 10.0


@define(eq=False)
class Picture:
    """The present charts.

    Attributes:
        version: grows with each picture that should be fetched.
    """

    chronicle: Chronicle
    version: int = field(default=0, init=False)
    _changes: int = field(default=-1, init=False)
    _at_s: float = field(default=-math.inf, init=False)
    _cost_s: float = field(default=0.0, init=False)
    # Of this version: the figures, what an answer has in any case, and the answers.
    _figures: Sequence[Any] = field(default=(), init=False)
    _common: dict[str, Any] = field(factory=dict, init=False)
    _patch: bytes = field(default=b"", init=False)
    _whole: bytes = field(default=b"", init=False)

    def look(self, now_s: float) -> None:
        """Begin a new version if the group has changed, or the present version is old."""
        age_s = now_s - self._at_s
        pause_s = min(_CHANGED_S_MAX, max(_CHANGED_S_MIN, self._cost_s / _SHARE_OF_CHANGES))
        is_changed = self._changes != self.chronicle.changes and age_s >= pause_s
        if is_changed or age_s >= max(_REST_S_MIN, self._cost_s / _SHARE_AT_REST):
            self.version += 1
            self._at_s = now_s
            self._changes = self.chronicle.changes
            self._common = {}

    def answer(self, shape: str) -> bytes:
        """Return the present version as JSON.

        Args:
            shape: of the figures that the page shows; "" if it shows none. Figures of the same
                shape get new values, others are replaced.
        """
        if not self._common:
            begun_s, is_first = time.thread_time(), not self._figures
            self._draw()
            # The first picture loads most of Bokeh, and says nothing about the next ones.
            self._cost_s = 0.0 if is_first else time.thread_time() - begun_s
        if shape == self._common["shape"]:
            return self._patch
        if not self._whole:
            figures = drawing.serialized(self._figures)
            self._whole = json.dumps(self._common | {"figures": figures}).encode()
        return self._whole

    def _draw(self) -> None:
        chapter = self.chronicle.chapter()
        self._whole = b""
        if chapter is None:
            self._common = {"version": self.version, "shape": ""}
            self._patch = json.dumps(self._common).encode()
            return
        history = chapter.history
        ledger = history.ledger
        lag = None if history.lag is None else lag_lines(ledger, history.lag)
        begin = time_of_day(ledger.begin_ms)
        self._figures = drawing.draw_history(history, chapter.paint, lag, since=begin).figures
        changeable = drawing.changeable(self._figures)
        self._common = {
            "version": self.version,
            "shape": _shape_of(self._figures, changeable),
            "begin_ms": ledger.begin_ms,
            "end_s": (ledger.until_ms - ledger.begin_ms) / 1000,
            "legend": _legend(chapter),
            "rounds": _rounds(chapter),
        }
        self._patch = json.dumps(self._common | {"changeable": changeable}).encode()


def _shape_of(figures: Sequence[Any], changeable: dict[str, dict[str, Any]]) -> str:
    """Return a text that differs if the figures cannot show each other's values."""
    sizes = [(one.height, *(len(labels) for labels in one.tags)) for one in figures]
    return f"{hash((tuple(sizes), *sorted(changeable))):x}"


def _legend(chapter: Chapter) -> dict[str, Any]:
    legend = legend_of(chapter.history.ledger.clients, chapter.paint)
    chips = [[one.label, one.background, one.owner] for one in legend.chips]
    return {"chips": chips, "more": legend.more}


def _rounds(chapter: Chapter) -> str:
    """Return the table of rounds as HTML, escaped; "" without telemetry of a leader."""
    if not chapter.history.rounds:
        return ""
    parts: Any = templates().get_template("parts.html").module
    begin_ms = chapter.history.ledger.begin_ms
    return str(parts.rounds(tuple(reversed(chapter.history.rounds)), begin_ms))
