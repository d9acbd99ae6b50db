"""States of KIP-848 groups, joined from the records of their members."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.pipeline.topic.consumer_groups import KNOWN_RECORDS, join_states

NAMES = {"id-o": "orders", "id-o2": "orders"}


class Log:
    """Records of groups, in the order of the log."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, at_ms: int, kind: str, name: str = "", **value: object) -> None:
        """Add a record; one without a value is a tombstone."""
        self.rows.append(
            {
                "group": "g",
                "at_ms": at_ms,
                "kind": kind,
                "name": name,
                "is_tombstone": not value,
                "source_partition": 3,
                "source_offset": len(self.rows),
                "is_new": True,
                **value,
            }
        )

    def join(self, at_ms: int, name: str, **value: object) -> None:
        member = {"client_id": "c", "client_host": "/h", "topics": ["orders"], **value}
        self.write(at_ms, "member", name, **member)

    def own(
        self, at_ms: int, name: str, owned: list[int], revoking: list[int] | None = None
    ) -> None:
        def held(numbers: list[int] | None) -> list[dict[str, Any]]:
            return [{"topic_id": "id-o", "partitions": numbers}] if numbers else []

        self.write(at_ms, "assignment", name, partitions=held(owned), revoking=held(revoking))

    def states(self) -> list[dict[str, Any]]:
        batch = pa.RecordBatch.from_pylist(self.rows, schema=to_arrow_schema(KNOWN_RECORDS))
        return [row for one in join_states(NAMES)([batch]) for row in one.to_pylist()]


@pytest.fixture
def log() -> Log:
    """Return the log of a group with one member that owns two partitions."""
    log = Log()
    log.join(10, "a")
    log.write(10, "group", epoch=1)
    log.own(10, "a", [0, 1])
    return log


def owners(state: dict[str, Any]) -> dict[str, list[int]]:
    return {
        one["member_id"]: [number for topic in one["assigned"] for number in topic["partitions"]]
        for one in state["members"]
    }


def test_records_of_one_event_are_one_state(log: Log) -> None:
    (state,) = log.states()
    expected = {
        "at_ms": 10,
        "written_ms": 10,
        "source_partition": 3,
        "source_offset": 2,
        "generation": 1,
        "protocol": "broker",
        "protocol_type": "consumer",
        "member_count": 1,
        "is_tombstone": False,
        "is_restart": False,
    }
    assert {name: state[name] for name in expected} == expected
    (member,) = state["members"]
    assert member["topics"] == ["orders"]
    assert member["assigned"] == [{"topic": "orders", "partitions": [0, 1]}]


def test_a_partition_stays_with_its_owner_until_it_is_revoked(log: Log) -> None:
    """A second member joins; it owns the partition when the first has revoked it."""
    log.join(20, "b")
    log.write(20, "group", epoch=2)
    log.write(20, "target_of_member", "b", partitions=[])
    log.own(20, "b", [])
    log.own(30, "a", [0], [1])
    log.own(40, "a", [0])
    log.own(50, "b", [1])
    found = [(one["at_ms"], one["generation"], owners(one)) for one in log.states()[1:]]
    assert found == [
        (20, 2, {"a": [0, 1], "b": []}),
        (40, 2, {"a": [0], "b": []}),
        (50, 2, {"a": [0], "b": [1]}),
    ]
    assert not any(one["is_restart"] for one in log.states())


def test_a_static_member_under_another_id_is_a_restart(log: Log) -> None:
    log.join(15, "a", instance_id="i")
    for kind in ("member", "assignment"):
        log.write(20, kind, "a")
    log.join(20, "a2", instance_id="i")
    log.own(20, "a2", [0, 1])
    log.join(30, "b2", instance_id="j")
    assert [one["is_restart"] for one in log.states()[1:]] == [False, True, False]


def test_a_static_member_that_returns_while_another_gives_up_is_no_restart(log: Log) -> None:
    log.join(15, "a", instance_id="i")
    log.join(15, "b")
    log.own(15, "b", [2])
    for kind in ("member", "assignment"):
        log.write(20, kind, "a")
    log.join(20, "a2", instance_id="i")
    log.own(20, "a2", [0, 1])
    log.own(20, "b", [])
    assert [one["is_restart"] for one in log.states()[1:]] == [False, False]


def test_an_empty_group_has_a_state_and_a_removed_one_ends(log: Log) -> None:
    for kind in ("member", "assignment"):
        log.write(20, kind, "a")
    log.write(20, "group", epoch=2)
    log.write(30, "group")
    emptied, removed = log.states()[1:]
    assert (emptied["generation"], emptied["member_count"]) == (2, 0)
    assert (removed["is_tombstone"], removed["generation"]) == (True, None)


