"""Gauges are read from the health of a member."""

import math

from attrs import evolve

from coopgroup.kafka.health.value import Health
from coopgroup.metrics.events import MemberEvents
from coopgroup.metrics.feed import readings
from coopgroup.metrics.names import METRICS, Kind
from tests.unit.metrics.members import HEALTH, ROUND, told


def _values(
    health: Health = HEALTH, *, leads: bool = False, per_partition: bool = False
) -> dict[str, float]:
    events = MemberEvents()
    list(events.changes(told()))
    list(events.changes(told(ROUND)))
    given = evolve(health, leads=leads)
    return {
        ".".join((one.name.removeprefix("coopgroup_"), *one.labels)): one.value
        for one in readings(given, events, 4, 1_000.0, per_partition=per_partition)
    }


def test_member_without_partitions_has_no_lease_to_show() -> None:
    assert "lease_remaining_seconds" not in _values(evolve(HEALTH, lease_s=math.inf))


def test_only_the_leader_tells_of_the_group() -> None:
    of_leader = {
        one.name.removeprefix("coopgroup_")
        for one in METRICS.values()
        if one.is_of_leader and one.kind is Kind.GAUGE
    }
    follower, leader = _values(), _values(leads=True)
    assert leader.keys() - follower.keys() == of_leader
    assert (leader["members"], leader["members_wanted"]) == (2, 4)
