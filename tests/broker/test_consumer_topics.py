"""Partitions and topics that appear or vanish while the group runs."""

from pathlib import Path

from confluent_kafka import TopicPartition

from coopgroup.telemetry import RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique
from tests.support.waiting import wait_for


def test_new_topics_and_partitions_are_shared(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """Owned partitions stay without a callback. A topic that is missing causes no rounds."""
    here, later = unique("here"), unique("later")
    kafka_cluster.create_topic(here, 2)
    revoked: list[object] = []
    with Crew(kafka_cluster, tmp_path) as crew:

        def rounds() -> int:
            return sum(len(crew.telemetry(name, RoundDecided)) for name in "ab")

        def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
            revoked.extend(partitions)

        for name in "ab":
            crew.add(name).subscribe([here, later], on_revoke=on_revoke)
        crew.until(lambda: crew.share((here, 2)), "the topic that exists")
        crew.during(1.5)
        before = rounds()
        revoked.clear()  # the first member may have had both
        crew.during(1.5)
        assert rounds() == before
        kafka_cluster.create_topic(later, 4)
        produce(kafka_cluster, later, [1] * 4)
        crew.until(lambda: crew.share((here, 2), (later, 4)), "both topics", 8)
        kafka_cluster.add_partitions(here, 6)
        produce(kafka_cluster, here, [1] * 6)
        crew.until(lambda: crew.share((here, 6), (later, 4)), "the new partitions", 8)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 10, "a record of each")
        assert revoked == []


def test_the_rest_goes_on_when_a_topic_is_deleted(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The leader removes its partitions in a round; the other topic is not affected."""
    stays, goes = unique("stays"), unique("goes")
    for topic in (stays, goes):
        kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name).subscribe([stays, goes])
        crew.until(lambda: crew.share((stays, 2), (goes, 2)), "both topics")
        kafka_cluster.delete_topic(goes)
        errors: list[str] = []

        def is_gone() -> bool:
            for name, consumer in sorted(crew.members.items()):
                for message in consumer.consume(100, 0.01):
                    error = message.error()
                    if error is None:
                        crew.messages[name].append(message)
                    else:
                        errors.append(error.name())
            return crew.share((stays, 2))

        wait_for(is_gone, "one topic")
        assert set(errors) <= {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}
        produce(kafka_cluster, stays, [1, 1])
        crew.until(lambda: sum(map(len, crew.messages.values())) == 2, "records of the other")
        assert crew.telemetry("a", RoundRefused) + crew.telemetry("b", RoundRefused) == []


def test_a_new_topic_is_worked_on_when_a_pattern_matches_it(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Every member evaluates the pattern. Plain names count too; other topics are ignored."""
    word = unique("pattern")
    first, second, other = f"{word}-1", f"{word}-2", unique("other")
    for topic in (first, other):
        kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name).subscribe([f"^{word}-[0-9]$", other])
        crew.until(lambda: crew.share((first, 2), (other, 2)), "the first topic")
        kafka_cluster.create_topic(f"{word}-x", 1)
        kafka_cluster.create_topic(second, 2)
        produce(kafka_cluster, second, [1, 1])
        crew.until(lambda: crew.share((first, 2), (second, 2), (other, 2)), "the second topic", 8)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 2, "its records")