def test_members_whose_deletion_was_compacted_are_gone_when_the_group_is_made_again(
    log: Log,
) -> None:
    log.write(20, "group", epoch=40)
    log.join(30, "b")
    log.write(30, "group", epoch=1)
    log.own(30, "b", [0])
    assert [owners(one) for one in log.states()] == [{"a": [0, 1]}, {"a": [0, 1]}, {"b": [0]}]


def test_a_partition_has_one_owner_if_a_deletion_was_compacted(log: Log) -> None:
    log.join(20, "b")
    log.own(20, "b", [1])
    assert owners(log.states()[-1]) == {"a": [0], "b": [1]}
    log.own(30, "a", [0])
    assert owners(log.states()[-1]) == {"a": [0], "b": [1]}


def test_partitions_of_a_topic_that_was_made_again_have_one_owner(log: Log) -> None:
    """A member learns of the deletion with its next heartbeat; until then it has the old ones."""

    def held(topic_id: str, *numbers: int) -> list[dict[str, Any]]:
        return [{"topic_id": topic_id, "partitions": [*numbers]}]

    log.join(20, "b")
    log.own(20, "b", [])
    log.write(30, "group", epoch=2)
    log.write(30, "target_of_member", "a", partitions=held("id-o2", 1))
    log.write(30, "target_of_member", "b", partitions=held("id-o2", 0))
    log.write(30, "assignment", "b", partitions=held("id-o2", 0), revoking=[])
    log.own(40, "a", [], [0, 1])
    log.write(50, "assignment", "a", partitions=held("id-o2", 1), revoking=[])
    found = [(one["at_ms"], owners(one)) for one in log.states()]
    assert found == [
        (10, {"a": [0, 1]}),
        (20, {"a": [0, 1], "b": []}),
        (30, {"a": [], "b": [0]}),
        (50, {"a": [1], "b": [0]}),
    ]


def test_members_before_the_epoch_is_known_are_no_state() -> None:
    """Compaction removed the earlier records of the group, or a micro-batch ended between."""
    log = Log()
    log.join(10, "a")
    log.join(500, "b")
    assert log.states() == []
    log.write(900, "group", epoch=57)
    log.own(900, "a", [0])
    (state,) = log.states()
    assert (state["generation"], owners(state)) == (57, {"a": [0], "b": []})


def test_records_that_change_nothing_end_no_state(log: Log) -> None:
    """A member that has reached the epoch of the group writes its assignment again."""
    log.own(20, "a", [0, 1])
    log.join(30, "a")
    assert len(log.states()) == 1


def test_a_classic_member_tells_its_session_timeout(log: Log) -> None:
    log.join(20, "b", session_timeout_ms=6_000, is_classic=True)
    a, b = log.states()[-1]["members"]
    assert (a["session_timeout_ms"], b["session_timeout_ms"]) == (45_000, 6_000)


def test_topics_of_an_expression_are_subscribed(log: Log) -> None:
    log.join(20, "b", topics=["paid"], regex="ord.*")
    log.write(20, "regex", "ord.*", topics=["orders", "ordered"])
    (_, b) = log.states()[-1]["members"]
    assert b["topics"] == ["ordered", "orders", "paid"]


def test_names_come_from_the_records_of_the_group_or_stay_ids() -> None:
    log = Log()
    log.join(10, "a")
    log.write(10, "group", epoch=1)
    log.write(10, "topics", names=[{"topic_id": "id-p", "topic": "paid"}])
    held = [{"topic_id": one, "partitions": [0]} for one in ("id-gone", "id-o", "id-p")]
    log.write(10, "assignment", "a", partitions=held, revoking=[])
    (state,) = log.states()
    assert [one["topic"] for one in state["members"][0]["assigned"]] == [
        "id-gone",
        "orders",
        "paid",
    ]


def test_known_records_are_joined_and_end_no_state(log: Log) -> None:
    """An earlier micro-batch told their states. Some records are of the time of a new one."""
    for row in log.rows:
        row["is_new"] = False
    assert log.states() == []
    log.own(10, "a", [0])
    (state,) = log.states()
    assert owners(state) == {"a": [0]}
    assert not state["is_restart"]


def test_each_group_has_states_of_its_own(log: Log) -> None:
    other = [{**row, "group": "h"} for row in log.rows]
    log.rows += other
    assert [one["group"] for one in log.states()] == ["g", "h"]
