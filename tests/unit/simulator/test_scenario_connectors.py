"""Scenarios of connectors and of other named resources: read, refused and played."""

import attrs
import numpy as np
import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.simulator import Scenario, simulate
from coopgroup.simulator.scenario import (
    AddPartitions,
    Choice,
    CreateTopic,
    DeleteTopic,
    Shares,
    Topic,
    Weight,
)
from coopgroup.simulator.scenario_file import parse_scenario
from coopgroup.simulator.scenario_times import lifetimes
from coopgroup.telemetry import RoundLed, read_ownership

HEAD = """\
duration_ms = 60000
settle_ms = 20000
group = { session_timeout_ms = 2000, heartbeat_interval_ms = 500 }
members = [{ name = "worker", count = 2 }]
"""
CONNECTORS = f"""\
{HEAD}
[connectors.light]
tasks = 3

[connectors.heavy]
tasks = 2
weight = [9, 8]

[[costs]]
resources = {{ heavy = [-1, 0] }}
stop_ms = 500
"""
ADDED = """
[[events]]
at_ms = 10000
kind = "add_resources"
name = "light"
count = 2
weight = 3

[[events]]
at_ms = 20000
kind = "create_resources"
name = "new"
count = 1

[[events]]
at_ms = 30000
kind = "weight"
name = "heavy"
indices = [1]
weight = 1

[[events]]
at_ms = 40000
kind = "delete_resources"
name = "light"
"""


def read(text: str) -> Scenario:
    """Return the scenario of a text."""
    return parse_scenario(text, file="a.toml")


def test_file_of_connectors_says_tasks_and_weights() -> None:
    """Members subscribe to everything, and the assignor uses weights."""
    scenario = read(CONNECTORS + ADDED)
    assert scenario.shares is Shares.CONNECTORS
    assert scenario.topics == (
        Topic(name="light", partitions=3, rate_per_s=(0.0,) * 3, weights=(1, 1, 1)),
        Topic(name="heavy", partitions=2, rate_per_s=(0.0,) * 2, weights=(9, 8)),
    )
    assert scenario.members[0].topics == ("heavy", "light", "new")
    assert scenario.group.assignor == Choice(name="weighted")
    new = Topic(name="new", partitions=1, rate_per_s=(0.0,), weights=(1,))
    assert scenario.events == (
        AddPartitions(at_ms=10_000, topic="light", rate_per_s=(0.0, 0.0), weights=(3, 3)),
        CreateTopic(at_ms=20_000, topic=new),
        Weight(at_ms=30_000, topic="heavy", partitions=(1,), weight=1),
        DeleteTopic(at_ms=40_000, topic="light"),
    )


def test_file_of_other_resources_counts_from_0_and_may_choose_its_assignor() -> None:
    """Such resources have no index -1."""
    text = HEAD.replace("group = {", 'group = { assignor = "sticky",')
    scenario = read(f"{text}\n[resources.shard]\ncount = 4\nweight = 2")
    assert scenario.shares is Shares.RESOURCES
    assert scenario.group.assignor.name == "sticky"
    assert lifetimes(scenario).resources == ResourceSet({"shard": range(4)})
    assert simulate(scenario).violations == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD.replace("60000", "60000\nconnector = 1"),
            "a.toml:2: connector: got 1, but there is no such key (did you mean connectors?)",
        ),
        (
            f"{CONNECTORS}\n[topics.t]\npartitions = 1\nrate_per_s = 0",
            "a.toml:6: connectors: got {'heavy': {'tasks': 2, 'weight': [9, 8]},",
        ),
        (
            CONNECTORS.replace("tasks = 3", "count = 3"),
            "a.toml:7: connectors.light.count: got 3, but there is no such key; there are tasks,",
        ),
        (
            CONNECTORS.replace("[9, 8]", "[9]"),
            "a.toml:11: connectors.heavy.weight: got [9], expected one integer for each of 2",
        ),
        (
            CONNECTORS.replace("[9, 8]", "[9, -1]"),
            "a.toml:11: connectors.heavy.weight: got -1, expected an integer from 0 on",
        ),
        (
            CONNECTORS.replace("[9, 8]", "1.5"),
            "a.toml:11: connectors.heavy.weight: got 1.5, expected an integer, or a list of one",
        ),
        (
            CONNECTORS.replace("[-1, 0]", "[-2]"),
            "a.toml:14: costs.resources: got {'heavy': [-2]}, expected tasks of connectors",
        ),
        (
            CONNECTORS.replace("count = 2", 'topics = ["heavy"]'),
            "a.toml:4: members.topics: got ['heavy'], but there is no such key",
        ),
        (
            f'{CONNECTORS}\n[[events]]\nat_ms = 1\nkind = "rate"',
            "a.toml:19: events.kind: got 'rate', expected one of add_resources, close,",
        ),
        (
            CONNECTORS + ADDED.replace('"light"\ncount', '"dark"\ncount'),
            "a.toml:20: events.name: got 'dark', expected one of the connectors heavy, light",
        ),
        (
            CONNECTORS + ADDED.replace('"new"', '"heavy"'),
            "a.toml:27: events.name: got 'heavy', expected a name never used",
        ),
        (
            CONNECTORS + ADDED.replace("[1]", "[2]"),
            "a.toml:34: events.indices: got 2, expected indices from 0 to 1",
        ),
        (
            CONNECTORS + ADDED.replace("weight = 1\n", "weight = -1\n"),
            "a.toml:35: events.weight: got -1, expected an integer from 0 on",
        ),
    ],
)
def test_file_that_cannot_be_is_refused_with_line_and_key(text: str, message: str) -> None:
    """As with topics, in the terms of the file."""
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    assert message in str(caught.value)


def test_connectors_played_come_and_go_and_are_shared_by_weight() -> None:
    """Heavy tasks are on different members. New resources start, deleted ones have no owner."""
    run = simulate(read(CONNECTORS + ADDED))
    assert run.violations == ()
    owned = read_ownership(run.telemetry, until_ms=run.scenario.end_ms)
    names = {resource.name for resource in owned.resources}
    assert names == {"heavy", "light", "new"}
    lives = lifetimes(run.scenario)
    born = dict(zip(map(tuple, lives.resources), lives.begin_ms.tolist(), strict=True))
    assert [born["light", index] for index in range(-1, 5)] == [0, 0, 0, 0, 10_000, 10_000]
    assert (born["new", -1], born["new", 0]) == (20_000, 20_000)
    gone = np.asarray(lives.end_ms)[[one.name == "light" for one in lives.resources]]
    assert set(gone.tolist()) == {40_000}
    assert run.measures.lag_peak == 0
    assert run.measures.worst_outage_ms < 3_000


def test_weight_that_changes_moves_things_where_nothing_waits() -> None:
    """The leader starts a round. A policy with a pending wait moves nothing."""
    change = Weight(at_ms=20_000, topic="light", weight=20)
    scenario = attrs.evolve(read(CONNECTORS), events=(change,))
    moved = {
        policy: [
            one.record.revoked
            for one in simulate(scenario, policy=policy).telemetry
            if isinstance(one.record, RoundLed) and one.at_ms > change.at_ms
        ]
        for policy in ("simple", "deferred")
    }
    assert any(moved["simple"])
    assert moved["deferred"]
    assert not any(moved["deferred"])
