"""What counts as stuck, and what does not."""

import math
from typing import Any

import pytest
from attrs import evolve

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.health.value import Health, HealthLimits, StuckPartition

FINE = Health(
    group_id="g",
    generation=3,
    state="stable",
    is_joined=True,
    owned=ResourceSet({"t": [0]}),
    lease_s=30.0,
    since_poll_s=0.2,
    max_poll_interval_s=100.0,
    coordinator_silent_s=1.0,
)


@pytest.mark.parametrize(
    ("change", "is_ready"),
    [
        ({}, True),
        ({"owned": ResourceSet(), "lease_s": math.inf}, True),
        ({"is_joined": False}, False),
        # A restart of all members does not bring the broker back.
        ({"rebalancing_s": 1e6, "coordinator_silent_s": 1e6}, True),
    ],
    ids=["healthy", "without partitions", "not joined", "no coordinator"],
)
def test_member_without_a_problem(change: dict[str, Any], is_ready: bool) -> None:
    member = evolve(FINE, **change)
    assert (member.problems(), member.is_ready) == ((), is_ready)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"since_poll_s": 101.0}, "poll was not called for 101.0 s (limit 100.0 s)"),
        ({"revoking_s": 76.0}, "a revocation runs for 76.0 s (limit 75.0 s)"),
        ({"thread_silent_s": 101.0}, "the group's thread does not react for 101.0 s"),
        ({"rebalancing_s": 201.0}, "a rebalance runs for 201.0 s (limit 200.0 s)"),
        (
            {"unreadable_s": 46.0, "unreadable": "version: got 9"},
            "no assignment could be read for 46.0 s: version: got 9 (limit 45.0 s)",
        ),
        ({"failure": "fenced"}, "the group refused this member: fenced"),
        (
            {"stuck": (StuckPartition(topic="t", partition=3, why="records wait", since_s=101.0),)},
            "t-3 makes no progress for 101.0 s: records wait (limit 100.0 s)",
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_each_way_to_be_stuck_is_a_problem(change: dict[str, Any], words: str) -> None:
    member = evolve(FINE, **change)
    (problem,) = member.problems()
    assert problem.startswith(words)
    assert member.is_ready is ("failure" not in change)


@pytest.mark.parametrize("value", [0, -1, True, "5", math.nan])
def test_limit_that_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"limits\.poll_s: got .*expected seconds above 0"):
        HealthLimits(poll_s=value)  # type: ignore[arg-type]
