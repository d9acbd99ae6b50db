"""Begin and end of a round (`prepareRebalance` and the following functions)."""

from __future__ import annotations

from coopgroup.core.member import ErrorCode
from coopgroup.simulator.coordinator.answers import join_refusal, joined, sync_refusal
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState

__all__ = [
    "complete_round",
    "drop_unsynced",
    "end_round_in_time",
    "expire",
    "prepare_or_complete",
    "prepare_round",
    "remove_member",
]


def prepare_or_complete(group: ClassicGroup) -> None:
    """Begin a round, or complete the present one if all members have joined."""
    if group.state is not GroupState.PREPARING:
        prepare_round(group)
    elif not group.is_initial and group.has_all_joined:
        complete_round(group)


def prepare_round(group: ClassicGroup) -> None:
    """Begin a round: members that wait in a sync must join again."""
    if group.state is GroupState.COMPLETING:
        for seat in group.seats.values():
            seat.assignment = b""
            if seat.sync is not None:
                group.answer(seat.sync, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
                seat.sync = None
                group.touch(seat)
    group.unsynced = {}
    group.sync_ends_at_ms = None
    group.is_initial = group.state is GroupState.EMPTY
    group.state = GroupState.PREPARING
    if group.is_initial:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.newcomer = False
        group.initial_left_ms = max(group.rebalance_ms - delay_ms, 0)
        group.round_ends_at_ms = group.now_ms + delay_ms
    elif group.has_all_joined:
        complete_round(group)
    else:
        group.round_ends_at_ms = group.now_ms + group.rebalance_ms


def end_round_in_time(group: ClassicGroup) -> None:
    """End the time to join; the first round of a group is extended while new members come."""
    if group.is_initial and group.newcomer and group.initial_left_ms:
        delay_ms = min(group.settings.initial_rebalance_delay_ms, group.initial_left_ms)
        group.newcomer = False
        group.initial_left_ms = max(group.initial_left_ms - delay_ms, 0)
        group.round_ends_at_ms = group.now_ms + delay_ms
        return
    complete_round(group)


def complete_round(group: ClassicGroup) -> None:
    """End the join phase: remove members that have not rejoined, except static ones."""
    group.round_ends_at_ms = None
    for seat in tuple(group.seats.values()):
        if seat.join is None and seat.instance_id is None:
            group.unseat(seat.member_id)
    if group.seats and not group.joins:
        group.round_ends_at_ms = group.now_ms + group.rebalance_ms
        return
    group.generation += 1
    group.is_initial = False
    group.unsynced = {}
    if not group.seats:
        group.state, group.leader_id, group.protocol_name = GroupState.EMPTY, "", ""
        return
    if group.seats[group.leader_id].join is None:
        group.leader_id = next(s.member_id for s in group.seats.values() if s.join is not None)
    group.protocol_name = group.select_protocol()
    group.state = GroupState.COMPLETING
    group.sync_ends_at_ms = group.now_ms + group.rebalance_ms
    for seat in group.seats.values():
        token = group.take_join(seat)
        if token is not None:
            group.answer(token, joined(group, seat))
        seat.is_new = False
        group.touch(seat)
        group.unsynced[seat.member_id] = None


def drop_unsynced(group: ClassicGroup) -> None:
    """End the time to sync: remove members that have not synced."""
    group.sync_ends_at_ms = None
    for member_id in tuple(group.unsynced):
        group.unseat(member_id)
    prepare_round(group)


def expire(group: ClassicGroup, member_id: str) -> None:
    """End a session, or the time to use a given id."""
    if group.pending.pop(member_id, None) is None:
        remove_member(group, member_id)
        if group.state is not GroupState.PREPARING:
            prepare_round(group)
            return
    if group.state is GroupState.PREPARING and group.has_all_joined:
        complete_round(group)


def remove_member(group: ClassicGroup, member_id: str) -> None:
    """Remove a member. Its join is refused; a waiting sync is never answered, as on a broker."""
    token = group.take_join(group.seats[member_id])
    if token is not None:
        group.answer(token, join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    group.unseat(member_id)
