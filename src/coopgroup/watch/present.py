"""`Present`: what members tell of this moment in their telemetry, added to a snapshot: pure.

Brokers know owners and offsets. Leases, last polls, partitions that a member still stops, warm-ups,
and waits for lost members are known to members only.

The clocks of members differ from the clock of this machine. So a report is as old as its arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from attrs import define, field

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MemberReported,
    MembershipLost,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    WarmNow,
    WarmupsChanged,
    WithoutRoom,
    WorkFailed,
)
from coopgroup.watch.values import GroupView, MemberView, PartitionView, WarmupView

_Key: TypeAlias = tuple[str, int]

# A member that the brokers do not list yet may have written before.
_FORGET_MS: Final = 60_000


@define(eq=False)
class _Told:
    """The facts that one member told.

    Attributes:
        heard_ms: arrival of its last record, in ms since 1970.
        reported_ms: arrival of its last report.
        stopping: partitions that it still stops.
        warm: its warm-ups and standbys.
        failed: resources whose start has failed permanently, and the error; "" if it is unknown.
        since_ms: when it began to work on each partition, on its clock, in ms since 1970.
    """

    heard_ms: int = 0
    report: MemberReported | None = None
    reported_ms: int = 0
    stopping: set[_Key] = field(factory=set)
    warm: WarmNow = field(factory=WarmNow)
    failed: dict[_Key, str] = field(factory=dict)
    since_ms: dict[_Key, int] = field(factory=dict)

    def note(self, record: object, at_ms: int, written_ms: int) -> None:
        self.heard_ms = at_ms
        match record:
            case ResourcesStarted():
                self.since_ms |= dict.fromkeys(record.resources, written_ms)
                self._end_failures(record.resources)
            case MemberReported():
                self.report, self.reported_ms = record, at_ms
                self.stopping = set(record.revoking)
                self.failed = {key: self.failed.get(key, "") for key in record.failed}
                self.warm = WarmNow()
                self.warm.take(at_ms, WarmupsChanged(begun=record.warming, warm=record.warm))
            case AssignmentReceived():
                self.stopping.update(record.revoked)
                self._end_failures(record.revoked | record.gained)
            case WorkFailed(action="start"):
                self._end_failures(record.resources)
                if record.permanent:
                    self.failed |= dict.fromkeys(record.resources, record.error)
            case ResourcesStopped():
                self.stopping.difference_update(record.resources)
                for key in record.resources:
                    self.since_ms.pop(key, None)
            case MembershipLost():
                self.stopping.clear()
                self.failed.clear()
                self.since_ms.clear()
            case WarmupsChanged():
                self.warm.take(at_ms, record)
            case _:
                pass

    def _end_failures(self, resources: ResourceSet) -> None:
        for key in resources:
            self.failed.pop(key, None)


@define(eq=False)
class Present:
    """Collects the telemetry of one group."""

    _told: dict[str, _Told] = field(factory=lambda: defaultdict(_Told), init=False)
    # Member id of the leader of the last round.
    _leader: str = field(default="", init=False)
    # Of the last round: partitions that wait for a lost owner, and for their release.
    _lost: frozenset[_Key] = field(default=frozenset(), init=False)
    _waiting: frozenset[_Key] = field(default=frozenset(), init=False)
    # Partitions for which no member has room, and why.
    _no_room: dict[_Key, str] = field(factory=dict, init=False)
    # When the wait for lost owners ends, in ms since 1970 on the clock of the leader.
    _until_ms: int | None = field(default=None, init=False)

    def note(self, envelope: Envelope, arrived_ms: int) -> None:
        """Take the next record; `arrived_ms` is a time of this machine, in ms since 1970."""
        record = envelope.record
        self._told[envelope.member].note(record, arrived_ms, envelope.at_ms)
        if isinstance(record, RoundDecided):
            self._leader = envelope.member
            rejoin_in_ms = record.rejoin_in_ms
            self._lost, self._waiting = frozenset(record.lost), frozenset(record.waiting)
            self._until_ms = None if rejoin_in_ms is None else envelope.at_ms + rejoin_in_ms
            self._no_room = {}
        elif isinstance(record, WithoutRoom):  # follows the decision, once for each reason
            self._no_room |= dict.fromkeys(record.resources, "; ".join(record.reasons))

    def added_to(self, view: GroupView) -> GroupView:
        """Return a snapshot with what its members told."""
        present = {one.member_id for one in view.members}
        for member, one in list(self._told.items()):
            if member not in present and view.at_ms - one.heard_ms > _FORGET_MS:
                del self._told[member]
        told = {member: self._told[member] for member in present & self._told.keys()}
        stopping = {key: member for member, one in told.items() for key in one.stopping}
        warmups: dict[_Key, list[WarmupView]] = defaultdict(list)
        for member in sorted(told):
            for key, span in told[member].warm.open.items():
                warmups[key].append(WarmupView(member=member, is_warm=span.warm_ms is not None))
        partitions = view.partitions
        if view.shares_resources:
            partitions = _with(partitions, {*self._lost, *self._waiting, *self._no_room, *stopping})
        return attrs.evolve(
            view,
            members=tuple(
                attrs.evolve(_reported(one, told, view.at_ms), leads=one.member_id == self._leader)
                for one in view.members
            ),
            partitions=tuple(self._partitions(partitions, stopping, warmups)),
        )

    def _partitions(
        self,
        partitions: Iterable[PartitionView],
        stopping: Mapping[_Key, str],
        warmups: Mapping[_Key, list[WarmupView]],
    ) -> Iterable[PartitionView]:
        for one in partitions:
            key = one.topic, one.partition
            changes: dict[str, Any] = {}
            if key in warmups:
                changes["warmups"] = tuple(warmups[key])
            told = self._told.get(one.owner)
            if not one.owner:
                changes |= self._why_unowned(key, stopping)
            elif told is not None and key in told.since_ms:
                changes["since_ms"] = told.since_ms[key]
            elif told is not None and key in told.failed and one.state == "owned":
                changes |= {"state": "failed", "why": told.failed[key]}
            yield attrs.evolve(one, **changes) if changes else one

    def _why_unowned(self, key: _Key, stopping: Mapping[_Key, str]) -> dict[str, Any]:
        if key in stopping:
            return {"state": "revoking", "holder": stopping[key]}
        if key in self._lost:
            return {"state": "waiting", "until_ms": self._until_ms}
        if key in self._no_room:
            return {"state": "no room", "why": self._no_room[key]}
        return {"state": "waiting"} if key in self._waiting else {}


def _with(partitions: Iterable[PartitionView], known: set[_Key]) -> tuple[PartitionView, ...]:
    """Add the resources that only telemetry knows, because no member owns them."""
    found = {(one.topic, one.partition): one for one in partitions}
    for name, index in known - found.keys():
        found[name, index] = PartitionView(topic=name, partition=index)
    return tuple(found[key] for key in sorted(found))


def _reported(one: MemberView, told: Mapping[str, _Told], at_ms: int) -> MemberView:
    found = told.get(one.member_id)
    report = None if found is None else found.report
    if found is None or report is None:
        return one
    return attrs.evolve(
        one,
        rate_per_s=one.rate_per_s if report.rate_per_s < 0 else report.rate_per_s,
        since_poll_s=None if report.since_poll_ms < 0 else report.since_poll_ms / 1000,
        lease_s=None if report.lease_ms < 0 else report.lease_ms / 1000,
        report_age_s=max(0, at_ms - found.reported_ms) / 1000,
        report_interval_s=report.interval_ms / 1000,
    )
