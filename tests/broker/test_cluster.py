"""The test cluster on real brokers: start, controls and clean-up."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coopgroup.testing import ClusterError, ClusterStartError, KafkaCluster, ToolError
from coopgroup.testing.properties import Security
from tests.support.waiting import wait_for

WAIT_MAX_S = 20.0

OWNER_SCRIPT = """
import sys, time
from coopgroup.testing import KafkaCluster
cluster = KafkaCluster(data_dir=sys.argv[1])
cluster.start()
print(cluster.pid(1), cluster.data_folder, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def produce(config: dict[str, str], topic: str, count: int) -> None:
    """Produce records 0, 1, … to partition 0 and wait until all replicas have acknowledged them."""
    producer = Producer(config | {"acks": "all", "message.timeout.ms": "20000"})
    errors: list[object] = []

    def remember(error: object, _message: object) -> None:
        errors.append(error)

    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0, on_delivery=remember)
    assert producer.flush(WAIT_MAX_S) == 0
    assert errors == [None] * count


def consume(config: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    """Return the first records of partition 0."""
    consumer = Consumer(config | {"group.id": "reader", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    try:
        wait_for(lambda: take(consumer, values) >= count)
    finally:
        consumer.close()
    return values


def take(consumer: Consumer, values: list[bytes | None]) -> int:
    for message in consumer.consume(100, timeout=0.2):
        assert message.error() is None
        values.append(message.value())
    return len(values)


@pytest.fixture
def single() -> Iterator[KafkaCluster]:
    """Start one broker for tests that stop, kill or freeze it and so cannot share a broker."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.mark.verify
def test_stop_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """Even if the broker is frozen. Afterwards the cluster can start again, with empty data."""
    cluster = KafkaCluster(data_dir=tmp_path)
    with cluster:
        pid = cluster.pid(1)
        assert cluster.data_folder.parent == tmp_path
        cluster.create_topic("orders", 1)
        cluster.pause(1)
    assert not is_alive(pid)
    assert list(tmp_path.iterdir()) == []

    with cluster:
        assert "orders" not in AdminClient(dict(cluster.client_config())).list_topics().topics
        with pytest.raises(ClusterError, match="the cluster is started already"):
            cluster.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.verify
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_brokers_end_when_their_owner_is_killed(tmp_path: Path, way: signal.Signals) -> None:
    """The owner cannot clean up after SIGKILL; no process or folder may remain."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid_text, folder = owner.stdout.readline().split()
        assert is_alive(int(pid_text))
        assert Path(folder).is_dir()
        owner.send_signal(way)
        owner.wait()

    wait_for(lambda: not is_alive(int(pid_text)))
    wait_for(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.verify
def test_killed_broker_keeps_its_data_and_ports(single: KafkaCluster) -> None:
    """All acknowledged records are there after SIGKILL and a restart."""
    config = single.client_config()
    single.create_topic("orders", 2)
    produce(config, "orders", 100)

    single.kill(1)
    after_kill = single.running
    with pytest.raises(ClusterError, match="broker 1 does not run"):
        single.kill(1)
    with pytest.raises(ClusterError, match="no broker of the cluster answers"):
        single.create_topic("more", 1)
    single.start_broker(1)

    assert (after_kill, single.running) == ((), (1,))
    assert single.client_config() == config
    assert consume(config, "orders", 100) == [str(number).encode() for number in range(100)]


@pytest.mark.verify
def test_stopped_broker_starts_again_unless_its_port_is_taken(single: KafkaCluster) -> None:
    """If the port is taken, the error is one line that names the port."""
    host, _, port = single.bootstrap_servers.partition(":")
    with pytest.raises(ClusterError, match="broker 1 runs already"):
        single.start_broker(1)

    single.stop_broker(1)
    with socket.create_server((host, int(port))):
        with pytest.raises(ClusterStartError) as caught:
            single.start_broker(1)
        assert str(caught.value) == f"broker 1: port {port} is taken"
    single.start_broker(1)

    assert single.running == (1,)


def test_topics_are_created_grown_and_deleted(kafka_cluster: KafkaCluster) -> None:
    """Each call returns when the brokers know the change; a refusal by Kafka is one line."""
    client = AdminClient(dict(kafka_cluster.client_config()))
    name = "topics-of-cluster-test"

    kafka_cluster.create_topic(name, 3, config={"retention.ms": "60000"})
    assert len(client.list_topics(timeout=5).topics[name].partitions) == 3
    assert kafka_cluster.leader_of(name, 2) == 1
    with pytest.raises(ClusterError, match=f"topic '{name}' was not created: .*already exists"):
        kafka_cluster.create_topic(name, 3)
    kafka_cluster.add_partitions(name, 5)
    assert len(client.list_topics(timeout=5).topics[name].partitions) == 5
    with pytest.raises(ClusterError, match=f"there is no partition 5 of topic '{name}'"):
        kafka_cluster.leader_of(name, 5)
    kafka_cluster.delete_topic(name)
    assert name not in client.list_topics(timeout=5).topics


def test_tools_run_against_the_cluster(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("tools-of-cluster-test", 2)

    listed = kafka_cluster.run_tool("kafka-topics", "--list")
    assert "tools-of-cluster-test" in listed.stdout.splitlines()
    kafka_cluster.run_tool(
        "kafka-console-producer.sh", "--topic", "tools-of-cluster-test", stdin="one\ntwo\n"
    )
    offsets = kafka_cluster.run_tool("kafka-get-offsets", "--topic", "tools-of-cluster-test")
    assert sum(int(line.rpartition(":")[2]) for line in offsets.stdout.splitlines()) == 2
    with pytest.raises(ToolError, match="kafka-topics ended with status 1"):
        kafka_cluster.run_tool("kafka-topics", "--describe", "--topic", "no-such-topic")


@pytest.mark.verify
def test_broken_setting_is_reported_with_the_brokers_reason(tmp_path: Path) -> None:
    """The error is one line that quotes the broker's log, and no process or folder remains."""
    cluster = KafkaCluster(properties={"num.io.threads": "many"}, data_dir=tmp_path)

    with pytest.raises(ClusterStartError, match=r"^broker 1 ended with status 1: .*num.io.threads"):
        cluster.start()
    assert cluster.running == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.verify
def test_late_broker_is_reported(tmp_path: Path) -> None:
    """The time-out is respected, and no process or folder remains."""
    cluster = KafkaCluster(start_timeout_ms=200, data_dir=tmp_path)

    with pytest.raises(ClusterStartError, match="broker 1 was not ready after 200 ms"):
        cluster.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.verify
@pytest.mark.parametrize("security", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_secured_cluster_takes_clients_with_its_configuration(security: Security) -> None:
    """Without the secrets, no record goes through."""
    with KafkaCluster(security=security) as cluster:
        config = cluster.client_config()
        cluster.create_topic("orders", 1)

        produce(config, "orders", 10)

        assert consume(config, "orders", 10) == [str(number).encode() for number in range(10)]
        secrets = ("sasl.password", "ssl.certificate.location", "ssl.key.location")
        stranger: dict[str, str | int | float | bool] = {
            key: value for key, value in config.items() if key not in secrets
        }
        if security != "SSL":
            stranger["sasl.password"] = "wrong"
        with pytest.raises(KafkaException):
            AdminClient(stranger | {"log_level": 0}).list_topics(timeout=2)
