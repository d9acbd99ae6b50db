"""Administration of a running test cluster through librdkafka.

The only exception is the search for a group coordinator, which uses our own connections.
librdkafka's AdminClient aborts the process when a coordinator stops (librdkafka#4605).

Every call creates a new client on the internal plaintext listener. An existing client would stay in
its reconnect back-off for a while after its broker has come back.

Every function raises a `ClusterError` if Kafka refuses, or does not finish in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coopgroup.errors import ClusterError, ConfigurationError
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.describing import find_coordinator

REQUEST_TIMEOUT_S: Final = 15.0
PROBE_TIMEOUT_S: Final = 2.0
POLL_INTERVAL_S: Final = 0.02
COORDINATOR_TRY_MS: Final = 3_000
SCRAM_ITERATIONS: Final = 4096  # the minimum of RFC 7677, because logins in tests should be quick


def connect(bootstrap: str) -> AdminClient:
    """Return a client that does not log broken connections and reconnects soon."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )


def until(condition: Callable[[], bool], what: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
    """Wait for a condition, at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            raise ClusterError(f"{what}: not after {timeout_s:g} s")
        time.sleep(POLL_INTERVAL_S)


def sees_brokers(bootstrap: str, expected: frozenset[int]) -> bool:
    """Return whether the broker at an address knows all expected brokers and a controller."""
    try:
        metadata = connect(bootstrap).list_topics(timeout=PROBE_TIMEOUT_S)
    except KafkaException:
        return False
    return expected <= set(metadata.brokers) and metadata.controller_id >= 0


def create_topic(
    bootstraps: tuple[str, ...],
    name: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str],
) -> None:
    """Create a topic and wait until every address of `bootstraps` knows all partition leaders."""
    topic = NewTopic(
        name, num_partitions=partitions, replication_factor=replication, config=dict(config)
    )
    client = connect(",".join(bootstraps))
    settle(client.create_topics([topic])[name], f"topic {name!r} was not created")
    await_partitions(bootstraps, name, partitions)


def add_partitions(bootstraps: tuple[str, ...], name: str, partitions: int) -> None:
    """Increase the partitions of a topic to `partitions`, and wait until every address knows."""
    client = connect(",".join(bootstraps))
    grown = client.create_partitions([NewPartitions(name, partitions)])[name]
    settle(grown, f"topic {name!r} did not grow")
    await_partitions(bootstraps, name, partitions)


def delete_topic(bootstraps: tuple[str, ...], name: str) -> None:
    """Delete a topic and wait until no address knows it."""
    client = connect(",".join(bootstraps))
    settle(client.delete_topics([name])[name], f"topic {name!r} was not deleted")
    for bootstrap in bootstraps:
        watcher = connect(bootstrap)
        until(partial(is_absent, watcher, name), f"topic {name!r} to vanish")


def await_partitions(bootstraps: tuple[str, ...], name: str, partitions: int) -> None:
    """Wait until every single address knows leaders for `partitions` partitions."""
    for bootstrap in bootstraps:
        watcher = connect(bootstrap)
        until(
            partial(has_leaders, watcher, name, partitions),
            f"leaders for the {partitions} partitions of topic {name!r}",
        )


def topics(client: AdminClient) -> ClusterMetadata:
    """Return the metadata of all topics.

    A request with the name of a missing topic would create it if `auto.create.topics.enable` is on.
    """
    try:
        return client.list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterError(f"the cluster does not answer: {reason(error)}") from error


def is_absent(client: AdminClient, name: str) -> bool:
    """Return whether the broker of a client does not know a topic."""
    return name not in topics(client).topics


def has_leaders(client: AdminClient, name: str, partitions: int) -> bool:
    """Return whether the broker of a client knows leaders for exactly `partitions` partitions."""
    topic = topics(client).topics.get(name)
    known = () if topic is None else topic.partitions.values()
    return sum(partition.leader >= 0 for partition in known) == partitions


def partition_leader(bootstrap: str, topic: str, partition: int) -> int:
    """Return the id of the broker that leads a partition.

    Raises:
        ClusterError: the partition does not exist, or has no leader now.
    """
    known = topics(connect(bootstrap)).topics.get(topic)
    if known is None or partition not in known.partitions:
        raise ClusterError(f"there is no partition {partition} of topic {topic!r}")
    leader = int(known.partitions[partition].leader)
    if leader < 0:
        raise ClusterError(f"partition {partition} of topic {topic!r} has no leader now")
    return leader


def group_coordinator(bootstrap: str, group_id: str) -> int:
    """Return the id of the group coordinator of a group; the group need not exist."""
    settings = read_connection_settings({"bootstrap.servers": bootstrap, "client.id": "testing"})
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        # Short attempts, because a frozen or killed broker must not use up all the time.
        try:
            return find_coordinator(settings, group_id, COORDINATOR_TRY_MS).node_id
        except ConfigurationError as error:
            if time.monotonic() >= deadline:
                raise ClusterError(f"no coordinator for group {group_id!r}: {error}") from error
            time.sleep(POLL_INTERVAL_S)


def create_user(bootstrap: str, name: str, password: str) -> None:
    """Create a SCRAM-SHA-256 user."""
    credential = UserScramCredentialUpsertion(
        name,
        ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, SCRAM_ITERATIONS),
        password.encode(),
    )
    client = connect(bootstrap)  # keep a reference: garbage collection fails its futures
    altered = client.alter_user_scram_credentials([credential])
    settle(altered[name], f"user {name!r} was not created")


def settle(future: Any, complaint: str) -> Any:  # noqa: ANN401 - confluent_kafka leaves it open
    """Return the result of an admin request."""
    try:
        return future.result(timeout=REQUEST_TIMEOUT_S + 1)
    except (KafkaException, TimeoutError) as error:
        raise ClusterError(f"{complaint}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return librdkafka's error message as one line."""
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return str(error) or "no answer in time"
