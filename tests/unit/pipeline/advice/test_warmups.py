"""Warm-ups as settings of the advice."""

from coopgroup.pipeline.advice.choose import deferred
from coopgroup.pipeline.advice.cost import MoveCost
from coopgroup.pipeline.advice.warmups import (
    warmed_up,
    warmup_code,
    warmup_in,
    warmup_words,
    with_warmups,
)
from coopgroup.policies import Warmup
from coopgroup.policies.registry import create_policy
from coopgroup.simulator.scenario import Choice

COST = MoveCost(move_ms=30_000)
SIMPLE = Choice(name="simple")


def test_settings_are_of_the_policy_with_time_for_several_restores() -> None:
    plain, doubled = with_warmups(deferred(5_000), COST, members=10)
    assert warmup_in(plain) == Warmup(max_concurrent=20, timeout_ms=120_000)
    assert warmup_in(doubled) == Warmup(max_concurrent=20, timeout_ms=120_000, standbys=1)
    assert plain.options["scheduled_rebalance_timeout_ms"] == 5_000
    for one in (plain, doubled):
        create_policy(one.name, one.options)
    quick = warmup_in(with_warmups(SIMPLE, MoveCost(move_ms=10), members=2)[0])
    assert quick == Warmup(timeout_ms=60_000)


def test_nothing_to_warm_up_is_nothing_to_try() -> None:
    assert with_warmups(SIMPLE, MoveCost(), members=3) == []
    assert with_warmups(Choice(name="eager"), COST, members=3) == []
    (warm, _) = with_warmups(SIMPLE, COST, members=3)
    assert with_warmups(warm, COST, members=3) == []


def test_each_step_must_save_a_quarter() -> None:
    policies = [SIMPLE, *reversed(with_warmups(SIMPLE, COST, members=3))]
    assert warmed_up(policies, [100.0, 76.0, 76.0], 0) == 0
    assert warmed_up(policies, [100.0, 60.0, 70.0], 0) == 2
    assert warmed_up(policies, [100.0, 50.0, 70.0], 0) == 1
    assert warmed_up(policies, [100.0, 70.0, 90.0], 0) == 1


def test_words_and_code() -> None:
    plain, doubled = with_warmups(SIMPLE, COST, members=3)
    assert [warmup_words(one) for one in (SIMPLE, plain, doubled)] == [
        "",
        " with warm-ups",
        " with warm-ups and a standby",
    ]
    code = warmup_code(Warmup(timeout_ms=120_000, standbys=1))
    assert code == "Warmup(max_concurrent=8, timeout_ms=120_000, standbys=1)"
