"""Members that leave, and the identities under which they return: small histories by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from coopgroup.pipeline.episodes.absences import absences_of, arrivals_of, departures_of
from coopgroup.pipeline.episodes.job import checkpointed
from coopgroup.pipeline.episodes.processes import holders_of, members_of, states_of
from tests.spark.frames import commit, make, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Member id: static id, client id, host.
PEOPLE = {
    "a1": (None, "a", "h1"),
    "a2": (None, "a", "h1"),
    "a3": (None, "a", "h2"),
    "b1": (None, "b", "h1"),
    "b2": (None, "b", "h1"),
    "c1": (None, "c", "h3"),
    "c2": (None, "x", "h3"),
    "s1": ("i", "s", "h1"),
    "s2": ("i", "s", "h9"),
    "k": (None, "k", "h7"),
}


States = Sequence[tuple[int, int, str]]


def history(
    spark: SparkSession, states_by_group: Mapping[str, States], *, again: bool = False
) -> dict[str, DataFrame]:
    """Return states of groups: time, generation and members; the first member held a partition."""
    generations: list[dict[str, Any]] = []
    members: list[dict[str, Any]] = []
    assignments: list[dict[str, Any]] = []
    told = [(group, *state) for group, states in states_by_group.items() for state in states]
    for offset, (group, at_ms, generation, present) in enumerate(told):
        place = {"group": group, "generation": generation, "at_ms": at_ms}
        place |= {"source_partition": 0, "source_offset": offset}
        names = present.split()
        row = {**place, "written_ms": at_ms, "member_count": len(names), "is_tombstone": False}
        generations += [row] * (2 if again else 1)
        for name in names:
            instance, client, host = PEOPLE[name]
            one = {**place, "member_id": name, "instance_id": instance, "client_id": client}
            members.append({**one, "client_host": host, "session_timeout_ms": 10})
        if names:
            held = {"member_id": names[0], "topic": "orders", "partition": 0}
            assignments.append({**place, **held})
    return {
        "generations": make(spark, "generations", *generations),
        "members": make(spark, "members", *members, *(members if again else [])),
        "assignments": make(spark, "assignments", *assignments),
        "commits": make(
            spark,
            "commits",
            *(
                one
                for group in WITH_COMMITS
                for one in (
                    commit(15, 1, group=group),
                    commit(104, 2, group=group),
                    commit(999, 3, group=group, written_ms=1_000),
                )
            ),
        ),
    }


def absences(tables: dict[str, DataFrame]) -> DataFrame:
    states = states_of(tables["generations"]).localCheckpoint()
    present = members_of(tables["members"], states).localCheckpoint()
    holders = holders_of(tables["assignments"], present)
    gone = departures_of(present, states, holders, tables["commits"])
    return absences_of(
        gone.localCheckpoint(),
        arrivals_of(present).localCheckpoint(),
        states,
        tables["commits"],
        checkpointed,
    )


STORIES: dict[str, tuple[States, list[tuple[Any, ...]]]] = {
    "the same client on the same host": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a2 k")],
        [("a1", "client_and_host", "a2", 150)],
    ),
    "the same client on another host": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a3 k")],
        [("a1", "client", "a3", 150)],
    ),
    "another client on the same host": (
        [(100, 1, "c1 k"), (110, 2, "k"), (150, 3, "c2 k")],
        [("c1", "host", "c2", 150)],
    ),
    "the same static id on another host": (
        [(100, 1, "s1 k"), (110, 2, "k"), (150, 3, "s2 k")],
        [("s1", "static_id", "s2", 150)],
    ),
    "a static member within a generation": (
        [(100, 1, "s1 k"), (130, 1, "s2 k")],
        [("s1", "static_id", "s2", 130)],
    ),
    "never": (
        [(100, 1, "a1 k"), (110, 2, "k")],
        [("a1", "never", None, None)],
    ),
    "somebody else came": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "k s1")],
        [("a1", "never", None, None)],
    ),
    "who comes for the first time is no return": (
        [(100, 1, "k"), (110, 2, "a1 k"), (120, 3, "k"), (130, 4, "a2 k")],
        [("a1", "client_and_host", "a2", 130)],
    ),
    "two names at once, each its own": (
        [(100, 1, "a1 b1 k"), (110, 2, "k"), (120, 3, "b2 k"), (130, 4, "a2 b2 k")],
        [("a1", "client_and_host", "a2", 130), ("b1", "client_and_host", "b2", 120)],
    ),
    "replaced within one round": (
        [(100, 1, "a1 k"), (150, 2, "a2 k")],
        [("a1", "client_and_host", "a2", 150)],
    ),
    "twice in a row, in order": (
        [(100, 1, "a1 k"), (110, 2, "k"), (120, 3, "a2 k"), (130, 4, "k"), (140, 5, "a3 k")],
        [("a1", "client_and_host", "a2", 120), ("a2", "client", "a3", 140)],
    ),
    "everybody": (
        [(100, 1, "a1"), (110, 2, ""), (120, 3, "a2")],
        [("a1", "client_and_host", "a2", 120)],
    ),
}


WITH_COMMITS = ("worked", "quiet", "compacted")
GROUPS: dict[str, States] = {
    **{story: states for story, (states, _) in STORIES.items()},
    "worked": [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a2 k"), (300, 4, "a2 k")],
    "idle": [(100, 1, "k a1"), (110, 2, "k"), (150, 3, "k a2")],
    # Signs that the member lived between its last commit and the round without it.
    "quiet": [(100, 1, "a1 k"), (2_000, 2, "k"), (2_005, 3, "a2 k")],
    "compacted": [(100, 1, "a1 k"), (2_000, 9, "k")],
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> DataFrame:
    """Return the absences of all groups."""
    return checkpointed(absences(history(spark, GROUPS)))


def of(found: DataFrame, *groups: str) -> DataFrame:
    return found.where(found.group.isin(*groups))


def test_a_return_is_told_by_what_came_back(found: DataFrame) -> None:
    """Static id first, then client and host, then either; no member is matched twice."""
    columns = ("group", "member_id", "returned_as", "returned_member_id", "returned_ms")
    expected = [(story, *one) for story, (_, gone) in STORIES.items() for one in gone]
    assert rows(of(found, *STORIES), *columns) == sorted(expected)


def test_an_absence_begins_with_the_last_sign_of_work(found: DataFrame) -> None:
    """The last commit of its partitions; without commits, the round without the member."""
    times = ("gone_earliest_ms", "gone_ms", "gone_latest_ms", "absent_ms")
    others = ("partitions", "generation", "observed_until_ms")
    assert rows(of(found, "worked", "idle"), "group", *times, *others) == [
        ("idle", 100, 110, 110, 40, 0, 1, 150),
        ("worked", 104, 104, 110, 46, 1, 1, 1_000),  # its last commit
    ]


def test_no_absence_is_longer_than_the_group_would_have_waited(found: DataFrame) -> None:
    """A topic without records has old commits; unknown rounds set no limit."""
    columns = ("group", "gone_earliest_ms", "gone_ms", "gone_latest_ms", "absent_ms")
    assert rows(of(found, "quiet", "compacted"), *columns) == [
        ("compacted", 999, 999, 2_000, None),
        ("quiet", 1_990, 2_000, 2_000, 5),
    ]


def test_repeated_records_change_nothing(spark: SparkSession, found: DataFrame) -> None:
    again = absences(history(spark, GROUPS, again=True))
    assert rows(again) == rows(found)
