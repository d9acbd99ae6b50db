"""Stories of one group, written by hand: its states and commits, as the pipeline's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from coopgroup.pipeline.episodes import checkpointed, history_episodes
from tests.spark.frames import commit, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["REMOVED", "State", "Story", "every"]

REMOVED: None = None
"""In place of the members of a state: the group was removed."""


@frozen(kw_only=True)
class State:
    """A record of the group.

    Attributes:
        at_ms: when the coordinator wrote it.
        generation: of the group.
        held: partitions by member. A member is "ID", "ID/STATIC" or "ID@CLIENT@HOST".
    """

    at_ms: int
    generation: int = 0
    held: Mapping[str, Sequence[int]] | None = field(factory=dict)


@frozen(kw_only=True)
class Story:
    """A group's past."""

    states: Sequence[State]
    commits: Sequence[Mapping[str, Any]] = ()
    lag: Sequence[Mapping[str, Any]] = ()

    def tables(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return the tables of the history."""
        rows: dict[str, list[dict[str, Any]]] = {
            "generations": [],
            "members": [],
            "assignments": [],
        }
        for offset, state in enumerate(self.states):
            place: dict[str, Any] = {"group": "g", "at_ms": state.at_ms}
            place |= {"source_partition": 0, "source_offset": offset}
            if state.held is None:
                rows["generations"].append(
                    {**place, "is_tombstone": True, "written_ms": state.at_ms}
                )
                continue
            place["generation"] = state.generation
            counts = {"member_count": len(state.held), "is_tombstone": False}
            rows["generations"].append({**place, **counts, "written_ms": state.at_ms})
            for name, partitions in state.held.items():
                member, _, static = name.partition("/")
                member, _, client = member.partition("@")
                client_id, _, host = client.partition("@")
                who = {"member_id": member, "instance_id": static or None}
                who |= {"client_id": client_id or member, "client_host": host or "h"}
                limits = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 30_000}
                rows["members"].append({**place, **who, **limits, "topics": ["orders"]})
                rows["assignments"] += [
                    {**place, "member_id": member, "topic": "orders", "partition": one}
                    for one in partitions
                ]
        found = {name: make(spark, name, *some) for name, some in rows.items()}
        found["commits"] = make(spark, "commits", *map(dict, self.commits))
        found["lag"] = make(spark, "lag", *map(dict, self.lag))
        return found

    def episodes(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return the tables of the episodes."""
        tables = self.tables(spark)
        names = ("commits", "generations", "members", "assignments")
        found = history_episodes(*(tables[name] for name in names), lag=tables["lag"])
        return {name: checkpointed(frame) for name, frame in found.items()}


def every(
    step_ms: int, *spans: tuple[int, int], partition: int = 0, per_s: int = 1_000
) -> Iterable[dict[str, Any]]:
    """Yield a commit per step within each span, both ends included.

    Each commit is at the end of the partition, which grows steadily from time 0.
    """
    for begin_ms, end_ms in spans:
        for at_ms in range(begin_ms, end_ms + 1, step_ms):
            yield commit(
                at_ms,
                at_ms * per_s // 1_000,
                partition=partition,
                written_ms=at_ms,
                source_offset=10 * at_ms + partition,
            )
