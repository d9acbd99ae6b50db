"""A consumer group (KIP-848): the group coordinator assigns, and classic members take part.

`CurrentAssignmentBuilder` and the functions `classicGroup...ToConsumerGroup` of Kafka 4.3 are the
source of these rules. Each member has an epoch and moves towards the target by itself:

    STABLE         it has what the target gives, or a newer target waits for its next request
    UNREVOKED      it must stop something; its epoch stays, and the partitions stay its own
    UNRELEASED     its epoch is new, but another member still owns something of its target

An epoch of the group follows each change of members, subscriptions or partitions. The next target
follows with the next JoinGroup, or heartbeat of a member of KIP-848, once the assignment interval
since the last target is over (KIP-1263). The Heartbeat of a classic member tells only of a target.

The group knows partitions by topic id: a topic that was made again has another one. Resources here
have ids as names. Classic members speak of names, which are translated at their requests.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import attrs
from attrs import define, field, frozen

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    Answer,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
    TopicPartitions,
)
from coopgroup.core.model.resource_set import Resource
from coopgroup.errors import DecodeError
from coopgroup.protocol import (
    KafkaAssignment,
    decode_kafka_assignment,
    decode_subscription,
    encode_kafka_assignment,
)
from coopgroup.simulator.coordinator.answers import join_refusal, refusal, sync_refusal
from coopgroup.simulator.coordinator.state import (
    ClassicGroup,
    CoordinatorSettings,
    GroupState,
    Protocols,
    Seat,
    Token,
)


@frozen(kw_only=True)
class TopicIds:
    """The topics of the cluster.

    Attributes:
        existing: all partitions by topic id.
        names: names of topic ids, also of deleted topics; an id without one is its own name.
    """

    existing: Callable[[], ResourceSet]
    names: Callable[[], Mapping[str, str]]

    def by_id(self, resources: ResourceSet) -> ResourceSet:
        """Return the resources of existing topics by topic id."""
        ids = self._ids()
        return ResourceSet({ids[name]: on for name, on in resources.items() if name in ids})

    def by_name(self, resources: ResourceSet) -> ResourceSet:
        """Return the resources of existing topics by name."""
        names, existing = self.names(), set(self.existing().names)
        return ResourceSet(
            {names.get(one, one): on for one, on in resources.items() if one in existing}
        )

    def ids_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the ids of existing topics."""
        ids = self._ids()
        return tuple(ids[name] for name in names if name in ids)

    def _ids(self) -> dict[str, str]:
        names = self.names()
        return {names.get(one, one): one for one in self.existing().names}


