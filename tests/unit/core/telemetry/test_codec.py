"""Telemetry: every record survives JSON, and an error names the wrong field of a row."""

import json
from typing import Any, get_args

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.telemetry import (
    AssigningMoved,
    AssignmentReceived,
    AssignmentRefused,
    AssignmentUnreadable,
    BalanceRequested,
    ClaimRefused,
    CommitFailed,
    EndCause,
    Envelope,
    FaultInjected,
    MemberReported,
    MembershipLost,
    OffsetsCommitted,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    Record,
    RequestRefused,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    RoundRefused,
    StateChanged,
    StopReason,
    SubscriptionUnreadable,
    UserDataUnreadable,
    WarmupsChanged,
    WorkFailed,
    from_json,
    to_json,
)

SOME = ResourceSet({"orders": [3, 1], "payments": [0]})
RECORDS: tuple[Record, ...] = (
    StateChanged(before="joining", after="syncing", cause="joined"),
    AssignmentReceived(leader=True, gained=SOME, follow_up=True),
    ResourcesStarted(resources=SOME),
    ResourcesStopped(resources=SOME, reason=StopReason.LOST, duration_ms=12),
    MembershipLost(resources=SOME, cause="lease expired"),
    RequestRefused(request="JoinGroup", error="NO_ANSWER", action="seek coordinator"),
    CommitFailed(resources=SOME, error="ILLEGAL_GENERATION"),
    RoundDecided(policy="simple", assignor="sticky", members=("a", "b"), granted=SOME),
    RoundRefused(violations=("granted while another member still claims it: orders-1",)),
    BalanceRequested(overloaded=("a", "b"), lags=(900, 700), mean_lag=400, resources=SOME),
    SubscriptionUnreadable(member_id="a", reason="ends at offset 3"),
    UserDataUnreadable(member_id="a", reason="version: got 9"),
    AssignmentReceived(leader=False, rejoin_in_ms=900),
    ClaimRefused(member_id="a", count=3, reason="not given up", waited_ms=60_000),
    WarmupsChanged(begun=SOME, warm=SOME, moved=SOME, cancelled=SOME, failed=SOME, error="E: no"),
    WorkFailed(resources=ResourceSet({"sink": [-1, 0]}), action="stop", error="E: no", attempts=2),
    MemberReported(
        state="stable",
        interval_ms=10_000,
        since_poll_ms=15,
        lease_ms=44_000,
        rate_per_s=0.5,
        revoking=SOME,
        warming=SOME,
        warm=SOME,
    ),
    ProcessStarted(instance_id="orders-1", topics=("orders", "payments")),
    ProcessEnded(cause=EndCause.CRASHED),
    ProcessPaused(),
    ProcessResumed(),
    OffsetsCommitted(resources=SOME, offsets=(7, 0, 12)),
    AssigningMoved(to_broker=True, meaning="the broker assigns"),
    AssignmentRefused(leader="m", topics=("secret",), topic_count=1, resource_count=20),
    AssignmentUnreadable(protocol="coopgroup", error="version: got 9"),
    FaultInjected(description="group coordinator moves to broker 2"),
)
ROW: dict[str, Any] = {
    "schema": 1,
    "at_ms": 1_730_000_000_000,
    "group": "orders",
    "member": "m-1",
    "generation": 7,
    "client": "orders-1",
    "kind": "resources_stopped",
    "resources": {"orders": [1, 3], "payments": [0]},
    "reason": "lost",
    "duration_ms": 12,
}


def envelope(record: Record) -> Envelope:
    head = {name: ROW[name] for name in ("at_ms", "group", "member", "generation", "client")}
    return Envelope(record=record, **head)


def test_every_kind_of_record_is_tested() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(Record))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_survives_json(record: Record) -> None:
    text = json.dumps(to_json(envelope(record)))
    assert from_json(json.loads(text)) == envelope(record)


def test_row_has_the_documented_form() -> None:
    row = to_json(envelope(RECORDS[3]))
    assert row == ROW
    assert list(row) == list(ROW)


def test_row_when_a_field_is_unknown_or_left_out_is_read() -> None:
    row = {**ROW, "colour": "green"}
    del row["duration_ms"], row["client"]
    read = from_json(row)
    assert read.record == ResourcesStopped(resources=SOME, reason=StopReason.LOST)
    assert read.client == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": 2}, "schema"),
        ({"kind": "earthquake"}, "kind"),
        ({"at_ms": "now"}, "at_ms"),
        ({"group": None}, "group"),
        ({"generation": True}, "generation"),
        ({"at_ms": 2**63}, "at_ms"),
        ({"resources": [1]}, "resources"),
        ({"reason": "bored"}, "reason"),
        ({"duration_ms": 1.5}, "duration_ms"),
        ({"client": 3}, "client"),
        (
            {"kind": "member_reported", "state": "s", "interval_ms": 1, "rate_per_s": True},
            "rate_per_s",
        ),
        ({"kind": "process_ended", "cause": "bored"}, "cause"),
        ({"kind": "offsets_committed", "offsets": [1, "x"]}, "offsets"),
        ({"kind": "process_started", "topics": [3]}, "topics"),
    ],
)
def test_row_when_a_value_is_wrong_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_json({**ROW, **changes})
    assert caught.value.field == field


def test_row_when_a_needed_field_is_missing_is_refused() -> None:
    row = {name: value for name, value in ROW.items() if name != "resources"}
    with pytest.raises(ConfigurationError, match="resources: got None, expected a value"):
        from_json(row)
