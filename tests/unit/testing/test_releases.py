"""Releases of Kafka: the artifacts that each needs, and the releases that are refused."""

import re
import zipfile
from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing import KafkaCluster
from coopgroup.testing.maven import pom_of
from coopgroup.testing.releases import (
    read_release,
    tool_class,
    tool_class_of,
    with_bootstrap,
)

RELEASE = read_release("3.3.2")


def artifacts(version: str) -> list[tuple[str, str]]:
    """The (name, version) pairs that Maven is asked for."""
    pattern = r"<artifactId>([^<]+)</artifactId>\s+<version>([^<]+)<"
    return re.findall(pattern, pom_of(read_release(version)).decode())[1:]


@pytest.mark.parametrize(
    ("version", "checkpoint"),
    [
        ("3.3.2", "bootstrap.checkpoint"),
        ("4.3.0", "bootstrap.checkpoint"),
        ("4.4.0", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"),
    ],
)
def test_release_says_how_it_is_started(version: str, checkpoint: str) -> None:
    assert read_release(version).checkpoint_path == checkpoint


@pytest.mark.parametrize("version", ["", "4.3", "4.3.0-rc1", "latest", "2.8.2", "3.2.3", "٤.3.0"])
def test_version_that_is_no_release_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"version: got .* such as 4\.3\.0"):
        KafkaCluster(version=version)


@pytest.mark.parametrize(
    ("version", "security", "reason"),
    [
        ("3.3.2", "SASL_SSL", "SCRAM"),
        ("3.4.1", "SASL_PLAINTEXT", "SCRAM"),
        ("3.4.1", "SSL", None),
        ("3.5.2", "SASL_SSL", None),
        ("3.3.2", None, None),
    ],
)
def test_security_that_a_release_lacks_is_refused(
    version: str, security: str | None, reason: str | None
) -> None:
    release = read_release(version)
    if reason is None:
        release.check_security(security)
        return
    with pytest.raises(ConfigurationError, match=reason) as caught:
        release.check_security(security)
    assert "\n" not in str(caught.value)


# --- names of Kafka's command-line tools ----------------------------------------------------------


def test_unknown_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"tool: got 'topics', expected one of kafka-acls"):
        tool_class("topics")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("kafka-topics", ("--list",), ("--bootstrap-server", "here:1", "--list")),
        (
            "kafka-topics",
            ("--bootstrap-server", "there:2", "--list"),
            ("--bootstrap-server", "there:2", "--list"),
        ),
        (
            "kafka-metadata-quorum",
            ("--bootstrap-controller=there:2", "describe"),
            ("--bootstrap-controller=there:2", "describe"),
        ),
        ("kafka-dump-log.sh", ("--files", "x"), ("--files", "x")),
    ],
)
def test_bootstrap_is_added_when_it_is_wanted_and_missing(
    name: str, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert with_bootstrap(name, arguments, "here:1") == expected


def jars_with(jars: Path, *classes: str) -> Path:
    """A folder whose jars hold only the names of classes."""
    with zipfile.ZipFile(jars / "kafka-tools-1.jar", "w") as archive:
        archive.writestr("org/apache/kafka/tools/Other.class", b"")
    with zipfile.ZipFile(jars / "kafka_2.13-1.jar", "w") as archive:
        for java_class in classes:
            archive.writestr(f"{java_class.replace('.', '/')}.class", b"")
    return jars


@pytest.mark.parametrize(
    ("name", "java_class"),
    [
        ("kafka-topics", "kafka.admin.TopicCommand"),
        ("kafka-consumer-groups.sh", "kafka.admin.ConsumerGroupCommand"),
        ("kafka-console-producer", "kafka.tools.ConsoleProducer"),
        ("kafka-topics", "org.apache.kafka.tools.TopicCommand"),
    ],
)
def test_tool_is_found_where_its_release_has_it(tmp_path: Path, name: str, java_class: str) -> None:
    assert tool_class_of(name, RELEASE, jars_with(tmp_path, java_class)) == java_class


def test_tool_that_came_later_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a tool of Kafka 3\.3\.2$"):
        tool_class_of(
            "kafka-share-groups", RELEASE, jars_with(tmp_path, "kafka.admin.TopicCommand")
        )
