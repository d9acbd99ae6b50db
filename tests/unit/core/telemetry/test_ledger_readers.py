"""All readers of one run say the same: measures, page, live view, with and without processes."""

from functools import cache

import attrs
import numpy as np
import pytest

from coopgroup.core.model.resource_set import Resource
from coopgroup.report.history import facts_of, history_of
from coopgroup.simulator import Run, simulate
from coopgroup.simulator.measures import find_outages
from coopgroup.simulator.scenario import (
    Choice,
    Cost,
    Crash,
    Group,
    MemberSet,
    Pause,
    Scale,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.times import lifetimes
from coopgroup.telemetry import (
    Envelope,
    FaultInjected,
    Ledger,
    OffsetsCommitted,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    WarmEnd,
    read_ledger,
)
from coopgroup.watch.present import Present
from coopgroup.watch.values import GroupView, MemberView, PartitionView

PARTITIONS = 12
SESSION_MS, HEARTBEAT_MS = 6_000, 1_000
SCENARIO = Scenario(
    duration_ms=150_000,
    settle_ms=60_000,
    group=Group(
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=30_000,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ),
    topics=(Topic(name="t", partitions=PARTITIONS, rate_per_s=(5.0,) * PARTITIONS),),
    members=(MemberSet(name="m", count=4, topics=("t",), capacity_per_s=200.0),),
    costs=(Cost(stop_ms=Span(10, 90), restore_ms=Span(300, 900)),),
    events=(
        Crash(at_ms=30_000, member="m-1", back_after_ms=20_000),
        Scale(at_ms=80_000, members="m", to=5),
        Pause(at_ms=110_000, member="m-2", for_ms=20_000),
    ),
)
POLICIES = (
    Choice(name="simple"),
    Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 20_000}),
    Choice(name="incremental", options={"warmup": {"timeout_ms": 60_000, "standbys": 1}}),
)
_OF_A_HOST = (
    FaultInjected,
    OffsetsCommitted,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
)

each_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)


@cache
def played(policy: Choice) -> Run:
    return simulate(SCENARIO, policy=policy, seed=3)


def as_real(run: Run) -> list[Envelope]:
    """Return what consumers of Kafka would have written: no names, and nothing of processes."""
    return [
        attrs.evolve(one, client="")
        for one in run.telemetry
        if not isinstance(one.record, _OF_A_HOST)
    ]


def out_ms(ledger: Ledger, from_ms: int) -> dict[Resource, int]:
    """Return how long no member worked on each partition."""
    gaps, found = ledger.gaps, dict.fromkeys(ledger.resources, 0)
    resources = list(ledger.resources)
    for number, start, end in zip(
        gaps.resource.tolist(),
        np.maximum(gaps.start_ms, from_ms).tolist(),
        np.maximum(gaps.end_ms, from_ms).tolist(),
        strict=True,
    ):
        found[resources[number]] += end - start
    return found


@each_policy
def test_page_shows_the_outages_that_the_simulator_measures(policy: Choice) -> None:
    run = played(policy)
    ledger = read_ledger(run.telemetry, until_ms=SCENARIO.end_ms)
    outages = find_outages(ledger, lifetimes(SCENARIO), run.begin_ms, SCENARIO.end_ms)
    assert sum(out_ms(ledger, run.begin_ms).values()) == (outages.end_ms - outages.start_ms).sum()
    assert run.measures.unavailable_partition_s > 0
    page = facts_of(history_of(run.telemetry, run.lag))
    assert page.warmups == sum(one.is_restore for one in ledger.warm_spans)
    assert page.gap_seconds == pytest.approx(sum(out_ms(ledger, 0).values()) / 1_000)


@each_policy
def test_real_consumers_show_the_same_outages(policy: Choice) -> None:
    """Neither a killed nor a frozen member says when its work ended.

    A killed one counts from its last heartbeat, and a frozen one works until its lease ends.
    """
    run = played(policy)
    truth = out_ms(read_ledger(run.telemetry, until_ms=SCENARIO.end_ms), run.begin_ms)
    ledger = read_ledger(as_real(run), until_ms=SCENARIO.end_ms)
    shown = out_ms(ledger, run.begin_ms)
    frozen = {one for one in truth if shown[one] < truth[one]}
    assert len(frozen) == ledger.unsure.owner.size == PARTITIONS // 4
    for one, out in truth.items():
        low, high = (SESSION_MS, 0) if one in frozen else (0, HEARTBEAT_MS)
        assert out - low <= shown[one] <= out + high
    assert not ledger.doubles.other.size


def test_live_view_knows_the_same_warm_ups() -> None:
    run = played(POLICIES[-1])
    present, compared = Present(), 0
    records = as_real(run)
    view = GroupView(
        group="g",
        at_ms=0,
        state="stable",
        kind="classic",
        assignor="",
        coordinator="",
        members=tuple(
            MemberView(member_id=one, client_id=one, host="")
            for one in sorted({one.member for one in records if one.member})
        ),
        partitions=tuple(PartitionView(topic="t", partition=one) for one in range(PARTITIONS)),
    )
    for number, one in enumerate(records, 1):
        present.note(one, one.at_ms)
        is_last = number == len(records) or records[number].at_ms > one.at_ms
        if is_last and number % 5 == 0:
            shown = {
                (part.partition, warm.member, warm.is_warm)
                for part in present.added_to(attrs.evolve(view, at_ms=one.at_ms)).partitions
                for warm in part.warmups
            }
            spans = read_ledger(records[:number]).warm_spans
            open_now = {
                (span.resource.index, span.client, span.warm_ms is not None)
                for span in spans
                if span.end is WarmEnd.OPEN
            }
            assert open_now <= shown  # a silent member is still shown until the brokers drop it
            compared += len(open_now)
    assert compared
