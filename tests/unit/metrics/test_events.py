"""Counters and durations follow from telemetry records."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.causes import Cause
from coopgroup.metrics.events import MemberEvents, cause_of, reason_of
from coopgroup.metrics.names import METRICS, Value
from coopgroup.telemetry import (
    AssignmentReceived,
    BalanceRequested,
    Envelope,
    Record,
    RequestRefused,
    RoundDecided,
    RoundRefused,
    StateChanged,
    WithoutRoom,
)
from tests.unit.metrics.members import ROUND

A, B, C = (ResourceSet({"t": [index]}) for index in range(3))


def _told(*records: tuple[int, Record], events: MemberEvents | None = None) -> list[Value]:
    events = MemberEvents() if events is None else events
    return [
        change
        for at_ms, record in records
        for change in events.changes(
            Envelope(at_ms=at_ms, group="g", member="m", generation=1, record=record)
        )
    ]


def _state(before: str, after: str, cause: str) -> StateChanged:
    return StateChanged(before=before, after=after, cause=cause)


def test_second_round_of_a_rebalance_is_a_follow_up() -> None:
    changes = _told(
        (1_000, _state("unsubscribed", "joining", "subscription changed")),
        (1_100, AssignmentReceived(leader=True, follow_up=True)),
        (1_100, _state("syncing", "joining", "assigned")),
        (1_400, AssignmentReceived(leader=True)),
    )
    assert [(one.name, one.labels) for one in changes if one.labels] == [
        ("coopgroup_rebalances_total", ("subscribed",)),
        ("coopgroup_rebalances_total", ("follow_up",)),
    ]
    assert [one.value for one in changes if not one.labels] == [0.1, pytest.approx(0.3)]


def test_time_outside_of_the_group_is_no_rebalance() -> None:
    changes = _told(
        (0, _state("stable", "joining", "a round has begun")),
        (10, _state("joining", "losing", "JoinGroup answered UNKNOWN_MEMBER_ID")),
        (90_000, _state("losing", "joining", "loss handled")),
        (90_100, AssignmentReceived(leader=True)),
    )
    assert changes[-1] == Value("coopgroup_rebalance_duration_seconds", 0.1)
    assert changes[0].labels == ("lost",)


def test_failed_rounds_are_counted_by_reason() -> None:
    changes = _told(
        (0, RoundRefused(violations=("x",))),
        (0, RequestRefused(request="JoinGroup", error="COORDINATOR_NOT_AVAILABLE", action="seek")),
        (0, RequestRefused(request="JoinGroup", error="MEMBER_ID_REQUIRED", action="take id")),
        (0, RequestRefused(request="Heartbeat", error="REBALANCE_IN_PROGRESS", action="rejoin")),
    )
    assert [one.labels for one in changes] == [("unsafe_round",), ("coordinator_not_available",)]


def _round(**sets: Any) -> RoundDecided:  # noqa: ANN401 - sets of resources
    return attrs.evolve(ROUND, **sets)


def test_partition_that_is_revoked_and_granted_later_moved_once() -> None:
    changes = _told((0, _round(revoked=A, waiting=A)), (1, _round(granted=A)))
    assert changes == [Value("coopgroup_moves_total", 1, ("balance",))]


def test_moves_name_their_reason() -> None:
    changes = _told(
        (0, _round(granted=A | B, created=A)),
        (1, BalanceRequested(overloaded=("a",), lags=(9,), mean_lag=1)),
        (2, _round(revoked=C)),
        (3, _round(revoked=A)),
    )
    assert [one.labels[0] for one in changes] == ["departed", "lags", "balance"]


@pytest.mark.parametrize(
    ("named", "text", "label"),
    [
        (cause_of, "revocation completed", "follow_up"),
        (cause_of, "lags are uneven", "lags"),
        (cause_of, "partitions changed", "partitions_changed"),
        (cause_of, "scheduled rebalance", "policy"),
        (cause_of, "Heartbeat answered UNKNOWN_MEMBER_ID", "error"),
        (cause_of, "a text of a later version", "other"),
        (reason_of, "rebalance time-out", "rebalance_timeout"),
        (reason_of, "a round ended without its join", "missed_round"),
        (reason_of, "Heartbeat answered UNKNOWN_MEMBER_ID", "unknown_member_id"),
        (reason_of, Cause.NOT_POLLED, "not_polled"),
        (reason_of, "a text of a later version", "other"),
    ],
)
def test_causes_and_reasons_become_few_labels(
    named: Callable[[str], str], text: str, label: str
) -> None:
    assert named(text) == label


def test_every_cause_has_a_label_that_the_metric_names() -> None:
    labels = {cause_of(one) for one in Cause} | {cause_of("JoinGroup answered X: sorry")}
    assert labels == set(METRICS["coopgroup_rebalances_total"].values)


def test_partitions_without_room_are_those_of_the_last_round() -> None:
    events = MemberEvents()
    full, unfit = (WithoutRoom(resources=one, reasons=(str(one),)) for one in (A, B))
    _told((0, ROUND), (0, full), (0, unfit), events=events)
    assert events.without_room == 2
    _told((1, ROUND), events=events)
    assert events.without_room == 0
