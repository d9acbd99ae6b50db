"""Simulated groups, whose coordinator writes its records, and the tables that follow from these."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from attrs import frozen

from coopgroup.pipeline.asof import in_log_order
from coopgroup.pipeline.episodes.job import checkpointed
from coopgroup.pipeline.history import (
    commit_records,
    consumer_records,
    consumer_states,
    group_records,
    history_frames,
)
from coopgroup.pipeline.lag import interests_of, lag_of, subscribed_moments
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.decoding import RAW
from coopgroup.simulator.run import Run, simulate
from tests.spark.frames import make
from tests.spark.stories import history_of
from tests.support.written_log import Log, WritingCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.tables import Keep
    from coopgroup.simulator.scenario import Scenario


@frozen(kw_only=True)
class Played:
    """A simulated group, and the records of its coordinator."""

    run: Run
    log: Log


def play(scenario: Scenario, log: Log, *, seed: int, policy: str | None = None) -> Played:
    """Simulate a group; `log` gets the records of its coordinator."""
    log.is_eager = (policy or scenario.group.policy.name) == "eager"
    coordinator = partial(WritingCoordinator, log=log)
    with patch("coopgroup.simulator.run.GroupCoordinator", coordinator):
        run = simulate(scenario, policy=policy, seed=seed)
    return Played(run=run, log=log)


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


def history_of_groups(
    spark: SparkSession,
    groups: Iterable[Played],
    *,
    ends: Iterable[dict[str, Any]] = (),
    is_named: bool = False,
) -> dict[str, DataFrame]:
    """Return the tables of a history and of its episodes.

    Args:
        spark: the session.
        groups: the groups, each with topics of its own.
        ends: rows of the table `ends`; the table `lag` follows from them.
        is_named: whether the names of processes in telemetry prove returns.
    """
    groups = tuple(groups)
    raw = raw_frame(spark, [record for one in groups for record in one.log.records])
    names = {
        one.log.topic_id_text(topic): one.log.topic(topic)
        for one in groups
        for topic in one.run.lag.resources.names
    }
    frames = frames_of(raw, names, keep=checkpointed)
    read = ("commits", "generations", "members", "assignments")
    tables = {name: checkpointed(frames[name]) for name in read}
    tables["lag"] = checkpointed(_lag(tables, make(spark, "ends", *ends)))
    known = {
        (one.log.group, record.member, record.client)
        for one in groups
        for record in one.run.telemetry
        if record.member and record.client
    }
    identities = spark.createDataFrame(
        sorted(known), "group string, member_id string, identity string"
    )
    return {**tables, **history_of(tables, identities if is_named else None)}


def _lag(tables: Mapping[str, DataFrame], ends: DataFrame) -> DataFrame:
    commits, members = tables["commits"], tables["members"]
    interests = interests_of(commits, members)
    moments = subscribed_moments(ends, interests, tables["generations"], members)
    return lag_of(ends, in_log_order(commits), interests, moments, "earliest")
