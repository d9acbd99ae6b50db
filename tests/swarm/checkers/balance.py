"""Check balancing rounds: which member may request a round because of uneven lags, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from coopgroup.simulator.world import Violation
from coopgroup.telemetry import BalanceRequested, Envelope, RoundDecided

_CLOCKS_DIFFER: Final = 0.9  # a leader's clock may run fast


def check_balance(
    telemetry: Sequence[Envelope], cooldown_ms: int, moves_max: int
) -> Iterator[Violation]:
    """Yield balancing requests that no leader of a group at rest may make.

    A request must come from the leader, need few moves, and respect the cool-down.
    """
    led: dict[str, Envelope] = {}
    asked_ms: dict[str, int] = {}
    for envelope in telemetry:
        if isinstance(envelope.record, RoundDecided):
            led[envelope.member] = envelope
        if not isinstance(envelope.record, BalanceRequested):
            continue
        complaints = list(_complaints(envelope, envelope.record, led, moves_max))
        before_ms = asked_ms.get(envelope.member)
        asked_ms[envelope.member] = envelope.at_ms
        if before_ms is not None and envelope.at_ms - before_ms < cooldown_ms * _CLOCKS_DIFFER:
            complaints.append(f"as at {before_ms}, within the pause of {cooldown_ms} ms")
        for complaint in complaints:
            yield Violation(
                checker="balance",
                at_ms=envelope.at_ms,
                message=f"{envelope.client} asks to even lags out {complaint}",
            )


def _complaints(
    asked: Envelope, record: BalanceRequested, led: dict[str, Envelope], moves_max: int
) -> Iterator[str]:
    last = led.get(asked.member)
    if last is None or last.generation != asked.generation:
        yield f"in generation {asked.generation}, which it did not lead"
    elif isinstance(last.record, RoundDecided) and (last.record.lost or last.record.follow_up):
        yield f"while generation {asked.generation} waits for something"
    if not 0 < len(record.resources) <= moves_max:
        yield f"by {len(record.resources)} moves"
