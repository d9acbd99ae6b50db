"""History of groups: the internal topic to `commits`, `generations`, `members`, `assignments`.

Theory of operation. `kafka_records` returns the topic as a stream of `RAW` rows. `history_frames`
turns the rows into the frames of the tables. `start_history` combines both: each micro-batch is
decoded once, kept in memory while its tables are written, and released. Unreadable records go to
`rejected`. The groups that Spark itself uses for reading are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import ALL, Scope
from coopgroup.pipeline.spark.workers import settled
from coopgroup.pipeline.streams import start_job
from coopgroup.pipeline.topic.decoding import (
    COMMIT_RECORDS,
    GROUP_RECORDS,
    decode_commits,
    decode_groups,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from coopgroup.pipeline.tables import Tables

__all__ = [
    "HISTORY_JOB",
    "INTERNAL_TOPIC",
    "history_frames",
    "kafka_records",
    "start_history",
    "write_history",
]

HISTORY_JOB: Final = "history"
INTERNAL_TOPIC: Final = "__consumer_offsets"
RECORDS_PER_BATCH: Final = 1_000_000
_OWN_GROUPS: Final = "^spark-kafka-(source|relation)-"
_COMMIT_KEYS: Final = (b"\0\0", b"\0\1")  # versions 0 and 1


def kafka_records(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    topic: str = INTERNAL_TOPIC,
    is_stream: bool,
    records_per_batch: int = RECORDS_PER_BATCH,
) -> DataFrame:
    """Return the records of a topic in the columns of `RAW`.

    Args:
        spark: a session with the Kafka source.
        options: options of the Kafka source, including `kafka.bootstrap.servers`. With `assign`,
            Spark's driver joins no consumer group, so it writes nothing into the internal topic.
        topic: name of the topic.
        is_stream: whether to return a stream, or only the present records.
        records_per_batch: maximum number of records in a micro-batch, which bounds the memory.
    """
    settings = {
        **({} if "assign" in options else {"subscribe": topic}),
        "startingOffsets": "earliest",
        # Compaction removes records at any time, so missing records must not fail the query.
        "failOnDataLoss": "false",
        # Offsets of an aborted transaction are not commits.
        "kafka.isolation.level": "read_committed",
        **options,
    }
    if is_stream:
        settings["maxOffsetsPerTrigger"] = str(records_per_batch)
        rows = spark.readStream.format("kafka").options(**settings).load()
    else:
        rows = spark.read.format("kafka").options(**settings).load()
    return rows.select(
        "key",
        "value",
        sql.col("partition").alias("source_partition"),
        sql.col("offset").alias("source_offset"),
        sql.unix_millis("timestamp").alias("written_ms"),
    )


# --- transformations ------------------------------------------------------------------------------


def commit_records(raw: DataFrame) -> DataFrame:
    """Decode the records of commits: `RAW` to `COMMIT_RECORDS`."""
    rows = raw.where(_is_commit()).mapInArrow(partial(settled, decode_commits), COMMIT_RECORDS)
    return rows.where(sql.col("group").isNull() | ~sql.col("group").rlike(_OWN_GROUPS))


def group_records(raw: DataFrame) -> DataFrame:
    """Decode all other records: `RAW` to `GROUP_RECORDS`."""
    rows = raw.where(~_is_commit()).mapInArrow(partial(settled, decode_groups), GROUP_RECORDS)
    return rows.where(sql.col("group").isNull() | ~sql.col("group").rlike(_OWN_GROUPS))


def _is_commit() -> Column:
    version = sql.substring("key", 1, 2)
    # Without the null check, a record without a key would be in neither part.
    return sql.col("key").isNotNull() & version.isin(*(sql.lit(one) for one in _COMMIT_KEYS))


def commits_of(records: DataFrame) -> DataFrame:
    """Return readable commits: `COMMIT_RECORDS` to the table `commits`."""
    return records.where(sql.col("reason").isNull()).select(*TABLES["commits"].schema.names)


def generations_of(records: DataFrame) -> DataFrame:
    """Return readable states of groups: `GROUP_RECORDS` to the table `generations`."""
    return records.where(sql.col("group").isNotNull()).select(*TABLES["generations"].schema.names)


def members_of(records: DataFrame) -> DataFrame:
    """Return the members of each generation: `GROUP_RECORDS` to the table `members`."""
    return _with_members(records).select(*TABLES["members"].schema.names)


def assignments_of(records: DataFrame) -> DataFrame:
    """Return the assignment of each member: `GROUP_RECORDS` to the table `assignments`."""
    by_topic = _with_members(records).withColumn("one", sql.explode("assigned"))
    rows = by_topic.select("*", "one.topic", sql.explode("one.partitions").alias("partition"))
    return rows.select(*TABLES["assignments"].schema.names)


def _with_members(records: DataFrame) -> DataFrame:
    place = ("group", "generation", "at_ms", "source_partition", "source_offset")
    return records.select(*place, sql.explode("members").alias("member")).select(*place, "member.*")


def rejected_of(commits: DataFrame, groups: DataFrame, source: str) -> DataFrame:
    """Return the unreadable parts of both inputs, as the table `rejected`."""
    of_commits = commits.where(sql.col("reason").isNotNull())
    of_groups = groups.select(
        *(name for name in GROUP_RECORDS.names if name != "rejections"),
        sql.explode("rejections").alias("rejection"),
    ).select("*", "rejection.*")
    names = ("source_partition", "source_offset", "part", "reason", "key", "value")
    rows = [one.select(*names, "written_ms") for one in (of_commits, of_groups)]
    return (
        rows[0]
        .unionByName(rows[1])
        .withColumn("source", sql.lit(source))
        .withColumnRenamed("written_ms", "at_ms")
        .select(*TABLES["rejected"].schema.names)
    )


def history_frames(
    commits: DataFrame, groups: DataFrame, source: str = INTERNAL_TOPIC
) -> dict[str, DataFrame]:
    """Return the frames of all tables of the history.

    Args:
        commits: from `commit_records`.
        groups: from `group_records`.
        source: name of the topic.
    """
    return {
        "commits": commits_of(commits),
        "generations": generations_of(groups),
        "members": members_of(groups),
        "assignments": assignments_of(groups),
        "rejected": rejected_of(commits, groups, source),
    }


# --- the job --------------------------------------------------------------------------------------


def start_history(
    raw: DataFrame,
    tables: Tables,
    *,
    source: str = INTERNAL_TOPIC,
    every_s: float | None = None,
    scope: Scope = ALL,
) -> StreamingQuery:
    """Write a stream of records to the tables, each record exactly once.

    Args:
        raw: a stream in the columns of `RAW`.
        tables: tables to write to; the checkpoint is in the same folder.
        source: name of the topic.
        every_s: seconds between micro-batches, until the query is stopped; `None` ends the query
            after the present records.
        scope: the groups; records of other groups are skipped.

    Raises:
        PipelineError: the checkpoint of the tables is missing, so new records cannot be recognised.
    """

    def write(rows: DataFrame, batch: int) -> None:
        write_history(rows, tables, batch, source)

    return start_job(scope.of_records(raw), tables, HISTORY_JOB, write, every_s)


def write_history(
    rows: DataFrame, tables: Tables, batch: int, source: str = INTERNAL_TOPIC
) -> None:
    """Write a micro-batch of records to the tables.

    Args:
        rows: the records, in the columns of `RAW`.
        tables: tables to write to.
        batch: number of the batch in the stream.
        source: name of the topic.
    """
    # Both kinds of records come from the same rows: without the copy, Spark would read the topic
    # twice.
    copy = rows.persist()
    commits, groups = commit_records(copy).persist(), group_records(copy).persist()
    try:
        tables.append(HISTORY_JOB, batch, history_frames(commits, groups, source))
    finally:
        for frame in (commits, groups, copy):
            frame.unpersist()
