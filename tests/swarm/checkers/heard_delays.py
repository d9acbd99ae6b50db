"""A delay that members heard of ends when it was announced, also under another leader."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    OffsetsCommitted,
    ProcessEnded,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
    SubscriptionUnreadable,
)
from tests.swarm.checkers.losses import Waits

# Many records, of which no process learns of a delay.
_OF_OTHERS: Final = (OffsetsCommitted, ResourcesStarted, ResourcesStopped)


def check_heard_delays(telemetry: Sequence[Envelope], waits: Waits) -> Iterator[Violation]:
    """Yield waits that a new leader extends beyond the announced end.

    A new leader only knows the delays that members report when they join. The wait may therefore
    grow each time by the time from the join to the decision. The last join before the decision
    counts, because members may join the next round while the leader decides.

    A leader that revokes resources cannot announce a delay. It keeps the deadline that its members
    reported. The rounds that it leads right after may therefore extend the wait by the same time.

    A leader cannot learn a delay from a subscription that it cannot read, so this member does not
    count, neither in this round nor in the rounds right after. The other members still bound the
    wait, because all of them heard the same announcement.

    A round can contain a static member whose join is still on its way: the coordinator passes on
    the subscription of an older join, which could not report a delay that was announced after it.
    """
    joins, unreadable = _answered_joins(telemetry), _unreadable(telemetry)
    ears = defaultdict[str, _Ear](_Ear)
    client_of: dict[str, str] = {}
    took: dict[str, _Taken] = {}
    last, granted, leader = EMPTY, EMPTY, ""
    for envelope in _of_rounds(telemetry):
        record = envelope.record
        ear = ears[envelope.client]
        ear.take(envelope, last, granted, leader)
        if isinstance(record, AssignmentReceived):
            client_of[envelope.member] = envelope.client
        if not isinstance(record, RoundDecided):
            continue
        last, leader = EMPTY if _may_be_a_pause(record, waits) else record.lost, envelope.client
        granted = record.granted
        before = took.pop(envelope.client, None)
        if not record.lost:
            continue
        if before is None or before.generation != envelope.generation - 1:
            before = _Taken(generation=envelope.generation - 1)
        late = dict(before.late_ms)
        unread = unreadable.get((envelope.client, envelope.generation), set()) - late.keys()
        unread |= before.unread
        until_ms = ear.decided_ms + (record.rejoin_in_ms or 0)
        for name in sorted({client_of.get(member, "") for member in record.members}):
            told = ears.get(name)
            if told is None or told.ends_ms is None or not record.lost & told.lost:
                continue
            if told.leader == envelope.client or name in unread:
                continue  # a leader knows more of each loss than its members
            joined_ms = told.joined_by(ear.decided_ms, envelope.generation, joins.get(name, {}))
            late[name] = max(late.get(name, 0), ear.decided_ms - joined_ms)
            on_top_ms = late[name] + waits.tolerance_ms + waits.delay_ms // 20
            if record.rejoin_in_ms is not None and until_ms > told.ends_ms + on_top_ms:
                message = f"{name} had been told that the wait ends at {told.ends_ms}"
                yield Violation(checker="losses", at_ms=envelope.at_ms, message=message)
        took[envelope.client] = _Taken(generation=envelope.generation, late_ms=late, unread=unread)


def _of_rounds(telemetry: Sequence[Envelope]) -> list[Envelope]:
    return [one for one in telemetry if not isinstance(one.record, _OF_OTHERS)]


def _answered_joins(telemetry: Sequence[Envelope]) -> dict[str, dict[int, int]]:
    joined_ms: dict[str, int] = {}
    answered: dict[str, dict[int, int]] = {}
    for one in telemetry:
        match one.record:
            case StateChanged(after="joining"):
                joined_ms[one.client] = one.at_ms
            case StateChanged(before="joining", after="syncing" | "leading"):
                since_ms = joined_ms.get(one.client, one.at_ms)
                answered.setdefault(one.client, {})[one.generation] = since_ms
            case _:
                pass
    return answered


def _unreadable(telemetry: Sequence[Envelope]) -> dict[tuple[str, int], set[str]]:
    """Return the processes that a leader could not read, by its process and the generation."""
    client_of = {one.member: one.client for one in telemetry}
    unread: dict[tuple[str, int], set[str]] = {}
    for one in telemetry:
        if isinstance(one.record, SubscriptionUnreadable):
            name = client_of.get(one.record.member_id, "")
            unread.setdefault((one.client, one.generation), set()).add(name)
    return unread


def _may_be_a_pause(record: RoundDecided, waits: Waits) -> bool:
    return waits.interval_ms > 0 and bool(record.waiting)


@frozen(kw_only=True)
class _Taken:
    """The delays that a leader learned from its members in a round with lost resources.

    Attributes:
        late_ms: time from the join of each process to the decision.
        unread: processes whose subscription could not be read, so that their delay is unknown.
    """

    generation: int
    late_ms: dict[str, int] = field(factory=dict)
    unread: set[str] = field(factory=set)


@define
class _Ear:
    """The delays that were announced to a process.

    Attributes:
        lost: resources lost in the round that announced the delay.
        decided_ms: time of the last round that this process decided.
    """

    ends_ms: int | None = None
    lost: ResourceSet = EMPTY
    leader: str = ""
    joins_ms: list[int] = field(factory=list)
    decided_ms: int = 0
    is_static: bool = False

    def joined_by(self, at_ms: int, generation: int, answered: Mapping[int, int]) -> int:
        """Return the time of the join that a round contains, or 0."""
        if self.is_static:  # any other member is in a round only with a join of its own
            counted = [joined_ms for number, joined_ms in answered.items() if number <= generation]
            return max(counted, default=0)
        joins = bisect_right(self.joins_ms, at_ms)
        return self.joins_ms[joins - 1] if joins else 0

    def take(
        self, envelope: Envelope, lost: ResourceSet, granted: ResourceSet, leader: str
    ) -> None:
        record, at_ms = envelope.record, envelope.at_ms
        match record:
            case ProcessStarted():
                self.ends_ms, self.is_static = None, bool(record.instance_id)
            case ProcessEnded() | StateChanged(after="losing"):
                self.ends_ms = None
            case StateChanged(after="joining"):
                self.joins_ms.append(at_ms)
            case StateChanged(after="leading"):
                self.decided_ms = at_ms
            case AssignmentReceived() if record.rejoin_in_ms is not None:
                self.ends_ms = at_ms + record.rejoin_in_ms
                self.lost, self.leader = lost, leader
            case AssignmentReceived() if not record.follow_up:
                self.ends_ms = None
            case AssignmentReceived():
                # The round ended these waits. If the receiver departs, a new wait begins.
                self.lost -= granted
            case _:
                pass
