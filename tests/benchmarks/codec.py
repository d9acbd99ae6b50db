"""Codec of a subscription and an assignment with 100,000 partitions, beside kafka-python's.

Goal: ten times faster. Both codecs turn bytes into the value that their leader uses, and back:
ours into a resource set, kafka-python's into a list of objects. They write the same bytes (checked
here), run in turn, and the medians are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from coopgroup.model import ResourceSet
from coopgroup.protocol import (
    Assignment,
    KafkaAssignment,
    Subscription,
    decode_assignment,
    decode_kafka_assignment,
    decode_subscription,
    encode_assignment,
    encode_kafka_assignment,
    encode_subscription,
)

__all__ = ["run"]

PARTITIONS: Final = 100_000
TOPICS: Final = (1, 100, 1_000, 10_000)
RUNS: Final = 7

_Call = Callable[[], object]


def run(*, partitions: int = PARTITIONS, runs: int = RUNS) -> dict[str, Any]:
    """Measure both messages, the partitions spread over few and many topics.

    Args:
        partitions: number in each message.
        runs: runs of each call; the median counts.

    Returns:
        By number of topics and call: the medians of both codecs in ms, and the speed-up of ours.
    """
    found: dict[str, Any] = {"partitions": partitions}
    for topics in TOPICS:
        calls = {
            **_subscription_calls(topics, partitions // topics),
            **_assignment_calls(topics, partitions // topics),
        }
        found[f"{topics}_topics"] = {
            name: _compared(ours, theirs, runs) for name, (ours, theirs) in calls.items()
        }
        print(f"codec: {topics} topics {found[f'{topics}_topics']}", flush=True)
    return found


def _subscription_calls(topics: int, per_topic: int) -> Mapping[str, tuple[_Call, _Call]]:
    names, indices = _content(topics, per_topic)
    ours = Subscription(
        topics=names, owned=ResourceSet(dict.fromkeys(names, indices)), generation=7, rack="a"
    )
    partition = ConsumerProtocolSubscription.TopicPartition
    theirs = ConsumerProtocolSubscription(
        topics=list(names),
        user_data=None,
        owned_partitions=[partition(topic=name, partitions=list(indices)) for name in names],
        generation_id=7,
        rack_id="a",
    )
    content = encode_subscription(ours, 3)
    assert content == theirs.encode(version=3)
    return {
        "subscription_encode": (
            lambda: encode_subscription(ours, 3),
            lambda: theirs.encode(version=3),
        ),
        "subscription_decode": (
            lambda: decode_subscription(content),
            lambda: ConsumerProtocolSubscription.decode(content, version=3),
        ),
    }


def _assignment_calls(topics: int, per_topic: int) -> Mapping[str, tuple[_Call, _Call]]:
    names, indices = _content(topics, per_topic)
    assigned = ResourceSet(dict.fromkeys(names, indices))
    ours = Assignment(assigned=assigned)
    partition = ConsumerProtocolAssignment.TopicPartition
    theirs = ConsumerProtocolAssignment(
        assigned_partitions=[partition(topic=name, partitions=list(indices)) for name in names],
        user_data=None,
    )
    content = encode_assignment(ours)
    kafka_content = encode_kafka_assignment(KafkaAssignment(assigned=assigned), 3)
    assert kafka_content == theirs.encode(version=3)
    assert decode_kafka_assignment(content).assigned == assigned
    return {
        "assignment_encode": (
            lambda: encode_assignment(ours),
            lambda: theirs.encode(version=3),
        ),
        "assignment_decode": (
            lambda: decode_assignment(content),
            lambda: ConsumerProtocolAssignment.decode(kafka_content, version=3),
        ),
    }


def _content(topics: int, per_topic: int) -> tuple[tuple[str, ...], Sequence[int]]:
    return tuple(f"topic-{number:06d}" for number in range(topics)), range(per_topic)


def _compared(ours: _Call, theirs: _Call, runs: int) -> dict[str, float]:
    times: list[tuple[float, float]] = [(_ms(ours), _ms(theirs)) for _ in range(runs)]
    our_ms, their_ms = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "coopgroup_ms": round(our_ms, 3),
        "kafka_python_ms": round(their_ms, 3),
        "times_faster": round(their_ms / our_ms, 1),
    }


def _ms(call: _Call) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000
