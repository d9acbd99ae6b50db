"""Telemetry files, whole and damaged."""

import json
from pathlib import Path

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry import codec
from coopgroup.errors import ConfigurationError
from coopgroup.report import telemetry_files
from coopgroup.report.telemetry_files import Damage, read_files
from coopgroup.telemetry import MemberReported, to_json
from tests.unit.report.histories import Story

HALF_RIGHT = (
    '{"schema": 1, "at_ms": 1, "group": "g", "member": "", "generation": 1,'
    ' "kind": "resources_started", "resources": {"orders": 5}}'
)


def lines(story: Story) -> list[str]:
    return [json.dumps(to_json(envelope)) for envelope in story.envelopes]


def written(path: Path, *content: str | bytes) -> Path:
    raw = [line if isinstance(line, bytes) else line.encode() for line in content]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return path


def member(name: str, *times_ms: int, group: str = "billing") -> Story:
    story = Story(group)
    for at_ms in times_ms:
        story.work(at_ms, name, ResourceSet({"orders": [at_ms]}))
    return story


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    first, second = member("a", 1, 5, 5), member("b", 0, 5)
    paths = [
        written(tmp_path / "a", *lines(first)),
        written(tmp_path / "b", b"\xef\xbb\xbf" + lines(second)[0].encode(), *lines(second)[1:]),
    ]
    reading = read_files(paths)
    assert [(one.at_ms, one.client) for one in reading.envelopes] == [
        (0, "b"),
        (1, "a"),
        (5, "a"),
        (5, "a"),
        (5, "b"),
    ]
    assert reading.damages == ()


def test_reports_of_members_are_left_out(tmp_path: Path) -> None:
    story = member("a", 5)
    story.write(9, "a", MemberReported(state="stable", interval_ms=10_000))
    reading = read_files([written(tmp_path / "a", *lines(story))])
    assert ([one.at_ms for one in reading.envelopes], reading.damages) == ([5], ())


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes, column 2"),
        (b"\xff\xfe", "not UTF-8"),
        ("[1]", "line: got [1], expected a JSON object"),
        ('{"schema": 9}', "schema: got 9, expected 1"),
        ("[" * 100_000, "nested too deeply"),
        (HALF_RIGHT, "not a record: "),
    ],
)
def test_damaged_line_costs_that_line_only(
    tmp_path: Path, damaged: str | bytes, reason: str
) -> None:
    good = lines(member("a", 1, 2))
    path = written(tmp_path / "a", good[0], "", damaged, good[1], damaged)
    reading = read_files([path])
    assert len(reading.envelopes) == 2
    (damage,) = reading.damages
    assert damage == Damage(file=str(path), lines=2, first_line=3, reason=damage.reason)
    assert reason in damage.reason
    assert "\n" not in damage.reason


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ({"orders": list(range(11))}, "resources: got '11 resources', expected 10 at most"),
        ({"audit": [0], "orders": [9]}, "line: got '11 partitions in all', expected 10 at most"),
        ({"orders": [2**31 - 1]}, "line: got '2147483648 partitions in all', expected 10 at"),
    ],
)
def test_line_with_too_many_partitions_is_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resources: dict[str, list[int]],
    reason: str,
) -> None:
    """All who write telemetry choose the partitions, and a page has a row for each."""
    for module in (codec, telemetry_files):
        monkeypatch.setattr(module, "RESOURCES_MAX", 10)
    (first,) = lines(member("a", 1))
    forged = json.loads(first) | {"resources": resources}
    last = json.loads(first) | {"resources": {"orders": [9]}}
    path = written(tmp_path / "a", first, json.dumps(forged), json.dumps(last))
    reading = read_files([path])
    assert len(reading.envelopes) == 2
    (damage,) = reading.damages
    assert (damage.lines, damage.first_line) == (1, 2)
    assert damage.reason.startswith(reason)


def test_groups_are_told_apart(tmp_path: Path) -> None:
    both = [*lines(member("a", 1)), *lines(member("b", 2, group="audit"))]
    path = written(tmp_path / "both", *both)
    with pytest.raises(ConfigurationError, match=r"expected one of audit, billing$"):
        read_files([path])
    assert [one.client for one in read_files([path], "audit").envelopes] == ["b"]
    with pytest.raises(ConfigurationError, match=r"^--group: got 'nope', expected one of audit"):
        read_files([path], "nope")
