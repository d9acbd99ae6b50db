"""A live view with telemetry from a topic."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import Envelope, MemberReported, RoundDecided, to_json
from coopgroup.watch import telemetry_view
from coopgroup.watch.telemetry_view import TelemetryView
from coopgroup.watch.values import GroupView
from tests.unit.watch.views import view


def round_(generation: int, *members: str) -> Envelope:
    record = RoundDecided(
        policy="simple", assignor="sticky", members=members, granted=ResourceSet({"orders": [1]})
    )
    at_ms = 1_000 * generation
    return Envelope(at_ms=at_ms, group="g", member="m-a", generation=generation, record=record)


def line(envelope: Envelope) -> bytes:
    return json.dumps(to_json(envelope)).encode()


@define
class Topic:
    before: list[bytes]
    now: list[bytes] = field(factory=list)
    error: Exception | None = None
    times_made_again: int = 0

    def read_to_end(self) -> Iterator[bytes]:
        yield from self.before

    def read_now(self) -> Iterator[bytes]:
        found, self.now = self.now, []
        yield from found
        if self.error is not None:
            raise self.error


class Brokers:
    def read(self) -> GroupView:
        return view()


def test_topic_that_was_made_again_is_told() -> None:
    topic: Any = Topic([])
    reader = TelemetryView(Brokers(), topic)
    assert reader.read().telemetry_error == ""
    topic.times_made_again = 1
    told = "the topic was made again, so it is read from its beginning"
    assert reader.read().telemetry_error == told


def test_first_look_has_the_records_so_far_and_each_later_one_the_new_ones() -> None:
    first, second = round_(4, "m-a"), round_(5, "m-a", "m-b")
    topic: Any = Topic([line(first), b"{}", b"[]", b"\xff", b'{"schema": 9}'])
    reader = TelemetryView(Brokers(), topic)
    assert reader.read().records == (first,)
    topic.now.append(line(second))
    assert reader.read().records == (second,)
    assert reader.read().records == ()


@pytest.mark.parametrize(
    ("name", "limit"), [("_RECORDS_MAX", 3), ("_BYTES_MAX", 3 * len(line(round_(4, "m-a"))))]
)
def test_look_takes_the_newest_records_and_says_how_many_are_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    """All who may write to the topic could fill the memory."""
    monkeypatch.setattr(telemetry_view, name, limit)
    rounds = [round_(1 + number, "m-a") for number in range(8)]
    topic: Any = Topic([line(one) for one in rounds])
    reader = TelemetryView(Brokers(), topic)
    first = reader.read()
    assert first.records == tuple(rounds[-3:])
    assert first.telemetry_error == "5 older records left out, because they were many"
    topic.now = [line(one) for one in rounds[:4]]
    second = reader.read()
    assert second.records == tuple(rounds[1:4])
    assert second.telemetry_error == "6 older records left out, because they were many"


def test_repeated_reports_push_out_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand members report 180,000 times in half an hour."""
    monkeypatch.setattr(telemetry_view, "_RECORDS_MAX", 3)
    now_ms = view().at_ms
    known = round_(4, "m-a")
    reports = [line(report(now_ms - 9_000 + number, 3_000)) for number in range(100)]
    forged = [line(attrs.evolve(report(now_ms, 1), member=f"m-{one}")) for one in range(9)]
    topic: Any = Topic([*reports, line(known)])
    reader = TelemetryView(Brokers(), topic)
    first = reader.read()
    assert (first.records, first.telemetry_error) == ((known,), "")
    assert first.members[0].lease_s == 3.0
    topic.now = forged
    assert reader.read().telemetry_error.startswith("6 older records left out")


def report(at_ms: int, lease_ms: int) -> Envelope:
    record = MemberReported(state="stable", interval_ms=10_000, lease_ms=lease_ms)
    return Envelope(at_ms=at_ms, group="g", member="m-a", generation=4, record=record)


def test_reports_are_facts_about_members_and_no_records() -> None:
    """Of many reports, the last one counts; its age begins with its arrival, except at first."""
    now_ms = view().at_ms
    lines = [line(report(now_ms - age_ms, age_ms)) for age_ms in (9_000, 5_000)]
    topic: Any = Topic([*lines, b'{"kind": "member_reported"}'])
    reader = TelemetryView(Brokers(), topic)
    first = reader.read()
    assert (first.members[0].lease_s, first.members[0].report_age_s) == (5.0, 5.0)
    topic.now.append(line(report(now_ms - 60_000, 3_000)))
    second = reader.read()
    assert (second.members[0].lease_s, second.members[0].report_age_s) == (3.0, 0.0)
    assert first.records == second.records == ()


def test_error_of_the_topic_leaves_the_group_and_the_records_before_it() -> None:
    """A report that the first look missed is old when it arrives."""
    now_ms = view().at_ms
    topic: Any = Topic([line(round_(5, "m-a"))], [line(round_(4, "m-a"))])
    topic.error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not\nallowed"))
    reader = TelemetryView(Brokers(), topic)
    first = reader.read()
    assert (first.partitions, len(first.records)) == (view().partitions, 1)
    assert "not allowed" in first.telemetry_error
    topic.error, topic.now = None, [line(report(now_ms - 9_000, 3_000))]
    second = reader.read()
    assert (second.telemetry_error, second.members[0].report_age_s) == ("", 9.0)
    topic.now.append(line(report(now_ms - 9_000, 3_000)))
    assert reader.read().members[0].report_age_s == 0.0


def test_hostile_records_hide_neither_the_group_nor_other_records() -> None:
    """All who may write to the topic choose every field."""
    huge = json.loads(line(report(0, 1))) | {"since_poll_ms": 10**400}
    fast = json.loads(line(report(0, 1))) | {"rate_per_s": 10**400}
    hostile = [b'{"kind": "member_reported", "member": []}', b"[" * 100_000]
    known = round_(4, "m-a")
    topic: Any = Topic([*hostile, *(json.dumps(one).encode() for one in (huge, fast)), line(known)])
    found = TelemetryView(Brokers(), topic).read()
    assert found.records == (known,)
    assert found.telemetry_error == "3 unreadable records left out"
