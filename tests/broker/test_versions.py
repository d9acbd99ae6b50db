"""Members on several releases of Kafka, for users with older or newer brokers.

`make brokers` plays the scenarios on all releases in `COOPGROUP_KAFKA_VERSIONS` and leaves the
results in `build/brokers/`. Without that variable the test plays the release of all other tests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup import CooperativeConsumer, DeferredPolicy
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.describing import describe_group
from coopgroup.telemetry import MembershipLost, ResourcesStopped, RoundDecided
from coopgroup.testing import ClusterError, KafkaCluster
from coopgroup.testing.releases import KAFKA_VERSION
from tests.lab.zookeeper import cluster_of
from tests.support.coordinators import partition_of
from tests.support.live_group import Crew, produce, unique

pytestmark = pytest.mark.verify

VERSIONS: Final = os.environ.get("COOPGROUP_KAFKA_VERSIONS", KAFKA_VERSION).split()
RESULTS: Final = Path(__file__).parents[2] / "build" / "brokers"
PARTITIONS: Final = 4
WAIT_S: Final = 60.0
DELAY_MS: Final = 2_000
SESSION_MS: Final = 20_000
"""A coordinator took more than 6 s to move on a busy machine; Kafka's default is 45 s."""
OFFSETS_TOPIC: Final = "__consumer_offsets"


@define
class Stage:
    """A cluster of one release, and the results so far.

    Attributes:
        cluster: two brokers.
        folder: for telemetry.
        seen: words for the matrix, by scenario.
    """

    cluster: KafkaCluster
    folder: Path
    seen: dict[str, str] = field(factory=dict)

    def crew(self, name: str) -> _Members:
        """Return a crew without members, whose topic has the group's name."""
        group_id = unique(name)
        self.cluster.create_topic(group_id, PARTITIONS, 2)
        folder = self.folder / group_id
        folder.mkdir()
        return _Members(self.cluster, folder, group_id)


class _Members(Crew):
    """A crew with the deferred policy and time limits for a slow machine."""

    def join(self, name: str, seat: str | None = None) -> CooperativeConsumer:
        """Add a member that subscribes to the topic of the group; with a seat it is static."""
        policy = DeferredPolicy(scheduled_rebalance_timeout_ms=DELAY_MS)
        configuration: dict[str, object] = {"session.timeout.ms": SESSION_MS}
        if seat is not None:
            configuration["group.instance.id"] = seat
        consumer = self.add(name, policy=policy, configuration=configuration)
        consumer.subscribe([self.group_id])
        return consumer

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Wait for longer than other tests: `make brokers` runs on busy machines."""
        super().until(condition, what, timeout_s)

    def settle(self, *seats: str | None) -> None:
        """Add the members a and b, and wait until they share."""
        for name, seat in zip("ab", seats or (None, None), strict=True):
            self.join(name, seat)
        self.until(lambda: self.shared(2, 2), "two each")

    def shared(self, *counts: int) -> bool:
        """Return whether the members hold these numbers of partitions, and no partition twice."""
        held = [one for name in sorted(self.members) for one in self.held(name)]
        return self.counts() == list(counts) and len(set(held)) == PARTITIONS


# --- scenarios ----------------------------------------------------------------------------------


def two_members(stage: Stage) -> str:
    """Two members share; a closed member's partitions wait for the deferred policy's delay."""
    with stage.crew("two") as crew:
        crew.settle()
        produce(stage.cluster, crew.group_id, [3] * PARTITIONS)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 12, "all records")
        kept = set(crew.held("b"))
        before = crew.telemetry("b", ResourcesStopped)  # b may have joined first, and given up two
        began_s = time.monotonic()
        crew.remove("a")
        crew.until(lambda: crew.shared(4), "all of it")
        assert time.monotonic() - began_s >= DELAY_MS / 1000
        assert kept <= set(crew.held("b"))
        assert crew.telemetry("b", ResourcesStopped) == before
    return "yes"


def commits(stage: Stage) -> str:
    """Commits are accepted and read again, and a new member continues from them."""
    with stage.crew("commits") as crew:
        consumer = crew.join("a")
        crew.until(lambda: crew.shared(4), "all of it")
        produce(stage.cluster, crew.group_id, [5] * PARTITIONS)
        crew.until(lambda: len(crew.messages["a"]) == 20, "all records")
        consumer.commit(asynchronous=False)
        assert crew.committed(crew.group_id, PARTITIONS) == [5] * PARTITIONS
        crew.remove("a")
        crew.join("b")
        produce(stage.cluster, crew.group_id, [1] * PARTITIONS)
        crew.until(lambda: len(crew.messages["b"]) == 4, "the new records")
        crew.during(0.5)
        assert [message.offset() for message in crew.messages["b"]] == [5] * 4
    return "yes"


def describe(stage: Stage) -> str:
    """`coopgroup group` and Kafka's own tool see members and assignments."""
    with stage.crew("describe") as crew:
        crew.settle()
        settings = read_connection_settings(stage.cluster.client_config())
        described = describe_group(settings, crew.group_id)
        assert described.state == "Stable"
        assert [one.client_id for one in described.members] == ["a", "b"]
        arguments = ("--describe", "--timeout", "50000", "--group", crew.group_id)
        done = stage.cluster.run_tool("kafka-consumer-groups", *arguments)
        lines = [line.split() for line in done.stdout.splitlines()]
        rows = [line for line in lines if crew.group_id in line[:2]]
        assert sorted(row[-1] for row in rows if len(row) > PARTITIONS) == ["a", "a", "b", "b"]
    return "yes"


