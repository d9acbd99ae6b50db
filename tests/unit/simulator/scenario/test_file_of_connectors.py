"""Scenarios of connectors and of other named resources: read, refused and played."""

import attrs
import numpy as np
import pytest

from coopgroup.assignors import GroupMember, PlacementAssignor, ResourceToPlace
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
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
from coopgroup.simulator.scenario.file import parse_scenario
from coopgroup.simulator.scenario.times import lifetimes
from coopgroup.telemetry import RoundDecided, read_ledger
from tests.support.cases import cases

HEAD = """\
duration_ms = 60000
settle_ms = 20000
group = { session_timeout_ms = 2000, heartbeat_interval_ms = 500 }
members = [{ name = "worker", count = 2 }]
"""
CONNECTORS = """\

[connectors.light]
tasks = 3

[connectors.heavy]
tasks = 2
weight = [9, 8]

[[costs]]
resources = { heavy = [-1, 0] }
stop_ms = 500
"""
ADDED = """\
events = [
    { at_ms = 10000, kind = "add_resources", name = "light", count = 2, weight = 3 },
    { at_ms = 20000, kind = "create_resources", name = "new", count = 1 },
    { at_ms = 30000, kind = "weight", name = "heavy", indices = [1], weight = 1 },
    { at_ms = 40000, kind = "delete_resources", name = "light" },
]
"""


def read(text: str) -> Scenario:
    return parse_scenario(text, file="a.toml")


def test_file_of_connectors_says_tasks_and_weights() -> None:
    scenario = read(HEAD + ADDED + CONNECTORS)
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
    text = HEAD.replace("group = {", 'group = { assignor = "sticky",')
    scenario = read(f"{text}\n[resources.shard]\ncount = 4\nweight = 2")
    assert scenario.shares is Shares.RESOURCES
    assert scenario.group.assignor.name == "sticky"
    assert lifetimes(scenario).resources == ResourceSet({"shard": range(4)})
    assert simulate(scenario).violations == ()


REFUSED = """\
60000 -> 60000; connector = 1
    connector: got 1, but there is no such key (did you mean connectors?)
settle_ms -> topics.t = { partitions = 1, rate_per_s = 0 }; settle_ms
    connectors: got {'heavy': {'tasks': 2, 'weight': [9, 8]},
tasks = 3 -> count = 3
    connectors.light.count: got 3, but there is no such key; there are tasks,
[9, 8] -> [9]
    connectors.heavy.weight: got [9], expected as many numbers as tasks (2)
[9, 8] -> [9, -1]
    connectors.heavy.weight[1]: got -1, expected an integer from 0 to 10
[9, 8] -> 1.5
    connectors.heavy.weight: got 1.5, expected an integer, or a list of one
[-1, 0] -> [-2]
    costs[0].resources: got {'heavy': [-2]}, expected tasks of connectors
count = 2 -> topics = ["heavy"]
    members[0].topics: got ['heavy'], but there is no such key
"add_resources" -> "rate"
    events[0].kind: got 'rate', expected one of add_resources, close,
"light", count -> "dark", count
    events[0].name: got 'dark', expected one of the connectors heavy, light
"new" -> "heavy"
    events[1].name: got 'heavy', expected a name that no connector has at this time
[1] -> [2]
    events[2].indices[0]: got 2, expected indices from 0 to 1
weight = 1 -> weight = -1
    events[2].weight: got -1, expected an integer from 0 to 1000000000000
"""


@pytest.mark.parametrize(("edit", "message"), cases(REFUSED))
def test_invalid_file_is_refused_with_its_key_path(edit: str, message: str) -> None:
    old, new = edit.split(" -> ")
    with pytest.raises(ConfigurationError) as caught:
        read((HEAD + ADDED + CONNECTORS).replace(old, new, 1))
    assert f"a.toml: {message}" in str(caught.value)


def test_connectors_played_come_and_go_and_are_shared_by_weight() -> None:
    run = simulate(read(HEAD + ADDED + CONNECTORS))
    assert run.violations == ()
    owned = read_ledger(run.telemetry, until_ms=run.scenario.end_ms)
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


AGAIN = """
[[events]]
kind = "delete_resources"
at_ms = 10_000
name = "light"

[[events]]
kind = "create_resources"
at_ms = 20_000
name = "light"
count = 2
weight = 5

[[events]]
kind = "delete_resources"
at_ms = 30_000
name = "light"

[[events]]
kind = "create_resources"
at_ms = 40_000
name = "light"
count = 4
"""


def test_connector_can_be_made_again_under_its_name() -> None:
    """Its tasks do not exist between the lives, so nothing is missing there."""
    run = simulate(read(HEAD + CONNECTORS + AGAIN))
    assert run.violations == ()
    lives = lifetimes(run.scenario)
    resources = [tuple(one) for one in lives.resources]
    gaps = {resources[one] for one in lives.gaps.resource.tolist()}
    assert gaps == {("light", index) for index in range(-1, 3)}
    born = dict(zip(resources, lives.begin_ms.tolist(), strict=True))
    assert (born["light", 0], born["light", 3]) == (0, 40_000)
    assert set(lives.end_ms.tolist()) == {run.scenario.end_ms}
    owned = read_ledger(run.telemetry, until_ms=run.scenario.end_ms)
    light = owned.resources.positions(ResourceSet({"light": range(-1, 4)}))
    last = owned.work.start_ms[np.isin(owned.work.resource, light)]
    assert np.count_nonzero(last >= 40_000) == 5  # all run again, the connector itself included
    assert run.measures.worst_outage_ms < 5_000
    assert (run.measures.moved, run.measures.returned) == (0, 0)  # a new life is neither


def test_weight_that_changes_moves_things_where_nothing_waits() -> None:
    change = Weight(at_ms=20_000, topic="light", weight=20)
    scenario = attrs.evolve(read(HEAD + CONNECTORS), events=(change,))
    moved = {
        policy: [
            one.record.revoked
            for one in simulate(scenario, policy=policy).telemetry
            if isinstance(one.record, RoundDecided) and one.at_ms > change.at_ms
        ]
        for policy in ("simple", "deferred")
    }
    assert any(moved["simple"])
    assert moved["deferred"]
    assert not any(moved["deferred"])


class Heavy(PlacementAssignor):
    """Resources that weigh more than 7 run on members with the tag."""

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        return resource.weight <= 7 or member.traits.get("tag") == "big"


def test_weights_and_traits_reach_the_functions_of_a_placement() -> None:
    scenario = read(HEAD + CONNECTORS)
    (workers,) = scenario.members
    big = attrs.evolve(workers, name="big", count=1, traits={"tag": "big"})
    run = simulate(attrs.evolve(scenario, members=(workers, big)), assignor=Heavy())
    assert run.violations == ()
    ledger = read_ledger(run.telemetry, until_ms=run.scenario.end_ms)
    numbers = ledger.resources.positions(ResourceSet({"heavy": [0, 1]}))
    owners = ledger.work.owner[np.isin(ledger.work.resource, numbers)]
    assert {ledger.clients[owner] for owner in owners.tolist()} == {"big-1"}
    assert set(ledger.work.owner.tolist()) == {0, 1, 2}
