"""The leader on a real cluster: lags, and assignors and policies that fail or are slow."""

import time
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup import LagAwareAssignor, SimplePolicy, StickyAssignor
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.leader import Lags
from coopgroup.model import GroupSnapshot, ResourceSet
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies.base import Offer, RoundContext, StagedRound
from coopgroup.policies.state import PolicyState
from coopgroup.telemetry import RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, coopgroup_threads, produce, unique


class _Moody:
    """The sticky assignor, which can also fail or be slow.

    Attributes:
        name: as in every assignor.
        needs_lags: False.
        mood: "well", "raising" or "slow".
        asked: number of calls.
        at_once: largest number of threads in it at the same time.
    """

    name = "moody"
    needs_lags = False

    def __init__(self) -> None:
        self.mood = "well"
        self.asked = 0
        self.at_once = 0
        self._inside = 0

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        self.asked += 1
        self._inside += 1
        self.at_once = max(self.at_once, self._inside)
        try:
            if self.mood == "raising":
                raise ValueError("no target today")
            if self.mood == "slow":
                time.sleep(2)
            return StickyAssignor().assign(group, lags)
        finally:
            self._inside -= 1


class _MoodyPolicy:
    """The simple policy, which can also fail."""

    name = "moody"

    def __init__(self) -> None:
        self.fails = False
        self.forgets = False
        self._simple = SimplePolicy()

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        if self.fails:
            raise ValueError("nothing to offer today")
        return self._simple.offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = self._simple.stage(group, target, context, offer)
        if self.forgets:
            return StagedRound(plan=staged.plan, state=cast("PolicyState", {}))
        return staged


def _refusals(crew: Crew) -> list[str]:
    return [one for record in crew.telemetry("a", RoundRefused) for one in record.violations]


def _live_through(crew: Crew, topic: str, expected: str) -> None:
    """While the assignor or policy fails, no partition moves; all members work and commit."""
    crew.add("b").subscribe([topic])
    crew.until(lambda: len(_refusals(crew)) > 0, "a refused round")
    crew.during(0.5)
    assert crew.counts() == [4, 0]
    assert all(expected in one for one in _refusals(crew))
    produce(crew.cluster, topic, [1] * 4)
    crew.until(lambda: len(crew.messages["a"]) == 4, "work goes on")
    crew.members["a"].commit(asynchronous=False)


def test_nothing_moves_when_an_assignor_raises(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """A log record gives the reason; the next good round repairs the assignment."""
    topic = unique("raises")
    kafka_cluster.create_topic(topic, 4)
    assignor = _Moody()
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", assignor=assignor).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first one works")
        assignor.mood = "raising"
        _live_through(crew, topic, "assignor moody: ValueError: no target today")
        assignor.mood = "well"
        crew.until(lambda: crew.counts() == [2, 2], "a fair share")
        assert crew.committed(topic, 4) == [1] * 4