def hand_over(stage: Stage) -> str:
    """A leaving member first hands its partitions over; no partition is lost."""
    with stage.crew("hand-over") as crew:
        crew.settle()
        crew.members["a"].hand_over()
        crew.until(lambda: crew.shared(0, 4), "the other has all of it")
        crew.remove("a")
        crew.during(1.0)
        assert crew.shared(4)
        assert crew.telemetry("a", MembershipLost) == []
    return "yes"


def static_return(stage: Stage) -> str:
    """A static member that returns owns its partitions again; the other member stops none."""
    with stage.crew("static") as crew:
        crew.settle("seat-a", "seat-b")
        crew.during(1.0)
        held, generation = crew.held("a"), crew.generation("b")
        rounds = len(crew.telemetry("a", RoundDecided)) + len(crew.telemetry("b", RoundDecided))
        crew.remove("a")
        crew.join("a", "seat-a")
        crew.until(lambda: crew.held("a") == held, "its own partitions")
        crew.during(1.5)
        assert crew.shared(2, 2)
        again = len(crew.telemetry("a", RoundDecided)) + len(crew.telemetry("b", RoundDecided))
        if (again, crew.generation("b")) == (rounds, generation):
            return "yes"
        assert crew.telemetry("b", ResourcesStopped) == []
        return f"yes, with {again - rounds} round(s)"


def coordinator_move(stage: Stage) -> str:
    """The coordinator is killed: partitions stay, records flow, and commits succeed again."""
    with stage.crew("move") as crew:
        # in KRaft, broker 1 is the controller
        while _coordinator(stage.cluster, crew.group_id) != 2:
            crew.group_id = unique("move")
            stage.cluster.create_topic(crew.group_id, PARTITIONS, 2)
        crew.settle()
        crew.during(1.0)
        held = [crew.held("a"), crew.held("b")]
        stage.cluster.kill(2)
        try:
            crew.until(lambda: _coordinator(stage.cluster, crew.group_id) == 1, "another one")
            produce(stage.cluster, crew.group_id, [2] * PARTITIONS)
            crew.until(lambda: sum(map(len, crew.messages.values())) == 8, "all records")
            for consumer in crew.members.values():
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:  # the automatic commit may have been earlier
                    if error.args[0].code() != KafkaError._NO_OFFSET:
                        raise
            assert [crew.held("a"), crew.held("b")] == held
            assert crew.telemetry("a", MembershipLost) + crew.telemetry("b", MembershipLost) == []
            assert crew.committed(crew.group_id, PARTITIONS) == [2] * PARTITIONS
        finally:
            crew.__exit__()
            stage.cluster.start_broker(2)
    return "yes"


def _coordinator(cluster: KafkaCluster, group_id: str) -> int | None:
    with suppress(ClusterError):  # no leader for a moment
        return cluster.leader_of(OFFSETS_TOPIC, partition_of(group_id))
    return None


SCENARIOS: Final[tuple[Callable[[Stage], str], ...]] = (
    two_members,
    commits,
    describe,
    hand_over,
    static_return,
    coordinator_move,
)


# --- the test -----------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with cluster_of(request.param, brokers=2, start_timeout_ms=120_000) as cluster:
        yield Stage(cluster, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_members_work_on_a_release_of_kafka(stage: Stage) -> None:
    """All scenarios are played even after a failure, and all failures are shown."""
    failed = []
    version = stage.cluster.release.version
    RESULTS.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        try:
            stage.seen[scenario.__name__] = scenario(stage)
        except Exception as error:  # noqa: BLE001 -- the matrix wants the others, too
            stage.seen[scenario.__name__] = f"NO: {type(error).__name__}: {error}".split("\n")[0]
            failed.append(error)
        (RESULTS / f"{version}.json").write_text(json.dumps(stage.seen, indent=1))
    if failed:
        raise ExceptionGroup(f"Kafka {version}", failed)
