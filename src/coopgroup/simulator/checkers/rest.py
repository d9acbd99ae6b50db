"""Check that the group is at rest at the end of a run, and that every resource has an owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    BalanceRequested,
    Envelope,
    ProcessEnded,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
    WithoutRoom,
)


def check_rest(
    telemetry: Sequence[Envelope],
    expected: ResourceSet,
    quiet_from_ms: int,
    end_ms: int,
    slack_ms: int = 0,
) -> Iterator[Violation]:
    """Yield resources that are not consumed at the end, and rounds that never cease.

    Lags may become uneven at any time, so the check is skipped after a late balancing request.
    """
    if any(
        isinstance(one.record, BalanceRequested) and one.at_ms >= quiet_from_ms - slack_ms
        for one in reversed(telemetry)
    ):
        return
    states, working = _at_the_end(telemetry)
    expected -= without_room(telemetry)
    worked_on = ResourceSet.from_pairs(chain.from_iterable(working.values()))
    for message in _objections(states, worked_on, expected):
        yield Violation(checker="rest", at_ms=end_ms, message=message)
    rounds = (one for one in reversed(telemetry) if isinstance(one.record, AssignmentReceived))
    last = next(rounds, None)
    if last is not None and last.at_ms >= quiet_from_ms:
        message = f"{last.client} is still in rounds at {last.at_ms}"
        yield Violation(checker="rest", at_ms=end_ms, message=message)


def without_room(telemetry: Sequence[Envelope]) -> ResourceSet:
    """Return the resources that the last decided round left without an owner."""
    left = []
    for envelope in reversed(telemetry):
        match envelope.record:
            case WithoutRoom(resources=resources):  # follows the decision, once for each reason
                left.append(resources)
            case RoundDecided():
                break
            case _:
                pass
    return ResourceSet.union_all(left)


def _objections(
    states: dict[str, str], worked_on: ResourceSet, expected: ResourceSet
) -> Iterator[str]:
    restless = {client: state for client, state in states.items() if state != "stable"}
    if restless:
        yield f"not stable: {restless}"
    if orphans := expected - worked_on:
        yield f"nobody works on {orphans.to_dict()}"
    if strays := worked_on - expected:
        yield f"worked on, and not wanted: {strays.to_dict()}"


def _at_the_end(
    telemetry: Sequence[Envelope],
) -> tuple[dict[str, str], dict[str, set[Resource]]]:
    """Return states and work of each client."""
    states: dict[str, str] = {}
    working: dict[str, set[Resource]] = {}
    for envelope in telemetry:
        client, record = envelope.client, envelope.record
        match record:
            case ProcessStarted():
                states[client], working[client] = "", set()
            case ProcessEnded():
                states.pop(client, None)
                working.pop(client, None)
            case StateChanged() if client in states:
                states[client] = record.after
            case ResourcesStarted():
                working[client].update(record.resources)
            case ResourcesStopped():
                working[client].difference_update(record.resources)
            case _:
                pass
    return states, working
