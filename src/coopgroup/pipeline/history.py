"""History of groups: the internal topic to `commits`, `generations`, `members`, `assignments`.

Groups of KIP-848 come into the same tables. `consumer_records` has their records, each of which
says one thing of one member. A new micro-batch is joined with the last earlier record of each key.

Theory of operation. `kafka_records` returns the topic as a stream of `RAW` rows. `history_frames`
turns the rows into the frames of the tables. `start_history` combines both: each micro-batch is
decoded once, kept in memory while its tables are written, and released. Unreadable records go to
`rejected`. The groups that Spark itself uses for reading are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import ALL, Scope
from coopgroup.pipeline.spark.workers import settled
from coopgroup.pipeline.streams import start_job
from coopgroup.pipeline.topic.codec import ConsumerKind
from coopgroup.pipeline.topic.consumer_groups import KNOWN_RECORDS, join_states
from coopgroup.pipeline.topic.decoding import (
    COMMIT_RECORDS,
    CONSUMER_RECORDS,
    GROUP_RECORDS,
    decode_commits,
    decode_consumers,
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
_VERSIONS: Final = "history-tables"
"""Note with the version of each table after the last batch."""
_WRITTEN: Final = (
    *("consumer_records", "commits", "assignments", "members", "generations"),
    "rejected",
)
_OWN_GROUPS: Final = "^spark-kafka-(source|relation)-"
_PATIENCE_MS: Final = 3_600_000
"""Longer than the session of any member; compaction takes a day or more."""
_COMMIT_KEYS: Final = (b"\0\0", b"\0\1")  # versions 0 and 1
_CONSUMER_KEYS: Final = tuple(bytes([0, kind.value]) for kind in ConsumerKind)

Names = Callable[[], Mapping[str, str]]
"""Asks the brokers for the names of all topics, by id."""


def kafka_records(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    topic: str = INTERNAL_TOPIC,
    is_stream: bool,
) -> DataFrame:
    """Return the records of a topic in the columns of `RAW`.

    Args:
        spark: a session with the Kafka source.
        options: options of the Kafka source, including `kafka.bootstrap.servers`. With `assign`,
            Spark's driver joins no consumer group, so it writes nothing into the internal topic.
        topic: name of the topic.
        is_stream: whether to return a stream, or only the present records.
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
    reader = spark.readStream if is_stream else spark.read
    rows = reader.format("kafka").options(**settings).load()
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
    rows = raw.where(_is_of(_COMMIT_KEYS)).mapInArrow(
        partial(settled, decode_commits), COMMIT_RECORDS
    )
    return rows.where(sql.col("group").isNull() | ~sql.col("group").rlike(_OWN_GROUPS))


def group_records(raw: DataFrame) -> DataFrame:
    """Decode the records of classic groups, and those of no known kind: to `GROUP_RECORDS`."""
    others = raw.where(~_is_of(_COMMIT_KEYS) & ~_is_of(_CONSUMER_KEYS))
    rows = others.mapInArrow(partial(settled, decode_groups), GROUP_RECORDS)
    return rows.where(sql.col("group").isNull() | ~sql.col("group").rlike(_OWN_GROUPS))


def consumer_records(raw: DataFrame) -> DataFrame:
    """Decode the records of KIP-848 groups: `RAW` to `CONSUMER_RECORDS`."""
    rows = raw.where(_is_of(_CONSUMER_KEYS))
    return rows.mapInArrow(partial(settled, decode_consumers), CONSUMER_RECORDS)


def _is_of(keys: tuple[bytes, ...]) -> Column:
    version = sql.substring("key", 1, 2)
    # Without the null check, a record without a key would be in no part.
    return sql.col("key").isNotNull() & version.isin(*(sql.lit(one) for one in keys))


def last_records(earlier: DataFrame) -> DataFrame:
    """Return the last record of each key, which is all that counts of earlier records."""
    columns = sql.struct(*(sql.col(name) for name in earlier.columns))
    last = earlier.groupBy("group", "kind", "name").agg(sql.max_by(columns, "source_offset"))
    return last.toDF("group", "kind", "name", "row").select("row.*")


def consumer_states(
    new: DataFrame, last: DataFrame, names: Mapping[str, str], until: DataFrame | None = None
) -> DataFrame:
    """Return the states of KIP-848 groups after new records, as `GROUP_RECORDS`.

    Args:
        new: records of the table `consumer_records`.
        last: from `last_records`, of the same groups before them.
        names: names of topics, by id.
        until: (source_partition, until_ms): the time up to which the topic was read; `None` if no
            earlier records are known.
    """
    known = last.withColumn("is_new", sql.lit(0).cast("boolean"))
    both = known.unionByName(new.withColumn("is_new", sql.lit(1).cast("boolean")))
    both = both.select(*KNOWN_RECORDS.names)
    if until is not None:
        both = both.unionByName(_lost_tombstones(both, until), allowMissingColumns=True)
    both = both.repartition("group")
    both = both.sortWithinPartitions("group", "source_offset", sql.desc("is_tombstone"))
    return both.mapInArrow(partial(settled, join_states(names)), GROUP_RECORDS)


