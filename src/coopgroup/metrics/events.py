"""Counters, durations and the leader's figures from the telemetry of one member: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.telemetry.causes import Cause, answer_in
from coopgroup.metrics.names import Value
from coopgroup.telemetry import (
    AssignmentReceived,
    BalanceRequested,
    Envelope,
    MembershipLost,
    RequestRefused,
    ResourcesStopped,
    RoundDecided,
    RoundRefused,
    StateChanged,
    StopReason,
    WithoutRoom,
)

# Labels of the causes of joins. An answer is an error, and every other cause "other".
_CAUSES: Final[Mapping[str, str]] = {
    Cause.SUBSCRIPTION_CHANGED: "subscribed",
    Cause.DECLINED_CHANGED: "subscribed",
    Cause.RETURNED_CHANGED: "subscribed",
    Cause.ROUND_BEGUN: "other_member",
    Cause.REVOKED: "follow_up",
    Cause.ASSIGNED: "follow_up",
    Cause.FOLLOW_UP: "follow_up",
    Cause.MUST_NOT_HOLD_UP: "follow_up",
    Cause.LAGS_UNEVEN: "lags",
    Cause.SCHEDULED: "policy",
    Cause.POLICY_DEADLINE: "policy",
    Cause.PARTITIONS_CHANGED: "partitions_changed",
    Cause.CATALOGUE_CHANGED: "partitions_changed",
    Cause.CATALOGUE_IS_NEWER: "partitions_changed",
    Cause.WEIGHTS_CHANGED: "partitions_changed",
    Cause.LOSS_HANDLED: "lost",
    Cause.LEASE_EXPIRED: "lost",
    Cause.REBALANCE_TIMEOUT: "lost",
    Cause.MISSED_ROUND: "lost",
    Cause.BECAME_WARM: "warm_up",
    Cause.WARM_DECLARED: "warm_up",
    Cause.DECLINED_WARMUP: "warm_up",
    Cause.COORDINATOR_MOVED: "error",
}
# Those of `MembershipLost.cause`; an answer is the name of its error.
_LOSSES: Final[Mapping[str, str]] = {
    Cause.LEASE_EXPIRED: "lease_expired",
    Cause.REBALANCE_TIMEOUT: "rebalance_timeout",
    Cause.MISSED_ROUND: "missed_round",
    Cause.NOT_POLLED: "not_polled",
}
# Normal steps of a join, which no dashboard should show as failures.
_NORMAL: Final = ("MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS")
_OF_ROUNDS: Final = ("JoinGroup", "SyncGroup")


@define(eq=False)
class MemberEvents:
    """What the telemetry of one member told.

    Attributes:
        last_rebalance_s: time of the last completed round, in seconds since 1970; None before.
        members: members of the last round that it led; None if it led none.
        waiting: partitions that waited for their old owner in that round.
        unowned: partitions without an owner in that round.
        without_room: partitions for which no member had room in that round.
    """

    last_rebalance_s: float | None = field(default=None, init=False)
    members: int | None = field(default=None, init=False)
    waiting: int = field(default=0, init=False)
    unowned: int = field(default=0, init=False)
    without_room: int = field(default=0, init=False)
    _joining_since_ms: int | None = field(default=None, init=False)
    _cause: str = field(default="other", init=False)
    # Partitions that rounds led here have revoked, and not granted yet.
    _on_their_way: ResourceSet = field(default=EMPTY, init=False)
    _is_for_lags: bool = field(default=False, init=False)

    def changes(self, envelope: Envelope) -> Iterator[Value]:
        """Take a record, and yield what it adds to counters, or what histograms observe."""
        record = envelope.record
        match record:
            case StateChanged():
                self._note_state(envelope.at_ms, record)
            case AssignmentReceived():
                yield from self._completed(envelope.at_ms)
            case RoundDecided():
                yield from self._decided(record)
            case WithoutRoom():  # follows the decision, once for each reason
                self.without_room += len(record.resources)
            case RoundRefused():
                yield Value("coopgroup_failed_rebalances_total", 1, ("unsafe_round",))
            case RequestRefused() if record.request in _OF_ROUNDS and record.error not in _NORMAL:
                yield Value("coopgroup_failed_rebalances_total", 1, (record.error.lower(),))
            case BalanceRequested():
                self._is_for_lags = True
            case MembershipLost():
                count = len(record.resources)
                yield Value("coopgroup_lost_partitions_total", count, (reason_of(record.cause),))
            case ResourcesStopped(reason=StopReason.REVOKED):
                yield Value("coopgroup_revocation_duration_seconds", record.duration_ms / 1000)
            case _:
                pass

    def _note_state(self, at_ms: int, record: StateChanged) -> None:
        if record.after in {"joining", "returning"} and self._joining_since_ms is None:
            self._joining_since_ms = at_ms
            self._cause = cause_of(record.cause)
        elif record.after in {"unsubscribed", "failed", "leaving"}:
            self._joining_since_ms = None
        if record.before in {"leading", "syncing", "joining"} and record.after == "losing":
            self._joining_since_ms = None

    def _completed(self, at_ms: int) -> Iterator[Value]:
        since_ms, self._joining_since_ms = self._joining_since_ms, None
        self.last_rebalance_s = at_ms / 1000
        yield Value("coopgroup_rebalances_total", 1, (self._cause,))
        if since_ms is not None:
            duration_s = max(0, at_ms - since_ms) / 1000
            yield Value("coopgroup_rebalance_duration_seconds", duration_s)
        self._cause = "follow_up"

    def _decided(self, record: RoundDecided) -> Iterator[Value]:
        self.members = len(record.members)
        self.waiting = len(record.waiting)
        self.unowned = len(record.lost | record.contested)
        self.without_room = 0
        departed = record.granted - record.created - self._on_their_way
        self._on_their_way = (self._on_their_way - record.granted) | record.revoked
        why = "lags" if self._is_for_lags else "balance"
        self._is_for_lags = False
        for reason, moved in ((why, record.revoked), ("departed", departed)):
            if moved:
                yield Value("coopgroup_moves_total", len(moved), (reason,))


def cause_of(text: str) -> str:
    """Return the label of a `StateChanged.cause`; "other" for an unknown text."""
    return "error" if answer_in(text)[1] else _CAUSES.get(text, "other")


def reason_of(text: str) -> str:
    """Return the label of a `MembershipLost.cause`; "other" for an unknown text."""
    return answer_in(text)[1].lower() or _LOSSES.get(text, "other")
