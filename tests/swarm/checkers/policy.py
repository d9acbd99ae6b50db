"""Check the rules of the built-in policies, in addition to the simulator's checkers.

The only input is the telemetry of a run, and what the policy of the run promises.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from attrs import frozen

from coopgroup.core.policies.balance import BalanceRule
from coopgroup.core.policies.built_in import create_policy
from coopgroup.core.policies.warmth import Warmup, warmup_of
from coopgroup.simulator import Run, Violation
from coopgroup.simulator.scenario.times import last_event_ms
from coopgroup.telemetry import Envelope
from tests.swarm.checkers.balance import check_balance
from tests.swarm.checkers.bundles import are_always_together, check_bundles, in_bundles
from tests.swarm.checkers.heard_delays import check_heard_delays
from tests.swarm.checkers.losses import Waits, check_losses
from tests.swarm.checkers.rounds import check_delays, check_ration
from tests.swarm.checkers.warmups import check_warmups


@frozen(kw_only=True)
class Promises:
    """The limits and expectations of a policy for one run.

    Attributes:
        calm_from_ms: start of the last period without faults.
        slack_ms: longest time for a round to begin and end.
        with_losses: whether the telemetry shows how leaders treat losses. It does if all members
            claim their owned partitions.
        balance_cooldown_ms: of a policy that balances lags, otherwise None.
        warmup: options of warm-ups, None without them.
        with_hand_overs: whether members hand over while warm-ups are on.
        with_planned_moves: whether the telemetry shows which moves were planned. It does if all
            members subscribe to the same topics.
    """

    calm_from_ms: int
    end_ms: int
    slack_ms: int
    delay_ms: int | None = None
    with_losses: bool = False
    max_moves_per_round: int | None = None
    move_interval_ms: int = 0
    balance_cooldown_ms: int | None = None
    warmup: Warmup | None = None
    with_planned_moves: bool = False
    with_hand_overs: bool = False


def check_policy(telemetry: Sequence[Envelope], expected: Promises) -> tuple[Violation, ...]:
    """Return all violations of a policy's rules, in order of time."""
    found: list[Violation] = []
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
            with_limits=expected.with_losses or not together,
        )
    if expected.max_moves_per_round is not None:
        found += check_ration(telemetry, expected.max_moves_per_round, together)
        if expected.balance_cooldown_ms is not None:
            found += check_balance(
                telemetry, expected.balance_cooldown_ms, expected.max_moves_per_round
            )
    return tuple(sorted(found, key=lambda one: one.at_ms))


def check_policy_of(run: Run) -> tuple[Violation, ...]:
    """Return the violations of a simulated scenario whose policy is in the registry."""
    scenario, group = run.scenario, run.scenario.group
    policy = create_policy(group.policy.name, group.policy.options)
    ration, balance = getattr(policy, "ration", None), getattr(policy, "balance", None)
    same_topics = len({one.topics for one in scenario.members}) == 1
    expected = Promises(
        calm_from_ms=max(last_event_ms(scenario), scenario.duration_ms),
        end_ms=scenario.end_ms,
        slack_ms=group.session_timeout_ms + 2 * group.rebalance_timeout_ms,
        delay_ms=getattr(policy, "scheduled_rebalance_timeout_ms", None),
        # With different subscriptions the records do not show which moves were necessary.
        with_losses=same_topics and group.policy.name != "eager",
        max_moves_per_round=None if ration is None else ration.moves_max,
        move_interval_ms=0 if ration is None else ration.interval_ms,
        balance_cooldown_ms=balance.cooldown_ms if isinstance(balance, BalanceRule) else None,
        warmup=warmup_of(policy),
        with_planned_moves=same_topics,
    )
    return check_policy(run.telemetry, expected)
