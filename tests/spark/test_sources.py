"""End offsets from a real broker, each time once in the table; and which cluster they are of."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter

from coopgroup.errors import ConfigurationError, PipelineError
from coopgroup.pipeline.ends import MOMENTS_MAX, Cluster, grid_ms, step_ms, write_ends
from coopgroup.pipeline.history import commit_records, commits_of, kafka_records
from coopgroup.pipeline.sources import Source, check_cluster, claim_source
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import rows

if TYPE_CHECKING:
    from coopgroup.testing import KafkaCluster

FIRST_MS = 1_730_000_000_000
# These records are older than the retention of a topic; the broker looks every five minutes.
FOREVER = {"retention.ms": "-1"}
NOW_MS = FIRST_MS + 60_000


def test_ends_are_those_of_their_moments(kafka_cluster: KafkaCluster) -> None:
    """One record a second; earlier ends are unknown where retention deleted records."""
    kafka_cluster.create_topic("ends", 2, config=FOREVER)
    config = dict(kafka_cluster.client_config())
    producer = Producer(config)
    for second in range(5):
        producer.produce("ends", b"x", partition=0, timestamp=FIRST_MS + 1_000 * second)
    producer.flush()
    brokers = Cluster(config=config)
    moments = [FIRST_MS, FIRST_MS + 2_500, FIRST_MS + 9_000]
    found = chain.from_iterable(brokers.ends(["ends", "gone"], moments, NOW_MS))
    assert [row[:-1] for row in found] == [
        ("ends", 0, NOW_MS, 0, 5, True),
        ("ends", 1, NOW_MS, 0, 0, True),
        ("ends", 0, FIRST_MS, 0, 0, False),
        ("ends", 1, FIRST_MS, 0, 0, False),
        ("ends", 0, FIRST_MS + 2_500, 0, 3, False),
        ("ends", 1, FIRST_MS + 2_500, 0, 0, False),
        ("ends", 0, FIRST_MS + 9_000, 0, 5, False),
        ("ends", 1, FIRST_MS + 9_000, 0, 0, False),
    ]
    admin = AdminClient({**config})
    deleted = admin.delete_records([TopicPartition("ends", 0, 3)])
    for future in deleted.values():
        future.result()
    found = chain.from_iterable(brokers.ends(["ends"], moments, NOW_MS))
    assert [row[:-1] for row in found if row[1] == 0] == [
        ("ends", 0, NOW_MS, 3, 5, True),
        ("ends", 0, FIRST_MS + 9_000, 3, 5, False),
    ]
    assert list(brokers.ends(["gone"], moments, NOW_MS)) == []
    with pytest.raises(PipelineError, match="there is no topic gone: it went"):
        brokers.source("gone", "it went")


def test_a_source_has_the_ids_of_its_cluster_and_of_one_life(kafka_cluster: KafkaCluster) -> None:
    brokers = Cluster(config=dict(kafka_cluster.client_config()))
    kafka_cluster.create_topic("lives", 1)
    first = brokers.source("lives", "it went")
    assert first.cluster == brokers.cluster() != ""
    assert first.topic_id
    assert brokers.source("lives", "it went") == first
    kafka_cluster.create_topic("other-lives", 1)
    other = brokers.source("other-lives", "it went")
    assert (other.cluster, other.topic_id != first.topic_id) == (first.cluster, True)


def test_moments_repeat_and_are_not_too_many() -> None:
    """Multiples of the step, so that the next run uses the same times."""
    assert list(grid_ms(10_001, 40_000, 10_000)) == [20_000, 30_000]
    assert list(grid_ms(20_000, 40_001, 10_000)) == [20_000, 30_000, 40_000]
    with pytest.raises(ConfigurationError, match=r"--every: got 1\.0, expected at least 18 s"):
        grid_ms(0, 86_400_000, 1_000)


@pytest.mark.parametrize(("days", "minutes"), [(0, 1), (3, 1), (7, 3), (30, 9)])
def test_a_long_history_has_a_longer_step(days: int, minutes: int) -> None:
    """This keeps any period possible if the user gives no step."""
    since_ms, until_ms = NOW_MS - days * 86_400_000, NOW_MS
    every_ms = step_ms(since_ms, until_ms)
    assert every_ms == minutes * 60_000
    assert len(grid_ms(since_ms, until_ms, every_ms)) <= MOMENTS_MAX


def test_a_moment_is_in_the_table_once(tables: Tables, kafka_cluster: KafkaCluster) -> None:
    """The executors look it up; rows of earlier look-ups stay unchanged."""
    kafka_cluster.create_topic("looked-up", 2, config=FOREVER)
    producer = Producer(kafka_cluster.client_config())

    def produce(at_ms: int) -> None:
        producer.produce("looked-up", b"x", partition=1, timestamp=at_ms)
        producer.flush()

    brokers = Cluster(config=dict(kafka_cluster.client_config()))
    produce(FIRST_MS)
    moments = range(FIRST_MS - 1_000, FIRST_MS + 2_001, 1_000)
    write_ends(tables, brokers, ["looked-up", "gone"], moments, NOW_MS)
    ends = [(at_ms, 1, int(at_ms > FIRST_MS)) for at_ms in (*moments, NOW_MS)]
    expected = [row for at_ms, _, end in ends for row in ((at_ms, 0, 0), (at_ms, 1, end))]
    assert rows(tables.read("ends"), "at_ms", "partition", "end") == expected
    produce(FIRST_MS + 3_000)
    write_ends(tables, brokers, ["looked-up"], moments, NOW_MS)
    assert rows(tables.read("ends"), "at_ms", "partition", "end") == expected
    write_ends(tables, brokers, ["gone"], range(0), NOW_MS)
    assert len(rows(tables.read("ends"))) == len(expected)
    topic_id = brokers.source("looked-up", "").topic_id
    assert {row[0] for row in rows(tables.read("ends"), "topic_id")} == {topic_id}
    # The coordinator writes the same id into commits.
    consumer = Consumer({**kafka_cluster.client_config(), "group.id": "looker"})
    consumer.commit(offsets=[TopicPartition("looked-up", 1, 1)], asynchronous=False)
    consumer.close()
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers}
    raw = kafka_records(tables.spark, options, is_stream=False)
    commits = commits_of(commit_records(raw)).where("`group` = 'looker'")
    assert rows(commits, "topic", "topic_id") == [("looked-up", topic_id)]


# --- tables of one cluster are not continued with another one -------------------------------------

SOURCE = Source(cluster="c1", topic="offsets", topic_id="t1")
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"cluster": "c2"}, "of cluster c1, and these brokers are cluster c2"),
    ({"topic_id": "t2"}, r"an earlier topic offsets \(id t1, now t2\)"),
    ({"topic": "other"}, "of topic offsets, not of other"),
    ({"groups": ("a",)}, "has the history of all groups: leave out --group"),
)


def test_another_source_is_refused(tables: Tables) -> None:
    check_cluster(tables, "history", "c2")  # nothing is known yet
    for _ in range(2):
        claim_source(tables, "history", SOURCE)
    check_cluster(tables, "history", "c1")
    for change, said in REFUSED:
        with pytest.raises(PipelineError, match=said) as raised:
            claim_source(tables, "history", evolve(SOURCE, **change))
        assert "\n" not in str(raised.value)
    with pytest.raises(PipelineError, match=REFUSED[0][1]):
        check_cluster(tables, "history", "c2")
    # Brokers without ids are not refused.
    claim_source(tables, "history", evolve(SOURCE, cluster="", topic_id=""))


def test_later_runs_read_the_groups_of_the_first(tables: Tables) -> None:
    """Earlier records of another group were skipped, and are not read again."""
    first = evolve(SOURCE, groups=("a", "b"))
    for source in (first, SOURCE, first):
        assert claim_source(tables, "history", source) == ("a", "b")
    with pytest.raises(PipelineError, match="has the history of group a, b: leave out --group"):
        claim_source(tables, "history", evolve(SOURCE, groups=("a", "c")))


def test_the_first_of_two_first_runs_decides(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta refuses the second one, which reads what the first one wrote."""

    def save(*_: object) -> None:
        monkeypatch.undo()
        claim_source(tables, "history", SOURCE)
        raise PySparkException("[DELTA_PROTOCOL_CHANGED] the protocol was changed")

    monkeypatch.setattr(DataFrameWriter, "save", save)
    with pytest.raises(PipelineError, match="of topic offsets, not of other"):
        claim_source(tables, "history", evolve(SOURCE, topic="other"))