@pytest.mark.verify
def test_rounds_become_rare_when_an_assignor_keeps_raising(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Each attempt is a rebalance, so attempts come after 1, 2, 4 … seconds."""
    topic = unique("keeps-raising")
    kafka_cluster.create_topic(topic, 1)
    assignor = _Moody()
    assignor.mood = "raising"
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", assignor=assignor).subscribe([topic])
        crew.during(5.0)
        assert 2 <= assignor.asked <= 4


@pytest.mark.verify
def test_nothing_moves_when_an_assignor_is_slow(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """After coopgroup.leader.timeout.ms the round moves nothing; decisions never overlap."""
    topic = unique("slow-assignor")
    kafka_cluster.create_topic(topic, 4)
    assignor = _Moody()
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add(
            "a", assignor=assignor, configuration={"coopgroup.leader.timeout.ms": 400}
        ).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first one works")
        assignor.mood = "slow"
        _live_through(crew, topic, "no decision within coopgroup.leader.timeout.ms (400)")
        crew.until(lambda: len(_refusals(crew)) >= 2, "another try")
        assert assignor.at_once == 1
        assignor.mood = "well"
        crew.until(lambda: crew.counts() == [2, 2], "a fair share")


def test_nothing_moves_when_a_policy_raises(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = unique("policy")
    kafka_cluster.create_topic(topic, 4)
    policy = _MoodyPolicy()
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", policy=policy).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first one works")
        policy.fails = True
        _live_through(crew, topic, "policy moody: ValueError: nothing to offer today")
        policy.fails = False
        crew.until(lambda: crew.counts() == [2, 2], "a fair share")


def test_nothing_moves_when_a_policy_returns_a_wrong_state(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """It is detected in its own round, not in the next round."""
    topic = unique("forgetful")
    kafka_cluster.create_topic(topic, 4)
    policy = _MoodyPolicy()
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", policy=policy).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first one works")
        policy.forgets = True
        _live_through(crew, topic, "policy moody: TypeError: expected a PolicyState, got a dict")
        policy.forgets = False
        crew.until(lambda: crew.counts() == [2, 2], "a fair share")


@pytest.mark.parametrize(
    ("committed", "shares"), [({}, [[0], [1, 2]]), ({0: 100, 2: 1}, [[0, 1], [2]])]
)
def test_lags_decide_when_the_assignor_is_lag_aware(
    kafka_cluster: KafkaCluster, tmp_path: Path, committed: dict[int, int], shares: list[list[int]]
) -> None:
    """The largest lag goes to one member, the next to the other, the rest to the smaller sum.

    Without commits the lags are 110, 55, 60; with commits at 100 and 1 they are 10, 55, 59.
    """
    topic = unique("lags")
    kafka_cluster.create_topic(topic, 3)
    produce(kafka_cluster, topic, [110, 55, 60])
    with Crew(kafka_cluster, tmp_path) as crew:
        if committed:
            offsets = [TopicPartition(topic, *one) for one in committed.items()]
            reader = Consumer(kafka_cluster.client_config() | {"group.id": crew.group_id})
            reader.commit(offsets=offsets, asynchronous=False)
            reader.close()
        for name in ("a", "b"):
            consumer = crew.add(
                name, assignor=LagAwareAssignor(), configuration={"enable.auto.commit": False}
            )
            consumer.subscribe([topic])
        crew.until(lambda: sum(crew.counts()) == 3 and min(crew.counts()) > 0, "all is assigned")
        crew.during(0.5)
        held = sorted([number for _, number in crew.held(name)] for name in ("a", "b"))
        assert held == shares
        assert {one.assignor for one in crew.telemetry("a", RoundDecided)} <= {"lag-aware"}


def test_the_round_goes_on_when_lags_cannot_be_looked_up(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("blind")
    kafka_cluster.create_topic(topic, 4)
    monkeypatch.setattr(ClusterLookup, "lags", _no_answer)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name, assignor=LagAwareAssignor()).subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        assert crew.telemetry("a", RoundRefused) + crew.telemetry("b", RoundRefused) == []


def _no_answer(_lookup: ClusterLookup, _resources: ResourceSet) -> Lags:
    raise TimeoutError("1 of 1 look-ups without an answer")


@pytest.mark.verify
def test_the_group_lives_when_look_ups_get_no_time_at_all(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """coopgroup.lookup.timeout.ms = 1: rounds may move nothing, but heartbeats and close work."""
    topic = unique("hasty")
    kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration={"coopgroup.lookup.timeout.ms": 1}).subscribe([topic])
        crew.during(3.0)
        assert crew.telemetry("a", RoundDecided) != []
        began = time.monotonic()
        crew.remove("a")
        assert time.monotonic() - began < 3.0


def _clients_of_librdkafka() -> set[str]:
    """Return the main threads of librdkafka's clients in this process, one for each client."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has ended
            if path.read_text().strip() == "rdk:main":
                found.add(path.parent.name)
    return found


@pytest.mark.verify
def test_stable_members_have_one_client_of_librdkafka_each(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's second one, for its look-ups, ends when it is idle and returns when needed."""
    topic = unique("clients")
    kafka_cluster.create_topic(topic, 4)
    quiet = {"topic.metadata.refresh.interval.ms": -1, "coopgroup.lookup.timeout.ms": 1_000}
    others = _clients_of_librdkafka()  # clients of earlier tests may end meanwhile

    def clients() -> int:
        return len(_clients_of_librdkafka() - others)

    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration=quiet).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first one works")
        # A thread that such a thread starts has its name at first.
        crew.until(lambda: clients() == 2, "one more for look-ups")
        crew.remove("a")
        monkeypatch.setattr("coopgroup.kafka.membership.watching._GIVE_BACK_S", 0.2)
        crew.add("a", configuration=quiet).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "it works again")
        crew.until(lambda: clients() == 1, "the leader is idle")
        crew.add("b", configuration=quiet).subscribe([topic])
        crew.until(lambda: crew.counts() == [2, 2], "a fair share")
        crew.until(lambda: clients() == 2, "both are idle")
        own = [one for one in coopgroup_threads() if one != "coopgroup-telemetry"]
        assert own == sorted(
            [f"coopgroup-{crew.group_id}"] * 2 + ["coopgroup-transport-a", "coopgroup-transport-b"]
        )
        crew.remove("a")
        crew.until(lambda: crew.counts() == [4], "the follower leads now")
        crew.until(lambda: clients() == 1, "it is idle")
