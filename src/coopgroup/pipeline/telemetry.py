"""Telemetry of coopgroup members to tables: `events`, `rounds`, `work`.

Theory of operation. Spark's own JSON functions read a line, without Python. The first step reads
the envelope, which gives an event or a reason for rejection. The second step reads the fields of
its kind. The digest of its text identifies a line. Tables get only the rows with new keys. So
repeated lines (a file that has grown, a copy of it, a producer retry) add nothing. Reports of
members (`member_reported`) are left out. They are frequent, and no analysis reads them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from coopgroup.core.telemetry.codec import CLASS_OF_KIND, REPORT
from coopgroup.pipeline.schemas import LAST_MS, TABLES
from coopgroup.pipeline.streams import start_job
from coopgroup.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from coopgroup.pipeline.tables import Tables

__all__ = [
    "TOPIC_JOB",
    "file_lines",
    "start_telemetry",
    "topic_lines",
    "write_telemetry",
]

TOPIC_JOB: Final = "telemetry"
_ENVELOPE: Final = (
    "schema int, at_ms long, `group` string, member string, generation int, client string,"
    " kind string, _broken string"
)
_RESOURCES: Final = "map<string, array<int>>"
_COUNTED: Final = ("granted", "revoked", "lost", "created", "waiting", "contested")
_ROUND: Final = MappingProxyType(
    {
        **dict.fromkeys(("policy", "assignor"), "string"),
        "members": "array<string>",
        "follow_up": "boolean",
        "rejoin_in_ms": "long",
        **dict.fromkeys(_COUNTED, _RESOURCES),
    }
)
_WORK: Final = MappingProxyType(
    {"resources": _RESOURCES, "reason": "string", "duration_ms": "long"}
)
_WORK_KINDS: Final = ("resources_started", "resources_stopped")
# Kinds with their own columns, their fields, and the required fields among them.
_FIELDS: Final = (
    (("round_decided",), _ROUND, ("members",)),
    (_WORK_KINDS, _WORK, ("resources",)),
)
_PLACE: Final = ("source", "source_partition", "source_offset", "value")


def file_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the lines of files: (source, source_partition, source_offset, written_ms, line)."""
    lines = spark.read.text(list(paths), wholetext=False).where(sql.trim("value") != "")
    return _lines(
        lines.select(sql.col("_metadata.file_path").alias("source"), sql.col("value")),
        sql.lit(None),
        sql.lit(None),
        sql.lit(None),
    )


def topic_lines(raw: DataFrame, topic: str) -> DataFrame:
    """Return records of a topic as lines: columns of `decoding.RAW` to columns of `file_lines`."""
    return _lines(
        raw.withColumn("source", sql.lit(topic)),
        sql.col("source_partition"),
        sql.col("source_offset"),
        sql.col("written_ms"),
    )


def _lines(rows: DataFrame, partition: Column, offset: Column, written_ms: Column) -> DataFrame:
    return rows.select(
        "source",
        partition.cast("int").alias("source_partition"),
        offset.cast("long").alias("source_offset"),
        written_ms.cast("long").alias("written_ms"),
        sql.col("value").cast("string").alias("line"),
    )


# --- transformations ------------------------------------------------------------------------------


