"""The broker of a trial: real Kafka, the mock of librdkafka, or a broker that already runs."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from attrs import field, frozen
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from coopgroup.errors import ConfigurationError
from coopgroup.testing.cluster import KafkaCluster
from coopgroup.testing.errors import ClusterError, KafkaFetchError, ToolMissingError
from coopgroup.testing.maven import kafka_runtime_path
from coopgroup.testing.trial.mock_broker import PARTITIONS_PER_TOPIC

__all__ = ["Stage", "open_stage"]

ANSWER_S: Final = 10.0
CLOSE_S: Final = 5.0


@frozen(kw_only=True)
class Stage:
    """A broker with empty topics.

    Attributes:
        cooperative_config: additional settings that consumers of coopgroup need for this broker.
    """

    client_config: Mapping[str, str]
    topics: tuple[str, ...]
    partitions_per_topic: int
    is_mock: bool
    cooperative_config: Mapping[str, object] = field(factory=dict)


@contextmanager
def open_stage(broker: str, partitions: int, tell: Callable[[str], None]) -> Iterator[Stage]:
    """Provide a broker with empty topics; the mock needs a multiple of 4 partitions.

    Raises:
        ConfigurationError: `broker` has another value.
        ClusterError: the broker did not start or does not answer.
    """
    with ExitStack() as stack:
        yield _stage(broker, partitions, tell, stack)


def _stage(broker: str, partitions: int, tell: Callable[[str], None], stack: ExitStack) -> Stage:
    match broker:
        case "kafka":
            return _kafka(partitions, tell, stack)
        case "mock":
            return _mock(partitions, stack)
        case "auto":
            try:
                return _kafka(partitions, tell, stack)
            except (ToolMissingError, KafkaFetchError) as error:
                tell(f"{error}; using the mock broker of librdkafka instead, which is slower")
                return _mock(partitions, stack)
        case address if ":" in address:
            return _running(address, partitions, stack)
        case _:
            raise ConfigurationError("broker", broker, "auto, kafka, mock or HOST:PORT")


def _kafka(partitions: int, tell: Callable[[str], None], stack: ExitStack) -> Stage:
    if not kafka_runtime_path().exists():
        tell("fetching Apache Kafka with Maven, once; takes a quarter of a minute")
    tell("starting Apache Kafka")
    cluster = stack.enter_context(KafkaCluster())
    cluster.create_topic("orders", partitions)
    return Stage(
        client_config=cluster.client_config(),
        topics=("orders",),
        partitions_per_topic=partitions,
        is_mock=False,
    )


def _mock(partitions: int, stack: ExitStack) -> Stage:
    process = subprocess.Popen(
        [sys.executable, "-m", "coopgroup.testing.trial.mock_broker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stack.callback(_end, process)
    address = process.stdout.readline().strip() if process.stdout is not None else ""
    if not address:
        raise ClusterError("the mock broker ended before it told its address")
    return Stage(
        client_config={"bootstrap.servers": address},
        topics=tuple(f"orders-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)),
        partitions_per_topic=PARTITIONS_PER_TOPIC,
        is_mock=True,
        # kafka-python cannot read the mock's answer to a version request, so skip this request.
        cooperative_config={"api.version.request": False, "broker.version.fallback": "2.3.0"},
    )


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _running(address: str, partitions: int, stack: ExitStack) -> Stage:
    """Create a topic on an existing broker; the topic is deleted at the end."""
    client_config = {"bootstrap.servers": address}
    admin = AdminClient({**client_config, "log_level": 0})  # the error below already reports it
    topic = f"coopgroup-demo-{secrets.token_hex(4)}"
    created = admin.create_topics(
        [NewTopic(topic, partitions, 1)], operation_timeout=ANSWER_S, request_timeout=ANSWER_S
    )
    try:
        created[topic].result(ANSWER_S)
    except TimeoutError:
        raise ClusterError(f"{address} did not answer within {ANSWER_S:.0f} s") from None
    except KafkaException as error:
        raise ClusterError(f"cannot create a topic at {address}: {error}") from error
    stack.callback(lambda: admin.delete_topics([topic])[topic].result(ANSWER_S))
    return Stage(
        client_config=client_config,
        topics=(topic,),
        partitions_per_topic=partitions,
        is_mock=False,
    )
