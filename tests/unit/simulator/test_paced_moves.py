"""A leader that dies in a paced scale-up: what it had is not given away at once."""

from coopgroup.simulator import Scenario, simulate
from coopgroup.simulator.scenario import (
    Choice,
    Crash,
    Group,
    MemberSet,
    Network,
    Scale,
    Span,
    Topic,
)
from coopgroup.telemetry import ProcessEnded, RoundLed

DELAY_MS = 30_000
SCENARIO = Scenario(
    duration_ms=80_000,
    settle_ms=30_000,
    group=Group(
        policy=Choice(
            name="incremental",
            options={
                "scheduled_rebalance_timeout_ms": DELAY_MS,
                "max_moves_per_round": 1,
                "move_interval_ms": 1_000,
            },
        ),
        assignor=Choice(name="sticky"),
        session_timeout_ms=2_000,
        rebalance_timeout_ms=4_000,
        heartbeat_interval_ms=500,
    ),
    topics=(Topic(name="T", partitions=24, rate_per_s=(5.0,) * 24),),
    members=(MemberSet(name="w", count=3, topics=("T",)),),
    network=Network(delay_ms=Span(1, 5)),
    events=(
        Scale(at_ms=15_000, members="w", to=4),
        Crash(at_ms=18_000, member="leader"),
    ),
)


def test_leader_when_it_dies_between_paced_moves_is_waited_for() -> None:
    """The members of its group know of nothing but a pause: the loss is new, and waits in full."""
    run = simulate(SCENARIO, seed=1)
    assert run.violations == ()
    died_ms = next(e.at_ms for e in run.telemetry if isinstance(e.record, ProcessEnded))
    rounds = [
        (envelope.at_ms, envelope.record)
        for envelope in run.telemetry
        if isinstance(envelope.record, RoundLed) and envelope.at_ms > died_ms
    ]
    found_ms, first = rounds[0]
    assert len(first.lost) >= 6
    waiting = [record.lost for at_ms, record in rounds if at_ms < found_ms + DELAY_MS]
    assert set(waiting) == {first.lost}
    assert not rounds[-1][1].lost
