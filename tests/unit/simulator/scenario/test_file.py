"""Scenario files: their keys and meanings."""

import math
from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.simulator.scenario import (
    AddPartitions,
    Bell,
    Capacity,
    Choice,
    Close,
    CoordinatorLost,
    CoordinatorMoved,
    Cost,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Flap,
    Group,
    How,
    Identity,
    MemberSet,
    Network,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.file import parse_scenario, read_scenario
from tests.unit.simulator.small_file import SMALL

FULL = """\
description = "Everything at once."
duration_ms = 600000
settle_ms = 30000
events = [
    { at_ms = 9000, kind = "rolling_restart", members = "worker", down_ms = 3000, \
every_ms = 5000, batch = 2, how = "crash" },
    { at_ms = 1000, kind = "crash", member = "worker-1", back_after_ms = 5000 },
    { at_ms = 2000, kind = "close", member = "leader" },
    { at_ms = 3000, kind = "pause", member = "solo", for_ms = 20000 },
    { at_ms = 4000, kind = "scale", members = "worker", to = 8, every_ms = 100, how = "close" },
    { at_ms = 5000, kind = "flap", member = "worker-7", up_ms = 1000, down_ms = 2000, times = 3 },
    { at_ms = 6000, kind = "cut", members = ["leader", "worker"], for_ms = 700 },
    { at_ms = 7000, kind = "coordinator_lost", for_ms = 900 },
    { at_ms = 7500, kind = "coordinator_moved" },
    { at_ms = 8000, kind = "add_partitions", topic = "orders", count = 2, rate_per_s = 7 },
    { at_ms = 8500, kind = "create_topic", topic = "later", partitions = 2, rate_per_s = [1, 2] },
    { at_ms = 8600, kind = "delete_topic", topic = "events" },
    { at_ms = 8700, kind = "rate", topic = "orders", partitions = [4], rate_per_s = 99.5 },
    { at_ms = 8800, kind = "capacity", members = ["solo"], capacity_per_s = 5 },
]

[group]
policy = { name = "simple", options = {} }
assignor = "lag-aware"
session_timeout_ms = 10000
rebalance_timeout_ms = 60000
heartbeat_interval_ms = 1000
window_heartbeat_interval_ms = 500
commit_interval_ms = 0

[policies.simple]

[topics.orders]
partitions = 3
rate_per_s = [10, 20.5, 0]

[topics.events]
partitions = 2
rate_per_s = 5

[[members]]
name = "worker"
count = 4
topics = ["orders", "later"]
identity = "state-dir"
capacity_per_s = 500
start_ms = 100
start_every_ms = 50
clock_skew_ppm = [-200, 200]

[[members]]
name = "solo"
identity = "static"
capacity_per_s = inf

[[costs]]
stop_ms = [1, 5]

[[costs]]
resources = { orders = [0, 2] }
stop_ms = 2000
commit_ms = 100
restore_ms = [5000, 6000]

[bell]
delay_ms = 3
loss = 0.1
false_every_ms = 500

[network]
delay_ms = [1, 20]
loss = 0.01
"""


def test_everything_that_a_file_can_say_is_read() -> None:
    assert parse_scenario(FULL, file="some/full.toml") == Scenario(
        name="full",
        description="Everything at once.",
        duration_ms=600_000,
        settle_ms=30_000,
        group=Group(
            policy=Choice(name="simple"),
            assignor=Choice(name="lag-aware"),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            heartbeat_interval_ms=1_000,
            window_heartbeat_interval_ms=500,
            commit_interval_ms=0,
        ),
        policies=(Choice(name="simple"),),
        topics=(
            Topic(name="orders", partitions=3, rate_per_s=(10, 20.5, 0)),
            Topic(name="events", partitions=2, rate_per_s=(5, 5)),
        ),
        members=(
            MemberSet(
                name="worker",
                count=4,
                topics=("orders", "later"),
                identity=Identity.STATE_DIR,
                capacity_per_s=500,
                start_ms=100,
                start_every_ms=50,
                clock_skew_ppm=Span(-200, 200),
            ),
            MemberSet(
                name="solo",
                topics=("orders", "events"),
                identity=Identity.STATIC,
                capacity_per_s=math.inf,
            ),
        ),
        costs=(
            Cost(stop_ms=Span(1, 5)),
            Cost(
                resources=ResourceSet({"orders": [0, 2]}),
                stop_ms=Span(2000, 2000),
                commit_ms=Span(100, 100),
                restore_ms=Span(5000, 6000),
            ),
        ),
        network=Network(delay_ms=Span(1, 20), loss=0.01),
        bell=Bell(delay_ms=Span(3, 3), loss=0.1, false_every_ms=500),
        events=(
            Crash(at_ms=1000, member="worker-1", back_after_ms=5000),
            Close(at_ms=2000, member="leader"),
            Pause(at_ms=3000, member="solo", for_ms=20_000),
            Scale(at_ms=4000, members="worker", to=8, every_ms=100),
            Flap(at_ms=5000, member="worker-7", up_ms=1000, down_ms=2000, times=3),
            Cut(at_ms=6000, members=("leader", "worker"), for_ms=700),
            CoordinatorLost(at_ms=7000, for_ms=900),
            CoordinatorMoved(at_ms=7500),
            AddPartitions(at_ms=8000, topic="orders", rate_per_s=(7, 7)),
            CreateTopic(at_ms=8500, topic=Topic(name="later", partitions=2, rate_per_s=(1, 2))),
            DeleteTopic(at_ms=8600, topic="events"),
            Rate(at_ms=8700, topic="orders", partitions=(4,), rate_per_s=99.5),
            Capacity(at_ms=8800, members=("solo",), capacity_per_s=5),
            RollingRestart(
                at_ms=9000,
                members=("worker",),
                down_ms=3000,
                every_ms=5000,
                batch=2,
                how=How.CRASH,
            ),
        ),
    )


def test_what_a_file_leaves_out_takes_its_default() -> None:
    scenario = parse_scenario(SMALL, file="small.toml")
    assert (scenario.group, scenario.network, scenario.costs) == (Group(), Network(), ())
    assert scenario.bell is None
    assert [one.topics for one in scenario.members] == [("orders",), ("orders",)]
    assert [one.processes for one in scenario.members] == [
        ("worker-1", "worker-2", "worker-3"),
        ("solo",),
    ]
    assert scenario.end_ms == 120_000


def test_a_policy_named_without_options_has_those_of_its_table() -> None:
    table = "[policies.deferred]\nscheduled_rebalance_timeout_ms = 7\n"
    named = f'{SMALL}\n[group]\npolicy = "deferred"\n{table}'
    assert parse_scenario(named, file="a.toml").group.policy == Choice(
        name="deferred", options={"scheduled_rebalance_timeout_ms": 7}
    )
    own = 'policy = { name = "deferred", options = { initial_delay_ms = 3 } }'
    brought = f"{SMALL}\n[group]\n{own}\n{table}"
    assert parse_scenario(brought, file="a.toml").group.policy == Choice(
        name="deferred", options={"initial_delay_ms": 3}
    )


def test_files_are_read_and_name_their_scenario(tmp_path: Path) -> None:
    path = tmp_path / "rolling_bounce.toml"
    path.write_text(SMALL)
    assert read_scenario(path).name == "rolling_bounce"
    path.write_text("x = 1")
    with pytest.raises(ConfigurationError, match=r"rolling_bounce\.toml: x: got 1"):
        read_scenario(str(path))
    path.write_text("duration_ms = 1\ntopics.t = { partitions = 1, rate_per_s = 1 }")
    missing = r"members: got nothing, expected \[\[members\]\], a table for each set of processes"
    with pytest.raises(ConfigurationError, match=missing):
        read_scenario(str(path))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigurationError, match=r"a file to read \(no such file or directory\)"):
        read_scenario(missing)
    with pytest.raises(ConfigurationError, match=r"a file to read \(is a directory\)"):
        read_scenario(tmp_path)
    missing.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="expected a text file in UTF-8"):
        read_scenario(missing)
