"""Scenarios whose members speak KIP-848 for a while: the broker assigns until they have left."""

import pytest

from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario.file import parse_scenario
from coopgroup.telemetry import AssigningMoved, OffsetsCommitted, ResourcesStarted
from tests.support.reports import reports

BOUNCE = """
duration_ms = 100_000
settle_ms = 20_000

[group]
session_timeout_ms = 10_000
rebalance_timeout_ms = 30_000

[topics.orders]
partitions = 6
rate_per_s = 20

[[members]]
name = "old"
client = "kip-848"
count = 2
capacity_per_s = 400

[[members]]
name = "new"
count = 0

[[costs]]
stop_ms = [10, 100]
restore_ms = [100, 300]

[[events]]
at_ms = 20_000
kind = "scale"
members = "new"
to = 2
every_ms = 10_000

[[events]]
at_ms = 25_000
kind = "scale"
members = "old"
to = 0
every_ms = 10_000
"""
BACK = """
[[events]]
at_ms = 60_000
kind = "scale"
members = "old"
to = 2
every_ms = 10_000

[[events]]
at_ms = 65_000
kind = "scale"
members = "new"
to = 0
every_ms = 10_000
"""
NEWEST_BEAT_MS = 2 * 3_000


def played(text: str, policy: str, *, transcript: bool = False) -> Run:
    scenario = parse_scenario(text, file="bounce.toml")
    return simulate(scenario, policy=policy, seed=1, transcript=transcript)


@pytest.mark.parametrize("policy", ["simple", "deferred", "incremental", "eager"])
def test_group_of_kip_848_moves_to_coopgroup_and_back(policy: str) -> None:
    """Partitions wait for heartbeats, and never for an owner that left."""
    run = played(BOUNCE + BACK, policy)
    assert run.violations == ()
    moved = reports(run.telemetry, AssigningMoved)
    assert {one.client for one, _ in moved} == {"new-1", "new-2"}
    moves = [record.to_broker for one, record in moved if one.client == "new-1"]
    assert moves == [True, False, True]
    worked = {one.client for one, _ in reports(run.telemetry, ResourcesStarted)}
    assert worked == {"old-1", "old-2", "new-1", "new-2"}
    committed = [one.member for one, _ in reports(run.telemetry, OffsetsCommitted)]
    assert any(member.startswith("old-1") for member in committed)
    assert run.measures.worst_outage_ms < NEWEST_BEAT_MS


def test_process_of_kip_848_is_killed_and_comes_back() -> None:
    """It returns as a new member, and finds its share after the session of the killed one."""
    text = BOUNCE.split("[[events]]", maxsplit=1)[0]
    event = '\n[[events]]\nkind = "crash"\nat_ms = 30_000\nmember = "old-1"\nback_after_ms = 500\n'
    run = played(text.replace("count = 0", "count = 1") + event, "deferred", transcript=True)
    assert run.violations == ()
    assert run.measures.returned + run.measures.moved > 0
    assert not any("ConsumerBeat" in line for line in run.transcript)


def test_rolling_restart_of_kip_848_beside_coopgroup() -> None:
    text = BOUNCE.split("[[events]]", maxsplit=1)[0].replace("count = 0", "count = 2")
    event = (
        '\n[[events]]\nkind = "rolling_restart"\nat_ms = 30_000\nmembers = ["old", "new"]\n'
        "down_ms = 500\nevery_ms = 10_000\n"
        '\n[[events]]\nkind = "add_partitions"\nat_ms = 75_000\ntopic = "orders"\ncount = 2\n'
        "rate_per_s = 5\n"
        '\n[[events]]\nkind = "capacity"\nat_ms = 76_000\nmembers = "old"\ncapacity_per_s = 300\n'
    )
    run = played(text + event, "simple")
    assert run.violations == ()