def read_lines(lines: DataFrame) -> DataFrame:
    """Read envelopes: add the columns of `events`, and `reason` for an invalid line."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_broken"}
    fields = _ddl({**_ROUND, **_WORK})
    rows = lines.withColumn("one", sql.from_json("line", _ENVELOPE, options))
    rows = rows.withColumn("did", sql.from_json("line", fields))
    needed = ("at_ms", "group", "member", "generation", "kind")
    named = [
        sql.when(sql.col(f"one.{name}").isNull(), f"{name}: missing, or of another type")
        for name in needed
    ]
    # A field of a wrong type makes the line invalid, too; then the other fields are present.
    nothing = sql.coalesce(*(sql.col(f"one.{name}").cast("string") for name in needed)).isNull()
    is_broken = sql.col("one").isNull() | (sql.col("one._broken").isNotNull() & nothing)
    version = sql.col("one.schema")
    reason = sql.coalesce(
        sql.when(sql.col("line").isNull(), "the record has no value"),
        sql.when(is_broken, "not JSON"),
        sql.when(
            version.isNull() | (version != SCHEMA_VERSION), f"schema: expected {SCHEMA_VERSION}"
        ),
        *named,
        sql.when(~sql.col("one.at_ms").between(0, LAST_MS), "at_ms: not ms since 1970"),
        sql.when(~sql.col("one.kind").isin(*CLASS_OF_KIND), "kind: not known"),
        *(_complaint(*one) for one in _FIELDS),
    )
    return rows.select(
        *lines.columns,
        *(sql.col(f"one.{name}") for name in ("group", "at_ms", "member", "generation", "kind")),
        sql.coalesce("one.client", sql.lit("")).alias("client"),
        sql.col("line").alias("record"),
        sql.sha2("line", 256).alias("digest"),
        reason.alias("reason"),
    )


def _complaint(kinds: Sequence[str], fields: Mapping[str, str], needed: Sequence[str]) -> Column:
    """Return the reason for unreadable fields; null if readable or of another kind."""
    complaints = []
    for name, kind in fields.items():
        value = sql.col(f"did.{name}")
        is_given = sql.lit(name in needed) | sql.get_json_object("line", f"$.{name}").isNotNull()
        is_bad = value.isNull() & is_given
        if kind == _RESOURCES:
            is_bad |= sql.exists(sql.map_values(value), _is_no_list)
        complaints.append(sql.when(is_bad, f"{name}: missing, or of another type"))
    return sql.when(sql.col("one.kind").isin(*kinds), sql.coalesce(*complaints))


def _is_no_list(partitions: Column) -> Column:
    """Return whether partitions are something else than a list of integers."""
    return partitions.isNull() | sql.exists(partitions, lambda one: one.isNull())


def _ddl(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in fields.items())


def events_of(read: DataFrame) -> DataFrame:
    """Return valid lines, each once: from `read_lines` to the table `events`."""
    rows = read.where(sql.col("reason").isNull()).select(*TABLES["events"].schema.names)
    return rows.dropDuplicates(["digest"])


def rejected_lines_of(read: DataFrame) -> DataFrame:
    """Return invalid lines: from `read_lines` to the table `rejected`."""
    rows = read.where(sql.col("reason").isNotNull()).select(
        *("source", "source_partition", "source_offset"),
        sql.col("written_ms").alias("at_ms"),
        sql.lit("line").alias("part"),
        "reason",
        sql.lit(None).cast("binary").alias("key"),
        sql.col("line").cast("binary").alias("value"),
    )
    return rows.dropDuplicates([*_PLACE])


def rounds_of(events: DataFrame) -> DataFrame:
    """Return the decisions of leaders: from `events` to the table `rounds`."""
    rows = events.where(sql.col("kind") == "round_decided")
    rows = rows.withColumn("led", sql.from_json("record", _ddl(_ROUND)))
    counts = [_count(f"led.{name}").alias(name) for name in _COUNTED]
    return rows.select("*", "led.*").select(
        *("group", "at_ms", "member", "generation", "policy", "assignor", "members"),
        *counts,
        sql.coalesce("follow_up", sql.lit(0).cast("boolean")).alias("follow_up"),
        *("rejoin_in_ms", "digest"),
    )


def _count(resources: str) -> Column:
    """Return the number of resources in a map from topic to partitions."""
    lists = sql.coalesce(sql.map_values(resources), sql.array())
    return sql.coalesce(sql.size(sql.flatten(lists)), sql.lit(0)).alias("count")


def work_of(events: DataFrame) -> DataFrame:
    """Return the starts and stops of work: from `events` to the table `work`."""
    rows = events.where(sql.col("kind").isin(*_WORK_KINDS))
    rows = rows.withColumn("did", sql.from_json("record", _ddl(_WORK))).select("*", "did.*")
    by_topic = rows.select("*", sql.explode("resources").alias("topic", "partitions"))
    return (
        by_topic.withColumn("partition", sql.explode("partitions"))
        .withColumn("is_start", sql.col("kind") == _WORK_KINDS[0])
        .select(*TABLES["work"].schema.names)
    )


# --- jobs -----------------------------------------------------------------------------------------


def write_telemetry(lines: DataFrame, tables: Tables) -> None:
    """Add the lines that the tables do not have yet.

    Args:
        lines: from `file_lines` or `topic_lines`.
        tables: tables to write to.
    """
    read = read_lines(lines).where(~sql.col("kind").eqNullSafe(REPORT))
    events = events_of(read).persist()
    frames = {"events": events, "rounds": rounds_of(events), "work": work_of(events)}
    try:
        ((first_ms,),) = events.agg(sql.min("at_ms")).collect()
        from_ms = dict.fromkeys(frames, first_ms or 0)
        frames["rejected"] = rejected_lines_of(read)
        wanted = {name: frame for name, frame in frames.items() if not frame.isEmpty()}
        tables.merge(wanted, from_ms=from_ms)
    finally:
        events.unpersist()


def start_telemetry(
    raw: DataFrame, tables: Tables, *, topic: str, every_s: float | None = None
) -> StreamingQuery:
    """Write a stream of telemetry to the tables, each record once.

    Args:
        raw: a stream in the columns of `decoding.RAW`.
        tables: tables to write to; the checkpoint is in the same folder.
        topic: name of the topic.
        every_s: seconds between micro-batches; `None` ends the query after the present records.
    """

    def write(rows: DataFrame, _: int) -> None:
        write_telemetry(topic_lines(rows, topic), tables)

    return start_job(raw, tables, TOPIC_JOB, write, every_s)
