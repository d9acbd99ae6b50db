"""Scenarios whose members of coopgroup speak KIP-848: the broker assigns, and the members hurry."""

import pytest

from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario.file import parse_scenario
from coopgroup.telemetry import (
    AssignmentReceived,
    MembershipLost,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
)
from tests.support.reports import reports

BEGUN_MS = 20_000
GROUP = """
duration_ms = 60_000
settle_ms = 20_000

[group]
session_timeout_ms = 10_000
heartbeat_interval_ms = 3_000
rebalance_timeout_ms = 30_000

[topics.orders]
partitions = 6
rate_per_s = 20

[[members]]
name = "worker"
protocol = "consumer"
count = 3
capacity_per_s = 400

[[costs]]
stop_ms = [10, 30]
restore_ms = [20, 30]
"""
BELL = "\n[bell]\n"
JOIN = f'\n[[events]]\nkind = "scale"\nat_ms = {BEGUN_MS}\nmembers = "worker"\nto = 4\n'


def event(kind: str, **keys: object) -> str:
    lines = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in keys.items())
    return f'\n[[events]]\nkind = "{kind}"\nat_ms = {BEGUN_MS}\nmember = "worker-2"\n{lines}'


def played(text: str) -> Run:
    run = simulate(parse_scenario(text, file="group.toml"), policy="simple", seed=1)
    assert run.violations == ()
    assert reports(run.telemetry, RoundDecided) == []
    return run


def last_start_ms(run: Run) -> int:
    return max(one.at_ms for one, _ in reports(run.telemetry, ResourcesStarted)) - BEGUN_MS


def stops(run: Run) -> list[str]:
    """Return the clients that stopped something since the event."""
    found = reports(run.telemetry, ResourcesStopped)
    return [one.client for one, _ in found if one.at_ms >= BEGUN_MS]


def test_join_waits_for_heartbeats_without_a_bell_and_not_with_one() -> None:
    """Each move is three hops of a few ms, and a stop and a start of the application."""
    assert last_start_ms(played(GROUP + JOIN)) > 1_000
    assert last_start_ms(played(GROUP + BELL + JOIN)) < 200


def test_retained_partitions_never_stop() -> None:
    run = played(GROUP + BELL + JOIN)
    stopped = [
        record.resources
        for one, record in reports(run.telemetry, ResourcesStopped)
        if one.at_ms >= BEGUN_MS
    ]
    assert sum(map(len, stopped)) == 1


def test_closed_member_is_replaced_within_milliseconds() -> None:
    assert last_start_ms(played(GROUP + BELL + event("close"))) < 1_200  # the assignment interval


@pytest.mark.parametrize("identity", ["state-dir", "static"])
def test_member_with_an_identity_returns_to_its_partitions_without_a_rebalance(
    identity: str,
) -> None:
    text = GROUP.replace("count = 3", f'count = 3\nidentity = "{identity}"')
    how = "crash" if identity == "state-dir" else "close"
    run = played(text + BELL + event(how, back_after_ms=2_000))
    others = [
        one.client
        for one, record in reports(run.telemetry, AssignmentReceived)
        if one.at_ms >= BEGUN_MS and (record.gained or record.revoked)
    ]
    assert others == ["worker-2"]
    assert set(stops(run)) <= {"worker-2"}
    assert last_start_ms(run) < 2_200


def test_paused_member_stops_by_itself_before_its_partitions_move() -> None:
    run = played(GROUP + BELL + event("pause", for_ms=15_000))
    lost = [(one.client, record.cause) for one, record in reports(run.telemetry, MembershipLost)]
    assert lost == [("worker-2", "lease expired")]


def test_members_of_both_protocols_share_a_group() -> None:
    text = GROUP + '\n[[members]]\nname = "old"\ncount = 1\ncapacity_per_s = 400\n'
    run = simulate(parse_scenario(text + BELL + JOIN, file="both.toml"), policy="simple", seed=1)
    assert run.violations == ()
    worked = {one.client for one, _ in reports(run.telemetry, ResourcesStarted)}
    assert worked == {"old-1", *(f"worker-{number}" for number in range(1, 5))}
