"""Gauges and commit counts from the health of members, at the moment of a scrape: pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import frozen

from coopgroup.kafka.health.value import DEFAULT_LIMITS, Health, HealthLimits
from coopgroup.metrics.events import MemberEvents

__all__ = ["Reading", "readings"]


@frozen
class Reading:
    """The value of a gauge; `labels` are the values of the labels beside the common ones."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def readings(
    health: Health,
    events: MemberEvents,
    wanted: int | None,
    now_s: float,
    *,
    per_partition: bool,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> Iterator[Reading]:
    """Yield the gauges of one member.

    Args:
        health: its health.
        events: what its telemetry told.
        wanted: number of members that its group needs, None if unknown.
        now_s: time of day, in seconds since 1970.
        per_partition: whether to yield a reading for each partition.
        limits: when the member counts as stuck.
    """
    yield Reading("coopgroup_assigned_partitions", len(health.owned))
    yield Reading("coopgroup_revoking_partitions", len(health.revoking))
    yield Reading("coopgroup_rebalancing_seconds", health.rebalancing_s)
    yield Reading("coopgroup_last_poll_timestamp_seconds", now_s - health.since_poll_s)
    yield Reading("coopgroup_warmups", health.warmups)
    yield Reading("coopgroup_standbys", health.standbys)
    yield Reading("coopgroup_problems", len(health.problems(limits)))
    yield Reading("coopgroup_broker_assigns", health.broker_assigns)
    yield Reading("coopgroup_records_lag", sum(health.lags.values()))
    yield Reading("coopgroup_records_lag_max", max(health.lags.values(), default=0))
    if math.isfinite(health.lease_s):
        yield Reading("coopgroup_lease_remaining_seconds", health.lease_s)
    if events.last_rebalance_s is not None:
        yield Reading("coopgroup_last_rebalance_timestamp_seconds", events.last_rebalance_s)
    if per_partition:
        for (topic, partition), lag in sorted(health.lags.items()):
            yield Reading("coopgroup_partition_records_lag", lag, (topic, str(partition)))
    if health.leads and events.members is not None:
        yield Reading("coopgroup_members", events.members)
        yield Reading("coopgroup_waiting_partitions", events.waiting)
        yield Reading("coopgroup_unowned_partitions", events.unowned)
        overdue = sum(one.count for one in health.overdue_claims)
        yield Reading("coopgroup_overdue_partitions", overdue)
        if wanted is not None:
            yield Reading("coopgroup_members_wanted", wanted)
