"""A live view with the telemetry that members write to a topic (`coopgroup.telemetry.topic`)."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
from attrs import define, field

from coopgroup.core.telemetry.codec import REPORT
from coopgroup.errors import CoopgroupError, said_by
from coopgroup.telemetry import Envelope, MemberReported, from_json
from coopgroup.watch.polling import Reader
from coopgroup.watch.present import Present
from coopgroup.watch.telemetry_topics import TelemetryReader
from coopgroup.watch.values import GroupView

# Of one look. A group of a thousand members writes so many in a few rounds.
_RECORDS_MAX: Final = 50_000
_BYTES_MAX: Final = 64 * 2**20


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
    # Records that were never shown, and why.
    _too_many: int = field(default=0, init=False)
    _unreadable: int = field(default=0, init=False)

    def read(self) -> GroupView:
        """Return the group of this moment, with the records since the last look.

        An error of the topic is part of the result, because the brokers' facts are right. All who
        may write to the topic choose its records, so only the newest ones of a look are read.
        """
        view = self.reader.read()
        newest = _Newest()
        error = self._read_into(newest)
        records = []
        for envelope in self._envelopes(newest):
            arrived_ms = min(envelope.at_ms, view.at_ms) if self._is_behind else view.at_ms
            self._present.note(envelope, arrived_ms)
            if not isinstance(envelope.record, MemberReported):
                records.append(envelope)
        self._is_behind = self._is_behind and bool(error)
        found = self._present.added_to(view)
        self._too_many += newest.left_out
        reasons = (
            error,
            self.topic.times_made_again
            and "the topic was made again, so it is read from its beginning",
            self._too_many and f"{self._too_many:,} older records left out, because they were many",
            self._unreadable and f"{self._unreadable:,} unreadable records left out",
        )
        told = "; ".join(str(reason) for reason in reasons if reason)
        return attrs.evolve(found, records=tuple(records), telemetry_error=told)

    def _read_into(self, newest: _Newest) -> str:
        """Read the new records, and return why there may be more; "" without an error."""
        is_first, self._is_first = self._is_first, False
        try:
            newest.take(self.topic.read_now())  # the lines before an error stay
            if is_first:  # only once: a topic without brokers would delay each look
                newest.take(self.topic.read_to_end())
        except Exception as error:  # noqa: BLE001 -- shown; the next look may work
            return said_by(error)
        return ""

    def _envelopes(self, newest: _Newest) -> Iterator[Envelope]:
        for line in newest.lines():
            try:
                yield from_json(json.loads(line))
            # The last two are of a row that is no object.
            except (CoopgroupError, ValueError, RecursionError, TypeError, AttributeError):
                self._unreadable += 1


@define(eq=False)
class _Newest:
    """The newest lines of a look; of the reports of each member only the last one.

    Attributes:
        left_out: number of older lines that were dropped. Repeated reports do not count.
    """

    left_out: int = 0
    # Lines by their number, and the number of the last report by the hash of its member.
    # A plain dictionary finds its first key slowly after many first ones were deleted.
    _lines: OrderedDict[int, bytes] = field(factory=OrderedDict, init=False)
    _reports: dict[int, int] = field(factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    def take(self, lines: Iterable[bytes]) -> None:
        """Add lines."""
        for line in lines:
            self._number += 1
            self._lines[self._number] = line
            self._bytes += len(line)
            member = _reporter(line)
            if member is not None:
                self._drop(self._reports.pop(member, 0))
                self._reports[member] = self._number
                if len(self._reports) > 2 * _RECORDS_MAX:
                    self._reports = {
                        key: at for key, at in self._reports.items() if at in self._lines
                    }
            while len(self._lines) > _RECORDS_MAX or self._bytes > _BYTES_MAX:
                self._drop(next(iter(self._lines)))
                self.left_out += 1

    def lines(self) -> Iterable[bytes]:
        """Return the lines, oldest first."""
        return self._lines.values()

    def _drop(self, number: int) -> None:
        self._bytes -= len(self._lines.pop(number, b""))


def _reporter(line: bytes) -> int | None:
    """Return the hash of the member whose report a line is; None for another record."""
    if REPORT.encode() not in line:
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_report = isinstance(row, dict) and row.get("kind") == REPORT
    return hash(str(row.get("member"))) if is_report else None
