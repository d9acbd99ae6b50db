"""Kafka's command-line tools by the names of their scripts."""

from __future__ import annotations

import zipfile
from typing import Final

from coopgroup.errors import ConfigurationError
from coopgroup.testing.maven import KafkaRuntime

__all__ = ["TOOL_CLASSES", "tool_class", "tool_class_of", "with_bootstrap"]

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


def tool_class_of(name: str, runtime: KafkaRuntime) -> str:
    """Return the Java class of a tool in a release of Kafka.

    Raises:
        ConfigurationError: unknown tool, or not in this release.
    """
    newest = tool_class(name)
    plain = newest.rpartition(".")[2]
    candidates = (newest, *(f"{package}.{plain}" for package in _OLD_PACKAGES))
    files: set[str] = set()
    for jar in sorted((runtime.folder / "jars").glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            files.update(archive.namelist())
    for java_class in candidates:
        if f"{java_class.replace('.', '/')}.class" in files:
            return java_class
    raise ConfigurationError("tool", name, f"a tool of Kafka {runtime.release.version}")


def with_bootstrap(name: str, arguments: tuple[str, ...], bootstrap: str) -> tuple[str, ...]:
    """Return the arguments with the cluster's address first, unless they contain an address."""
    named = {argument.partition("=")[0] for argument in arguments}
    if name.removesuffix(".sh") in OFFLINE_TOOLS or not named.isdisjoint(BOOTSTRAP_OPTIONS):
        return arguments
    return ("--bootstrap-server", bootstrap, *arguments)
