"""Check that members receive the leader's decisions and act on them, and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coopgroup.core.telemetry.causes import answer_in
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    AssignmentRefused,
    Envelope,
    MembershipLost,
    ProcessStarted,
    RoundDecided,
    StateChanged,
    SubscriptionUnreadable,
)

# After these errors a member has left its generation. After any other error it keeps its
# assignment, or fails.
_FENCED = (
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "FENCED_INSTANCE_ID",
    "FENCED_MEMBER_EPOCH",
    "GROUP_ID_NOT_FOUND",  # the group is classic by now, and does not know the member
)


def check_members(telemetry: Sequence[Envelope], *, is_eager: bool = False) -> Iterator[Violation]:
    """Yield members that miss announcements, do not rejoin, or lose resources without cause."""
    yield from _check_announcements(telemetry)
    entered: dict[str, tuple[str, int]] = {}  # the present state of each client, and since when
    for number, envelope in enumerate(telemetry):
        client, record, at_ms = envelope.client, envelope.record, envelope.at_ms
        message, now = "", entered.get(client)
        match record:
            case MembershipLost() if now is None or now[0] != "failed":
                if not _ends_membership(record.cause):
                    message = f"lost {record.resources.to_dict()} for nothing: {record.cause}"
            case StateChanged(after=after):
                if now == ("losing", at_ms) and after == "joining":
                    message = "joins before the application knows of its loss"
                entered[client] = (after, at_ms)
            case AssignmentReceived() if record.follow_up and not is_eager:
                if _next_state(telemetry, number) == "stable":
                    message = "is told of a follow-up round and does not rejoin"
            case _:
                pass
        if message:
            yield Violation(checker="members", at_ms=at_ms, message=f"{client} {message}")


def _ends_membership(cause: str) -> bool:
    """Return whether a member has a reason to give up its claims.

    It keeps them if its SyncGroup was only too late (KAFKA-14016).
    """
    request, error = answer_in(cause)
    return not error or (
        error in _FENCED and (request, error) != ("SyncGroup", "ILLEGAL_GENERATION")
    )


def _next_state(telemetry: Sequence[Envelope], number: int) -> str:
    client, at_ms = telemetry[number].client, telemetry[number].at_ms
    for later in range(number + 1, len(telemetry)):
        envelope = telemetry[later]  # no slice: each assignment would copy it
        if envelope.at_ms != at_ms:
            break
        if envelope.client == client and isinstance(envelope.record, StateChanged):
            return envelope.record.after
    return ""


def _check_announcements(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """Yield members that heard a different announcement than the leader made.

    If two leaders led a generation, the announcement of either is right. A member that refuses a
    part of its assignment rejoins at its own time, whether the leader announced a follow-up or not.
    A static member does not report the first refusal of a membership: the coordinator may have
    answered with an assignment that is older than a deletion. So its first assignment may differ.
    """
    said: dict[int, set[tuple[bool, int | None]]] = {}
    for one in telemetry:
        if isinstance(one.record, RoundDecided):
            delay_ms = one.record.rejoin_in_ms
            announced = {(one.record.follow_up, delay_ms)}
            if one.record.revoked:  # members that still stop resources get the revocation again
                announced.add((True, delay_ms))
            said.setdefault(one.generation, set()).update(announced)
    refused: set[tuple[str, int]] = set()
    firsts = _first_static_assignments(telemetry)
    for number, one in enumerate(telemetry):
        if isinstance(one.record, AssignmentRefused):
            refused.add((one.client, one.generation))
        if not isinstance(one.record, AssignmentReceived) or one.generation not in said:
            continue
        heard = (one.record.follow_up, one.record.rejoin_in_ms)
        expected = set(said[one.generation])
        if number in firsts or (one.client, one.generation) in refused:
            expected |= {(heard[0], delay_ms) for _, delay_ms in expected}
        if heard not in expected:
            yield Violation(
                checker="members",
                at_ms=one.at_ms,
                message=f"{one.client} hears of (follow-up, delay) {heard}, and the leader said "
                f"{sorted(said[one.generation])}",
            )


def _first_static_assignments(telemetry: Sequence[Envelope]) -> set[int]:
    """Return the places of the first assignments of each membership of a static member."""
    static: set[str] = set()
    begun: set[str] = set()
    found: set[int] = set()
    for number, one in enumerate(telemetry):
        match one.record:
            case ProcessStarted(instance_id=instance_id):
                begun.add(one.client)
                if instance_id:
                    static.add(one.client)
            case MembershipLost() | StateChanged(after="unsubscribed"):
                begun.add(one.client)
            case AssignmentReceived() if one.client in begun:
                begun.discard(one.client)
                if one.client in static:
                    found.add(number)
            case _:
                pass
    return found


def check_retained(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """Yield members that must stop a resource which the leader of their round did not revoke.

    A generation with two leaders proves nothing, because the round of one was lost with its broker.
    The same holds for a member that its leader cannot read: the leader does not know which
    resources it takes from this member.
    """
    unreadable = {
        (one.generation, one.record.member_id)
        for one in telemetry
        if isinstance(one.record, SubscriptionUnreadable)
    }
    rounds = [one for one in telemetry if isinstance(one.record, RoundDecided)]
    counts: dict[int, int] = {}
    for one in rounds:
        counts[one.generation] = counts.get(one.generation, 0) + 1
    revoked = {
        one.generation: one.record.revoked
        for one in rounds
        if isinstance(one.record, RoundDecided) and counts[one.generation] == 1
    }
    for envelope in telemetry:
        record = envelope.record
        if isinstance(record, AssignmentReceived) and envelope.generation in revoked:
            kept = record.revoked - revoked[envelope.generation]
            if kept and (envelope.generation, envelope.member) not in unreadable:
                yield Violation(
                    checker="retained",
                    at_ms=envelope.at_ms,
                    message=f"{envelope.client} has to stop {kept.to_dict()}, left to it",
                )
