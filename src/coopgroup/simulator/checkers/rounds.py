"""What leaders may ask for, and when: revocations, rations, delays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.model import EMPTY
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    ResourcesStarted,
    RoundLed,
    SubscriptionUnreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coopgroup.model.resource_set import Resource
    from coopgroup.telemetry import Envelope

__all__ = ["check_delays", "check_ration", "check_retained"]


def check_retained(telemetry: Sequence[Envelope]) -> Iterator[Violation]:
    """A member is told to stop only what the leader of its round takes away.

    A generation that two leaders led, of which one was lost with its broker, says nothing; and a
    leader cannot say what it takes from a member that it cannot read.
    """
    unreadable = {
        (one.generation, one.record.member_id)
        for one in telemetry
        if isinstance(one.record, SubscriptionUnreadable)
    }
    rounds = [one for one in telemetry if isinstance(one.record, RoundLed)]
    counts: dict[int, int] = {}
    for one in rounds:
        counts[one.generation] = counts.get(one.generation, 0) + 1
    revoked = {
        one.generation: one.record.revoked
        for one in rounds
        if isinstance(one.record, RoundLed) and counts[one.generation] == 1
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


def check_ration(telemetry: Sequence[Envelope], max_moves_per_round: int) -> Iterator[Violation]:
    """No round begins to take more from rightful owners than the ration.

    What moves stands among those that the leader says wait for their present owner; what must be
    stopped because it is gone, or because its claim was not rightful, is no move. Nor is what the
    round before asked for already, and was not heard or is still being stopped.

    Args:
        telemetry: of the run.
        max_moves_per_round: the ration.
    """
    asked = EMPTY
    for envelope in telemetry:
        record = envelope.record
        if not isinstance(record, RoundLed):
            continue
        moves = (record.revoked & record.waiting) - record.contested - asked
        asked = record.revoked
        if len(moves) > max_moves_per_round:
            yield Violation(
                checker="ration",
                at_ms=envelope.at_ms,
                message=f"generation {envelope.generation} moves more than {max_moves_per_round}: "
                f"{moves.to_dict()}",
            )


def check_delays(
    telemetry: Sequence[Envelope], delay_ms: int, slack_ms: int, calm_from_ms: int, end_ms: int
) -> Iterator[Violation]:
    """Nothing that was lost waits longer than the delay and a bound.

    Args:
        telemetry: of the run.
        delay_ms: `scheduled_rebalance_timeout_ms` of the policy.
        slack_ms: the bound: time for a round to come about.
        calm_from_ms: since when nothing stood in the way of a round.
        end_ms: end of the run.
    """
    since: dict[Resource, int] = {}
    ended: list[tuple[Resource, int, int]] = []
    for envelope in telemetry:
        record = envelope.record
        over: Iterable[Resource] = ()
        if isinstance(record, RoundLed):
            waiting = set(record.lost)
            over = [resource for resource in since if resource not in waiting]
            for resource in record.lost:
                since.setdefault(resource, envelope.at_ms)
        elif isinstance(record, ResourcesStarted):
            over = [resource for resource in record.resources if resource in since]
        ended += [(resource, since.pop(resource), envelope.at_ms) for resource in over]
    ended += [(resource, lost_ms, end_ms) for resource, lost_ms in since.items()]
    for resource, lost_ms, until_ms in sorted(ended):
        due_ms = max(lost_ms, calm_from_ms) + delay_ms + slack_ms
        if due_ms < until_ms:
            yield Violation(
                checker="delays",
                at_ms=due_ms,
                message=f"{resource.name}-{resource.index}, lost at {lost_ms}, still waits",
            )
