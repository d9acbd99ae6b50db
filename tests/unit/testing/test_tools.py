"""Names of Kafka's command-line tools."""

import zipfile
from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing.maven import KafkaRuntime
from coopgroup.testing.releases import read_release
from coopgroup.testing.tools import tool_class, tool_class_of, with_bootstrap


@pytest.mark.parametrize("name", ["kafka-topics", "kafka-topics.sh"])
def test_tool_is_found_by_the_name_of_its_script(name: str) -> None:
    assert tool_class(name) == "org.apache.kafka.tools.TopicCommand"


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


def runtime_with(folder: Path, *classes: str) -> KafkaRuntime:
    """A runtime whose jars hold only the names of classes."""
    jars = folder / "jars"
    jars.mkdir()
    with zipfile.ZipFile(jars / "kafka-tools-1.jar", "w") as archive:
        archive.writestr("org/apache/kafka/tools/Other.class", b"")
    with zipfile.ZipFile(jars / "kafka_2.13-1.jar", "w") as archive:
        for java_class in classes:
            archive.writestr(f"{java_class.replace('.', '/')}.class", b"")
    return KafkaRuntime(java="java", folder=folder, release=read_release("3.3.2"))


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
    assert tool_class_of(name, runtime_with(tmp_path, java_class)) == java_class


def test_tool_that_came_later_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a tool of Kafka 3\.3\.2$"):
        tool_class_of("kafka-share-groups", runtime_with(tmp_path, "kafka.admin.TopicCommand"))
