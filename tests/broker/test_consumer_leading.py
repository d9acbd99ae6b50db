"""The leader on a real cluster: lags, and clients for look-ups."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup import LagAwareAssignor
from coopgroup.telemetry import RoundDecided
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, coopgroup_threads, produce, unique


@pytest.mark.parametrize(
    ("committed", "shares"),
    [
        pytest.param({}, [[0], [1, 2]], marks=pytest.mark.verify),
        ({0: 100, 2: 1}, [[0, 1], [2]]),
    ],
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
