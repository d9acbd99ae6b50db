"""Read the telemetry files of one group together; unreadable lines are counted and reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
from attrs import define, field, frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.codec import RESOURCES_MAX
from coopgroup.errors import ConfigurationError, said_by
from coopgroup.telemetry import Envelope, MemberReported, from_json


@frozen(kw_only=True)
class Damage:
    """Unreadable lines of one file.

    Attributes:
        first_line: number of the first, from 1.
    """

    file: str
    lines: int
    first_line: int
    reason: str


@frozen(kw_only=True)
class Reading:
    """The content of the files.

    Attributes:
        envelopes: records of all files in order of time; records of one time and file keep their
            order. Reports of members are left out: they say how a member is, not what happened.
    """

    envelopes: tuple[Envelope, ...] = field(repr=False)
    damages: tuple[Damage, ...]


def read_files(paths: Iterable[Path], group: str | None = None) -> Reading:
    """Read telemetry files, with one JSON object per line.

    Args:
        paths: the files. A damaged line, for example from a full disk or a killed process, costs
            only that line.
        group: group to read; None if the files are of one group.

    Raises:
        ConfigurationError: a file cannot be read, no line has a record, the group has no records,
            or there are several groups and `group` is None.
    """
    envelopes: list[Envelope] = []
    damages: list[Damage] = []
    partitions = _Partitions()
    given = tuple(paths)
    for path in given:
        damages += _read(path, envelopes, partitions)
    if not envelopes:
        raise ConfigurationError(
            "FILE", ", ".join(map(str, given)), f"records of telemetry{_first(damages)}"
        )
    chosen = _of_group(envelopes, group)
    return Reading(
        envelopes=tuple(sorted(chosen, key=lambda envelope: envelope.at_ms)),
        damages=tuple(damages),
    )


def _read(path: Path, envelopes: list[Envelope], partitions: _Partitions) -> Iterator[Damage]:
    count, first_line, reason = 0, 0, ""
    for number, line in _lines(path):
        try:
            envelope = _record(line)
            partitions.add(envelope)
            envelopes.append(envelope)
        # Errors of JSON and of `from_json` (ConfigurationError is a ValueError).
        except (ValueError, TypeError, RecursionError) as error:
            count += 1
            if count == 1:
                first_line, reason = number, _reason(error)
    if count:
        yield Damage(file=str(path), lines=count, first_line=first_line, reason=reason)


def _reason(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"not JSON: {error.msg}, column {error.colno}"
        case UnicodeDecodeError():
            return "not UTF-8"
        case RecursionError():
            return "nested too deeply"
        case ConfigurationError():
            return said_by(error)
        case _:
            return f"not a record: {said_by(error)}"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if stripped := line.strip():
                    yield number, stripped
    except OSError as error:
        raise ConfigurationError(
            "FILE", str(path), f"a file that can be read: {error.strerror}"
        ) from None


def _record(line: bytes) -> Envelope:
    row = json.loads(line.decode("utf-8-sig"))
    if not isinstance(row, dict):
        raise ConfigurationError("line", row, "a JSON object")
    return from_json(row)


@define(eq=False)
class _Partitions:
    """Counts the partitions of all files, by name.

    All who write such files choose the names. A page with many more rows would take minutes.
    """

    _counts: dict[str, int] = field(factory=dict, init=False)
    _total: int = field(default=0, init=False)

    def add(self, envelope: Envelope) -> None:
        """Add the partitions of a record.

        Raises:
            ConfigurationError: they would be too many; the count is as before.
        """
        found = attrs.astuple(envelope.record, recurse=False)
        more: dict[str, int] = {}
        for one in found:
            for name, indices in one.items() if isinstance(one, ResourceSet) else ():
                count = max(int(indices[-1]) + 1, 1)  # a connector itself has the index -1
                if count > max(self._counts.get(name, 0), more.get(name, 0)):
                    more[name] = count
        total = self._total + sum(more[name] - self._counts.get(name, 0) for name in more)
        if total > RESOURCES_MAX:
            raise ConfigurationError(
                "line", f"{total} partitions in all", f"{RESOURCES_MAX} at most"
            )
        self._total = total
        self._counts |= more


def _of_group(envelopes: Iterable[Envelope], group: str | None) -> list[Envelope]:
    records = list(envelopes)
    counts = Counter(envelope.group for envelope in records)
    if group is None and len(counts) > 1:
        raise ConfigurationError("--group", None, f"one of {', '.join(sorted(counts))}")
    chosen = [
        envelope
        for envelope in records
        if group in (None, envelope.group) and not isinstance(envelope.record, MemberReported)
    ]
    if not chosen:
        raise ConfigurationError("--group", group, f"one of {', '.join(sorted(counts))}")
    return chosen


def _first(damages: Iterable[Damage]) -> str:
    for damage in damages:
        return f"; {damage.file}, line {damage.first_line}: {damage.reason}"
    return ""
