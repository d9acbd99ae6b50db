"""A live view with the telemetry that members write to a topic (`coopgroup.telemetry.topic`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import attrs
from attrs import define, field

from coopgroup.errors import CoopgroupError
from coopgroup.report.telemetry_topics import TelemetryReader
from coopgroup.telemetry import Envelope, from_json
from coopgroup.watch.polling import Reader
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
    _is_first: bool = field(default=True, init=False)

    def read(self) -> GroupView:
        """Return the group of this moment, with the records since the last look."""
        view = self.reader.read()
        lines: Iterable[bytes] = self.topic.read_now()
        if self._is_first:
            lines, self._is_first = [*lines, *self.topic.read_to_end()], False
        return attrs.evolve(view, records=tuple(_envelopes(lines)))


def _envelopes(lines: Iterable[bytes]) -> Iterator[Envelope]:
    for line in lines:
        try:
            yield from_json(json.loads(line))
        except (CoopgroupError, ValueError, TypeError, AttributeError):
            continue  # of a later release, or no record
