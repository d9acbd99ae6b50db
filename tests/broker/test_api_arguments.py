"""Each method of ours answers as that of `confluent_kafka.Consumer`, mistakes included."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique

TOPIC_RECORDS = (3, 0)
ABSENT = "absent-topic"
ERROR_MESSAGE = Message(error=KafkaError(KafkaError._PARTITION_EOF))


@pytest.fixture(scope="module")
def topic(kafka_cluster: KafkaCluster) -> str:
    name = unique("api")
    kafka_cluster.create_topic(name, len(TOPIC_RECORDS))
    produce(kafka_cluster, name, TOPIC_RECORDS)
    return name


@contextmanager
def both(cluster: KafkaCluster) -> Iterator[tuple[Any, Any]]:
    """Yield one consumer of each kind, each in its own group, without a subscription."""
    with ExitStack() as ended:
        made: list[Any] = []
        for kind in (Consumer, CooperativeConsumer):
            made.append(kind(cluster.client_config() | {"group.id": unique("api")}))
            ended.callback(made[-1].close)
        yield made[0], made[1]


def outcome(call: Callable[[], object]) -> object:
    """Return the call's result, or the type of its exception and its error code, if any."""
    try:
        answer = call()
    except KafkaException as error:
        return KafkaException, error.args[0].code()
    except Exception as error:  # noqa: BLE001  (the kind is what is compared)
        return type(error)
    if isinstance(answer, list):
        return [(one.topic, one.partition, one.offset) for one in answer]
    return answer if isinstance(answer, (tuple, str, type(None))) else type(answer)


def some(topic: str, offset: int = -1001) -> list[TopicPartition]:
    return [TopicPartition(topic, 0, offset)]


