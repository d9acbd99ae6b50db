"""Telemetry in a file and in the log."""

import json
import logging
import threading
from pathlib import Path

import attrs
import pytest

from coopgroup.core.member import Action
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.telemetry_file import TelemetryFile
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.telemetry import (
    AssignmentRefused,
    AssignmentUnreadable,
    CommitFailed,
    Envelope,
    MembershipLost,
    Record,
    RequestRefused,
    ResourcesStarted,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    UserDataUnreadable,
    from_json,
)

WAIT_S = 5.0
STARTED = ResourcesStarted(resources=ResourceSet({"t": [0, 1, 2]}))


def write(sink: TelemetrySink, record: Record) -> None:
    sink.write(record, member_id="m-1", generation=7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def test_records_are_appended_to_the_file_line_by_line_until_the_close(path: Path) -> None:
    path.write_text("before\n")
    heard: list[Envelope] = []
    sink = TelemetrySink("g", str(path), heard.append)
    write(sink, STARTED)
    assert sink.flush(WAIT_S)
    before, line = path.read_text().splitlines()
    for _ in range(2):
        sink.close()
        write(sink, STARTED)
    assert (before, path.read_text()) == ("before", f"before\n{line}\n")
    envelope = from_json(json.loads(line))
    assert heard[0] == envelope
    assert attrs.astuple(envelope, recurse=False)[1:] == ("g", "m-1", 7, STARTED, "")
    assert envelope.at_ms > 1_700_000_000_000


def test_listener_that_raises_is_told_of_in_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Envelope) -> None:
        raise ZeroDivisionError("of the application")

    sink = TelemetrySink("g", str(path), fail)
    write(sink, STARTED)
    sink.close()
    assert len(path.read_text().splitlines()) == 1
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "telemetry_listener_failed" in line
    assert "of the application" in line


def test_write_when_a_signal_handler_closes_meanwhile_does_not_wait_for_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler interrupts the same thread in the middle of `write`."""
    sink = TelemetrySink("g", str(path))
    write_soon = TelemetryFile._write_soon  # noqa: SLF001 -- the moment at which the lock is held

    def write_and_close(file: TelemetryFile) -> None:
        write_soon(file)
        sink.close()

    monkeypatch.setattr(TelemetryFile, "_write_soon", write_and_close)
    writer = threading.Thread(target=write, args=(sink, STARTED), daemon=True)
    writer.start()
    writer.join(WAIT_S)
    assert not writer.is_alive()
    assert len(path.read_text().splitlines()) == 1


def test_file_when_it_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
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
        (UserDataUnreadable(member_id="m", reason="r"), logging.WARNING),
        (AssignmentUnreadable(protocol="p", error="e"), logging.WARNING),
        (
            AssignmentRefused(leader="m", topics=("secret",), topic_count=1, resource_count=20),
            logging.WARNING,
        ),
    ],
)
def test_records_are_logged_as_the_documentation_says(
    caplog: pytest.LogCaptureFixture, record: Record, level: int
) -> None:
    with caplog.at_level(logging.DEBUG, logger="coopgroup"):
        write(TelemetrySink("g"), record)
    assert [(one.name, one.levelno) for one in caplog.records] == [("coopgroup", level)]


REFUSED = RequestRefused(request="SyncGroup", error="E", action=Action.REJOIN_LATER.value)


def test_rounds_refused_in_a_row_are_warnings_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second refusal shows that the group makes no progress; the log is not flooded."""
    sink = TelemetrySink("g")
    with caplog.at_level(logging.WARNING, logger="coopgroup"):
        warned = []
        for number in range(1, 10):
            write(sink, REFUSED)
            if caplog.records:
                assert "rejoin after a back-off" in caplog.records[0].getMessage()
                warned.append(number)
            caplog.clear()
        assert warned == [2, 4, 8]


def test_logged_records_have_their_fields_in_words_and_as_attributes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sets are counted; a name that `logging` takes gets an underscore."""
    with caplog.at_level(logging.INFO, logger="coopgroup"):
        write(TelemetrySink("g"), STARTED)
        TelemetrySink("g").warn("topics_unavailable", error="no broker", name="taken")
    first, second = caplog.records
    for part in ("resources_started", "resources=3", "group=g", "member=m-1", "generation=7"):
        assert part in first.getMessage()
    for part in ("topics_unavailable", "error='no broker'", "group=g"):
        assert part in second.getMessage()
    fields = ("event", "group", "member", "generation", "resources")
    assert [vars(first)[name] for name in fields] == ["resources_started", "g", "m-1", 7, 3]
    assert (vars(second)["name_"], second.name) == ("taken", "coopgroup")
