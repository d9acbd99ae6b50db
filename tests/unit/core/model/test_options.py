"""Policies by name, and their options: what is taken, and one clear line for what is wrong."""

from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.policies import (
    BalanceRule,
    IncrementalPolicy,
    SimplePolicy,
    Warmup,
    create_policy,
    policy_names,
    register_policy,
)

DELAYS = ("scheduled_rebalance_timeout_ms", "initial_delay_ms")
RATIO = "a number from 1 to 1000000"


def whole(least: int) -> str:
    return f"an integer from {least} to 2147483647"


# fmt: off
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    *(("deferred", {option: value}, option, whole(0))
      for option in DELAYS for value in (-1, 2**31, 1.5, "5", True, None)),
    ("incremental", {"scheduled_rebalance_timeout_ms": "5"}, DELAYS[0], whole(0)),
    ("incremental", {"initial_delay_ms": None}, DELAYS[1], whole(0)),
    ("incremental", {"max_moves_per_round": 0}, "max_moves_per_round", whole(1)),
    ("incremental", {"max_moves_per_round": 2, "move_interval_ms": -1}, "move_interval_ms",
     whole(0)),
    ("incremental", {"move_interval_ms": 5}, "move_interval_ms",
     "max_moves_per_round beside it: an interval needs a ration"),
    ("incremental", {"lag_check_interval_ms": 0}, "lag_check_interval_ms", whole(1)),
    ("incremental", {"lag_check_interval_ms": 1_000, "max_moves_per_round": 1},
     "max_moves_per_round", "at least 2 beside lag_check_interval_ms: an exchange takes two"),
    ("incremental", {"lag_imbalance_min": -1}, "lag_imbalance_min", whole(0)),
    ("incremental", {"lag_cooldown_ms": -1}, "lag_cooldown_ms", whole(0)),
]
WRONG_WARMUPS: list[tuple[object, str]] = [
    (5, "warmup: got 5, expected an object with options, or null"),
    ({"timeout": 5}, "option of warmup: got 'timeout', expected one of co_partition, max_"),
    ({"standbys": -1}, "standbys of warmup: got -1, expected an integer from 0 to "),
    ({"timeout_ms": 0}, "timeout_ms of warmup: got 0, expected an integer from 1 to "),
    ({"per_member": True}, "per_member of warmup: got True, expected an integer from 1 to "),
    *(({"co_partition": value}, f"co_partition of warmup: got {value!r}, expected lists of two ")
      for value in ("ab", 5, ["ab"], [["a"]], [["a", 1]], [["a", ""]])),
    ({"co_partition": [["a", "b"], ["c", "a"]]}, ("co_partition of warmup: got [['a', 'b'], "
     "['c', 'a']], expected each topic once; 'a' occurs 2 times")),
]
# fmt: on


def test_option_when_wrong_is_named_in_one_line(subtests: pytest.Subtests) -> None:
    for policy, options, wrong, expected in WRONG:
        with subtests.test(policy=policy, options=options, wrong=wrong):
            with pytest.raises(ConfigurationError) as caught:
                create_policy(policy, options)
            got = f"{wrong} of policy {policy}: got {options[wrong]!r}"
            assert str(caught.value) == f"{got}, expected {expected}"


@pytest.mark.parametrize(("value", "message"), WRONG_WARMUPS)
def test_warm_up_option_when_wrong_is_named_in_one_line(value: object, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_policy("simple", {"warmup": value})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_topics_that_belong_together_may_be_any_lists() -> None:
    option = Warmup(co_partition=[["a", "b"], ("c", "d", "e")])
    assert option.co_partition == (("a", "b"), ("c", "d", "e"))
    assert Warmup(co_partition=()) == Warmup()


def test_rule_of_the_lag_balance_when_all_is_given_has_that() -> None:
    options: dict[str, object] = {
        "max_moves_per_round": 4,
        "lag_check_interval_ms": 1_000,
        "lag_imbalance_min": 0,
        "lag_cooldown_ms": 7_000,
    }
    policy = create_policy("incremental", options)
    assert isinstance(policy, IncrementalPolicy)
    assert policy.balance == BalanceRule(
        interval_ms=1_000,
        ratio=1.5,
        calm_ratio=1.25,
        looks=3,
        lag_min=0,
        cooldown_ms=7_000,
        moves_max=4,
    )


def test_register_when_name_is_new_can_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coopgroup.core.policies.built_in._POLICIES._factories", {})
    register_policy("mine", SimplePolicy)
    assert (create_policy("mine"), policy_names()) == (SimplePolicy(), ("mine",))
