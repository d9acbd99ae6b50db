"""Stories of single runs of the swarm: mixed groups, processes that return, named resources."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from coopgroup.simulator.scenario import Choice, Identity
from coopgroup.telemetry import (
    AssignmentReceived,
    ProcessEnded,
    ProcessStarted,
    ResourcesStarted,
    RoundDecided,
    WarmupsChanged,
)
from tests.swarm.mixed import Client
from tests.swarm.named import NAMED
from tests.swarm.play import play
from tests.swarm.runs import TOPICS, Act, ActKind, SwarmRun
from tests.swarm.warm import draw_warm


@pytest.mark.parametrize(
    ("theirs", "client", "spoken"),
    [
        ("cooperative-sticky", Client.OURS, ["coopgroup", "cooperative-sticky", "coopgroup"]),
        ("range", Client.OURS, ["coopgroup", "range", "coopgroup"]),
        ("range", Client.BACK, ["range"]),
    ],
)
def test_rounds_of_a_group_are_in_the_protocol_that_all_offer(
    theirs: str, client: Client, spoken: list[str]
) -> None:
    """Ours before another client joins, theirs while it is a member, and ours again afterwards."""
    acts = (
        Act(kind=ActKind.RESIZE, topics=("T",), number=4),
        Act(kind=ActKind.START, process="a", topics=("T",), client=client),
        Act(after_ms=300, kind=ActKind.START, process="f", topics=("T",), client=Client.OTHER),
    )
    played = play(SwarmRun(seed=1, theirs=theirs, acts=acts, healed_after_ms=300))
    assert played.violations == ()
    rounds = [
        one.record.protocol
        for one in played.telemetry
        if one.client == "a" and isinstance(one.record, AssignmentReceived)
    ]
    assert [protocol for protocol, _ in itertools.groupby(rounds)] == spoken


@pytest.mark.parametrize("served", [0, 1], ids=["its sync is lost", "its sync arrives"])
@pytest.mark.parametrize("identity", list(Identity))
def test_process_that_is_killed_at_its_sync_hears_no_assignment(
    identity: Identity, served: int
) -> None:
    doom = Act(kind=ActKind.CRASH_AT_SYNC, process="p1", for_ms=50, number=served, times=2)
    run = SwarmRun(
        seed=1,
        policy=Choice(name="simple"),
        assignor="sticky",
        rebalance_timeout_ms=600,
        acts=(
            Act(kind=ActKind.RESIZE, topics=("T",), number=2),
            Act(kind=ActKind.START, process="p1", topics=("T",), identity=identity),
            doom,
        ),
        healed_after_ms=100,
    )
    played = play(run)
    assert played.violations == ()
    kinds = (ProcessStarted, ProcessEnded, AssignmentReceived)
    lives = [type(one.record) for one in played.telemetry if isinstance(one.record, kinds)]
    first_lives = [ProcessStarted, ProcessEnded, ProcessStarted, ProcessEnded, ProcessStarted]
    assert lives[:6] == [*first_lives, AssignmentReceived]


CHUNK: Final = 50


def test_runs_with_warm_ups_move_warm_resources_and_have_every_mishap() -> None:
    """Otherwise the swarm would pass without testing anything."""
    seen = dict.fromkeys(("begun", "warm", "moved", "cancelled", "failed"), 0)
    for seed in range(CHUNK):
        for one in play(draw_warm(seed)).telemetry:
            if isinstance(one.record, WarmupsChanged):
                for name in seen:
                    seen[name] += len(getattr(one.record, name))
    assert min(seen.values()) > CHUNK // 5, seen
    faults = [draw_warm(seed).faults for seed in range(CHUNK)]
    assert all(any(getattr(one, name) for one in faults) for name in ("hang", "fail", "lie"))


def test_named_resource_of_a_static_member_that_returned_has_an_owner() -> None:
    """Regression of the checker: no leader has heard the new life, which runs what is stored."""
    run = SwarmRun(
        seed=1,
        policy=Choice(name="simple"),
        theirs=NAMED,
        acts=(
            Act(kind=ActKind.RESIZE, topics=("T",), number=1),
            Act(kind=ActKind.START, process="p1", topics=TOPICS, identity=Identity.STATIC),
            Act(after_ms=300, kind=ActKind.START, process="p2", topics=TOPICS),
            Act(after_ms=500, kind=ActKind.CLOSE, process="p1", for_ms=100),
        ),
        healed_after_ms=100,
    )
    played = play(run)
    assert played.violations == ()
    records = [one.record for one in played.telemetry if one.client == "p1"]
    (end,) = (n for n, one in enumerate(records) if isinstance(one, ProcessEnded))
    kinds = (RoundDecided, ResourcesStarted)
    assert [type(one) for one in records[end:] if isinstance(one, kinds)] == [ResourcesStarted]
