"""Ends of partitions from the brokers: at present, or at earlier moments.

Kafka keeps no history of ends. But it can find the first record of a time, whose offset was the
end of the partition then. This has three limits. Timestamps come from producers, so ends are as
accurate as their clocks. Retention deletes records: a moment whose first record is the first
remaining one is skipped, unless the partition still has all its records. And a record with a
timestamp in the future is the first one of all moments before: their end is unknown, so it is null.

The answer for a past moment does not change. So a job notes which moments it has asked for, and
asks for others only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from attrs import frozen
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.errors import ConfigurationError, PipelineError
from coopgroup.kafka.config.shown_values import HIDDEN, safe_reason
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.sources import Source
from coopgroup.pipeline.spark.workers import settled

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

    from coopgroup.pipeline.tables import Tables

__all__ = ["ENDS_JOB", "Asked", "Cluster", "grid_ms", "step_ms", "write_ends"]

ENDS_JOB: Final = "ends"
MOMENTS_MAX: Final = 5_000
_TASKS_PER_CORE: Final = 4
_MINUTE_MS: Final = 60_000
_AHEAD_MS: Final = _MINUTE_MS  # clocks of producers and of this machine may differ by so much
_ANSWER_S: Final = 10.0
_MS_PER_S: Final = 1_000
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_NO_RIGHT: Final = KafkaError.TOPIC_AUTHORIZATION_FAILED
_NOT_TOLD: Final = (_NO_RIGHT, KafkaError.UNKNOWN_TOPIC_OR_PART)
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zeros: the brokers have no ids
_URL_SAFE: Final = str.maketrans("+/", "-_")
_Place = tuple[str, int]
_Row = tuple[str, int, int, int, int | None, bool, str | None]


@frozen(kw_only=True)
class Cluster:
    """A Kafka cluster.

    Attributes:
        config: address and security, in the keys of confluent_kafka.
    """

    config: Mapping[str, str]

    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic.

        Raises:
            ConfigurationError: the configuration is refused.
            PipelineError: the brokers do not answer.
        """
        topics = self._metadata().topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def source(self, topic: str, why: str) -> Source:
        """Return the ids of a topic and of its cluster.

        Args:
            topic: its name.
            why: consequence of a missing topic, for the message.

        Raises:
            PipelineError: the topic does not exist, or the brokers do not answer.
        """
        found = self._metadata()
        if topic not in found.topics:
            raise PipelineError(
                f"the user has no right to describe topic {topic}"
                if self._is_hidden(topic)
                else f"there is no topic {topic}: {why}"
            )
        ids = _topic_ids(self._admin([]), [topic])
        return Source(cluster=found.cluster_id or "", topic=topic, topic_id=ids.get(topic, ""))

    def names(self) -> dict[str, str]:
        """Return the name of each topic by its id.

        Raises:
            PipelineError: the brokers do not answer.
        """
        topics = sorted(self._metadata().topics)
        ids = _topic_ids(self._admin([]), topics, is_complete=True)
        return {one: name for name, one in ids.items()}

    def lives(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id and the number of partitions of each topic that exists.

        Raises:
            PipelineError: the brokers do not answer.
        """
        counts = self.partitions()
        known = sorted(set(topics) & set(counts))
        ids = _topic_ids(self._admin([]), known) if known else {}
        return {topic: f"{ids.get(topic, '')} {counts[topic]}" for topic in known}

    def cluster(self) -> str:
        """Return the id of the cluster; "" if the brokers do not report it.

        Raises:
            PipelineError: the brokers do not answer.
        """
        return self._metadata().cluster_id or ""

    def _is_hidden(self, topic: str) -> bool:
        """Return whether the brokers refuse to describe a topic, which hides it from lists."""
        admin = self._admin([])  # the answer is lost without it
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_S)
        refusal = asked[topic].exception()
        return isinstance(refusal, KafkaException) and refusal.args[0].code() == _NO_RIGHT

    def _metadata(self) -> ClusterMetadata:
        refusals: list[str] = []
        admin = self._admin(refusals)
        try:
            return admin.list_topics(timeout=_ANSWER_S)
        except KafkaException as error:
            admin.poll(0)  # reports errors that occurred meanwhile
            address = self.config.get("bootstrap.servers", "")
            reason = (refusals or [error.args[0].str()])[-1]
            raise PipelineError(f"no broker answers at {address}: {reason}") from None

    def ends(
        self, topics: Iterable[str], moments_ms: Iterable[int], now_ms: int | None
    ) -> Iterator[list[_Row]]:
        """Yield the begins and ends of all partitions at each moment.

        Args:
            topics: topics that do not exist (or were deleted) are left out.
            moments_ms: moments in the past.
            now_ms: time to record for the present, which comes first; `None` leaves it out.

        Yields:
            Rows (topic, partition, at_ms, begin, end, is_present, topic_id) of one moment,
            ascending. The end is `None` if the first record has a timestamp in the future.

        Raises:
            PipelineError: the brokers do not answer.
        """
        counts = self.partitions()
        places = [
            TopicPartition(topic, partition)
            for topic in sorted(set(topics) & set(counts))
            for partition in range(counts[topic])
        ]
        if not places:
            return
        admin = self._admin([])
        ids = _topic_ids(admin, sorted({place.topic for place in places}))
        begins = _first_records(admin, places, OffsetSpec.earliest())
        ends = _first_records(admin, places, OffsetSpec.latest())
        if now_ms is not None:
            yield [
                (*place, now_ms, begins[place].offset, ends[place].offset, True, ids.get(place[0]))
                for place in sorted(begins.keys() & ends.keys())
            ]
        newest_ms = time.time_ns() // 1_000_000 + _AHEAD_MS
        for at_ms in moments_ms:
            firsts = _first_records(admin, places, OffsetSpec.for_timestamp(at_ms))
            rows: list[_Row] = []
            for place in sorted(firsts.keys() & begins.keys() & ends.keys()):
                first, begin = firsts[place], begins[place].offset
                if first.offset == begin != 0:
                    continue
                end = first.offset if first.offset >= 0 else ends[place].offset
                known = end if first.timestamp <= newest_ms else None
                rows.append((*place, at_ms, begin, known, False, ids.get(place[0])))
            yield rows

    def _admin(self, refusals: list[str]) -> AdminClient:
        """Return a client that adds the brokers' refusals to the list."""

        def tell(error: KafkaError) -> None:
            if error.code() in _REFUSALS:
                refusals.append(error.str())

        config: dict[str, Any] = {"log_level": 0, "error_cb": tell, **self.config}
        try:
            return AdminClient(config)
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            said = safe_reason(reason, self.config) or HIDDEN
            raise ConfigurationError("--config", said, "what librdkafka accepts") from None


def _topic_ids(
    admin: AdminClient, topics: Sequence[str], *, is_complete: bool = False
) -> dict[str, str]:
    """Return the ids of topics, without those that the brokers do not tell.

    Raises:
        PipelineError: the brokers did not answer, and all ids are needed.
    """
    found = {}
    asked = admin.describe_topics(TopicCollection([*topics]), request_timeout=_ANSWER_S)
    for topic, future in asked.items():
        # A user may lack the right to describe topics.
        try:
            text = str(future.result().topic_id or "").translate(_URL_SAFE)
        except KafkaException as error:
            if is_complete and error.args[0].code() not in _NOT_TOLD:
                said = error.args[0].str()
                raise PipelineError(f"the brokers do not tell the id of {topic}: {said}") from None
        else:
            if text and text != _NO_TOPIC_ID:
                found[topic] = text
    return found


def _first_records(
    admin: AdminClient,
    places: Sequence[TopicPartition],
    spec: Any,  # noqa: ANN401 - untyped there
) -> dict[_Place, Any]:
    """Return offset and timestamp of a record in each partition that exists.

    Raises:
        PipelineError: the brokers did not answer.
    """
    found = {}
    asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_ANSWER_S)
    for place, future in asked.items():
        try:
            found[place.topic, place.partition] = future.result()
        except KafkaException as error:
            # Its topic was deleted, or made again with fewer partitions, since it was listed.
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                said = error.args[0].str()
                raise PipelineError(f"offsets cannot be looked up: {said}") from None
    return found


