"""Telemetry into a file and into the log."""

import json
import logging
from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.model import ResourceSet
from coopgroup.telemetry import (
    CommitFailed,
    Envelope,
    MembershipLost,
    Record,
    RequestRefused,
    ResourcesStarted,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    from_json,
)

STARTED = ResourcesStarted(resources=ResourceSet({"t": [0, 1, 2]}))


def test_records_are_appended_to_the_file_line_by_line(tmp_path: Path) -> None:
    """Readable at once, also by another process; what was there before stays."""
    path = tmp_path / "telemetry.jsonl"
    path.write_text("before\n")
    heard: list[Envelope] = []
    sink = TelemetrySink("g", str(path), heard.append)
    sink.write(STARTED, member_id="m-1", generation=7)
    before, line = path.read_text().splitlines()
    sink.close()
    assert before == "before"
    envelope = from_json(json.loads(line))
    assert [envelope] == heard
    assert (envelope.group, envelope.member, envelope.generation, envelope.record) == (
        "g",
        "m-1",
        7,
        STARTED,
    )
    assert envelope.at_ms > 1_700_000_000_000


def test_records_when_the_sink_is_closed_are_left_out_of_the_file(tmp_path: Path) -> None:
    """A thread that ends late does no harm; closing twice neither."""
    path = tmp_path / "telemetry.jsonl"
    sink = TelemetrySink("g", str(path))
    sink.close()
    sink.write(STARTED, member_id="m-1", generation=7)
    sink.close()
    assert path.read_text() == ""


def test_file_when_it_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    """By the constructor, not at the first record."""
    path = tmp_path / "absent" / "telemetry.jsonl"
    with pytest.raises(ConfigurationError) as caught:
        TelemetrySink("g", str(path))
    assert str(caught.value) == (
        f"coopgroup.telemetry.file: got {str(path)!r}, "
        "expected a file to write (No such file or directory)"
    )


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (STARTED, logging.INFO),
        (StateChanged(before="a", after="b", cause="c"), logging.DEBUG),
        (RequestRefused(request="a", error="b", action="c"), logging.DEBUG),
        (MembershipLost(resources=ResourceSet(), cause="c"), logging.WARNING),
        (CommitFailed(resources=ResourceSet(), error="e"), logging.WARNING),
        (RoundRefused(violations=("v",)), logging.WARNING),
        (SubscriptionUnreadable(member_id="m", reason="r"), logging.WARNING),
    ],
)
def test_records_are_logged_as_the_documentation_says(
    caplog: pytest.LogCaptureFixture, record: Record, level: int
) -> None:
    """Debug for steps, warnings for what went wrong, the rest as information."""
    with caplog.at_level(logging.DEBUG, logger="coopgroup"):
        TelemetrySink("g").write(record, member_id="m-1", generation=7)
    assert [(one.name, one.levelno) for one in caplog.records] == [("coopgroup", level)]


def test_logged_records_have_counts_in_place_of_sets(caplog: pytest.LogCaptureFixture) -> None:
    """A line of the log is for people; group, member and generation are bound."""
    with caplog.at_level(logging.INFO, logger="coopgroup"):
        TelemetrySink("g").write(STARTED, member_id="m-1", generation=7)
        TelemetrySink("g").warn("topics_unavailable", error="no broker")
    first, second = (one.getMessage() for one in caplog.records)
    for part in ("resources_started", "resources=3", "group=g", "member=m-1", "generation=7"):
        assert part in first
    for part in ("topics_unavailable", "error='no broker'", "group=g"):
        assert part in second


def test_records_below_the_level_are_not_even_put_into_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A quiet application pays nothing."""
    with caplog.at_level(logging.WARNING, logger="coopgroup"):
        TelemetrySink("g").write(STARTED, member_id="m-1", generation=7)
    assert caplog.records == []
