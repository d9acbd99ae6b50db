"""SQL for the common questions: `VIEWS`, and `create_views`.

A view is a query over the tables of `schemas`. Times are timestamps in UTC, not ms. Days and hours
are those of the times. The text is standard SQL with one function of Spark, `timestamp_millis`, so
other readers of the tables can run it too (docs/pipeline.md shows DuckDB). A column whose name is a
keyword, such as `group`, is always written with its table (`r.group`), which needs no quotes in any
dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["VIEWS", "create_views"]

# The coordinator writes all members of a group again in each state. Consecutive states with the
# same owner are one row: their number minus the count of the owner's states is constant. A state
# that repeats the generation (a static member returned) has the time of the round, so its own time
# is that of its record. The tombstone of an upgrade to KIP-848, or back, is no state, because the
# group goes on (see `processes.states_of`).
_OWNERS: Final = """\
WITH around AS (
    SELECT
        g.*,
        LEAD(g.written_ms) OVER (PARTITION BY g.group ORDER BY g.source_offset) AS after_ms,
        COALESCE(LAG(g.protocol) OVER (PARTITION BY g.group ORDER BY g.source_offset), '')
            AS protocol_before,
        COALESCE(LEAD(g.protocol) OVER (PARTITION BY g.group ORDER BY g.source_offset), '')
            AS protocol_after
    FROM generations AS g
), numbered AS (
    SELECT
        o.*,
        ROW_NUMBER() OVER (PARTITION BY o.group ORDER BY o.source_offset) AS number,
        LAG(o.generation) OVER (PARTITION BY o.group ORDER BY o.source_offset) AS before
    FROM around AS o
    WHERE NOT COALESCE(
        o.is_tombstone AND o.after_ms <= o.written_ms + 1000
        AND (o.protocol_before = 'broker') <> (o.protocol_after = 'broker'), FALSE
    )
), times AS (
    SELECT n.*, CASE WHEN n.before = n.generation THEN n.written_ms ELSE n.at_ms END AS begin_ms
    FROM numbered AS n
), states AS (
    SELECT t.*, LEAD(t.begin_ms) OVER (PARTITION BY t.group ORDER BY t.number) AS end_ms
    FROM times AS t
), held AS (
    SELECT
        a.group AS group, a.topic, a.partition, a.member_id,
        m.instance_id, m.client_id, m.client_host,
        s.generation, s.begin_ms, s.end_ms,
        s.number - ROW_NUMBER() OVER (
            PARTITION BY a.group, a.topic, a.partition, a.member_id ORDER BY s.number
        ) AS island
    FROM assignments AS a
    JOIN states AS s
        ON s.source_partition = a.source_partition AND s.source_offset = a.source_offset
    JOIN members AS m
        ON m.source_partition = a.source_partition AND m.source_offset = a.source_offset
        AND m.member_id = a.member_id
)
SELECT
    h.group AS group, h.topic, h.partition, h.member_id,
    MAX(h.instance_id) AS instance_id,
    MAX(h.client_id) AS client_id,
    MAX(h.client_host) AS client_host,
    MIN(h.generation) AS first_generation,
    timestamp_millis(MIN(h.begin_ms)) AS since,
    timestamp_millis(CASE WHEN COUNT(*) = COUNT(h.end_ms) THEN MAX(h.end_ms) END) AS until
FROM held AS h
GROUP BY h.group, h.topic, h.partition, h.member_id, h.island"""

_OUTAGES_BY_DAY: Final = """\
SELECT
    CAST(timestamp_millis(COALESCE(o.end_ms, o.begin_ms)) AS DATE) AS day,
    o.group AS group, o.source,
    COUNT(*) AS outages,
    SUM(o.unavailable_ms) / 1e3 AS unavailable_partition_s,
    SUM(o.error_ms) / 1e3 AS error_s,
    MAX(o.unavailable_ms) / 1e3 AS longest_s
FROM outages AS o
GROUP BY CAST(timestamp_millis(COALESCE(o.end_ms, o.begin_ms)) AS DATE), o.group, o.source"""

# The lag of a topic at a moment is the sum over its partitions.
_LAG_BY_HOUR: Final = """\
WITH moments AS (
    SELECT
        l.group AS group, l.topic, l.at_ms,
        SUM(l.lag) AS total, MAX(l.lag) AS of_partition
    FROM lag AS l
    GROUP BY l.group, l.topic, l.at_ms
)
SELECT
    date_trunc('hour', timestamp_millis(m.at_ms)) AS hour,
    m.group AS group, m.topic,
    COUNT(*) AS moments,
    AVG(m.total) AS lag_mean,
    MAX(m.total) AS lag_max,
    MAX(m.of_partition) AS partition_lag_max
FROM moments AS m
GROUP BY date_trunc('hour', timestamp_millis(m.at_ms)), m.group, m.topic"""

_MOVES_BY_TRIGGER: Final = """\
SELECT
    CAST(timestamp_millis(r.end_ms) AS DATE) AS day,
    r.group AS group, r.source, r.trigger,
    COUNT(*) AS rebalances,
    SUM(r.rounds) AS rounds,
    SUM(r.moved) AS moved,
    SUM(r.moved_twice) AS moved_twice,
    SUM(r.unavailable_partition_s) AS unavailable_partition_s
FROM rebalances AS r
GROUP BY CAST(timestamp_millis(r.end_ms) AS DATE), r.group, r.source, r.trigger"""

_WORST_REBALANCES: Final = """\
SELECT
    RANK() OVER (
        PARTITION BY r.group, r.source ORDER BY r.unavailable_partition_s DESC
    ) AS place,
    r.group AS group, r.source,
    timestamp_millis(r.begin_ms) AS begin_at,
    timestamp_millis(r.end_ms) AS end_at,
    r.trigger, r.rounds, r.members_before, r.members_after, r.moved,
    r.unavailable_partition_s, r.unavailable_error_s
FROM rebalances AS r
WHERE r.unavailable_partition_s IS NOT NULL"""

VIEWS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "owners": _OWNERS,
        "outages_by_day": _OUTAGES_BY_DAY,
        "lag_by_hour": _LAG_BY_HOUR,
        "moves_by_trigger": _MOVES_BY_TRIGGER,
        "worst_rebalances": _WORST_REBALANCES,
    }
)
"""Each view's query, by name."""


def create_views(spark: SparkSession, folder: str) -> None:
    """Create a temporary view of each table, and those of `VIEWS`.

    The views show the tables as of now: later writes do not change them.

    Args:
        spark: the session, with Delta Lake.
        folder: path or URL of the tables.
    """
    from coopgroup.pipeline.schemas import TABLES  # noqa: PLC0415 - VIEWS works without Spark
    from coopgroup.pipeline.tables import Tables  # noqa: PLC0415 - likewise

    current = Tables(spark=spark, folder=folder).current()
    for name in TABLES:
        current.read(name).createOrReplaceTempView(name)
    for name, query in VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
