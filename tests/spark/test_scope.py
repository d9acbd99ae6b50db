"""`--group` and `--since`: the rows of a part of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.history import commit_records, commits_of
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import ALL, Scope
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.topic.codec import OffsetKey, OffsetValue
from tests.spark.frames import rows
from tests.spark.simulated import raw_frame
from tests.spark.stories import State, Story, every, tables_of
from tests.support.internal_topic import encode_key, encode_offset_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
EPISODES = ("rebalances", "outages", "absences")


def test_records_of_other_groups_are_skipped_before_they_are_decoded(spark: SparkSession) -> None:
    """Also those of groups whose names begin alike, and records without a readable key."""
    value = encode_offset_value(OffsetValue(committed=1, commit_ms=1))
    named = [
        (1, encode_key(OffsetKey(group=group, topic="t", partition=0)), value)
        for group in ("a", "ab", "ü", "b", "")
    ]
    raw = raw_frame(spark, [*named, (1, b"\0\1\0", value), (1, b"", value)])

    def kept(*groups: str) -> list[str]:
        some = Scope(groups=groups).of_records(raw)
        return [name for (name,) in rows(commits_of(commit_records(some)), "group")]

    assert kept("ab") == ["ab"]
    assert kept("ü", "a") == ["a", "ü"]
    assert kept("c") == []
    assert ALL.of_records(raw).count() == len(named) + 2


@pytest.mark.verify
def test_episodes_of_a_part_are_those_of_the_whole(
    tables: Tables, spark: SparkSession, ordinary: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other groups stay, and rows before the time are left out, in any session."""
    kill_ms = (DAY_MS, 5 * DAY_MS)
    alive = [(0, kill_ms[0]), (kill_ms[0] + 60_000, kill_ms[1]), (kill_ms[1] + 60_000, 6 * DAY_MS)]
    story = Story(
        states=(
            State(at_ms=0, generation=1, held={"a1@a@h": [0], "b@b@h": [1]}),
            State(at_ms=kill_ms[0] + 30_000, generation=2, held={"b@b@h": [0, 1]}),
            State(at_ms=kill_ms[0] + 60_000, generation=3, held={"a2@a@h": [0], "b@b@h": [1]}),
            State(at_ms=kill_ms[1] + 30_000, generation=4, held={"b@b@h": [0, 1]}),
            State(at_ms=kill_ms[1] + 60_000, generation=5, held={"a3@a@h": [0], "b@b@h": [1]}),
        ),
        commits=tuple(every(600_000, *alive)),
    )
    frames = tables_of(spark, {"g": story, "h": story})
    tables.append("history", 0, {name: frame for name, frame in frames.items() if name != "lag"})

    def found(name: str, where: str = "true") -> list[tuple[object, ...]]:
        return rows(tables.read(name).where(where))

    write_episodes(tables)
    whole = {name: found(name) for name in EPISODES}
    assert {name: len(some) for name, some in whole.items()} == {
        "rebalances": 10,
        "outages": 8,
        "absences": 4,
    }
    since = Scope(groups=("h",), since_ms=4 * DAY_MS)
    recent = {
        name: found(name, f"`group` = 'g' OR {TABLES[name].time} >= {since.since_ms}")
        for name in EPISODES
    }
    monkeypatch.setattr("coopgroup.pipeline.tables.FEW_ROWS", 0)
    write_episodes(evolve(tables, spark=ordinary), scope=since)
    assert {name: found(name) for name in EPISODES} == recent
    assert all(len(recent[name]) < len(whole[name]) for name in EPISODES)
