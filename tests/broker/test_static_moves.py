"""A planned move of the group coordinator while a static member gets a new id."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.model.group import GroupSnapshot
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.telemetry import RequestRefused
from coopgroup.testing import KafkaCluster
from tests.support.coordinators import move_coordinator
from tests.support.live_group import Crew, read_telemetry, unique

pytestmark = pytest.mark.verify

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=2) as started:
        yield started


class Patient(Crew):
    """Ignores client errors as an application does: the next poll continues."""

    def poll(self, timeout_s: float = 0.01) -> None:
        """Poll each consumer once; fatal errors of the group are still raised."""
        for _, consumer in sorted(self.members.items()):
            consumer.consume(100, timeout_s)


class SlowAssignor:
    """The sticky assignor; holds a round open between the leader's join and its sync."""

    name = "sticky"
    needs_lags = False

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.waits = threading.Event()

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        if not self.opened.is_set():
            self.waits.set()
            assert self.opened.wait(120)
        return StickyAssignor().assign(group, lags)


def test_static_member_survives_a_coordinator_that_moves_before_its_id_is_stored(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A round that never ended gave it a new id. The new coordinator knows only the old id."""
    topic = unique("moves")
    cluster.create_topic(topic, PARTITIONS)
    assignor = SlowAssignor()
    static = {"group.instance.id": "one"}
    slow = {"coopgroup.leader.timeout.ms": 120_000, "session.timeout.ms": 45_000}
    with Patient(cluster, tmp_path) as crew:
        crew.add("before", configuration=static | slow, assignor=assignor).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "the group settles")
        crew.remove("before")
        assignor.opened.clear()
        # This round begins before the static member returns: its new id is not stored yet.
        crew.add("b", configuration=slow, assignor=assignor).subscribe([topic])
        crew.during(2.0)
        crew.add("after", configuration=static | slow, assignor=assignor).subscribe([topic])
        crew.until(assignor.waits.is_set, "the round ends, and the leader decides", 60)
        move_coordinator(cluster, crew.group_id)
        crew.during(2.0)
        assignor.opened.set()
        crew.until(lambda: crew.share((topic, PARTITIONS)), "both work on", 60)
        names = [one.record for one in read_telemetry(tmp_path / "after.jsonl")]
        fenced = [one for one in names if isinstance(one, RequestRefused) and "FENCED" in one.error]
        assert [one.action for one in fenced] == ["lose member id"]