class SeatState(enum.Enum):
    """The state of a member on its way to the target, see the module."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


@define(kw_only=True, eq=False)
class ConsumerSeat:
    """A member of either protocol.

    Attributes:
        protocols: protocols of its last classic join; empty for a member of KIP-848.
        previous_epoch: its epoch before the last change; a heartbeat whose answer was lost has it.
        assigned: what it may own.
        since: the epoch in which each partition of `assigned` was assigned.
        revoking: what it must stop, and still owns.
        is_away: whether it is static, and has left for now (epoch -2).
        join_by_ms: when it is removed unless it joins, None for never.
        sync_by_ms: when it is removed unless it syncs, None for never.
    """

    member_id: str
    instance_id: str | None = None
    session_ms: int
    rebalance_ms: int
    protocols: Protocols = ()
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    progress: SeatState = SeatState.STABLE
    assigned: ResourceSet = EMPTY
    since: dict[Resource, int] = field(factory=dict)
    is_away: bool = False
    revoking: ResourceSet = EMPTY
    expires_at_ms: int = 0
    join_by_ms: int | None = None
    sync_by_ms: int | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return bool(self.protocols)

    @property
    def dropped_at_ms(self) -> int:
        """When the coordinator removes it if nothing more is heard of it."""
        ends = (self.expires_at_ms, self.join_by_ms, self.sync_by_ms)
        return min(end_ms for end_ms in ends if end_ms is not None)


@define(kw_only=True, eq=False)
class ConsumerGroup:
    """One consumer group, with the same questions as a `ClassicGroup`.

    Attributes:
        topics: the topics of the cluster.
        target_at_ms: when the last target was made, None before the first one.
        known: all partitions at the last target.
        forgotten: partitions that a member claimed and the conversion did not know of.
    """

    now_ms: int = 0
    settings: CoordinatorSettings
    topics: TopicIds
    numbers: Iterator[int] = field(factory=lambda: count(1))
    outbox: list[tuple[Token, Answer]] = field(factory=list)
    generation: int = 0
    target_epoch: int = 0
    target_at_ms: int | None = None
    target: dict[str, ResourceSet] = field(factory=dict)
    seats: dict[str, ConsumerSeat] = field(factory=dict)
    static_ids: dict[str, str] = field(factory=dict)
    leader_id: str = ""
    protocol_name: str = ""
    known: ResourceSet = EMPTY
    forgotten: ResourceSet = EMPTY

    @property
    def state(self) -> GroupState:
        """STABLE if all members have what the newest target gives them."""
        if not self.seats:
            return GroupState.EMPTY
        settled = all(
            seat.epoch == self.generation and seat.progress is SeatState.STABLE and not seat.is_away
            for seat in self.seats.values()
        )
        return GroupState.STABLE if settled else GroupState.PREPARING

    def answer(self, token: Token, answer: Answer) -> None:
        """Answer a request."""
        self.outbox.append((token, answer))

    # --- requests of classic members -------------------------------------------------------------

    def join(self, token: Token, request: JoinGroupRequest, client_id: str) -> None:
        """Process a JoinGroup: it is answered immediately, and names no leader."""
        instance_id, member_id = request.group_instance_id, request.member_id
        if not self._supports(request):
            refused = join_refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
            self.answer(token, refused)
            return
        fresh_id = f"{client_id}-00000000-0000-0000-0000-{next(self.numbers):012x}"
        if not member_id and instance_id is None:
            self.answer(token, join_refusal(ErrorCode.MEMBER_ID_REQUIRED, fresh_id))
            return
        before = self.seats.get(self.static_ids.get(instance_id or "", member_id))
        if before is not None and instance_id is not None and before.member_id != member_id:
            code = self._replace_code(before, member_id)
            if code:
                self.answer(token, join_refusal(code, member_id))
                return
            self._rename(before, fresh_id)
        seat = before or ConsumerSeat(
            member_id=member_id or fresh_id,
            instance_id=instance_id,
            session_ms=request.session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms,
        )
        said = decode_subscription(request.protocols[0][1], skips_rest=True)
        seat.protocols = request.protocols
        seat.session_ms = request.session_timeout_ms
        seat.rebalance_ms = request.rebalance_timeout_ms
        seat.is_away = False
        self._settle(seat, said.topics, self.topics.by_id(said.owned))
        seat.join_by_ms = None
        seat.sync_by_ms = self.now_ms + seat.rebalance_ms
        answer = JoinGroupAnswer(
            error_code=0,
            generation=seat.epoch,
            protocol_name=seat.protocols[0][0],
            leader_id="",
            member_id=seat.member_id,
            members=(),
            skip_assignment=False,
        )
        self.answer(token, answer)

    def sync(self, token: Token, request: SyncGroupRequest) -> None:
        """Process a SyncGroup: it is answered with Kafka's own assignment."""
        seat, code = self._checked(request.member_id, request.group_instance_id, request.generation)
        if seat is None:
            self.answer(token, sync_refusal(code))
            return
        if request.protocol_name != seat.protocols[0][0]:
            self.answer(token, sync_refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        if self.target_epoch > seat.epoch and seat.progress is not SeatState.UNREVOKED:
            self._expect_join(seat)
            self.answer(token, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        seat.sync_by_ms = None
        self._touch(seat)
        version = int.from_bytes(seat.protocols[0][1][:2], "big")
        assigned = self.topics.by_name(seat.assigned)
        content = encode_kafka_assignment(KafkaAssignment(assigned=assigned), version)
        self.answer(token, SyncGroupAnswer(error_code=0, assignment=content))

    def heartbeat(self, token: Token, request: HeartbeatRequest) -> None:
        """Process a Heartbeat: it says whether the member has to join."""
        seat, code = self._checked(request.member_id, request.group_instance_id, request.generation)
        if seat is not None:
            self._touch(seat)
            waits = seat.progress is SeatState.UNRELEASED and self._is_blocked(seat)
            settled = seat.progress is SeatState.STABLE or waits
            if seat.epoch < self.target_epoch or not settled:
                self._expect_join(seat)
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self.answer(token, HeartbeatAnswer(error_code=code))

    def leave(self, token: Token, request: LeaveGroupRequest) -> None:
        """Process a LeaveGroup of one member."""
        seat, code = self._checked(request.member_id, request.group_instance_id, None)
        if seat is not None:
            self.remove(seat.member_id)
        self.answer(token, LeaveGroupAnswer(error_code=code))

    def offset_commit(self, token: Token, request: OffsetCommitRequest) -> bool:
        """Return whether a commit is valid."""
        seat = self.seats.get(request.member_id)
        if seat is None or seat.is_classic:
            instance_id = request.group_instance_id
            _, code = self._checked(request.member_id, instance_id, request.generation)
        else:
            code = 0 if self._is_current(seat, request) else ErrorCode.STALE_MEMBER_EPOCH
        self.answer(token, refusal(request, code))
        return not code

    def _is_current(self, seat: ConsumerSeat, request: OffsetCommitRequest) -> bool:
        """Return whether the epoch of a commit is valid for each of its partitions (KIP-1251).

        With the member's epoch, a broker does not check who owns a partition.
        """
        epoch = request.generation
        if epoch >= seat.epoch or not self.settings.takes_older_epochs:
            return epoch == seat.epoch
        partitions = self.topics.by_id(ResourceSet.from_pairs(row[:2] for row in request.offsets))
        owned = seat.assigned | seat.revoking
        return partitions <= owned and all(seat.since[one] <= epoch for one in partitions)

    # --- requests of members of KIP-848 ----------------------------------------------------------

    def beat(self, token: Token, request: ConsumerBeatRequest) -> None:
        """Process a ConsumerGroupHeartbeat."""
        code = self._beat_code(request)
        if code or request.epoch in {LEAVES, LEAVES_FOR_NOW}:
            if not code:
                self._leave(self.seats[request.member_id], request.epoch)
            self.answer(token, ConsumerBeatAnswer(error_code=code))
            return
        seat = self._seat_of(request)
        before = seat.assigned
        if request.rebalance_timeout_ms is not None:
            seat.rebalance_ms = request.rebalance_timeout_ms
        owned = seat.assigned | seat.revoking  # a member that tells nothing still owns all
        if request.owned is not None:
            owned = ResourceSet(dict(request.owned))
        self._settle(seat, seat.topics if request.topics is None else request.topics, owned)
        if seat.progress is not SeatState.UNREVOKED:
            seat.join_by_ms = None
        else:
            self._expect_join(seat)
        is_told = request.owned is not None or seat.assigned != before
        answer = ConsumerBeatAnswer(
            error_code=0,
            epoch=seat.epoch,
            interval_ms=self.settings.consumer_heartbeat_interval_ms,
            assigned=_by_topic(seat.assigned) if is_told else None,
        )
        self.answer(token, answer)

    def _beat_code(self, request: ConsumerBeatRequest) -> int:
        seat = self.seats.get(request.member_id)
        holder = self._holder(request)
        if request.epoch == JOINS:
            is_held = holder is not None and not (holder.is_away or holder.is_classic)
            return ErrorCode.UNRELEASED_INSTANCE_ID if is_held else 0
        if holder is not None and holder is not seat:
            return ErrorCode.FENCED_INSTANCE_ID
        if seat is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.epoch < 0 or self._is_of_this_epoch(seat, request):
            return 0
        return ErrorCode.FENCED_MEMBER_EPOCH

    def _is_of_this_epoch(self, seat: ConsumerSeat, request: ConsumerBeatRequest) -> bool:
        """Return whether the epoch is the member's, or the last one after a lost answer."""
        if seat.is_away or request.epoch == seat.epoch:
            return not seat.is_away
        is_last = request.epoch == seat.previous_epoch and request.owned is not None
        return is_last and ResourceSet(dict(request.owned or ())) <= seat.assigned

    def _holder(self, request: ConsumerBeatRequest) -> ConsumerSeat | None:
        instance_id = request.group_instance_id
        if instance_id is None:
            return None
        return self.seats.get(self.static_ids.get(instance_id, ""))

    def _seat_of(self, request: ConsumerBeatRequest) -> ConsumerSeat:
        """Return the member of a heartbeat; a static one takes the place of its earlier life."""
        holder = self._holder(request)
        if holder is not None and holder.member_id != request.member_id:
            self._rename(holder, request.member_id)
        known = holder or self.seats.get(request.member_id)
        seat = known or ConsumerSeat(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            session_ms=self.settings.consumer_session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms or 0,
        )
        if request.epoch == JOINS:
            seat.protocols, seat.is_away, seat.sync_by_ms = (), False, None
            seat.session_ms = self.settings.consumer_session_timeout_ms
        return seat

    def _leave(self, seat: ConsumerSeat, epoch: int) -> None:
        if epoch == LEAVES:
            self.remove(seat.member_id)
            return
        seat.is_away, seat.join_by_ms = True, None
        seat.revoking = EMPTY
        if seat.progress is SeatState.UNREVOKED:
            seat.progress = SeatState.STABLE

    # --- members, epochs and targets -------------------------------------------------------------

    def _supports(self, request: JoinGroupRequest) -> bool:
        others = [seat for seat in self.seats.values() if seat.is_classic]
        spoken = [{name for name, _ in seat.protocols} for seat in others]
        offered = {name for name, _ in request.protocols}
        return request.protocol_type == "consumer" and bool(offered.intersection(*spoken))

    def _replace_code(self, before: ConsumerSeat, member_id: str) -> int:
        if member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        may_take = before.is_classic or before.is_away
        return 0 if may_take else ErrorCode.UNRELEASED_INSTANCE_ID

    def _rename(self, seat: ConsumerSeat, member_id: str) -> None:
        del self.seats[seat.member_id]
        self.target[member_id] = self.target.pop(seat.member_id, EMPTY)
        seat.member_id = member_id
        self.seats[member_id] = seat

    def _checked(
        self, member_id: str, instance_id: str | None, epoch: int | None
    ) -> tuple[ConsumerSeat | None, int]:
        """Return a classic member, or None and the code of the refusal."""
        holder = member_id
        if instance_id is not None:
            holder = self.static_ids.get(instance_id, "")
            if holder and holder != member_id:
                return None, ErrorCode.FENCED_INSTANCE_ID
        seat = self.seats.get(holder)
        if seat is None or not seat.is_classic:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if epoch is not None and epoch != seat.epoch:
            return None, ErrorCode.ILLEGAL_GENERATION
        return seat, 0

    def _settle(self, seat: ConsumerSeat, topics: tuple[str, ...], owned: ResourceSet) -> None:
        """Take a member's request: a new epoch and target if needed, then its next assignment."""
        is_new = seat.member_id not in self.seats
        self.seats[seat.member_id] = seat
        if seat.instance_id is not None:
            self.static_ids[seat.instance_id] = seat.member_id
        self._touch(seat)
        existing = self.topics.existing()
        if (is_new and topics) or set(topics) != set(seat.topics) or existing != self.known:
            self.generation += 1
        seat.topics, self.known = topics, existing
        if self.generation > self.target_epoch and self._may_make_target():
            ids_of = self.topics.ids_of
            subscribed = {one.member_id: ids_of(one.topics) for one in self.seats.values()}
            self.target = assign_uniformly(subscribed, self.target, existing)
            self.target_epoch, self.target_at_ms = self.generation, self.now_ms
        if seat.progress is SeatState.STABLE and seat.epoch == self.target_epoch:
            return
        if seat.progress is SeatState.UNREVOKED and owned & seat.revoking:
            return
        self._advance(seat, owned)

    def _may_make_target(self) -> bool:
        made_at_ms, interval_ms = self.target_at_ms, self.settings.assignment_interval_ms
        return made_at_ms is None or self.now_ms >= made_at_ms + interval_ms

    def _advance(self, seat: ConsumerSeat, owned: ResourceSet) -> None:
        target = self.target.get(seat.member_id, EMPTY)
        kept = seat.assigned & target
        lost = seat.assigned - kept
        if lost & owned:
            seat.progress, seat.assigned, seat.revoking = SeatState.UNREVOKED, kept, lost
            return
        blocked = (target - kept) & self._owned_by_others(seat)
        seat.assigned, seat.revoking = target - blocked, EMPTY
        if seat.epoch != self.target_epoch:
            seat.previous_epoch, seat.epoch = seat.epoch, self.target_epoch
        seat.since = {one: seat.since.get(one, seat.epoch) for one in seat.assigned}
        seat.progress = SeatState.UNRELEASED if blocked else SeatState.STABLE

    def _owned_by_others(self, seat: ConsumerSeat) -> ResourceSet:
        others = [one for one in self.seats.values() if one is not seat]
        owned = [one.assigned | one.revoking for one in others]
        return ResourceSet.union_all([EMPTY, *owned])

    def _is_blocked(self, seat: ConsumerSeat) -> bool:
        missing = self.target.get(seat.member_id, EMPTY) - seat.assigned
        return bool(missing & self._owned_by_others(seat))

    def remove(self, member_id: str) -> None:
        """Remove a member; the others learn of the new epoch by their heartbeats."""
        seat = self.seats.pop(member_id)
        self.target.pop(member_id, None)
        if seat.instance_id is not None:
            self.static_ids.pop(seat.instance_id, None)
        if not self.is_classic_again:  # a classic group goes on from this epoch
            self.generation += 1

    @property
    def is_classic_again(self) -> bool:
        """Whether only classic members are left."""
        return bool(self.seats) and all(seat.is_classic for seat in self.seats.values())

    # --- time ------------------------------------------------------------------------------------

    def _touch(self, seat: ConsumerSeat) -> None:
        seat.expires_at_ms = self.now_ms + seat.session_ms

    def _expect_join(self, seat: ConsumerSeat) -> None:
        if seat.join_by_ms is None:
            seat.join_by_ms = self.now_ms + seat.rebalance_ms

    def deadline_ms(self) -> int | None:
        """Return the earliest time at which a member is removed, None for never."""
        return min((seat.dropped_at_ms for seat in self.seats.values()), default=None)

    def expire(self, at_ms: int) -> None:
        """Remove the members whose time is over."""
        for seat in tuple(self.seats.values()):
            if seat.dropped_at_ms <= at_ms:
                self.remove(seat.member_id)

    def stored(self) -> ConsumerGroup:
        """Return the group that a broker loads; every change of it is in the log."""
        seats = {
            name: attrs.evolve(seat, since=dict(seat.since), join_by_ms=None, sync_by_ms=None)
            for name, seat in self.seats.items()
        }
        return attrs.evolve(
            self,
            outbox=[],
            seats=seats,
            target=dict(self.target),
            static_ids=dict(self.static_ids),
        )

    def start_sessions(self, now_ms: int) -> None:
        """Start every member's session, because a broker took over the group."""
        self.now_ms = now_ms
        for seat in self.seats.values():
            self._touch(seat)


def from_classic_group(group: ClassicGroup, topics: TopicIds) -> ConsumerGroup | None:
    """Convert a group for its first member of KIP-848; None if the broker refuses that.

    It refuses an assignment with user data, which it would lose. A list of revocations of coopgroup
    stands where Kafka has the user data. So a member of KIP-848 cannot join in such a round.

    Kafka takes what it stored for each member, and ignores what the member claims. It stores
    nothing while a round follows one whose leader did not sync. So it may give away partitions that
    a member owns (`forgotten`).
    """
    seats, forgotten = {}, EMPTY
    for seat in group.seats.values():
        try:
            given = decode_kafka_assignment(seat.assignment) if seat.assignment else None
            said = decode_subscription(seat.protocols[0][1], skips_rest=True)
        except DecodeError:
            return None
        if given is not None and given.user_data:
            return None
        stored = EMPTY if given is None else given.assigned
        forgotten |= said.owned - stored
        assigned = topics.by_id(stored) & topics.existing()
        seats[seat.member_id] = ConsumerSeat(
            member_id=seat.member_id,
            instance_id=seat.instance_id,
            session_ms=seat.session_ms,
            rebalance_ms=seat.rebalance_ms,
            protocols=seat.protocols,
            topics=said.topics,
            epoch=group.generation,
            assigned=assigned,
            since=dict.fromkeys(assigned, group.generation),
            expires_at_ms=group.now_ms + seat.session_ms,
        )
    for old in group.seats.values():
        joins = group.take_join(old)
        if joins is not None:
            refused = join_refusal(ErrorCode.REBALANCE_IN_PROGRESS, old.member_id)
            group.answer(joins, refused)
        if old.sync is not None:
            group.answer(old.sync, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    return ConsumerGroup(
        now_ms=group.now_ms,
        settings=group.settings,
        topics=topics,
        numbers=group.numbers,
        outbox=list(group.outbox),
        generation=group.generation if seats else 0,
        target_epoch=group.generation if seats else 0,
        target={name: seat.assigned for name, seat in seats.items()},
        seats=seats,
        static_ids=dict(group.static_ids),
        known=topics.existing(),
        forgotten=forgotten,
    )


def to_classic_group(group: ConsumerGroup) -> ClassicGroup:
    """Convert a group whose last member of KIP-848 has left; a round of it is still to begin."""
    classic = ClassicGroup(
        now_ms=group.now_ms,
        settings=group.settings,
        exists=True,
        state=GroupState.STABLE if group.seats else GroupState.EMPTY,
        generation=group.generation if group.seats else 0,
        protocol_type="consumer",
        numbers=group.numbers,
    )
    classic.outbox = list(group.outbox)
    for seat in group.seats.values():
        version = int.from_bytes(seat.protocols[0][1][:2], "big")
        assigned = group.topics.by_name(seat.assigned)
        content = encode_kafka_assignment(KafkaAssignment(assigned=assigned), version)
        classic.seat(
            Seat(
                member_id=seat.member_id,
                instance_id=seat.instance_id,
                session_ms=seat.session_ms,
                rebalance_ms=seat.rebalance_ms,
                protocols=seat.protocols,
                expires_at_ms=group.now_ms + seat.session_ms,
                assignment=content,
                is_new=False,
            )
        )
    classic.protocol_name = classic.select_protocol()
    return classic


def _by_topic(resources: ResourceSet) -> TopicPartitions:
    return tuple((topic_id, tuple(indices.tolist())) for topic_id, indices in resources.items())


def assign_uniformly(
    topics_of: Mapping[str, tuple[str, ...]],
    before: Mapping[str, ResourceSet],
    existing: ResourceSet,
) -> dict[str, ResourceSet]:
    """Return the target of each member.

    Args:
        topics_of: subscribed topics of each member.
        before: earlier target of each member.
        existing: all partitions.
    """
    members = sorted(topics_of)
    shares = {
        member: list(before.get(member, EMPTY) & existing.restrict_names(topics_of[member]))
        for member in members
    }
    if len(set(map(frozenset, topics_of.values()))) == 1:
        subscribed = existing.restrict_names(topics_of[members[0]])
        least_size, larger_max = divmod(len(subscribed), len(members))
        for member in sorted(members, key=lambda one: (-len(shares[one]), one)):
            keeps_one_more = larger_max > 0 and len(shares[member]) > least_size
            larger_max -= keeps_one_more
            del shares[member][least_size + keeps_one_more :]
    taken = {partition for share in shares.values() for partition in share}
    for partition in existing:
        if partition in taken:
            continue
        fits = [member for member in members if partition[0] in topics_of[member]]
        if fits:
            least = min(fits, key=lambda member: (len(shares[member]), member))
            shares[least].append(partition)
    return {member: ResourceSet.from_pairs(share) for member, share in shares.items()}
