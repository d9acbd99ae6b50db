"""The records that a group coordinator would have written for a simulated run."""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import evolve

from coopgroup.core.model import ResourceSet
from coopgroup.pipeline.episodes.job import checkpointed
from coopgroup.pipeline.history import (
    commit_records,
    consumer_records,
    consumer_states,
    group_records,
    history_frames,
)
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.codec import GroupKey, GroupMember, GroupValue, OffsetKey, OffsetValue
from coopgroup.pipeline.topic.decoding import RAW
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    encode_kafka_assignment,
    encode_subscription,
)
from coopgroup.telemetry import AssignmentReceived, Envelope, OffsetsCommitted, RoundDecided
from tests.spark.frames import make
from tests.spark.stories import history_of
from tests.support.internal_topic import encode_group_value, encode_key, encode_offset_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.tables import Keep
    from coopgroup.simulator.run import Run

Records = list[tuple[int, bytes, bytes]]


def raw_frame(spark: SparkSession, records: Iterable[tuple[int, bytes, bytes | None]]) -> DataFrame:
    """Return records (time, key, value) as they are read from the topic, ordered by time."""
    ordered = sorted(records, key=lambda record: record[0])
    rows = [(key, value, 0, offset, at_ms) for offset, (at_ms, key, value) in enumerate(ordered)]
    return spark.createDataFrame(rows, RAW)


def frames_of(
    raw: DataFrame,
    names: Mapping[str, str] = MappingProxyType({}),
    *,
    keep: Keep = lambda frame: frame,
) -> dict[str, DataFrame]:
    """Return the tables of records that are all there is.

    Args:
        raw: records, in the columns of `RAW`.
        names: names of topics, by id.
        keep: what to do with decoded records, which have several readers.
    """
    kinds = (commit_records(raw), group_records(raw), consumer_records(raw))
    commits, groups, consumers = map(keep, kinds)
    new = consumers.where("reason is null").select(*TABLES["consumer_records"].schema.names)
    states = keep(consumer_states(new, new.limit(0), names))
    return history_frames(commits, groups, consumers, states)


def history_of_runs(
    spark: SparkSession, runs: Mapping[str, Run], *, is_named: bool = False
) -> dict[str, DataFrame]:
    """Return the tables of a history and of its episodes; each group has the name of its run.

    With `is_named`, the names of processes in telemetry prove returns.
    """
    records = []
    for group, run in runs.items():
        telemetry = tuple(evolve(one, group=group) for one in run.telemetry)
        records += [*_commits(telemetry), *_rounds(evolve(run, telemetry=telemetry))]
    raw = raw_frame(spark, records)
    frames = frames_of(raw, keep=checkpointed)
    read = ("commits", "generations", "members", "assignments")
    tables = {name: frames[name].localCheckpoint() for name in read} | {"lag": make(spark, "lag")}
    names = {
        (group, one.member, one.client) for group, run in runs.items() for one in run.telemetry
    }
    named = [row for row in sorted(names) if is_named and row[1] and row[2]]
    identities = spark.createDataFrame(named, "group string, member_id string, identity string")
    return {**tables, **history_of(tables, identities if is_named else None)}


def _commits(telemetry: Sequence[Envelope]) -> Records:
    records = []
    for one in telemetry:
        if isinstance(one.record, OffsetsCommitted):
            pairs = zip(one.record.resources, one.record.offsets, strict=True)
            for (topic, partition), offset in pairs:
                key = OffsetKey(group=one.group, topic=topic, partition=partition)
                value = OffsetValue(committed=offset, commit_ms=one.at_ms)
                records.append((one.at_ms, encode_key(key), encode_offset_value(value)))
    return records


def _rounds(run: Run) -> Records:
    """A round is written when its leader has answered: at the first assignment."""
    led = {one.generation: one for one in run.telemetry if isinstance(one.record, RoundDecided)}
    got: dict[int, dict[str, Envelope]] = defaultdict(dict)
    for one in run.telemetry:
        if isinstance(one.record, AssignmentReceived):
            got[one.generation].setdefault(one.member, one)
    clients = {one.member: one.client for one in run.telemetry if one.member and one.client}
    records = []
    for generation, leader in led.items():
        answers = got[generation]
        if not answers:
            continue
        at_ms = min(one.at_ms for one in answers.values())
        assert isinstance(leader.record, RoundDecided)
        members = tuple(
            _member(run, member_id, clients[member_id], answers.get(member_id))
            for member_id in leader.record.members
        )
        value = GroupValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range" if run.scenario.group.policy.name == "eager" else "coopgroup",
            leader=leader.member,
            state_ms=at_ms,
            members=members,
        )
        key = encode_key(GroupKey(group=leader.group))
        records.append((at_ms, key, encode_group_value(value)))
    return records


def _member(run: Run, member_id: str, client: str, answer: Envelope | None) -> GroupMember:
    group = run.scenario.group
    held = ResourceSet()
    if answer is not None and isinstance(answer.record, AssignmentReceived):
        held = answer.record.kept | answer.record.gained
    topics = tuple(topic.name for topic in run.scenario.topics)
    return GroupMember(
        member_id=member_id,
        client_id=client,
        client_host=f"/host-of-{client}",
        rebalance_timeout_ms=group.rebalance_timeout_ms,
        session_timeout_ms=group.session_timeout_ms,
        subscription=encode_subscription(Subscription(topics=topics)),
        assignment=encode_kafka_assignment(KafkaAssignment(assigned=held)),
    )
