"""The test cluster on real brokers: start, controls and clean-up."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coopgroup.testing import ClusterError, ClusterStartError, KafkaCluster, ToolError
from coopgroup.testing.properties import Security
from tests.support.waiting import wait_for

OWNER_SCRIPT = """
import sys, time
from coopgroup.testing import KafkaCluster
cluster = KafkaCluster(data_dir=sys.argv[1])
cluster.start()
print(cluster.pid(1), cluster.data_folder, flush=True)
time.sleep(600)
"""
VALUES = [str(number).encode() for number in range(100)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def produce(config: dict[str, str]) -> None:
    """Produce the values to partition 0 of `orders`, acknowledged by all replicas."""
    producer = Producer(config | {"acks": "all", "message.timeout.ms": "20000"})
    errors: list[object] = []
    for value in VALUES:
        producer.produce(
            "orders", value, partition=0, on_delivery=lambda one, _: errors.append(one)
        )
    assert producer.flush(60) == 0
    assert errors == [None] * len(VALUES)


def consumed(config: dict[str, str]) -> list[bytes | None]:
    """Return as many records of partition 0 as there are values."""
    consumer = Consumer(config | {"group.id": "reader", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        return [one.value() for one in consumer.consume(len(VALUES), 20)]
    finally:
        consumer.close()


@pytest.mark.verify
def test_stop_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """Even if the broker is frozen. Afterwards the cluster can start again, with empty data."""
    cluster = KafkaCluster(data_dir=tmp_path)
    with cluster:
        pid = cluster.pid(1)
        assert cluster.data_folder.parent == tmp_path
        cluster.create_topic("orders", 1)
        cluster.pause(1)
    assert (is_alive(pid), list(tmp_path.iterdir())) == (False, [])
    with cluster:
        assert "orders" not in AdminClient(dict(cluster.client_config())).list_topics().topics
        with pytest.raises(ClusterError, match="the cluster is started already"):
            cluster.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.verify
def test_brokers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    """The owner cannot clean up after SIGKILL; no process or folder may remain."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid_text, folder = owner.stdout.readline().split()
        assert (is_alive(int(pid_text)), Path(folder).is_dir()) == (True, True)
        owner.kill()
        owner.wait()
    wait_for(lambda: not is_alive(int(pid_text)))
    wait_for(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.verify
def test_killed_broker_keeps_its_data_and_ports() -> None:
    """All acknowledged records are there after SIGKILL and a restart."""
    with KafkaCluster() as cluster:
        config = cluster.client_config()
        cluster.create_topic("orders", 2)
        produce(config)
        cluster.kill(1)
        assert list(cluster.running) == []
        with pytest.raises(ClusterError, match="broker 1 does not run"):
            cluster.kill(1)
        with pytest.raises(ClusterError, match="no broker of the cluster answers"):
            cluster.create_topic("more", 1)
        cluster.start_broker(1)
        with pytest.raises(ClusterError, match="broker 1 runs already"):
            cluster.start_broker(1)
        assert (list(cluster.running), cluster.client_config()) == ([1], config)
        assert consumed(config) == VALUES


def test_topics_are_created_grown_and_deleted(kafka_cluster: KafkaCluster) -> None:
    """Each call returns when the brokers know the change; a refusal by Kafka is one line."""
    client = AdminClient(dict(kafka_cluster.client_config()))
    name = "topics-of-cluster-test"
    kafka_cluster.create_topic(name, 3, config={"retention.ms": "60000"})
    assert len(client.list_topics(timeout=60).topics[name].partitions) == 3
    assert kafka_cluster.leader_of(name, 2) == 1
    with pytest.raises(ClusterError, match=f"topic '{name}' was not created: .*already exists"):
        kafka_cluster.create_topic(name, 3)
    kafka_cluster.add_partitions(name, 5)
    assert len(client.list_topics(timeout=60).topics[name].partitions) == 5
    with pytest.raises(ClusterError, match=f"there is no partition 5 of topic '{name}'"):
        kafka_cluster.leader_of(name, 5)
    kafka_cluster.delete_topic(name)
    assert name not in client.list_topics(timeout=60).topics


def test_tools_run_against_the_cluster(kafka_cluster: KafkaCluster) -> None:
    topic = "tools-of-cluster-test"
    kafka_cluster.create_topic(topic, 2)
    assert topic in kafka_cluster.run_tool("kafka-topics", "--list").stdout.splitlines()
    kafka_cluster.run_tool("kafka-console-producer.sh", "--topic", topic, stdin="one\ntwo\n")
    offsets = kafka_cluster.run_tool("kafka-get-offsets", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.stdout.splitlines()) == 2
    with pytest.raises(ToolError, match="kafka-topics ended with status 1"):
        kafka_cluster.run_tool("kafka-topics", "--describe", "--topic", "no-such-topic")


@pytest.mark.verify
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"properties": {"num.io.threads": "many"}},
            r"^broker 1 ended with status 1: .*num.io.threads",
        ),
        ({"start_timeout_ms": 200}, "broker 1 was not ready after 200 ms"),
    ],
    ids=["broken setting", "late"],
)
def test_broker_that_does_not_start_is_reported(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    """The error is one line, with the reason of the broker's log; nothing remains."""
    cluster = KafkaCluster(data_dir=tmp_path, **settings)  # type: ignore[arg-type]
    with pytest.raises(ClusterStartError, match=message):
        cluster.start()
    assert (cluster.running, list(tmp_path.iterdir())) == ((), [])


@pytest.mark.verify
@pytest.mark.parametrize("security", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_secured_cluster_takes_clients_with_its_configuration(security: Security) -> None:
    """Without the secrets, no record goes through."""
    with KafkaCluster(security=security) as cluster:
        config = cluster.client_config()
        cluster.create_topic("orders", 1)
        produce(config)
        assert consumed(config) == VALUES
        secrets = ("sasl.password", "ssl.certificate.location", "ssl.key.location")
        stranger: dict[str, str | int | float | bool] = {
            key: value for key, value in config.items() if key not in secrets
        }
        if security != "SSL":
            stranger["sasl.password"] = "wrong"
        with pytest.raises(KafkaException):
            AdminClient(stranger | {"log_level": 0}).list_topics(timeout=2)
