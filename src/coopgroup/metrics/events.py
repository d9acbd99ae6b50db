"""Counters, durations and the leader's figures from the telemetry of one member: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
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

# Texts of `StateChanged.cause` and of `MembershipLost.cause`, to labels with few values. The first
# match counts.
_CAUSES: Final = tuple(
    (re.compile(pattern), label)
    for pattern, label in (
        (r"^subscription changed$", "subscribed"),
        (r"^a round has begun$", "other_member"),
        (r"^(revocation completed|assigned|follow-up round|what is still)", "follow_up"),
        (r"^(lags are uneven)$", "lags"),
        (r"^(scheduled rebalance|a deadline of the policy)", "policy"),
        (r"^(partitions changed|the catalogue changed|a newer catalogue)", "partitions_changed"),
        (r"^the weights changed", "partitions_changed"),
        (r"^(loss handled|lease expired|rebalance time-out|a round ended)", "lost"),
        (r"warm", "warm_up"),
        (r"^(the leader returned|joined as a known|identity kept|the last round)", "other"),
        (r"answered", "error"),
        (r"coordinator moved", "error"),
    )
)
_LOSSES: Final = tuple(
    (re.compile(pattern), label)
    for pattern, label in (
        (r"^lease expired$", "lease_expired"),
        (r"^rebalance time-out$", "rebalance_timeout"),
        (r"^a round ended", "missed_round"),
        (r"poll", "not_polled"),
        (r"answered (\w+)", ""),
    )
)
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
    return next((label for pattern, label in _CAUSES if pattern.search(text)), "other")


def reason_of(text: str) -> str:
    """Return the label of a `MembershipLost.cause`; "other" for an unknown text."""
    for pattern, label in _LOSSES:
        found = pattern.search(text)
        if found is not None:
            return label or found.group(1).lower()
    return "other"
