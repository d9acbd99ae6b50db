"""A live view with the telemetry that members write to a topic (`coopgroup.telemetry.topic`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from attrs import define, field

from coopgroup.errors import CoopgroupError
from coopgroup.report.telemetry_topics import TelemetryReader
from coopgroup.telemetry import Envelope, MemberReported, from_json
from coopgroup.telemetry.codec import REPORT
from coopgroup.watch.polling import Reader
from coopgroup.watch.present import Present
from coopgroup.watch.values import GroupView

__all__ = ["TelemetryView"]


@define(eq=False)
class TelemetryView:
    """Reads a group, and the telemetry of its members.

    Attributes:
        reader: reads the group itself.
        topic: the telemetry of the group; it is open.
    """

    reader: Reader
    topic: TelemetryReader
    _present: Present = field(factory=Present, init=False)
    _is_first: bool = field(default=True, init=False)

    def read(self) -> GroupView:
        """Return the group of this moment, with the records since the last look."""
        view = self.reader.read()
        lines: Iterable[bytes] = self.topic.read_now()
        is_first, self._is_first = self._is_first, False
        if is_first:
            lines = [*lines, *self.topic.read_to_end()]
        records = []
        for envelope in _envelopes(lines):
            arrived_ms = min(envelope.at_ms, view.at_ms) if is_first else view.at_ms
            self._present.note(envelope, arrived_ms)
            if not isinstance(envelope.record, MemberReported):
                records.append(envelope)
        return attrs.evolve(self._present.added_to(view), records=tuple(records))


def _envelopes(lines: Iterable[bytes]) -> Iterator[Envelope]:
    """Yield the records, of the reports of each member only the last one."""
    rows = list(_rows(lines))
    last = {str(row.get("member")): row for row in rows if row.get("kind") == REPORT}
    for row in rows:
        if row.get("kind") == REPORT and last[str(row.get("member"))] is not row:
            continue
        try:
            yield from_json(row)
        except (CoopgroupError, ValueError, TypeError, AttributeError):
            continue  # of a later release


def _rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row
