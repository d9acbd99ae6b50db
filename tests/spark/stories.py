"""Stories of groups, written by hand: their states and commits, as the pipeline's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field, frozen

from coopgroup.pipeline.episodes import job
from coopgroup.pipeline.episodes.job import Context, checkpointed, history_episodes
from tests.spark.frames import commit, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

AS_OF_MS: Final = 864_000_000
"""End of all histories."""
REMOVED: None = None
"""In place of the members of a state: the group was removed."""
_HISTORY: Final = ("commits", "generations", "members", "assignments")
_LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 30_000}
)


@frozen(kw_only=True)
class State:
    """A record of the group, and when the coordinator wrote it.

    `held` has partitions by member. A member is "ID", with "@CLIENT@HOST" and "/STATIC" if needed.
    """

    at_ms: int
    generation: int = 0
    held: Mapping[str, Sequence[int]] | None = field(factory=dict)
    topics: Sequence[str] = ("orders",)
    protocol: str | None = None


@frozen(kw_only=True)
class Story:
    """A group's past: its states, rows of other tables, timeouts; rows may be there twice."""

    states: Sequence[State]
    commits: Sequence[Mapping[str, Any]] = ()
    lag: Sequence[Mapping[str, Any]] = ()
    limits: Mapping[str, int] = _LIMITS
    copies: int = 1


def tables_of(spark: SparkSession, stories: Mapping[str, Story]) -> dict[str, DataFrame]:
    """Return the tables of the history; each story is that of the group with its name."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*_HISTORY, "lag")}
    for number, (group, story) in enumerate(stories.items()):
        source = {"group": group, "source_partition": number}
        rows["commits"] += [{**one, **source} for one in story.commits]
        rows["lag"] += [{**one, "group": group} for one in story.lag]
        offset = 0
        for state in story.states:
            # After the commits of the same time.
            offset = max(offset + 1, 10 * state.at_ms + 9)
            place = {**source, "at_ms": state.at_ms, "source_offset": offset}
            for name, some in _rows_of(state, story.limits).items():
                copies = 1 if name == "assignments" else story.copies
                rows[name] += [{**place, **one} for one in some] * copies
    return {name: make(spark, name, *some) for name, some in rows.items()}


def _rows_of(state: State, limits: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    written = {"written_ms": state.at_ms, "is_tombstone": state.held is None}
    if state.held is None:
        return {"generations": [written]}
    place = {"generation": state.generation}
    members, assignments = [], []
    for name, partitions in state.held.items():
        member, _, static = name.partition("/")
        member, _, client = member.partition("@")
        client_id, _, host = client.partition("@")
        who = {"member_id": member, "instance_id": static or None}
        who |= {"client_id": client_id or member, "client_host": host or "h"}
        members.append({**place, **who, **limits, "topics": list(state.topics)})
        held = {**place, "member_id": member, "topic": "orders"}
        assignments += [{**held, "partition": one} for one in partitions]
    counted = {**place, **written, "member_count": len(state.held), "protocol": state.protocol}
    return {"generations": [counted], "members": members, "assignments": assignments}


def history_of(
    tables: Mapping[str, DataFrame], identities: DataFrame | None = None
) -> dict[str, DataFrame]:
    """Return the episodes of a history, computed once."""
    context = Context(as_of_ms=AS_OF_MS, identities=identities)
    frames = (tables[name] for name in _HISTORY)
    found = history_episodes(*frames, lag=tables["lag"], context=context)
    return {name: checkpointed(frame) for name, frame in found.items()}


@define
class Claims:
    """Rows that groups must have in a table of episodes; each claim is a case of a test."""

    cases: list[Any] = field(factory=list)

    def __call__(self, text: str, group: str, table: str, columns: str, *found: Any) -> None:  # noqa: ANN401 - rows
        """Claim that some columns of the rows of a group are those, in any order."""
        case = pytest.param(group, table, columns.split(), [*found], id=text)
        self.cases.append(case)


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


def watched(
    monkeypatch: pytest.MonkeyPatch,
    compute: Callable[..., Any] = job._frames,  # noqa: SLF001 - no other step knows the groups
) -> list[tuple[str, ...]]:
    """Return a list that gets the groups of each computation of episodes."""
    computed: list[tuple[str, ...]] = []

    def frames(tables: Tables, settle_ms: int, scope: Scope, *others: Any, **named: Any) -> Any:  # noqa: ANN401
        computed.append(scope.groups)
        return compute(tables, settle_ms, scope, *others, **named)

    monkeypatch.setattr(job, "_frames", frames)
    return computed
