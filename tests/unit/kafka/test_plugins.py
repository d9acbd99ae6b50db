"""Policies and assignors by name."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup import CooperativeConsumer, IncrementalPolicy, RangeAssignor
from coopgroup.assignors import LagAwareAssignor, RoundRobinAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.plugins import chosen_assignor, chosen_policy
from coopgroup.policies import DeferredPolicy


def test_choice_is_an_object_a_name_or_a_name_with_options() -> None:
    policy, assignor = DeferredPolicy(initial_delay_ms=9), RangeAssignor()
    assert chosen_policy(policy) is policy
    assert chosen_assignor(assignor, "sticky") is assignor
    assert chosen_policy("incremental") == IncrementalPolicy()
    assert chosen_policy({"name": "deferred", "initial_delay_ms": 9}) == policy
    assert chosen_assignor({"name": "lag-aware", "moves_max": 3}) == LagAwareAssignor(moves_max=3)
    assert isinstance(chosen_assignor(None, "round-robin"), RoundRobinAssignor)
    assert chosen_policy("coopgroup.policies:DeferredPolicy") == DeferredPolicy()
    assert (chosen_policy(None), chosen_assignor(None)) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"policy": "eventual"}, "policy: got 'eventual', expected one of deferred, eager, incre"),
        ({"assignor": "uniform"}, "assignor: got 'uniform', expected one of cooperative-sticky, "),
        ({"policy": {"delay_ms": 1}}, "policy.name: got None, expected a name, with "),
        ({"policy": {"name": "simple", "delay": 1}}, "option of policy simple: got 'delay', "),
        ({"policy": "eager"}, "policy: got EagerPolicy"),
    ],
)
def test_wrong_choice_names_what_there_is(arguments: dict[str, Any], said: str) -> None:
    config = {"bootstrap.servers": "localhost:1", "group.id": "g"}
    with pytest.raises(ConfigurationError) as caught:
        CooperativeConsumer(config, **arguments)
    assert str(caught.value).startswith(said)
