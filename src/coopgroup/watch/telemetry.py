"""A live view with the telemetry that members write to a topic (`coopgroup.telemetry.topic`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from attrs import define, field

from coopgroup.errors import CoopgroupError
from coopgroup.telemetry import Envelope, MemberReported, from_json
from coopgroup.telemetry.codec import REPORT
from coopgroup.watch.polling import Reader
from coopgroup.watch.present import Present
from coopgroup.watch.telemetry_topics import TelemetryReader
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
    # Until a look without an error, records may be older than the look.
    _is_behind: bool = field(default=True, init=False)

    def read(self) -> GroupView:
        """Return the group of this moment, with the records since the last look.

        An error of the topic is part of the result, because the brokers' facts are right.
        """
        view = self.reader.read()
        lines, error = self._lines()
        records = []
        for envelope in _envelopes(lines):
            arrived_ms = min(envelope.at_ms, view.at_ms) if self._is_behind else view.at_ms
            self._present.note(envelope, arrived_ms)
            if not isinstance(envelope.record, MemberReported):
                records.append(envelope)
        self._is_behind = self._is_behind and bool(error)
        found = self._present.added_to(view)
        return attrs.evolve(found, records=tuple(records), telemetry_error=error)

    def _lines(self) -> tuple[list[bytes], str]:
        """Return the new records, and why there may be more; "" without an error."""
        lines: list[bytes] = []
        is_first, self._is_first = self._is_first, False
        try:
            # `extend` keeps the lines that come before an error.
            lines.extend(self.topic.read_now())
            if is_first:  # only once: a topic without brokers would delay each look
                lines.extend(self.topic.read_to_end())
        except Exception as error:  # noqa: BLE001 -- shown; the next look may work
            return lines, " ".join(str(error).split())
        return lines, ""


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
