"""Releases of Kafka, and what differs between them: files, security, names of the tools.

The oldest release is 3.3, the first without ZooKeeper (KRaft). Kafka 3.4 to 4.0 moved the
command-line tools one by one to other packages.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

from attrs import frozen

from coopgroup.errors import ConfigurationError

KAFKA_VERSION: Final = "4.3.0"
"""Release of all tests that do not name one."""
FIRST_LINE: Final = (3, 3)
_FIRST_BOOTSTRAP_IN_LOG: Final = (4, 4)
_FIRST_KRAFT_SCRAM: Final = (3, 5)  # KIP-900
# Maven Central has no kafka-tools of these releases, so an earlier release provides them.
_TOOLS_OF: Final = {"4.4.0": "4.3.1"}


@frozen(kw_only=True)
class KafkaRelease:
    """A release of Kafka."""

    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers of the release."""
        return tuple(map(int, self.version.split(".")))

    @property
    def line(self) -> tuple[int, ...]:
        """The first two numbers."""
        return self.numbers[:2]

    @property
    def checkpoint_path(self) -> str:
        """Path of the bootstrap snapshot from its storage tool, below the log folder."""
        if self.line >= _FIRST_BOOTSTRAP_IN_LOG:
            return "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
        return "bootstrap.checkpoint"

    @property
    def tools_version(self) -> str:
        """Version of the jar with the command-line tools."""
        return _TOOLS_OF.get(self.version, self.version)

    def check_security(self, security: str | None) -> None:
        """Refuse a kind of security that the release does not support.

        Raises:
            ConfigurationError: SCRAM users came later.
        """
        if security is not None and "SASL" in security and self.line < _FIRST_KRAFT_SCRAM:
            raise ConfigurationError(
                "security", security, f"no SASL with Kafka {self.version}: its KRaft has no SCRAM"
            )


def read_release(version: str) -> KafkaRelease:
    """Read the name of a release.

    Raises:
        ConfigurationError: the name is invalid, or the release is too old for the test cluster.
    """
    if read_version(version) < FIRST_LINE:
        raise _no_release(version)
    return KafkaRelease(version=version)


def read_version(version: str) -> tuple[int, int]:
    """Return the first two numbers of any release.

    Raises:
        ConfigurationError: the name is invalid.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version, re.ASCII)
    if numbers is None:
        raise _no_release(version)
    return int(numbers[1]), int(numbers[2])


def _no_release(version: str) -> ConfigurationError:
    oldest = ".".join(map(str, FIRST_LINE))
    expected = f"a release of Kafka from {oldest}.0 on, such as {KAFKA_VERSION}"
    return ConfigurationError("version", version, expected)


# --- tools ----------------------------------------------------------------------------------------

# Java class of each script in Kafka 4.3's bin folder that is useful for a test cluster.
TOOL_CLASSES: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

# Kafka 3.4 to 4.0 moved the tools one by one from these packages of the broker's jar.
_OLD_PACKAGES: Final = ("kafka.admin", "kafka.tools")

# Tools without --bootstrap-server: they read files, or use another name for it.
OFFLINE_TOOLS: Final = frozenset({"kafka-dump-log"})
BOOTSTRAP_OPTIONS: Final = ("--bootstrap-server", "--bootstrap-servers", "--bootstrap-controller")


def tool_class(name: str) -> str:
    """Return the Java class of a tool; accepts a `.sh` ending, and a class name itself.

    Raises:
        ConfigurationError: unknown tool.
    """
    plain = name.removesuffix(".sh")
    if "." in plain:
        return plain
    if plain not in TOOL_CLASSES:
        raise ConfigurationError("tool", name, f"one of {', '.join(sorted(TOOL_CLASSES))}")
    return TOOL_CLASSES[plain]


def tool_class_of(name: str, release: KafkaRelease, jars: Path) -> str:
    """Return the Java class of a tool in the jars of a release.

    Raises:
        ConfigurationError: unknown tool, or not in this release.
    """
    newest = tool_class(name)
    plain = newest.rpartition(".")[2]
    candidates = (newest, *(f"{package}.{plain}" for package in _OLD_PACKAGES))
    files: set[str] = set()
    for jar in sorted(jars.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            files.update(archive.namelist())
    for java_class in candidates:
        if f"{java_class.replace('.', '/')}.class" in files:
            return java_class
    raise ConfigurationError("tool", name, f"a tool of Kafka {release.version}")


def with_bootstrap(name: str, arguments: tuple[str, ...], bootstrap: str) -> tuple[str, ...]:
    """Return the arguments with the cluster's address first, unless they contain an address."""
    named = {argument.partition("=")[0] for argument in arguments}
    if name.removesuffix(".sh") in OFFLINE_TOOLS or not named.isdisjoint(BOOTSTRAP_OPTIONS):
        return arguments
    return ("--bootstrap-server", bootstrap, *arguments)
