"""Continuous lag balance on a real cluster: two hot partitions on one member, beside peers.

Three groups of four do the same work in the same minute, each on its own topic. A record costs a
sleep, so the duration depends almost only on who owns the work. Other processes of the machine
delay all three groups, not one of them.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from attrs import define, field

from coopgroup import (
    CooperativeConsumer,
    IncrementalPolicy,
    LagAwareAssignor,
    RangeAssignor,
    SimplePolicy,
    StickyAssignor,
)
from coopgroup.model import ResourceSet
from coopgroup.telemetry import BalanceRequested, RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

MEMBERS = ("a", "b", "c", "d")
PARTITIONS = 8
RECORD_S = 0.02
BACKLOG = 350  # records of each hot partition: 14 s for one member, 7 s for two
BOUND_S = 40.0
QUICK = {"auto.commit.interval.ms": 200}
BALANCE: Mapping[str, Any] = {
    "policy": IncrementalPolicy(
        max_moves_per_round=2,
        move_interval_ms=0,
        lag_check_interval_ms=300,
        lag_imbalance_min=50,
        lag_cooldown_ms=3_000,
    ),
    "assignor": LagAwareAssignor(),
}
RANGE: Mapping[str, Any] = {"policy": SimplePolicy(), "assignor": RangeAssignor()}
STICKY: Mapping[str, Any] = {"policy": SimplePolicy(), "assignor": StickyAssignor()}


@define(kw_only=True)
class Team:
    """A group whose members each work on their own thread.

    Attributes:
        cluster: the broker.
        folder: for telemetry.
        plugins: policy and assignor of its consumers.
        topic: the topic that it reads.
        done: (partition, offset) of the processed records, in order.
        begun_s: when the backlog was complete.
        finished_s: when the last record of the backlog was processed.
    """

    cluster: KafkaCluster
    folder: Path
    plugins: Mapping[str, Any]
    topic: str = field(factory=lambda: unique("uneven"))
    done: list[tuple[int, int]] = field(factory=list)
    begun_s: float = 0.0
    finished_s: float = 0.0
    crew: Crew = field(init=False)
    _over: threading.Event = field(factory=threading.Event)
    _threads: list[threading.Thread] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        self.cluster.create_topic(self.topic, PARTITIONS)
        self.crew = Crew(self.cluster, self.folder)
        for name in MEMBERS:
            consumer = self.crew.add(name, configuration=QUICK, **self.plugins)
            consumer.subscribe([self.topic])
            self._threads.append(threading.Thread(target=self._work, args=(consumer,)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.crew.__exit__()

    def _work(self, consumer: CooperativeConsumer) -> None:
        while not self._over.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            assert message.error() is None
            time.sleep(RECORD_S)
            with self._lock:
                self.done.append((int(message.partition() or 0), int(message.offset() or 0)))
                if len(self.done) == 2 * BACKLOG:
                    self.finished_s = time.monotonic()

    def flood(self) -> None:
        """Fill the two partitions of one member."""
        hot = [number for _, number in self.crew.held("c")]
        produce(self.cluster, self.topic, [BACKLOG * (number in hot) for number in range(8)])
        self.begun_s = time.monotonic()

    @property
    def took_s(self) -> float:
        """Return the time to process the backlog, in seconds."""
        return self.finished_s - self.begun_s

    def records(self, kind: Any) -> list[Any]:  # noqa: ANN401  (records of any kind)
        """Return the members' telemetry records."""
        return [record for name in MEMBERS for record in self.crew.telemetry(name, kind)]


@pytest.mark.slow
def test_hot_partitions_of_one_member_are_evened_out(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """No manual rebalance: after one exchange it finishes the backlog well before its peers."""
    with ExitStack() as stack:
        teams = [
            stack.enter_context(
                Team(cluster=kafka_cluster, folder=tmp_path / name, plugins=plugins)
            )
            for name, plugins in (("balance", BALANCE), ("range", RANGE), ("sticky", STICKY))
        ]
        for team in teams:
            wait_for(
                lambda team=team: team.crew.share((team.topic, PARTITIONS)),  # type: ignore[misc]
                "all members work",
                BOUND_S,
            )
        before = [len(team.records(RoundDecided)) for team in teams]
        for team in teams:
            team.flood()
        wait_for(lambda: all(team.finished_s for team in teams), "the backlogs are gone", BOUND_S)
        balanced, ranged, stuck = teams
        assert balanced.took_s < 0.8 * min(ranged.took_s, stuck.took_s)

        asked = balanced.records(BalanceRequested)
        moved = [one.revoked for one in balanced.records(RoundDecided)[before[0] :] if one.revoked]
        assert len(asked) == 1
        assert [len(one) for one in moved] == [2]
        assert len(asked[0].overloaded) == 1
        assert asked[0].lags[0] > 1.5 * asked[0].mean_lag
        assert balanced.crew.counts() == [2, 2, 2, 2]
        for team, rounds in zip(teams[1:], before[1:], strict=True):
            assert len(team.records(RoundDecided)) == rounds
        for team in teams:
            assert team.records(RoundRefused) == []
            assert len(set(team.done)) == len(team.done) == 2 * BACKLOG


def test_balance_when_the_look_up_fails_costs_nothing(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = IncrementalPolicy(max_moves_per_round=2, lag_check_interval_ms=50, lag_imbalance_min=0)
    topic = unique("no-lags")
    kafka_cluster.create_topic(topic, 4)
    failed = threading.Semaphore(0)

    def fail(_: object, resources: ResourceSet) -> None:
        failed.release()
        raise TimeoutError(f"{len(resources)} look-ups without an answer")

    monkeypatch.setattr("coopgroup.kafka.membership.lookup.ClusterLookup.lags", fail)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name, policy=policy, assignor=LagAwareAssignor()).subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "both work")
        rounds = len(crew.telemetry("a", RoundDecided) + crew.telemetry("b", RoundDecided))
        for _ in range(20):
            assert failed.acquire(timeout=BOUND_S)
        produce(kafka_cluster, topic, [5] * 4)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 20, "work goes on")
        assert len(crew.telemetry("a", RoundDecided) + crew.telemetry("b", RoundDecided)) == rounds
        assert crew.telemetry("a", BalanceRequested) + crew.telemetry("b", BalanceRequested) == []