CALLS: dict[str, Callable[[Any, str], object]] = {
    "subscribe to a string": lambda c, t: c.subscribe(t),
    "subscribe to a tuple": lambda c, t: c.subscribe((t,)),
    "subscribe to nothing": lambda c, t: c.subscribe([]),
    "subscribe to no name": lambda c, t: c.subscribe([""]),
    "subscribe to a broken pattern": lambda c, t: c.subscribe(["^("]),
    "subscribe with no callable": lambda c, t: c.subscribe([t], on_assign=3),
    "subscribe with an unknown argument": lambda c, t: c.subscribe([t], on_gain=print),
    "subscribe": lambda c, t: c.subscribe([t], on_assign=print, on_revoke=print, on_lost=print),
    "assignment": lambda c, t: c.assignment(),
    "unsubscribe": lambda c, t: c.unsubscribe(),
    "poll a word": lambda c, t: c.poll("x"),
    "poll": lambda c, t: c.poll(0),
    "consume too few": lambda c, t: c.consume(-1, 0),
    "consume none": lambda c, t: c.consume(0, 0),
    "consume too many": lambda c, t: c.consume(1_000_001, 0),
    "consume a fraction": lambda c, t: c.consume(1.5, 0),
    "commit nothing": lambda c, t: c.commit(asynchronous=False),
    "commit nothing later": lambda c, t: c.commit(),
    "commit a message and offsets": lambda c, t: c.commit(message=ERROR_MESSAGE, offsets=[]),
    "commit a number": lambda c, t: c.commit(message=1),
    "commit an error": lambda c, t: c.commit(message=ERROR_MESSAGE),
    "commit a number as offsets": lambda c, t: c.commit(offsets=1),
    "commit numbers as offsets": lambda c, t: c.commit(offsets=[1]),
    "commit no offsets": lambda c, t: c.commit(offsets=[], asynchronous=False),
    "commit without offset": lambda c, t: c.commit(offsets=some(t), asynchronous=False),
    "store nothing": lambda c, t: c.store_offsets(),
    "store both": lambda c, t: c.store_offsets(message=ERROR_MESSAGE, offsets=[]),
    "store a number": lambda c, t: c.store_offsets(message=1),
    "store an error": lambda c, t: c.store_offsets(message=ERROR_MESSAGE),
    "store while stored automatically": lambda c, t: c.store_offsets(offsets=some(t, 1)),
    "position": lambda c, t: c.position(some(t)),
    "position of a number": lambda c, t: c.position(1),
    "committed": lambda c, t: c.committed(some(t), 10),
    "committed of nothing": lambda c, t: c.committed([], timeout=10),
    "committed of a number": lambda c, t: c.committed(1, 10),
    "pause what is not held": lambda c, t: c.pause(some(t)),
    "pause a number": lambda c, t: c.pause(1),
    "resume what is not held": lambda c, t: c.resume(some(t)),
    "resume a number": lambda c, t: c.resume(1),
    "resume numbers": lambda c, t: c.resume([1]),
    "seek what is not held": lambda c, t: c.seek(TopicPartition("never-heard-of", 0, 1)),
    "seek a number": lambda c, t: c.seek(1),
    "watermarks": lambda c, t: c.get_watermark_offsets(TopicPartition(t, 0), timeout=10),
    "watermarks in the cache": lambda c, t: c.get_watermark_offsets(
        TopicPartition(t, 0), cached=True
    ),
    "watermarks of a number": lambda c, t: c.get_watermark_offsets(1),
    "watermarks of nowhere": lambda c, t: c.get_watermark_offsets(TopicPartition(ABSENT, 0), 10),
    "offsets for times": lambda c, t: c.offsets_for_times(some(t, 0), timeout=10),
    "offsets for times of a number": lambda c, t: c.offsets_for_times(1),
    "topics": lambda c, t: sorted(c.list_topics(t, timeout=10).topics) == [t] or None,
    "all topics": lambda c, t: t in c.list_topics(timeout=60).topics or None,
    "cluster id": lambda c, t: c.cluster_id(timeout=10),
    "member id": lambda c, t: c.memberid(),
    "assign a number": lambda c, t: c.assign(1),
    "incrementally assign a number": lambda c, t: c.incremental_assign(1),
    "incrementally unassign a number": lambda c, t: c.incremental_unassign(1),
    "credentials": lambda c, t: c.set_sasl_credentials("user", "secret"),
    "credentials without a password": lambda c, t: c.set_sasl_credentials("user", None),
    "metadata of the group": lambda c, t: type(c.consumer_group_metadata()),
}
CLOSED_ONLY: dict[str, Callable[[Any, str], object]] = {
    "unassign": lambda c, t: c.unassign(),
    "close": lambda c, t: c.close(),
}


def test_every_call_when_open_answers_as_confluent_kafka(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    theirs: dict[str, object] = {}
    ours: dict[str, object] = {}
    for name, call in CALLS.items():
        with both(kafka_cluster) as (first, second):
            theirs[name] = outcome(partial(call, first, topic))
            ours[name] = outcome(partial(call, second, topic))
    assert ours == theirs


def test_every_call_when_closed_answers_as_confluent_kafka(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    """A closed consumer raises `RuntimeError`, except in `close`."""
    with both(kafka_cluster) as pair:
        for consumer in pair:
            consumer.close()
    # confluent_kafka checks these arguments before it checks whether it is closed; coopgroup checks
    # that first.
    unlike = {"poll a word", "consume a fraction", "subscribe with an unknown argument"}
    unlike |= {"credentials without a password"}
    unlike |= {name for name in CALLS if name.startswith(("store", "commit"))} - {"store nothing"}
    calls = {name: call for name, call in (CALLS | CLOSED_ONLY).items() if name not in unlike}
    theirs, ours = (
        {name: outcome(partial(call, consumer, topic)) for name, call in calls.items()}
        for consumer in pair
    )
    assert ours == theirs
    assert set(ours.values()) == {RuntimeError, None}


def test_every_method_when_introspected_is_there() -> None:
    ours = CooperativeConsumer
    public = [name for name in dir(Consumer) if not name.startswith("_")]
    assert [name for name in public if not callable(getattr(ours, name, None))] == []