def step_ms(since_ms: int, until_ms: int) -> int:
    """Return the shortest step that `grid_ms` accepts, in ms, a multiple of a minute."""
    minutes = -(-(until_ms - since_ms) // (MOMENTS_MAX * _MINUTE_MS))
    return max(1, minutes) * _MINUTE_MS


def grid_ms(since_ms: int, until_ms: int, every_ms: int) -> range:
    """Return moments between two times, at whole multiples of the step, so that they repeat.

    Raises:
        ConfigurationError: there are too many moments.
    """
    first = -(-since_ms // every_ms) * every_ms
    moments = range(first, until_ms, every_ms)
    if len(moments) > MOMENTS_MAX:
        least_s = -(-(until_ms - since_ms) // (MOMENTS_MAX * _MS_PER_S))
        raise ConfigurationError(
            "--every", every_ms / _MS_PER_S, f"at least {least_s} seconds for so long a history"
        )
    return moments


def write_ends(
    tables: Tables,
    brokers: Cluster,
    topics: Sequence[str],
    moments: range,
    now_ms: int,
    until_ms: int | None = None,
) -> tuple[str, ...]:
    """Look up ends, now and at earlier moments, and add those that the table does not have yet.

    The executors ask the brokers, each for some of the moments. So neither the driver nor an
    executor ever holds more than the ends of one moment.

    Args:
        tables: tables to write to.
        brokers: the cluster.
        topics: topics that do not exist (or were deleted) are left out.
        moments: moments in the past, from `grid_ms`.
        now_ms: time to record for the present.
        until_ms: end of the history, a further moment. Without a new one, no later moment counts,
            so the present ends are not needed.

    Returns:
        The topics that do not exist, or that the user may not describe.

    Raises:
        PipelineError: the brokers do not answer.
    """
    lives = brokers.lives(topics)
    noted = (tables.noted(ENDS_JOB) if tables.version("ends") >= 0 else None) or {}
    known = {topic: (life, Asked(*one)) for topic, (life, *one) in noted.get("asked", {}).items()}
    asked = {topic: one for topic, (life, one) in known.items() if lives.get(topic) == life}
    asks: list[tuple[int | None, tuple[str, ...]]] = []
    if until_ms is None or until_ms != noted.get("until_ms"):
        asks.append((None, tuple(lives)))
        asks += [] if until_ms is None else [(until_ms, tuple(lives))]
    alike: dict[Asked | None, list[str]] = {}
    for topic in lives:
        alike.setdefault(asked.get(topic), []).append(topic)
    for at_ms in moments:
        new = [some for one, some in alike.items() if one is None or not one.has(at_ms)]
        asks += [(at_ms, tuple(chain.from_iterable(new)))] if new else []
    gone = tuple(topic for topic in topics if topic not in lives)
    if not asks or not lives:
        return gone
    tasks = min(len(asks), _TASKS_PER_CORE * tables.spark.sparkContext.defaultParallelism)
    look_up = partial(_looked_up, brokers=brokers, asks=asks, now_ms=now_ms)
    numbers = tables.spark.range(0, len(asks), 1, max(1, tasks))
    found = numbers.mapInArrow(partial(settled, look_up), TABLES["ends"].schema)
    first_ms = min(at_ms or now_ms for at_ms, _ in asks)
    tables.merge({"ends": found}, from_ms={"ends": first_ms})
    if moments:
        new_ones = Asked(moments.step, moments[0], moments[-1])
        asked |= {
            topic: asked[topic].joined(new_ones) if topic in asked else new_ones for topic in lives
        }
    said = {topic: (lives[topic], *one) for topic, one in asked.items()}
    tables.note(ENDS_JOB, {"asked": said, "until_ms": until_ms})
    return gone


class Asked(NamedTuple):
    """Moments for which the brokers were asked about a topic: every so often, both ends included.

    A topic that was made again, or got more partitions, has other answers.
    """

    every_ms: int
    first_ms: int
    last_ms: int

    def has(self, at_ms: int) -> bool:
        """Return whether the moment is one of them."""
        return self.first_ms <= at_ms <= self.last_ms and at_ms % self.every_ms == 0

    def joined(self, new: Asked) -> Asked:
        """Return these moments and new ones; only the new ones, if they do not continue these."""
        first, second = sorted((self, new), key=lambda one: one.first_ms)
        if self.every_ms != new.every_ms or second.first_ms > first.last_ms + new.every_ms:
            return new
        return first._replace(last_ms=max(first.last_ms, second.last_ms))


def _looked_up(
    batches: Iterable[pa.RecordBatch],
    *,
    brokers: Cluster,
    asks: Sequence[tuple[int | None, tuple[str, ...]]],
    now_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Look up the ends of the moments with the given numbers; no moment is the present."""
    schema = to_arrow_schema(TABLES["ends"].schema)
    moments: dict[tuple[str, ...], list[int | None]] = {}
    for number in (number for batch in batches for number in batch.column("id").to_pylist()):
        at_ms, topics = asks[number]
        moments.setdefault(topics, []).append(at_ms)
    for topics, some in moments.items():
        past = [at_ms for at_ms in some if at_ms is not None]
        for rows in brokers.ends(topics, past, now_ms if None in some else None):
            columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
            kinds = [one.type for one in schema]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
