"""Telemetry in a file and in the log."""

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import attrs
import pytest
import structlog
from structlog.typing import EventDict

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.membership import telemetry_file
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
    RequestRetried,
    ResourcesStarted,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    UserDataUnreadable,
    WithoutRoom,
    WorkFailed,
    from_json,
)
from tests.support.programs import output_of

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
    sink = TelemetrySink("g", str(path), heard.append, client_id="c")
    write(sink, STARTED)
    assert sink.flush(WAIT_S)
    before, line = path.read_text().splitlines()
    for _ in range(2):
        sink.close()
        write(sink, STARTED)
    assert (before, path.read_text()) == ("before", f"before\n{line}\n")
    envelope = from_json(json.loads(line))
    assert heard[0] == envelope
    assert attrs.astuple(envelope, recurse=False)[1:] == ("g", "m-1", 7, STARTED, "c")
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
    wake = TelemetryFile._wake  # noqa: SLF001 -- the moment at which the lock is held

    def wake_and_close(file: TelemetryFile) -> bool:
        is_awake = wake(file)
        sink.close()
        return is_awake

    monkeypatch.setattr(TelemetryFile, "_wake", wake_and_close)
    # The worker needs the lock before it can end, so the handler waits for all of this time.
    monkeypatch.setattr(telemetry_file, "_CLOSE_S", 0.01)
    others = set(threading.enumerate())
    sink = TelemetrySink("g", str(path))
    writer = threading.Thread(target=write, args=(sink, STARTED), daemon=True)
    writer.start()
    writer.join(WAIT_S)
    for thread in set(threading.enumerate()) - others:  # it writes the record
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (STARTED, logging.INFO),
        (StateChanged(before="a", after="b", cause="c"), logging.DEBUG),
        (RequestRefused(request="a", error="b", action="c"), logging.DEBUG),
        (RequestRetried(request="a", error="b"), logging.WARNING),
        (RequestRetried(request="a", error="b", is_over=True), logging.INFO),
        (MembershipLost(resources=ResourceSet(), cause="c"), logging.WARNING),
        (CommitFailed(resources=ResourceSet(), error="e"), logging.WARNING),
        (RoundRefused(violations=("v",)), logging.WARNING),
        (SubscriptionUnreadable(member_id="m", reason="r"), logging.WARNING),
        (UserDataUnreadable(member_id="m", reason="r"), logging.WARNING),
        (WithoutRoom(resources=ResourceSet({"t": [0]}), reasons=("full",)), logging.WARNING),
        (AssignmentUnreadable(protocol="p", error="e"), logging.WARNING),
        (WorkFailed(resources=ResourceSet(), action="a", error="e", attempts=1), logging.WARNING),
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


def test_log_line_of_failed_work_names_its_resource(caplog: pytest.LogCaptureFixture) -> None:
    failed = ResourceSet({"audit": [0]})
    write(TelemetrySink("g"), WorkFailed(resources=failed, action="start", error="E", attempts=1))
    assert """ resources="{'audit': [0]}" """ in caplog.records[0].getMessage()


def test_logged_records_have_their_fields_in_words_and_as_attributes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sets are counted; a name that `logging` takes gets an underscore."""
    with caplog.at_level(logging.INFO, logger="coopgroup"):
        sink = TelemetrySink("g", client_id="c")
        write(sink, STARTED)
        sink.warn("topics_unavailable", error="no broker", name="taken")
    first, second = caplog.records
    assert first.getMessage() == "resources_started group=g member=m-1 generation=7 resources=3"
    assert second.getMessage() == (
        "topics_unavailable group=g member=m-1 error='no broker' name=taken"
    )
    fields = ("event", "group", "client", "member", "generation", "resources")
    assert [vars(first)[name] for name in fields] == ["resources_started", "g", "c", "m-1", 7, 3]
    assert (vars(second)["name_"], second.name) == ("taken", "coopgroup")
    assert {one.filename for one in caplog.records} == {"telemetry_sink.py"}


@pytest.fixture
def events() -> Iterator[list[EventDict]]:
    """The events in the pipeline of an application that has configured structlog."""
    heard: list[EventDict] = []

    def hear(_logger: object, method: str, event: EventDict) -> NoReturn:
        heard.append({**event, "level": method})
        if event.get("error") == "of the pipeline":
            raise ZeroDivisionError
        raise structlog.DropEvent

    structlog.configure(processors=[hear])
    yield heard
    structlog.reset_defaults()


def test_application_with_structlog_gets_events_with_fields_and_context(
    events: list[EventDict], caplog: pytest.LogCaptureFixture
) -> None:
    sink = TelemetrySink("g", client_id="c")
    sink.warn("bell_unavailable", topic="bell", name="a field")
    with caplog.at_level(logging.DEBUG, logger="coopgroup"):
        write(sink, STARTED)
        write(sink, StateChanged(before="a", after="b", cause="c d"))
    known = {"group": "g", "client": "c", "member": "m-1", "generation": 7}
    assert events == [
        {
            "group": "g",
            "client": "c",
            "member": "",
            "event": "bell_unavailable",
            "level": "warning",
            "topic": "bell",
            "name": "a field",
        },
        {**known, "event": "resources_started", "level": "info", "resources": 3},
        {
            **known,
            "event": "state_changed",
            "level": "debug",
            "before": "a",
            "after": "b",
            "cause": "c d",
        },
    ]
    assert caplog.records == []


def test_pipeline_that_raises_costs_its_event_only(events: list[EventDict]) -> None:
    sink = TelemetrySink("g", listener=lambda envelope: heard.append(envelope.record))
    heard: list[Record] = []
    failed = CommitFailed(resources=ResourceSet(), error="of the pipeline")
    sink.warn("internal_error", error="of the pipeline")
    write(sink, failed)
    assert ([one["event"] for one in events], heard) == (
        ["internal_error", "commit_failed"],
        [failed],
    )


def test_child_forked_while_the_first_event_imports_structlog_can_log() -> None:
    """It would inherit the lock of the half imported module, which no thread releases."""
    program = """
import os, signal, sys, threading
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
begun, never = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, *_):
        if name == "structlog":
            begun.set()
            never.wait(0.3)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=TelemetrySink("g").warn, args=("of_the_parent",))
thread.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    TelemetrySink("g").warn("of_the_child")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    assert output_of(program) == "7\n"
