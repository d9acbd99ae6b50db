"""Cost of a run with one more minute of input, beside the cost of the first run.

Spark makes a history of a hundred groups: each has five members, and ten partitions that are
committed every minute. A rollout replaces the members once every four hours. The first run of `lag`
and `episodes` computes everything. Then a minute passes, in which all groups commit. The next run
should cost a small part of the first one, and `lag` without new input next to nothing. CPU seconds
count the JVM and its Python workers.

    python -m tests.benchmarks.increments --write     # the last result into docs/pipeline.md
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.lag import write_lag
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.spark.session import build_session, connector_jars
from coopgroup.pipeline.tables import Tables
from docs.sections import DOCS
from tests.benchmarks.cpu_clock import CpuClock, peaks_mb
from tests.benchmarks.results import show_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMITS: Final = (200_000, 1_000_000)
GROUPS: Final = 100
PARTITIONS: Final = 10
MEMBERS: Final = 5
ROLLOUT_MINUTES: Final = 240
NEXT_MINUTES: Final = 3
MINUTE_MS: Final = 60_000
FIRST_MS: Final = 20_023 * 86_400_000  # a midnight
PLACES: Final = GROUPS * PARTITIONS
GROUP: Final = f"concat('group-', cast(id % {GROUPS} AS string))"
TOPIC: Final = f"concat('topic-', cast(id % {GROUPS} AS string))"
PARTITION: Final = f"cast((id DIV {GROUPS}) % {PARTITIONS} AS int)"


def run(sizes: tuple[int, ...] = COMMITS) -> dict[str, Any]:
    """Measure all sizes.

    Returns:
        By number of commits and job: seconds, CPU seconds and Spark jobs of the first run, the
        medians of three next minutes, and of a run without new input.
    """
    found: dict[str, Any] = {}
    spark = build_session(master="local[2]", jars=connector_jars())
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            one = _of(Tables(spark=spark, folder=folder), size // PLACES)
        found[str(size)] = one | peaks_mb()
        print(f"increments: {size} {found[str(size)]}", flush=True)
    spark.stop()
    return found


def _of(tables: Tables, minutes: int) -> dict[str, Any]:
    clock = CpuClock()

    def measured(job: Callable[[], None]) -> dict[str, float]:
        tracker = tables.spark.sparkContext.statusTracker()
        jobs = len(tracker.getJobIdsForGroup())
        began, own_s = time.perf_counter(), clock.read()[0]
        job()
        return {
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_s": round(clock.read()[0] - own_s, 2),
            "jobs": len(tracker.getJobIdsForGroup()) - jobs,
        }

    def lag() -> None:
        write_lag(tables, "latest")

    def episodes() -> None:
        write_episodes(tables)

    _add(tables, 0, 0, minutes)
    found: dict[str, Any] = {"first": {"lag": measured(lag), "episodes": measured(episodes)}}
    for number in range(1, 1 + NEXT_MINUTES):
        _add(tables, number, minutes + number - 1, minutes + number)
        found[f"next {number}"] = {"lag": measured(lag), "episodes": measured(episodes)}
    found["nothing new"] = {"lag": measured(lag), "episodes": measured(episodes)}
    return found


def _add(tables: Tables, batch: int, from_minute: int, until_minute: int) -> None:
    """Add the commits, ends and rollouts of some minutes."""
    frames = {name: _frame(tables, name, rows) for name, rows in _rows(from_minute, until_minute)}
    ends = frames.pop("ends")
    tables.append("history", batch, frames)
    if batch:
        tables.merge({"ends": ends}, from_ms={"ends": FIRST_MS + from_minute * MINUTE_MS})
    else:
        tables.append("ends", 0, {"ends": ends})
    tables.read_until(FIRST_MS + until_minute * MINUTE_MS)


def _rows(from_minute: int, until_minute: int) -> list[tuple[str, tuple[int, int, list[str]]]]:
    """Return the tables, with the range of `id` and the columns."""
    # A commit comes half a minute after a moment, and leaves the records of half a minute.
    minute_ms = f"{FIRST_MS} + {MINUTE_MS} * (id DIV {PLACES})"
    places = (from_minute * PLACES, until_minute * PLACES)
    commits = [
        *(f"{GROUP} AS `group`", f"{TOPIC} AS topic", f"{PARTITION} AS partition"),
        *(f"{minute_ms} + 30000 AS at_ms", f"{minute_ms} + 30000 AS written_ms"),
        f"(id DIV {PLACES}) * 600 + 300 AS committed",
        *("false AS is_tombstone", "id AS source_offset", "0 AS source_partition"),
    ]
    ends = [
        *(f"{TOPIC} AS topic", f"{PARTITION} AS partition", f"{minute_ms} + 60000 AS at_ms"),
        *("cast(0 AS long) AS begin", f"(id DIV {PLACES}) * 600 + 600 AS end"),
        "false AS is_present",
    ]
    rollouts = [*(-(-minute // ROLLOUT_MINUTES) for minute in (from_minute, until_minute))]
    turn, state_ms = f"(id DIV {GROUPS})", f"{FIRST_MS} + {ROLLOUT_MINUTES * MINUTE_MS} * {{}}"
    # A state comes after the commits of its minute, and before those of the next one.
    at = state_ms.format(turn)
    offset = f"{turn} * {ROLLOUT_MINUTES * PLACES} - 1 + 0 * id"
    state = [
        *(f"{GROUP} AS `group`", f"cast({turn} + 1 AS int) AS generation", f"{at} AS at_ms"),
        *("0 AS source_partition", f"{offset} AS source_offset"),
    ]
    generations = [
        *(*state, f"{at} AS written_ms", "'consumer' AS protocol_type"),
        *("'cooperative-sticky' AS protocol", f"{MEMBERS} AS member_count"),
        "false AS is_tombstone",
    ]
    of_groups = (rollouts[0] * GROUPS, rollouts[1] * GROUPS)
    return [
        ("commits", (*places, commits)),
        ("assignments", (*of_groups, _each(state, PARTITIONS, "partition"))),
        ("members", (*of_groups, _each(state, MEMBERS, "place"))),
        ("generations", (*of_groups, generations)),
        ("ends", (*places, ends)),
    ]


def _each(state: list[str], count: int, name: str) -> list[str]:
    """Return the columns of a state, and a column with each of some numbers."""
    return [*state, f"explode(sequence(0, {count - 1})) AS {name}"]


def _frame(tables: Tables, name: str, rows: tuple[int, int, list[str]]) -> DataFrame:
    begin, end, columns = rows
    frame = tables.spark.range(begin, end).selectExpr(*columns)
    turn = "cast(generation AS string)"
    if name == "assignments":
        frame = frame.selectExpr(
            "*",
            f"concat('m', cast(partition % {MEMBERS} AS string), '-', {turn}) AS member_id",
            "replace(`group`, 'group', 'topic') AS topic",
        )
    if name == "members":
        frame = frame.selectExpr(
            "*",
            f"concat('m', cast(place AS string), '-', {turn}) AS member_id",
            "concat('pod-', cast(place AS string)) AS instance_id",
            *("concat('pod-', cast(place AS string)) AS client_id", "'/10.0.0.1' AS client_host"),
            *("45000 AS session_timeout_ms", "300000 AS rebalance_timeout_ms"),
            "array(replace(`group`, 'group', 'topic')) AS topics",
        )
    columns = [
        f"cast({f'`{one.name}`' if one.name in frame.columns else 'null'}"
        f" AS {one.dataType.simpleString()}) AS `{one.name}`"
        for one in TABLES[name].schema
    ]
    return frame.selectExpr(*columns)


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the rows of a page, from the result of `run`, read back from JSON."""
    rows = [
        "| commits | job | first run | next minute | / first | nothing new | / first |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    for size, runs in found.items():
        for job in ("lag", "episodes"):
            first, nothing = (runs[one][job]["cpu_s"] for one in ("first", "nothing new"))
            minutes = sorted(
                runs[f"next {one}"][job]["cpu_s"] for one in range(1, 1 + NEXT_MINUTES)
            )
            later = minutes[NEXT_MINUTES // 2]
            rows.append(
                f"| {int(size):,} | `{job}` | {first:.1f} s | {later:.1f} s | {later / first:.0%}"
                f" | {nothing:.1f} s | {nothing / first:.0%} |"
            )
    return "\n".join(rows)


if __name__ == "__main__":
    show_table("increments", table, DOCS / "pipeline.md")