def _lost_tombstones(records: DataFrame, until: DataFrame) -> DataFrame:
    """Return tombstones of members that left, and whose own tombstones were compacted.

    Each target has an epoch, and every living member writes that it has reached the epoch. A member
    that has not done so after a long time is gone. It left before the first record with a newer
    epoch, so its tombstones have the place of this record.

    Args:
        records: `KNOWN_RECORDS`; the last record of each key counts.
        until: as in `consumer_states`.
    """
    final = last_records(records).where(~sql.col("is_tombstone"))
    members = final.where(sql.col("kind") == "member").select(
        "group", "name", "source_partition", "rebalance_timeout_ms"
    )
    reached = final.where(sql.col("kind") == "assignment").select(
        "group", "name", sql.col("epoch").alias("reached")
    )
    place = sql.struct("source_offset", "source_partition", "at_ms", "is_new")
    target_ms = sql.when(sql.col("kind") == "target", sql.col("at_ms"))
    newer = records.where(sql.col("kind").isin("group", "target", "assignment"))
    newer = newer.select("group", "epoch", place.alias("place"), target_ms.alias("target_ms"))
    known = members.join(reached, ["group", "name"], "left").join(newer, "group")
    known = known.where(sql.col("epoch") > sql.coalesce("reached", sql.lit(0)))
    first = known.groupBy("group", "name", "source_partition", "rebalance_timeout_ms").agg(
        sql.min("place").alias("place"), sql.min("target_ms").alias("target_ms")
    )
    patience_ms = sql.greatest("rebalance_timeout_ms", sql.lit(0)) + _PATIENCE_MS
    gone = first.join(until, "source_partition").drop("source_partition")
    gone = gone.where(sql.col("until_ms") > sql.col("target_ms") + patience_ms)
    kinds = sql.explode(sql.array(sql.lit("assignment"), sql.lit("member"))).alias("kind")
    return gone.select("group", "name", "place.*", kinds).withColumn("is_tombstone", sql.lit(True))  # noqa: FBT003 - a value


def commits_of(records: DataFrame) -> DataFrame:
    """Return readable commits: `COMMIT_RECORDS` to the table `commits`."""
    return _readable(records, "commits")


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


def rejected_of(
    commits: DataFrame, groups: DataFrame, consumers: DataFrame, source: str
) -> DataFrame:
    """Return the unreadable parts of all inputs, as the table `rejected`."""
    of_groups = groups.select(
        *(name for name in GROUP_RECORDS.names if name != "rejections"),
        sql.explode("rejections").alias("rejection"),
    ).select("*", "rejection.*")
    names = ("source_partition", "source_offset", "part", "reason", "key", "value")
    rows = [
        commits.where(sql.col("reason").isNotNull()).select(*names, "written_ms"),
        of_groups.select(*names, "written_ms"),
        consumers.where(sql.col("reason").isNotNull()).select(
            *names, sql.col("at_ms").alias("written_ms")
        ),
    ]
    return (
        reduce(lambda one, other: one.unionByName(other), rows)
        .withColumn("source", sql.lit(source))
        .withColumnRenamed("written_ms", "at_ms")
        .select(*TABLES["rejected"].schema.names)
    )


def history_frames(
    commits: DataFrame,
    groups: DataFrame,
    consumers: DataFrame,
    states: DataFrame,
    source: str = INTERNAL_TOPIC,
) -> dict[str, DataFrame]:
    """Return the frames of all tables of the history.

    Args:
        commits: from `commit_records`.
        groups: from `group_records`.
        consumers: from `consumer_records`.
        states: from `consumer_states`.
        source: name of the topic.
    """
    both = groups.unionByName(states)
    return {
        "consumer_records": _readable(consumers, "consumer_records"),
        "commits": commits_of(commits),
        # A reader that sees a state sees its members, too.
        "assignments": assignments_of(both),
        "members": members_of(both),
        "generations": generations_of(both),
        "rejected": rejected_of(commits, groups, consumers, source),
    }


def _readable(records: DataFrame, table: str) -> DataFrame:
    return records.where(sql.col("reason").isNull()).select(*TABLES[table].schema.names)


# --- the job --------------------------------------------------------------------------------------


