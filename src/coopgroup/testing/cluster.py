"""A real Apache Kafka on loopback, for tests and demonstrations.

    with KafkaCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6, replication=3)
        consumer = CooperativeConsumer(cluster.client_config() | {"group.id": "billing"})
        cluster.kill(cluster.group_coordinator("billing"))

A cluster is NEW or STARTED, and becomes NEW again by `stop`. In a started cluster each broker is
down, running or paused. Data and ports of a broker survive its process until `stop`. Brokers and
data never survive this process: `stop` runs at exit, and the reaper (`reaper.py`) cleans up after a
crash. Every state change holds one lock. The wait for a broker to start does not hold it, so that
`stop` from another thread can end the wait.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from coopgroup.errors import ClusterError, ConfigurationError, ToolError
from coopgroup.kafka.config.keys import BELL_TOPIC, BELL_TOPIC_SETTINGS
from coopgroup.testing import admin
from coopgroup.testing.archive import archive_options, ensure_class_archive
from coopgroup.testing.brokers import (
    LOG_OPTIONS,
    Broker,
    Started,
    add_brokers,
    launch,
    start_error,
)
from coopgroup.testing.maven import KafkaRuntime, fetch_kafka
from coopgroup.testing.processes import BrokerProcess, Reaper, is_listening, log_tail, make_folder
from coopgroup.testing.properties import (
    BROKERS_MAX,
    LOOPBACK,
    Security,
    check_security,
    check_user_properties,
    write_certificates,
)
from coopgroup.testing.releases import (
    KAFKA_VERSION,
    KafkaRelease,
    read_release,
    tool_class_of,
    with_bootstrap,
)

SCRAM_USER: Final = "coopgroup"
READY_POLL_S: Final = 0.02
# Fast startup is more important than throughput; a benchmark of the broker itself may differ.
JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaCluster:
    """One to three real Kafka brokers on loopback; start it with `with` or `start`.

    Needs Java 17 or newer, and Maven for the first start. Maven then downloads the jars of Kafka
    4.3.0 into the user's cache folder (`COOPGROUP_CACHE_DIR`, else `XDG_CACHE_HOME/coopgroup`).
    The topic of the bell exists, as after `coopgroup setup`.
    Brokers are numbered from 1. With three brokers, each is also a KRaft controller and any of
    these may die. With two brokers, only broker 1 is a controller, so only broker 2 may die.

    All methods may be called from any thread.

    Args:
        brokers: 1 to 3.
        properties: further broker settings, as in `server.properties`.
        security: None for plaintext; `"SASL_SSL"` or `"SASL_PLAINTEXT"` with SCRAM-SHA-256;
            `"SSL"` with client certificates. TLS needs the package `trustme`.
        data_dir: parent of the data folder; None for the RAM disk or the folder for temporary
            files. The data folder is always removed at the end.
        heap: maximum heap of each broker, as in `-Xmx`.
        start_timeout_ms: longest time for brokers to start.
        jvm_options: options of each broker's Java, instead of the options for a fast startup.
        version: release of Kafka, from 3.3 on.
        host: loopback address of the brokers, 127.0.0.1 or ::1.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    def __init__(  # noqa: PLR0913  (keywords, one for each option)
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        security: Security | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        heap: str = "512m",
        start_timeout_ms: int = 60_000,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        version: str = KAFKA_VERSION,
        host: str = "127.0.0.1",
    ) -> None:
        if isinstance(brokers, bool) or brokers not in range(1, BROKERS_MAX + 1):
            raise ConfigurationError("brokers", brokers, f"a number from 1 to {BROKERS_MAX}")
        if start_timeout_ms <= 0:
            raise ConfigurationError("start_timeout_ms", start_timeout_ms, "a number above 0")
        if not heap[:-1].isdigit() or heap[-1:] not in tuple("kmgKMG"):
            raise ConfigurationError("heap", heap, "a size such as '512m'")
        if host not in LOOPBACK:
            raise ConfigurationError("host", host, f"one of {', '.join(LOOPBACK)}")
        check_security(security)
        self._release = self._read_release(version)
        self._release.check_security(security)
        self._broker_ids = tuple(range(1, brokers + 1))
        self._properties = check_user_properties(properties or {})
        self._security = security
        self._host = host
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._heap = heap
        self._start_timeout_ms = start_timeout_ms
        self._jvm_options = tuple(jvm_options)
        self._password = secrets.token_urlsafe(16)
        self._lock = threading.RLock()
        self._started: Started | None = None

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start every broker with empty data and wait until they form a cluster.

        Raises:
            ClusterError: the cluster is already started.
            ClusterStartError: a broker did not start; all processes have been stopped.
            ToolMissingError: Java or Maven is not installed.
            KafkaFetchError: Kafka's jars could not be downloaded.
        """
        with self._lock:
            if self._started is not None:
                raise ClusterError("the cluster is started already")
            self._started = self._prepare()
            atexit.register(self.stop)
        try:
            with self._lock:
                for broker_id in self._broker_ids:
                    self._launch(broker_id)
            self.wait_ready()
            if self._security in ("SASL_SSL", "SASL_PLAINTEXT"):
                admin.create_user(self._internal_bootstrap(), SCRAM_USER, self._password)
            self.create_topic(BELL_TOPIC, 1, len(self._broker_ids), BELL_TOPIC_SETTINGS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every broker and remove all data; does nothing if the cluster is not started."""
        with self._lock:
            started = self._started
            if started is None:
                return
            self._started = None
            atexit.unregister(self.stop)
            started.remove()

    def wait_ready(self, timeout_ms: int | None = None) -> None:
        """Wait until every running, unpaused broker knows all such brokers.

        Args:
            timeout_ms: `start_timeout_ms` if None.

        Raises:
            ClusterStartError: a broker ended, or the timeout expired.
            ClusterError: the cluster is not started, or was stopped during the wait.
        """
        limit_ms = self._start_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        waiting = self._answering()
        expected = frozenset(broker.broker_id for broker in waiting)
        while waiting:
            self._require_started()
            for broker in waiting:
                self._require_alive(broker)
            waiting = [broker for broker in waiting if not self._is_ready(broker, expected)]
            if waiting and time.monotonic() >= deadline:
                late = waiting[0]
                raise start_error(late, f"was not ready after {limit_ms} ms")
            if waiting:
                time.sleep(READY_POLL_S)

    # --- brokers --------------------------------------------------------------------------------

    @property
    def release(self) -> KafkaRelease:
        """The release of Kafka."""
        return self._release

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of all brokers, running or not."""
        return self._broker_ids

    @property
    def running(self) -> tuple[int, ...]:
        """Ids of the brokers with a process, including paused brokers."""
        with self._lock:
            if self._started is None:
                return ()
            return tuple(
                broker.broker_id for broker in self._started.brokers.values() if broker.is_running
            )

    def kill(self, broker: int) -> None:
        """Kill a broker immediately (SIGKILL); its data and ports stay for `start_broker`.

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the broker does not run.
        """
        with self._lock:
            self._running_process(broker).kill()

    def pause(self, broker: int) -> None:
        """Freeze a broker (SIGSTOP): its connections stay open, but it does not answer.

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the broker does not run.
        """
        with self._lock:
            self._running_process(broker).pause()

    def resume(self, broker: int) -> None:
        """Resume a frozen broker (SIGCONT).

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the broker does not run.
        """
        with self._lock:
            self._running_process(broker).resume()

    def stop_broker(self, broker: int, timeout_ms: int = 30_000) -> None:
        """Shut a broker down as an operator would (SIGTERM); data and ports stay.

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the broker does not run, or still runs after `timeout_ms`.
        """
        with self._lock:
            process = self._running_process(broker)
        if not process.terminate(timeout_ms):
            raise ClusterError(f"broker {broker} did not shut down within {timeout_ms} ms")

    def start_broker(self, broker: int, version: str | None = None) -> None:
        """Start a killed or stopped broker with its old data and ports, and wait for it.

        Args:
            broker: its id.
            version: a later release of Kafka, which the broker keeps; None for its release. So a
                test can upgrade the brokers below a group, one after the other. The features of
                the cluster stay those of the first release.

        Raises:
            ConfigurationError: unknown broker, or the release is earlier than the broker's.
            ClusterError: the broker already runs.
            ClusterStartError: the broker did not start.
            KafkaFetchError: the jars of the release could not be downloaded.
        """
        runtime = None if version is None else self._later_runtime(broker, version)
        with self._lock:
            if self._broker(broker).is_running:
                raise ClusterError(f"broker {broker} runs already")
            if runtime is not None:
                self._broker(broker).runtime = runtime
            self._launch(broker)
        self.wait_ready()

    def pid(self, broker: int) -> int:
        """Return the process id of a running broker.

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the broker does not run.
        """
        with self._lock:
            return self._running_process(broker).pid

    def log(self, broker: int) -> str:
        """Return the last lines of a broker's log, with warnings and errors only.

        Raises:
            ConfigurationError: unknown broker.
            ClusterError: the cluster is not started.
        """
        with self._lock:
            return "\n".join(log_tail(self._broker(broker).log_path))

    # --- addresses ------------------------------------------------------------------------------

    @property
    def data_folder(self) -> Path:
        """Folder of all data, logs and certificates of the started cluster.

        Raises:
            ClusterError: the cluster is not started.
        """
        return self._require_started().folder

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, as in the client setting `bootstrap.servers`.

        Raises:
            ClusterError: the cluster is not started.
        """
        brokers = self._require_started().brokers
        return ",".join(broker.address.bootstrap for broker in brokers.values())

    def client_config(self) -> dict[str, str]:
        """Return the address and security of the cluster as settings of confluent_kafka.

        Raises:
            ClusterError: the cluster is not started.
        """
        tls_folder = self._require_started().folder / "tls"
        config = {"bootstrap.servers": self.bootstrap_servers}
        if self._security is None:
            return config
        config["security.protocol"] = self._security
        if self._security != "SASL_PLAINTEXT":
            config["ssl.ca.location"] = str(tls_folder / "ca.pem")
        if self._security == "SSL":
            config["ssl.certificate.location"] = str(tls_folder / "client.crt")
            config["ssl.key.location"] = str(tls_folder / "client.key")
            return config
        return config | {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": SCRAM_USER,
            "sasl.password": self._password,
        }

    # --- topics, groups, tools ------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; afterwards every answering broker knows all partition leaders.

        Raises:
            ClusterError: Kafka refused or did not finish in time.
        """
        admin.create_topic(self._answering_addresses(), name, partitions, replication, config or {})

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the partitions of a topic to `partitions`.

        Raises:
            ClusterError: Kafka refused or did not finish in time.
        """
        admin.add_partitions(self._answering_addresses(), topic, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; afterwards no answering broker knows it.

        Raises:
            ClusterError: Kafka refused or did not finish in time.
        """
        admin.delete_topic(self._answering_addresses(), name)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition.

        Raises:
            ClusterError: the partition does not exist, or has no leader now.
        """
        return admin.partition_leader(self._internal_bootstrap(), topic, partition)

    def group_coordinator(self, group_id: str) -> int:
        """Return the id of the group coordinator of a group; the group need not exist.

        Raises:
            ClusterError: the cluster does not name a coordinator in time.
        """
        return admin.group_coordinator(self._internal_bootstrap(), group_id)

    def run_tool(
        self, name: str, *arguments: str, stdin: str = "", timeout_ms: int = 60_000
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line tools against the cluster.

        Args:
            name: name of its script, such as `kafka-consumer-groups`, or a Java class.
            *arguments: its arguments; `--bootstrap-server` is added if they contain no server.
            stdin: standard input of the tool.
            timeout_ms: longest run time.

        Returns:
            The ended process: `stdout`, `stderr`, and `returncode` 0.

        Raises:
            ConfigurationError: unknown tool.
            ToolError: the tool failed or took too long.
        """
        runtime = self._require_started().runtime
        java_class = tool_class_of(name, self._release, runtime.jars)
        command = [
            *(runtime.java, *JVM_OPTIONS, "-Xmx256m", *LOG_OPTIONS),
            *("-cp", runtime.classpath, java_class),
            *with_bootstrap(name, arguments, self._internal_bootstrap()),
        ]
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout_ms / 1000,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"{name} did not end within {timeout_ms} ms") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            failure = ToolError(f"{name} ended with status {done.returncode}: {said[0]}")
            failure.add_note(f"{done.stdout}\n{done.stderr}")
            raise failure
        return done

    # --- inside ---------------------------------------------------------------------------------

    _read_release = staticmethod(read_release)

    def _prepare(self) -> Started:
        runtime = fetch_kafka(self._release.version)
        if self._release.version == KAFKA_VERSION:  # older releases start too seldom to need it
            options = (f"-Xmx{self._heap}", *self._jvm_options)
            ensure_class_archive(runtime, options, self._host)
        folder = make_folder(self._data_dir, len(self._broker_ids))
        started = Started(runtime=runtime, folder=folder, reaper=Reaper(folder))
        try:
            if self._security in ("SSL", "SASL_SSL"):
                write_certificates(folder / "tls")
            add_brokers(
                started, len(self._broker_ids), self._security, self._properties, self._host
            )
        except BaseException:
            started.remove()
            raise
        return started

    def _later_runtime(self, broker_id: int, version: str) -> KafkaRuntime:
        now, release = self._broker(broker_id).runtime.release, self._read_release(version)
        if release.numbers < now.numbers:
            raise ConfigurationError("version", version, f"{now.version} or later")
        return fetch_kafka(version)

    def _launch(self, broker_id: int) -> None:
        started = self._require_started()
        broker = started.brokers[broker_id]
        archive = archive_options(broker.runtime)
        launch(started, broker, (f"-Xmx{self._heap}", *self._jvm_options, *archive))

    def _require_started(self) -> Started:
        with self._lock:
            if self._started is None:
                raise ClusterError("the cluster is not started")
            return self._started

    def _broker(self, broker_id: int) -> Broker:
        if broker_id not in self._broker_ids:
            raise ConfigurationError("broker", broker_id, f"one of {self._broker_ids}")
        return self._require_started().brokers[broker_id]

    def _running_process(self, broker_id: int) -> BrokerProcess:
        broker = self._broker(broker_id)
        if broker.process is None or not broker.is_running:
            raise ClusterError(f"broker {broker_id} does not run")
        return broker.process

    def _answering(self) -> list[Broker]:
        brokers = self._require_started().brokers
        return [broker for broker in brokers.values() if broker.is_answering]

    def _answering_addresses(self) -> tuple[str, ...]:
        addresses = tuple(broker.address.internal_bootstrap for broker in self._answering())
        if not addresses:
            raise ClusterError("no broker of the cluster answers")
        return addresses

    def _internal_bootstrap(self) -> str:
        return ",".join(self._answering_addresses())

    def _require_alive(self, broker: Broker) -> None:
        if broker.process is not None and broker.process.exit_status is not None:
            self._require_started()  # it ended because the cluster was stopped
            raise start_error(broker, f"ended with status {broker.process.exit_status}")

    def _is_ready(self, broker: Broker, expected: frozenset[int]) -> bool:
        address = broker.address
        return is_listening(address.client_port, address.host) and admin.sees_brokers(
            address.internal_bootstrap, expected
        )
