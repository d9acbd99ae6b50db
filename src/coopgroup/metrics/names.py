"""All metrics: their names, kinds, labels and descriptions, as one table.

Names follow the metrics of the Java client where it has one, but a moment is a gauge
`…_timestamp_seconds`, from which a query subtracts. A duration is `…_seconds`. The exporters, the
dashboard, the alerts and the documentation read this table.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from coopgroup.kafka.records.commit_meter import COMMIT_BUCKETS_S

COMMON_LABELS: Final = ("group", "client_id", "instance_id")
"""Labels of every metric of a member."""

CommonLabels: TypeAlias = tuple[str, str, str]
"""Their values."""

ATTRIBUTES: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "group": "messaging.consumer.group.name",
        "client_id": "messaging.client.id",
        "instance_id": "coopgroup.instance_id",
        "cause": "coopgroup.cause",
        "reason": "coopgroup.reason",
        "outcome": "coopgroup.outcome",
    }
)
"""Attribute of each label on OpenTelemetry, by its conventions for messaging if they have one."""

COMMITS: Final = "coopgroup_commits_total"
COMMIT_SECONDS: Final = "coopgroup_commit_duration_seconds"
DROPPED: Final = "coopgroup_dropped_telemetry_total"
"""Counters and a histogram that do not come from telemetry: `MetricsFeed.values` fills them."""

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Kind(enum.Enum):
    """The kinds of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(enum.Enum):
    """How the values of several members with the same labels become one value."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"

    def of(self, values: Sequence[float]) -> float:
        """Return the one value of several values."""
        match self:
            case Merge.SUM:
                return sum(values)
            case Merge.MIN:
                return min(values)
            case Merge.MAX:
                return max(values)


@frozen(kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: its name on Prometheus.
        help: its meaning.
        labels: its labels beside `COMMON_LABELS`.
        values: usual values of its label. Their series begin at 0, because a query for an increase
            does not see the first event of a series that begins with it.
        buckets: upper bounds of a histogram, ascending.
        merge: how values of members with the same labels become one. A sum suits counts only.
        is_of_leader: whether only the leader of a group reports it.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Merge = Merge.SUM
    is_of_leader: bool = False


@frozen
class Value:
    """A value of a metric, or what a record adds to it.

    Attributes:
        labels: values of the labels beside the common ones.
    """

    name: str
    value: float
    labels: tuple[str, ...] = ()


_CAUSES: Final = (
    "subscribed",
    "other_member",
    "follow_up",
    "partitions_changed",
    "lags",
    "policy",
    "warm_up",
    "lost",
    "error",
    "other",
)
_LOSSES: Final = (
    "lease_expired",
    "rebalance_timeout",
    "missed_round",
    "not_polled",
    "unknown_member_id",
    "illegal_generation",
    "fenced_instance_id",
    "other",
)
_FAILURES: Final = ("unsafe_round", "no_answer", "not_coordinator", "coordinator_not_available")
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# fmt: off
_TABLE: Final = (
    Metric(name="coopgroup_rebalances_total", kind=_C, labels=("cause",), values=_CAUSES,
           help="Rebalance rounds that this member completed, by cause."),
    Metric(name="coopgroup_rebalance_duration_seconds", kind=_H, buckets=_SECONDS,
           help="Time from the join of a round to its assignment."),
    Metric(name="coopgroup_failed_rebalances_total", kind=_C, labels=("reason",), values=_FAILURES,
           help="Rounds that were refused, or that did not complete, by reason."),
    Metric(name="coopgroup_last_rebalance_timestamp_seconds", kind=_G, merge=Merge.MAX,
           help="Time of the last completed round, in seconds since 1970."),
    Metric(name="coopgroup_rebalancing_seconds", kind=_G, merge=Merge.MAX,
           help="Duration of the rebalance in progress; 0 without one."),
    Metric(name="coopgroup_broker_assigns", kind=_G, merge=Merge.MAX,
           help="1 while the broker assigns, because the group has members of KIP-848; else 0."),
    Metric(name="coopgroup_assigned_partitions", kind=_G,
           help="Partitions, or named resources, that the application holds."),
    Metric(name="coopgroup_revoking_partitions", kind=_G,
           help="Held partitions that the application still stops."),
    Metric(name="coopgroup_waiting_partitions", kind=_G, is_of_leader=True,
           help="Partitions whose new owner waits for the old owner."),
    Metric(name="coopgroup_unowned_partitions", kind=_G, is_of_leader=True,
           help="Partitions without an owner that wait for a lost owner, or were claimed twice."),
    Metric(name="coopgroup_without_room_partitions", kind=_G, is_of_leader=True,
           help="Partitions that stay without an owner, because no member has room for them."),
    Metric(name="coopgroup_overdue_partitions", kind=_G, is_of_leader=True,
           help="Partitions that a member had to give up, and claims after max.poll.interval.ms."),
    Metric(name="coopgroup_moves_total", kind=_C, labels=("reason",), is_of_leader=True,
           values=("balance", "lags", "departed"),
           help="Partitions that got another owner, by reason."),
    Metric(name="coopgroup_revocation_duration_seconds", kind=_H, buckets=_SECONDS,
           help="Duration of a revocation, with the callback and the commit."),
    Metric(name="coopgroup_lost_partitions_total", kind=_C, labels=("reason",), values=_LOSSES,
           help="Partitions lost without a chance to commit, by reason."),
    Metric(name="coopgroup_lease_remaining_seconds", kind=_G, merge=Merge.MIN,
           help="How long the member may own its partitions without another heartbeat."),
    Metric(name="coopgroup_last_poll_timestamp_seconds", kind=_G, merge=Merge.MIN,
           help="Time when the application was last in poll, in seconds since 1970."),
    Metric(name=COMMITS, kind=_C, labels=("outcome",),
           help="Commits of offsets, by outcome: committed or failed."),
    Metric(name=COMMIT_SECONDS, kind=_H, buckets=COMMIT_BUCKETS_S,
           help="Time from the request of a commit to its outcome."),
    Metric(name="coopgroup_records_lag", kind=_G,
           help="Records of the held partitions that the application did not get yet."),
    Metric(name="coopgroup_records_lag_max", kind=_G, merge=Merge.MAX,
           help="The same for the partition with most of them."),
    Metric(name="coopgroup_warmups", kind=_G,
           help="Partitions whose state is being restored."),
    Metric(name="coopgroup_standbys", kind=_G,
           help="Partitions whose state is kept warm for another owner."),
    Metric(name="coopgroup_problems", kind=_G,
           help="Reasons why this member counts as stuck; 0 if it is healthy."),
    Metric(name="coopgroup_members", kind=_G, is_of_leader=True, merge=Merge.MAX,
           help="Members of the group in the last round."),
    Metric(name="coopgroup_members_wanted", kind=_G, is_of_leader=True, merge=Merge.MAX,
           help="Members that would drain the lag of the group within the horizon."),
    Metric(name=DROPPED, kind=_C,
           help="Telemetry records that these metrics lack, because the exporter was too slow."),
)
# fmt: on
METRICS: Final[Mapping[str, Metric]] = types.MappingProxyType({one.name: one for one in _TABLE})
"""Each metric by its name, in the order of the documentation."""


def of_member(labels: CommonLabels) -> dict[str, str]:
    """Return the attributes of a member on OpenTelemetry; those without a value are left out."""
    names = ("group", "client_id", "instance_id")
    found = {ATTRIBUTES[name]: value for name, value in zip(names, labels, strict=True) if value}
    return {"messaging.system": "kafka", **found}
