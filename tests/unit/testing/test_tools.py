"""Names of Kafka's command-line tools."""

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing.tools import tool_class, with_bootstrap


@pytest.mark.parametrize("name", ["kafka-topics", "kafka-topics.sh"])
def test_tool_is_found_by_the_name_of_its_script(name: str) -> None:
    """With and without the ending."""
    assert tool_class(name) == "org.apache.kafka.tools.TopicCommand"


def test_java_class_stands_for_itself() -> None:
    """So tools without a script can be run."""
    assert tool_class("kafka.tools.StorageTool") == "kafka.tools.StorageTool"


def test_unknown_tool_is_refused() -> None:
    """The message lists the known ones."""
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
    """The user's own server wins; tools that read files get none."""
    assert with_bootstrap(name, arguments, "here:1") == expected