def start_history(
    raw: DataFrame,
    tables: Tables,
    *,
    source: str = INTERNAL_TOPIC,
    every_s: float | None = None,
    scope: Scope = ALL,
    names: Names = dict,
) -> StreamingQuery:
    """Write a stream of records to the tables, each record exactly once.

    Args:
        raw: a stream in the columns of `RAW`.
        tables: tables to write to; the checkpoint is in the same folder.
        source: name of the topic.
        every_s: seconds between micro-batches, until the query is stopped; `None` ends the query
            after the present records.
        scope: the groups; records of other groups are skipped.
        names: names of topics, which groups of KIP-848 need.

    Raises:
        PipelineError: the tables and the checkpoint do not belong together, so records would be
            read again, or never.
    """
    _check_checkpoint(tables)

    def write(rows: DataFrame, batch: int) -> None:
        write_history(rows, tables, batch, source, names)

    return start_job(scope.of_records(raw), tables, HISTORY_JOB, write, every_s)


def _check_checkpoint(tables: Tables) -> None:
    """Refuse a checkpoint that is older than the tables, and tables that are older than it.

    Delta skips a batch with a number that it has seen. So with a checkpoint that was deleted or
    restored, new records would be lost.
    """
    offsets = Folders(tables.spark).names(f"{tables.checkpoint(HISTORY_JOB)}/offsets")
    known = max((int(name) for name in offsets if name.isdecimal()), default=-1)
    if any(tables.newest_batch(name) > known for name in _WRITTEN):
        raise PipelineError(
            f"{tables.folder} has rows of {HISTORY_JOB} that its checkpoint does not know: the "
            "checkpoint was deleted, or is an older copy. So the new records are not known; take "
            "another folder"
        )
    for name, version in (tables.noted(_VERSIONS) or {}).items():
        if tables.version(name) < version:
            raise PipelineError(
                f"{tables.path(name)} lacks rows that {HISTORY_JOB} has written: the table was "
                "deleted, or is an older copy; restore it, or take another folder"
            )


def write_history(
    rows: DataFrame,
    tables: Tables,
    batch: int,
    source: str = INTERNAL_TOPIC,
    names: Names = dict,
) -> None:
    """Write a micro-batch of records to the tables.

    Args:
        rows: the records, in the columns of `RAW`.
        tables: tables to write to.
        batch: number of the batch in the stream.
        source: name of the topic.
        names: as in `start_history`.
    """
    # All kinds of records come from the same rows: without the copy, Spark would read the topic
    # several times.
    copy = rows.persist()
    kinds = [commit_records(copy), group_records(copy), consumer_records(copy)]
    commits, groups, consumers = (one.persist() for one in kinds)
    states = groups.where(sql.lit(0) > 0)
    kept = [commits, groups, consumers, copy]
    try:
        # Without Python, because most clusters have no such groups.
        if copy.where(_is_of(_CONSUMER_KEYS)).isEmpty():
            consumers = states.sparkSession.createDataFrame([], CONSUMER_RECORDS)
        else:
            new = _readable(consumers, "consumer_records")
            last = _last_of_groups(new, tables).persist()
            found = _names_of(new.unionByName(last), commits, tables, names)
            until = copy.groupBy("source_partition").agg(sql.max("written_ms").alias("until_ms"))
            states = consumer_states(new, last, found, until).persist()
            kept += [last, states]
        frames = history_frames(commits, groups, consumers, states, source)
        tables.append(HISTORY_JOB, batch, frames)
        tables.note(_VERSIONS, {name: tables.version(name) for name in frames})
    finally:
        for frame in kept:
            frame.unpersist()


def _last_of_groups(new: DataFrame, tables: Tables) -> DataFrame:
    """Return the last earlier record of each key, of the groups with new records."""
    places = new.groupBy("source_partition").agg(sql.min("source_offset").alias("from_offset"))
    # A killed run may have written rows of this batch already.
    earlier = tables.read("consumer_records").join(sql.broadcast(places), "source_partition")
    earlier = earlier.where(sql.col("source_offset") < sql.col("from_offset")).drop("from_offset")
    return last_records(earlier.join(new.select("group").distinct(), "group", "left_semi"))


def _names_of(
    records: DataFrame, commits: DataFrame, tables: Tables, names: Names
) -> Mapping[str, str]:
    """Return the names of topics: of existing topics from the brokers, of others from commits."""
    held = sql.explode(sql.concat("partitions", "revoking")).alias("held")
    placed = records.where(sql.col("kind").isin("assignment", "target_of_member")).select(held)
    ids = {row[0] for row in placed.select("held.topic_id").distinct().collect()}
    if not ids:
        return {}
    known = {one: name for one, name in names().items() if one in ids}
    missing = sorted(ids - {*known})
    if missing:
        columns = ("topic_id", "topic")
        said = commits.select(*columns).unionByName(tables.read("commits").select(*columns))
        rows = said.where(sql.col("topic_id").isin(*missing)).distinct().collect()
        known |= {row.topic_id: row.topic for row in rows}
    return known
