"""coopgroup calls no function of librdkafka that needs a group coordinator.

If the coordinator moves, librdkafka gives up or crashes. NOT_COORDINATOR ends its OffsetFetch
permanently (librdkafka#5586), its AdminClient dereferences NULL (librdkafka#5040) and aborts when a
coordinator stops (librdkafka#4605).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import name_in_tree, python_files

# Each of these needs a group coordinator, on any object.
FORBIDDEN = frozenset(
    {
        "OFFSET_STORED",
        "OFFSET_INVALID",
        "ConsumerGroupTopicPartitions",
        "alter_consumer_group_offsets",
        "alter_group_offsets",
        "delete_consumer_group_offsets",
        "delete_consumer_groups",
        "delete_groups",
        "describe_consumer_groups",
        "list_consumer_group_offsets",
        "list_consumer_groups",
        "list_groups",
        "remove_members_from_consumer_group",
        "send_offsets_to_transaction",
    }
)
# On librdkafka's consumer these ask a group coordinator, or let librdkafka look up committed
# offsets itself. `position` and `seek` stay in the client, and so does `store_offsets` while
# auto-commit is off. But librdkafka would commit a stored offset, so coopgroup stores none there.
OF_A_CONSUMER = frozenset(
    {
        "assign",
        "commit",
        "committed",
        "incremental_assign",
        "store_offsets",
        "subscribe",
    }
)
# (file, name): why this is not a call of librdkafka that needs a coordinator.
ALLOWED = {
    ("kafka/records/fetching.py", "OFFSET_INVALID"): "read, to have such a partition wait",
    ("kafka/records/fetching.py", "OFFSET_STORED"): "the same",
    ("kafka/records/starting_offsets.py", "OFFSET_INVALID"): "the same",
    ("kafka/records/starting_offsets.py", "OFFSET_STORED"): "the same",
    ("kafka/records/fetching.py", "incremental_assign"): "explicit offsets: a unit test holds that",
    ("aio/offsets.py", "committed"): "our own method, over the group's connections",
    ("watch/reading.py", "ConsumerGroupTopicPartitions"): "of any client's group; not a member's",
    ("watch/reading.py", "list_consumer_group_offsets"): "the same",
    ("aio/consumer.py", "subscribe"): "our own method of that name",
    ("aio/consumer.py", "commit"): "over the group's connections",
    ("aio/consumer.py", "committed"): "over the group's connections",
    ("cli/consume.py", "subscribe"): "on a CooperativeConsumer",
    ("integrations/faststream.py", "store_offsets"): "on a CooperativeConsumer",
    ("integrations/faststream.py", "subscribe"): "on a CooperativeConsumer",
    ("kafka/consumer.py", "incremental_assign"): "our own method of that name",
    ("processing/process.py", "subscribe"): "on a CooperativeConsumer",
    ("watch/telemetry_topics.py", "assign"): "explicit offsets, and no commits",
    ("core/leader/decision.py", "assign"): "on an assignor",
    ("groups/topic.py", "assign"): "explicit offsets, and no commits",
    ("cli/demo_member.py", "subscribe"): "the client that the demonstration measures",
}


def _uses(path: Path) -> Iterator[tuple[int, str]]:
    """Return line and name of each use in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in OF_A_CONSUMER:
                yield node.lineno, name
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in FORBIDDEN:
                yield node.lineno, name
            case ast.Constant(value=str(name)) if name in FORBIDDEN:  # getattr
                yield node.lineno, name
            case ast.ImportFrom():
                yield from ((node.lineno, one.name) for one in node.names if one.name in FORBIDDEN)
            case _:
                pass


def _place(path: Path) -> str:
    return name_in_tree(path).removeprefix("src/coopgroup/")


def test_librdkafka_is_never_asked_for_what_a_coordinator_knows() -> None:
    """Use the group's transport (`kafka/records/offset_lookup.py`, `kafka/rpc/describing.py`)."""
    found = [
        f"{name_in_tree(path)}:{line}: {name}"
        for path in python_files("src")
        for line, name in _uses(path)
        if (_place(path), name) not in ALLOWED
    ]
    assert found == []


def test_each_allowance_is_needed() -> None:
    """An unused exception would hide a new call."""
    used = {(_place(path), name) for path in python_files("src") for _, name in _uses(path)}
    assert sorted(ALLOWED.keys() - used) == []
