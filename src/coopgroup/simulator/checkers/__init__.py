"""Check the invariants that every run must satisfy. The only input is the telemetry of the run.

The checkers do not use the code under test. A member, leader or policy with a wrong state therefore
cannot hide its error from them. The host itself reports violations that no record can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from attrs import frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.warming.option import Warmup
from coopgroup.simulator.checkers.balance import check_balance
from coopgroup.simulator.checkers.bundles import are_always_together, check_bundles, in_bundles
from coopgroup.simulator.checkers.commits import check_commits
from coopgroup.simulator.checkers.heard_delays import check_heard_delays
from coopgroup.simulator.checkers.holdings import check_pairs, check_single_owner
from coopgroup.simulator.checkers.losses import Waits, check_losses
from coopgroup.simulator.checkers.members import check_members
from coopgroup.simulator.checkers.rest import check_rest
from coopgroup.simulator.checkers.rounds import check_delays, check_ration, check_retained
from coopgroup.simulator.checkers.warmups import check_warmups
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import Envelope

__all__ = [
    "Expectations",
    "Waits",
    "check_balance",
    "check_bundles",
    "check_commits",
    "check_delays",
    "check_heard_delays",
    "check_instants",
    "check_losses",
    "check_members",
    "check_pairs",
    "check_ration",
    "check_rest",
    "check_retained",
    "check_run",
    "check_single_owner",
    "check_warmups",
]


@frozen(kw_only=True)
class Expectations:
    """The limits and expectations for one run.

    Attributes:
        owned: resources that exist at the end and have a living subscriber.
        calm_from_ms: start of the last period without faults.
        quiet_from_ms: time by which the group must be at rest.
        slack_ms: longest time for a round to begin and end.
        stop_max_ms: the rebalance timeout; a resource that has not stopped by then is lost.
        with_losses: whether the telemetry shows how leaders treat losses. It does if all members
            claim their owned partitions.
        balance_cooldown_ms: of a policy that balances lags, otherwise None.
        warmup: options of warm-ups, None without them.
        with_hand_overs: whether members hand over while warm-ups are on.
        with_rounds: whether leaders have decided all assignments. Members of KIP-848 make the
            broker decide, which leaves no record of its own.
        with_whole_bundles: whether no topic grew. A new partition extends a bundle, and the owner
            of the bundle may own one part of it and warm up the other.
        with_planned_moves: whether the telemetry shows which moves were planned. It does if all
            members subscribe to the same topics.
    """

    owned: ResourceSet
    calm_from_ms: int
    quiet_from_ms: int
    end_ms: int
    slack_ms: int
    stop_max_ms: int
    delay_ms: int | None = None
    with_losses: bool = False
    max_moves_per_round: int | None = None
    move_interval_ms: int = 0
    is_eager: bool = False
    balance_cooldown_ms: int | None = None
    warmup: Warmup | None = None
    with_planned_moves: bool = False
    with_whole_bundles: bool = True
    with_hand_overs: bool = False
    with_rounds: bool = True


def check_instants(
    telemetry: Sequence[Envelope], *, stop_max_ms: int, is_eager: bool = False
) -> Iterator[Violation]:
    """Yield violations of the invariants that hold at every instant of a run."""
    yield from check_single_owner(telemetry)
    yield from check_commits(telemetry)
    yield from check_members(telemetry, is_eager=is_eager)
    if not is_eager:
        yield from check_pairs(telemetry, stop_max_ms=stop_max_ms)
        yield from check_retained(telemetry)


def check_run(telemetry: Sequence[Envelope], expected: Expectations) -> tuple[Violation, ...]:
    """Return all violations of a run that has ended, in order of time."""
    found = list(
        check_rest(
            telemetry, expected.owned, expected.quiet_from_ms, expected.end_ms, expected.slack_ms
        )
    )
    if not expected.with_rounds:
        found += [*check_single_owner(telemetry), *check_commits(telemetry)]
        if not expected.is_eager:
            found += check_pairs(telemetry, stop_max_ms=expected.stop_max_ms)
        return tuple(sorted(found, key=lambda one: one.at_ms))
    found += check_instants(telemetry, stop_max_ms=expected.stop_max_ms, is_eager=expected.is_eager)
    if expected.delay_ms is not None:
        found += check_delays(
            telemetry,
            expected.delay_ms,
            expected.slack_ms,
            expected.calm_from_ms,
            expected.end_ms,
        )
    together = () if expected.warmup is None else expected.warmup.co_partition
    if together:
        if expected.with_planned_moves and are_always_together(telemetry, together):
            found += check_bundles(telemetry, together)
        else:  # topics that come together are united, which no record distinguishes from a move
            expected = attrs.evolve(
                expected, with_losses=False, with_planned_moves=False, max_moves_per_round=None
            )
    if expected.delay_ms is not None and expected.with_losses:
        waits = Waits(
            delay_ms=expected.delay_ms,
            interval_ms=expected.move_interval_ms,
            has_warmups=expected.warmup is not None,
            has_hand_overs=expected.with_hand_overs,
            co_partition=together,
        )
        found += check_losses(telemetry, waits)
        found += check_heard_delays(telemetry, waits)
    if expected.warmup is not None:
        # The limits count bundles.
        counted = in_bundles(telemetry, together) if together else telemetry
        found += check_warmups(
            counted,
            expected.warmup,
            with_moves=expected.with_planned_moves,
            with_limits=(expected.with_losses and expected.with_whole_bundles) or not together,
        )
    if expected.max_moves_per_round is not None:
        found += check_ration(telemetry, expected.max_moves_per_round, together)
        if expected.balance_cooldown_ms is not None:
            found += check_balance(
                telemetry, expected.balance_cooldown_ms, expected.max_moves_per_round
            )
    return tuple(sorted(found, key=lambda one: one.at_ms))
