"""`CooperativeConsumer` on a real broker: records, commits and positions."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

RECORDS = 40
WAIT_S = 60.0

Make = Callable[..., CooperativeConsumer]


@pytest.fixture(scope="module")
def topic(kafka_cluster: KafkaCluster) -> str:
    """Two partitions of forty records."""
    name = unique("records")
    kafka_cluster.create_topic(name, 2)
    produce(kafka_cluster, name, (RECORDS, RECORDS))
    return name


@pytest.fixture
def make(kafka_cluster: KafkaCluster) -> Iterator[Make]:
    """Return a factory of consumers, by default each in its own group; close them at the end."""
    with ExitStack() as opened:

        def build(**more: Any) -> CooperativeConsumer:  # noqa: ANN401
            configuration = {
                **kafka_cluster.client_config(),
                "group.id": unique("api"),
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6_000,
            }
            return opened.enter_context(CooperativeConsumer(configuration, **more))

        yield build


def take(consumer: CooperativeConsumer, count: int) -> list[Message]:
    """Poll until `number` records have arrived."""
    taken: list[Message] = []

    def poll() -> None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            taken.append(message)

    wait_for(lambda: len(taken) >= count, f"{count} records", WAIT_S, poll)
    return taken


def offsets(messages: list[Message], partition: int) -> list[int | None]:
    return [one.offset() for one in messages if one.partition() == partition]


def positions(consumer: CooperativeConsumer, topic: str) -> list[int]:
    return [one.offset for one in consumer.position([TopicPartition(topic, n) for n in (0, 1)])]


def committed(consumer: CooperativeConsumer, topic: str) -> list[int]:
    asked = [TopicPartition(topic, number) for number in (0, 1)]
    return [one.offset for one in consumer.committed(asked, 10)]


def test_paused_partition_hands_out_nothing_and_goes_on_where_it_was_or_is_sent(
    make: Make, topic: str
) -> None:
    """Prefetched records wait too, in their order."""
    consumer = make()
    consumer.subscribe([topic])
    before = take(consumer, 5)
    first = before[0].partition()
    assert first is not None
    other = 1 - first
    consumer.pause([TopicPartition(topic, first)])
    between = take(consumer, 2 * RECORDS - RECORDS - len(offsets(before, other)))
    assert offsets(between, first) == []
    assert consumer.consume(10, 0.3) == []
    consumer.resume([TopicPartition(topic, first)])
    after = take(consumer, RECORDS - len(offsets(before, first)))
    assert offsets(before + after, first) == list(range(RECORDS))
    assert offsets(before + between + after, other) == list(range(RECORDS))
    consumer.pause([TopicPartition(topic, first)])
    consumer.seek(TopicPartition(topic, first, 30))
    assert consumer.consume(10, 0.3) == []
    consumer.resume([TopicPartition(topic, first)])
    assert offsets(take(consumer, 10), first) == list(range(30, RECORDS))


@pytest.mark.parametrize("method", ["assign", "incremental_assign"])
def test_offsets_given_in_on_assign_are_where_partitions_begin(
    make: Make, topic: str, method: str
) -> None:
    """As with confluent_kafka. Partitions that are left out begin at their usual position."""

    def begin(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        chosen = [TopicPartition(one.topic, one.partition, 35) for one in partitions[:1]]
        getattr(consumer, method)(chosen)

    consumer = make()
    consumer.subscribe([topic], on_assign=begin)
    seen = take(consumer, 5 + RECORDS)
    assert (offsets(seen, 0), offsets(seen, 1)) == (list(range(35, RECORDS)), list(range(RECORDS)))


def test_partition_eof_when_enabled_is_an_event_after_the_last_record(
    make: Make, topic: str
) -> None:
    """The event comes through `consume` like a record, with the error code of the event."""
    consumer = make(**{"enable.partition.eof": True})
    consumer.subscribe([topic])
    seen: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 2 * RECORDS + 2 and time.monotonic() < deadline:
        seen += consumer.consume(500, 0.2)
    ends = [one for one in seen if one.error() is not None]
    assert sorted((one.partition(), one.offset(), one.error().code()) for one in ends) == [  # type: ignore[union-attr]
        (number, RECORDS, KafkaError._PARTITION_EOF) for number in (0, 1)
    ]


def test_close_commits_what_was_handed_out_and_no_more(make: Make, topic: str) -> None:
    """Auto-commit: the next owner reads the prefetched records again."""
    heard: list[tuple[KafkaError | None, list[int]]] = []
    group_id = unique("api")
    consumer = make(
        **{
            "group.id": group_id,
            "auto.commit.interval.ms": 60_000,
            "on_commit": lambda error, partitions: heard.append(
                (error, sorted(one.offset for one in partitions))
            ),
        }
    )
    consumer.subscribe([topic])
    seen: list[Message] = []
    for message in consumer:
        seen.append(message)
        if len(seen) == 7:
            consumer.close()  # ends the iteration, too
    counts = [len(offsets(seen, number)) for number in (0, 1)]
    assert heard == [(None, sorted(counts))]  # 0: where a partition without a record began
    assert committed(make(**{"group.id": group_id}), topic) == counts


def test_close_when_offsets_are_stored_by_hand_commits_those(make: Make, topic: str) -> None:
    """With `enable.auto.offset.store` off, records count only up to the stored offsets."""
    group_id = unique("api")
    consumer = make(**{"group.id": group_id, "enable.auto.offset.store": False})
    consumer.subscribe([topic])
    seen = take(consumer, 10)
    consumer.store_offsets(message=seen[3])
    with pytest.raises(KafkaException, match=r"absent \[0\] is not assigned"):
        consumer.store_offsets(offsets=[TopicPartition("absent", 0, 5)])
    consumer.close()
    expected = [0, 0]  # where partitions began
    expected[seen[3].partition() or 0] = (seen[3].offset() or 0) + 1
    assert committed(make(**{"group.id": group_id}), topic) == expected


def test_other_threads_ask_and_commit_while_one_polls_without_an_end(
    make: Make, topic: str
) -> None:
    """They waited as long as the consumer polled: librdkafka serves one thread at a time."""
    consumer = make(**{"enable.auto.commit": False})
    consumer.subscribe([topic])
    take(consumer, 2 * RECORDS)
    answers: list[list[int]] = []

    def ask() -> None:
        answers.append(positions(consumer, topic))
        consumer.commit(asynchronous=False)
        answers.append(committed(consumer, topic))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_for(lambda: len(answers) == 2, "both answers", WAIT_S, lambda: consumer.poll(0.2))
    assert answers == [[RECORDS, RECORDS]] * 2
    asking.join()


def test_seek_to_the_end_is_committed_without_another_record(make: Make, topic: str) -> None:
    """In confluent_kafka, the position is unknown until the next record."""
    consumer = make(**{"enable.auto.commit": False})
    consumer.subscribe([topic])
    take(consumer, 10)
    assert consumer.commit(asynchronous=False) is not None
    for number in (0, 1):
        consumer.seek(TopicPartition(topic, number, OFFSET_END))
    assert positions(consumer, topic) == [RECORDS, RECORDS]
    answer = consumer.commit(asynchronous=False)
    assert answer is not None
    assert [(one.partition, one.offset) for one in answer] == [(0, RECORDS), (1, RECORDS)]
    assert committed(consumer, topic) == [RECORDS, RECORDS]
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)


def test_unsubscribe_when_subscribed_again_begins_anew(make: Make, topic: str) -> None:
    """All partitions are committed and given up; later they continue at the committed offset."""
    revoked: list[int] = []
    consumer = make()
    consumer.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(len(partitions)))
    before = take(consumer, 30)
    consumer.unsubscribe()
    assert (consumer.assignment(), revoked, consumer.poll(0.2)) == ([], [2], None)
    consumer.subscribe([topic])
    after = take(consumer, 2 * RECORDS - 30)
    assert offsets(before + after, 0) == list(range(RECORDS))
    assert offsets(before + after, 1) == list(range(RECORDS))


def test_group_metadata_lets_a_transaction_commit_and_fences_a_stale_one(
    kafka_cluster: KafkaCluster, make: Make, topic: str
) -> None:
    """KIP-447: the broker refuses offsets of an old generation."""
    group_id = unique("api")
    consumer = make(**{"group.id": group_id, "enable.auto.commit": False})
    consumer.subscribe([topic])
    take(consumer, 2 * RECORDS)
    stale = consumer.consumer_group_metadata()
    producer = Producer(
        kafka_cluster.client_config() | {"transactional.id": unique("tx"), "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), stale, WAIT_S)
    producer.commit_transaction(WAIT_S)
    assert committed(consumer, topic) == [RECORDS, RECORDS]

    other = make(**{"group.id": group_id})
    other.subscribe([topic])

    def both_have_one() -> bool:
        consumer.poll(0.05)
        other.poll(0.05)
        return len(consumer.assignment()) == len(other.assignment()) == 1

    wait_for(both_have_one, "a second member")
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], stale, WAIT_S)
    producer.abort_transaction(WAIT_S)
    assert caught.value.args[0].name() in {"ILLEGAL_GENERATION", "COMMIT_FAILED", "_FENCED"}
    producer.begin_transaction()
    fresh = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], fresh, WAIT_S)
    producer.commit_transaction(WAIT_S)
    assert committed(consumer, topic)[0] == 2
