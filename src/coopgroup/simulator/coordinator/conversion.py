"""Conversions of a group: a consumer group while it has members of KIP-848, otherwise classic."""

from __future__ import annotations

from collections.abc import Callable

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.errors import DecodeError
from coopgroup.protocol import (
    KafkaAssignment,
    decode_kafka_assignment,
    decode_subscription,
    encode_kafka_assignment,
)
from coopgroup.simulator.coordinator.answers import join_refusal, sync_refusal
from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup, ConsumerSeat
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Seat

__all__ = ["from_classic_group", "to_classic_group"]


def from_classic_group(
    group: ClassicGroup, existing: Callable[[], ResourceSet]
) -> ConsumerGroup | None:
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
        seats[seat.member_id] = ConsumerSeat(
            member_id=seat.member_id,
            instance_id=seat.instance_id,
            session_ms=seat.session_ms,
            rebalance_ms=seat.rebalance_ms,
            protocols=seat.protocols,
            topics=said.topics,
            epoch=group.generation,
            assigned=stored & existing(),
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
        existing=existing,
        numbers=group.numbers,
        outbox=list(group.outbox),
        generation=group.generation if seats else 0,
        target_epoch=group.generation if seats else 0,
        target={name: seat.assigned for name, seat in seats.items()},
        seats=seats,
        static_ids=dict(group.static_ids),
        known=existing(),
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
        content = encode_kafka_assignment(KafkaAssignment(assigned=seat.assigned), version)
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
