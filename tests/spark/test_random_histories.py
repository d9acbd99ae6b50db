"""Random histories with a known truth: simulated groups, and what the pipeline reads of them.

Each group is played in the simulator, and the pipeline reads the records that its coordinator would
have written. A seed that fails is a group of its own: `groups([seed])`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import frozen

from coopgroup.simulator.measures import window_begin_ms
from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario import (
    Choice,
    Close,
    Cost,
    Crash,
    Event,
    Group,
    MemberSet,
    Scenario,
    Span,
    Topic,
)
from tests.spark.simulated import history_of_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS, BETWEEN_MS = 60_000, 120_000
SESSION_MS, JOIN_MS = 10_000, 15_000
CLOSING_MS = 100  # a member that closes commits first
POLICIES: Final = (
    Choice(name="simple"),
    Choice(name="eager"),
    Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 30_000}),
)


@frozen(kw_only=True)
class Played:
    """A group, and the truth about it: the members that left, and for how long."""

    run: Run
    away: tuple[tuple[str, int, int | None], ...]


def play(seed: int) -> Played:
    dice = random.Random(seed)
    members = dice.randint(2, 5)
    partitions = members * dice.randint(1, 3)
    events: list[Event] = []
    away: list[tuple[str, int, int | None]] = []
    alive = [f"m-{number + 1}" for number in range(members)]
    for number in range(dice.randint(1, 4)):
        at_ms = FIRST_MS + number * BETWEEN_MS + dice.randrange(10_000)
        back_ms = dice.choice([None, 2_000, 8_000, 20_000, 45_000])
        if back_ms is None and len(alive) == 1:
            continue
        name = dice.choice(alive)
        event: dict[str, Any] = {"at_ms": at_ms, "member": name, "back_after_ms": back_ms}
        events.append(Close(**event) if dice.random() < 0.5 else Crash(**event))
        away.append((name, at_ms, back_ms))
        if back_ms is None:
            alive.remove(name)
    restore_ms = dice.choice([0, 500, 5_000])
    scenario = Scenario(
        duration_ms=FIRST_MS + len(events) * BETWEEN_MS,
        settle_ms=60_000,
        group=Group(
            policy=dice.choice(POLICIES),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
        ),
        topics=(Topic(name="orders", partitions=partitions, rate_per_s=(20.0,) * partitions),),
        members=(MemberSet(name="m", count=members, topics=("orders",)),),
        costs=(Cost(restore_ms=Span(restore_ms, restore_ms)),),
        events=tuple(events),
    )
    return Played(run=simulate(scenario, seed=seed), away=tuple(away))


def differences(played: Played, found: dict[str, list[Any]]) -> Iterable[str]:
    """Yield what the tables say wrongly about a group."""
    truth = played.run.measures
    since_ms = window_begin_ms(played.run.scenario, played.run.telemetry)
    rebalances = [one for one in found["rebalances"] if one.end_ms > since_ms]
    if sum(one.rounds for one in rebalances) != truth.rounds:
        yield f"rounds: {sum(one.rounds for one in rebalances)}, truly {truth.rounds}"
    unavailable_s = sum(one.unavailable_partition_s or 0 for one in rebalances)
    error_s = sum(one.unavailable_error_s or 0 for one in rebalances)
    unobserved = sum(one.unobserved for one in rebalances)
    if abs(unavailable_s - truth.unavailable_partition_s) > error_s and not unobserved:
        yield f"outages: {unavailable_s} ± {error_s}, truly {truth.unavailable_partition_s}"
    absences = sorted(found["absences"], key=lambda one: one.gone_latest_ms)
    if len(absences) != len(played.away):
        yield f"absences: {len(absences)}, truly {len(played.away)}"
        return
    for one, (name, at_ms, back_ms) in zip(absences, played.away, strict=True):
        if one.client_id != name:
            yield f"at {at_ms} {one.client_id} left, truly {name}"
        if not one.gone_earliest_ms - CLOSING_MS <= at_ms <= one.gone_latest_ms:
            yield f"{name} left at {one.gone_earliest_ms} to {one.gone_latest_ms}, truly {at_ms}"
        if back_ms is None and one.returned_as != "never":
            yield f"{name} came back, which is not true"
        returned_ms = one.returned_ms
        if returned_ms is not None and back_ms is not None:
            late_ms = returned_ms - at_ms - back_ms
            if not 0 <= late_ms <= JOIN_MS:
                yield f"{name} came back {late_ms} ms late"


def check(spark: SparkSession, seeds: Iterable[int]) -> None:
    groups = {f"seed-{seed}": play(seed) for seed in seeds}
    tables = history_of_runs(spark, {name: one.run for name, one in groups.items()})
    rows = {name: tables[name].collect() for name in ("rebalances", "absences")}
    wrong = {}
    for name, one in groups.items():
        own = {kind: [row for row in some if row.group == name] for kind, some in rows.items()}
        if said := [*differences(one, own)]:
            wrong[name] = said
    assert wrong == {}, "\n".join(f"{name}: {said}" for name, said in wrong.items())


def test_tables_agree_with_the_truth_in_random_histories(spark: SparkSession) -> None:
    check(spark, range(20))


@pytest.mark.verify
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 1_500, 100))
def test_tables_agree_with_the_truth_in_many_random_histories(
    first: int, spark: SparkSession
) -> None:
    check(spark, range(first, first + 100))
