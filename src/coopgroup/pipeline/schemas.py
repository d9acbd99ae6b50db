"""Columns of the pipeline's tables, typed, with a version.

Rules of this file. Times are ms since 1970 (virtual ms for a simulated group), in columns named
`..._ms`. A table has a `key`: two rows with the same key are the same row. Raw tables only grow.
Derived tables are functions of raw tables: a job replaces their rows. New columns need no new
version, because Delta adds them. `VERSION` grows when a reader of the old tables would misread the
new ones. Tables of different versions are in different folders (see `tables`).

(`source_partition`, `source_offset`) identify a record of an internal topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attrs import frozen
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

__all__ = ["LAST_MS", "TABLES", "VERSION", "Table"]

VERSION: Final = 1
LAST_MS: Final = 253_402_300_799_999
"""The last ms of the year 9999: no table has a time after it, or before 0."""

_MS_PER_DAY: Final = 86_400_000
_STRING: Final = StringType()
_LONG: Final = LongType()
_INT: Final = IntegerType()
_DOUBLE: Final = DoubleType()


@frozen(kw_only=True)
class Table:
    """One table.

    Attributes:
        name: name of its folder.
        schema: its columns, without `day`.
        key: columns that identify a row.
        is_derived: whether a job replaces the rows.
        time: column for the day, by which the files are partitioned.
    """

    name: str
    schema: StructType
    key: tuple[str, ...]
    is_derived: bool = False
    time: str = "at_ms"

    def day(self) -> Column:
        """Return the day of a row, in UTC for every time zone of the session."""
        days = sql.floor(sql.col(self.time) / _MS_PER_DAY).cast("int")
        return sql.date_add(sql.lit("1970-01-01").cast("date"), days)


def _schema(**columns: DataType) -> StructType:
    # Spark reads every column of a file as nullable. The comments on the columns say which can be
    # null.
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns.items()])


_PARTITION: Final[Mapping[str, DataType]] = MappingProxyType(
    {"group": _STRING, "topic": _STRING, "partition": _INT}
)
_SOURCE: Final[Mapping[str, DataType]] = MappingProxyType(
    {"source_partition": _INT, "source_offset": _LONG}
)
_LINE: Final[Mapping[str, DataType]] = MappingProxyType(
    {
        "group": _STRING,
        "at_ms": _LONG,
        "member": _STRING,  # id of the writer; "" without one
        "client": _STRING,  # name of the process (`client.id`); "" if the writer does not give it
        "generation": _INT,
    }
)

_PARTITIONS_OF_IDS: Final = ArrayType(_schema(topic_id=_STRING, partitions=ArrayType(_INT)))

# --- history of groups, from the internal topic ---------------------------------------------------

COMMITS: Final = Table(
    name="commits",
    schema=_schema(
        **_PARTITION,
        at_ms=_LONG,  # commit time; for a tombstone its record time
        committed=_LONG,  # next offset to read; null if the commit was deleted or expired
        leader_epoch=_INT,  # -1 if unknown, null for a tombstone
        metadata=_STRING,  # null for a tombstone
        is_tombstone=BooleanType(),
        version=ShortType(),  # version of the value, null for a tombstone
        written_ms=_LONG,  # timestamp of the record
        topic_id=_STRING,  # as Kafka's tools print it; null if the broker did not write it
        **_SOURCE,
    ),
    key=tuple(_SOURCE),
)

GENERATIONS: Final = Table(
    name="generations",
    schema=_schema(
        group=_STRING,
        generation=_INT,  # epoch of a KIP-848 group; null for a tombstone
        at_ms=_LONG,  # when the group reached this state: the end of the round
        protocol_type=_STRING,  # "consumer", "connect", ...; "" for a group that only commits
        protocol=_STRING,  # chosen assignor; null if there is none; "broker" with KIP-848
        leader=_STRING,  # member id; null if there is none
        member_count=_INT,
        is_tombstone=BooleanType(),  # the group was removed
        is_restart=BooleanType(),  # only a static member was replaced; null for a classic group
        version=ShortType(),
        written_ms=_LONG,
        **_SOURCE,
    ),
    key=tuple(_SOURCE),
)

MEMBERS: Final = Table(
    name="members",
    schema=_schema(
        group=_STRING,
        generation=_INT,
        at_ms=_LONG,  # as in generations
        member_id=_STRING,
        instance_id=_STRING,  # static id; null for a dynamic member
        client_id=_STRING,
        client_host=_STRING,
        session_timeout_ms=_INT,  # with KIP-848 Kafka's default, as the records lack it
        rebalance_timeout_ms=_INT,  # equal to the session time-out if the record lacks it
        topics=ArrayType(_STRING),  # subscribed topics; null if unreadable
        assigned_count=_INT,  # partitions assigned; null if unreadable
        **_SOURCE,
    ),
    key=(*_SOURCE, "member_id"),
)

ASSIGNMENTS: Final = Table(
    name="assignments",
    schema=_schema(
        group=_STRING,
        generation=_INT,
        at_ms=_LONG,
        member_id=_STRING,
        topic=_STRING,
        partition=_INT,
        **_SOURCE,
    ),
    key=(*_SOURCE, "member_id", "topic", "partition"),
)

CONSUMER_RECORDS: Final = Table(
    name="consumer_records",
    schema=_schema(
        group=_STRING,
        at_ms=_LONG,  # timestamp of the record
        kind=_STRING,  # name of a `codec.ConsumerKind`, in lower case
        name=_STRING,  # member id or regular expression; "" for a record of the whole group
        is_tombstone=BooleanType(),
        epoch=_INT,  # of the group, of its target, or of the member
        instance_id=_STRING,
        client_id=_STRING,
        client_host=_STRING,
        topics=ArrayType(_STRING),  # subscribed topics, or those that match the expression
        regex=_STRING,  # expression that the member subscribes to
        session_timeout_ms=_INT,  # of a member with the classic protocol, else null
        rebalance_timeout_ms=_INT,
        is_classic=BooleanType(),  # the member uses the classic protocol
        names=ArrayType(_schema(topic_id=_STRING, topic=_STRING)),  # only in Kafka 4.0
        partitions=_PARTITIONS_OF_IDS,  # target of the member, or partitions that it owns
        revoking=_PARTITIONS_OF_IDS,  # partitions that it owns until it has revoked them
        **_SOURCE,
    ),
    key=tuple(_SOURCE),
)

REJECTED: Final = Table(
    name="rejected",
    schema=_schema(
        source=_STRING,  # topic or file
        source_partition=_INT,  # null in a file
        source_offset=_LONG,  # offset, null in a file
        at_ms=_LONG,  # timestamp of the record; null in a file
        part=_STRING,  # "key", "value", "line", or the name of an embedded message
        reason=_STRING,
        key=BinaryType(),
        value=BinaryType(),
    ),
    key=("source", *_SOURCE, "part", "value"),
)

# --- lag and load ---------------------------------------------------------------------------------

ENDS: Final = Table(
    name="ends",
    schema=_schema(
        topic=_STRING,
        partition=_INT,
        at_ms=_LONG,  # time of the offsets
        begin=_LONG,  # first remaining offset, at the time of the look-up
        end=_LONG,  # offset of the next record; null if a timestamp in the future hides it
        is_present=BooleanType(),  # the offsets are of the time of the look-up; null in old rows
        topic_id=_STRING,  # id of the topic at the time of the look-up; null if unknown
    ),
    key=("topic", "partition", "at_ms"),
)

LAG: Final = Table(
    name="lag",
    schema=_schema(
        **_PARTITION,
        at_ms=_LONG,
        end=_LONG,  # as in ends
        committed=_LONG,  # null without a commit
        lag=_LONG,  # records, never negative; null if unknown
        rule=_STRING,  # "committed"; without a commit in the log "earliest" or "latest"; "unknown"
    ),
    key=(*_PARTITION, "at_ms"),
    is_derived=True,
)

LOADS: Final = Table(
    name="loads",
    schema=_schema(
        **_PARTITION,
        hour=_INT,  # of the day, UTC, 0 to 23
        arrival_per_s=_DOUBLE,  # records produced; null if the ends were seen less than twice
        consumption_per_s=_DOUBLE,  # records committed; null with fewer than two commits
        arrival_s=_DOUBLE,  # seconds of observation of the arrivals
        consumption_s=_DOUBLE,
    ),
    key=(*_PARTITION, "hour"),
    is_derived=True,
    time="",
)

# --- our own telemetry ----------------------------------------------------------------------------

EVENTS: Final = Table(
    name="events",
    schema=_schema(
        **_LINE,
        kind=_STRING,
        record=_STRING,  # the line, with the fields of its kind: JSON
        digest=_STRING,  # digest of the line: repeated lines are one row
    ),
    key=("digest",),
)

ROUNDS: Final = Table(
    name="rounds",
    schema=_schema(
        group=_STRING,
        at_ms=_LONG,
        member=_STRING,  # the leader
        generation=_INT,
        policy=_STRING,
        assignor=_STRING,
        members=ArrayType(_STRING),
        granted=_INT,  # counts of resources
        revoked=_INT,
        lost=_INT,
        created=_INT,
        waiting=_INT,
        contested=_INT,
        follow_up=BooleanType(),
        rejoin_in_ms=_LONG,  # null for never
        digest=_STRING,
    ),
    key=("digest",),
)

WORK: Final = Table(
    name="work",
    schema=_schema(
        **_LINE,
        topic=_STRING,
        partition=_INT,
        is_start=BooleanType(),  # the application began to work on the partition; else it stopped
        reason=_STRING,  # reason of a stop: "revoked", "lost", "closed", "changed"
        duration_ms=_LONG,  # length of a stop: callback and commit
        digest=_STRING,
    ),
    key=("digest", "topic", "partition"),
)

# --- episodes -------------------------------------------------------------------------------------

REBALANCES: Final = Table(
    name="rebalances",
    schema=_schema(
        group=_STRING,  # name of the group
        source=_STRING,  # `history` or `telemetry`
        first_generation=_INT,  # generation of the first round
        last_generation=_INT,  # generation of the last round
        trigger=_STRING,  # how the members changed: see above
        rounds=_INT,  # number of generations; 0 for a restart
        missing=_INT,  # generations right before without a record
        begin_earliest_ms=_LONG,  # lower bound of the begin
        begin_ms=_LONG,  # end of the first round; in telemetry, its begin
        end_ms=_LONG,  # end of the last round
        duration_ms=_LONG,  # `end_ms` - `begin_ms`
        members_before=_INT,  # members before the first round
        members_after=_INT,  # members after the last round
        joined=_INT,  # members after it that were not there before
        left=_INT,  # members before it that are not there after
        partitions=_INT,  # partitions with an owner after the rebalance; null in telemetry
        moved=_INT,  # partitions that moved between processes
        moved_twice=_INT,  # partitions that moved more than once
        unavailable_partition_s=_DOUBLE,  # sum of its outages; null if none of them is visible
        unavailable_error_s=_DOUBLE,  # maximum error of the sum
        unobserved=_INT,  # partitions that moved, or lost their owner, without a visible gap
    ),
    key=("group", "source", "first_generation", "begin_ms", "trigger"),
    is_derived=True,
    time="end_ms",
)

OUTAGES: Final = Table(
    name="outages",
    schema=_schema(
        group=_STRING,  # name of the group
        source=_STRING,  # `history` or `telemetry`
        first_generation=_INT,  # that of its rebalance
        topic=_STRING,  # topic of the partition
        partition=_INT,  # number of the partition
        begin_ms=_LONG,  # estimate of its begin: `unavailable_ms` before its end
        end_ms=_LONG,  # first commit after it; null for an open outage
        unavailable_ms=_LONG,  # estimate of its length: the gap less one usual interval
        error_ms=_LONG,  # maximum error of the estimate
    ),
    key=("group", "source", "first_generation", "topic", "partition", "begin_ms"),
    is_derived=True,
    time="end_ms",
)

ABSENCES: Final = Table(
    name="absences",
    schema=_schema(
        group=_STRING,  # name of the group
        member_id=_STRING,  # member id that left
        instance_id=_STRING,  # static id; null for a dynamic member
        client_id=_STRING,  # `client.id` of the member
        client_host=_STRING,  # address of the member
        generation=_INT,  # last generation of the member
        session_timeout_ms=_INT,  # session timeout of the member
        partitions=_INT,  # partitions that it owned in its last state
        gone_earliest_ms=_LONG,  # its last round, commit or change of partitions
        gone_ms=_LONG,  # best estimate of its departure
        gone_latest_ms=_LONG,  # first state of the group without it
        returned_ms=_LONG,  # first state with the returned member; null for `never`
        returned_member_id=_STRING,  # its new member id; null for `never`
        returned_as=_STRING,  # `static_id`, `telemetry`, `client_and_host` (likely) or `never`
        absent_ms=_LONG,  # `returned_ms` - `gone_ms`; null for `never`
        observed_until_ms=_LONG,  # `never` is known up to it; null: end of what `episodes` read
    ),
    key=("group", "member_id", "generation"),
    is_derived=True,
    time="gone_latest_ms",
)

SKEW: Final = Table(
    name="skew",
    schema=_schema(
        group=_STRING,  # name of the group
        at_ms=_LONG,  # moment of `lag`
        generation=_INT,  # generation at that moment
        members=_INT,  # number of members then
        lag_total=_LONG,  # records that wait, over partitions with an owner
        lag_max=_LONG,  # those of the member with the highest lag
        lag_mean=_DOUBLE,  # `lag_total` / `members`
        imbalance=_DOUBLE,  # `lag_max` / `lag_mean`: 1 is even; null without any lag
    ),
    key=("group", "at_ms"),
    is_derived=True,
)

TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {
        table.name: table
        for table in (
            *(COMMITS, GENERATIONS, MEMBERS, ASSIGNMENTS, CONSUMER_RECORDS, REJECTED),
            *(ENDS, LAG, LOADS),
            *(EVENTS, ROUNDS, WORK),
            *(REBALANCES, OUTAGES, ABSENCES, SKEW),
        )
    }
)
"""Every table by name."""
