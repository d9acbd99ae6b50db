"""Ends of partitions, asked from the brokers: now, or as they were at earlier moments.

Kafka knows no history of ends, but it can say which record is the first one of a time, and that is
where the partition ended then. Two things limit it. Timestamps are the producers', so ends are as
right as their clocks. And a record that retention took away is not counted any more: a moment whose
first record is the first that is left is skipped, unless nothing was ever taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import functions as sql

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.shown_values import HIDDEN, safe_reason
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from coopgroup.pipeline.tables import Tables

__all__ = ["ENDS_JOB", "Brokers", "grid_ms", "slices", "step_ms", "write_ends"]

ENDS_JOB: Final = "ends"
MOMENTS_MAX: Final = 5_000
_SLICE: Final = 500  # moments whose ends are in memory at once
_MINUTE_MS: Final = 60_000
_ANSWER_S: Final = 10.0
_MS_PER_S: Final = 1_000
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - spelt so there
_KEY: Final = ("topic", "partition", "at_ms")
_Row = tuple[str, int, int, int, int]


@frozen(kw_only=True)
class Brokers:
    """A cluster to ask.

    Attributes:
        config: address and security, in the keys of confluent_kafka.
    """

    config: Mapping[str, str]

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has.

        Raises:
            ConfigurationError: the configuration is refused.
            PipelineError: nobody answers.
        """
        refusals: list[str] = []
        admin = self._admin(refusals)
        try:
            topics = admin.list_topics(timeout=_ANSWER_S).topics
        except KafkaException as error:
            admin.poll(0)  # hands over what was refused on the way
            address = self.config.get("bootstrap.servers", "")
            reason = (refusals or [error.args[0].str()])[-1]
            raise PipelineError(f"no broker answers at {address}: {reason}") from None
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def require_topic(self, topic: str, why: str) -> None:
        """Check that a topic exists.

        Args:
            topic: its name.
            why: what it means that it does not, for the message.

        Raises:
            PipelineError: it does not exist, or nobody answers.
        """
        if topic not in self.partitions():
            raise PipelineError(f"there is no topic {topic}: {why}")

    def ends(self, topics: Iterable[str], moments_ms: Sequence[int], now_ms: int) -> list[_Row]:
        """Begin and end of partitions at some moments, and now.

        Args:
            topics: those that do not exist (any more) are left out.
            moments_ms: in the past.
            now_ms: what to call the present.

        Returns:
            (topic, partition, at_ms, begin, end).

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
            return []
        admin = self._admin([])
        begins = _offsets(admin, places, OffsetSpec.earliest())
        ends = _offsets(admin, places, OffsetSpec.latest())
        rows = [(*place, now_ms, begins[place], ends[place]) for place in sorted(ends)]
        for at_ms in moments_ms:
            firsts = _offsets(admin, places, OffsetSpec.for_timestamp(at_ms))
            rows += [
                (*place, at_ms, begins[place], first if first >= 0 else ends[place])
                for place, first in sorted(firsts.items())
                if first != begins[place] or begins[place] == 0
            ]
        return rows

    def _admin(self, refusals: list[str]) -> AdminClient:
        """A client that adds why a broker refused it."""

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


def _offsets(
    admin: AdminClient,
    places: Sequence[TopicPartition],
    spec: Any,  # noqa: ANN401 - untyped there
) -> dict[tuple[str, int], int]:
    asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_ANSWER_S)
    try:
        return {
            (place.topic, place.partition): future.result().offset
            for place, future in asked.items()
        }
    except KafkaException as error:
        raise PipelineError(f"offsets cannot be looked up: {error.args[0].str()}") from None


def step_ms(since_ms: int, until_ms: int) -> int:
    """Shortest step in whole minutes, in ms, with which `grid_ms` has not too many moments."""
    minutes = -(-(until_ms - since_ms) // (MOMENTS_MAX * _MINUTE_MS))
    return max(1, minutes) * _MINUTE_MS


def slices(moments: range, size: int = _SLICE) -> Iterator[range]:
    """Parts of moments, in order, of so many at most; one without any where there are none."""
    for first in range(0, max(1, len(moments)), size):
        yield moments[first : first + size]


def grid_ms(since_ms: int, until_ms: int, every_ms: int) -> range:
    """Moments between two times, at whole multiples of the step, so that they repeat.

    Raises:
        ConfigurationError: there are more than anybody would wait for.
    """
    first = -(-since_ms // every_ms) * every_ms
    moments = range(first, until_ms, every_ms)
    if len(moments) > MOMENTS_MAX:
        least_s = -(-(until_ms - since_ms) // (MOMENTS_MAX * _MS_PER_S))
        raise ConfigurationError(
            "--every", every_ms / _MS_PER_S, f"at least {least_s} seconds for so long a history"
        )
    return moments


def write_ends(tables: Tables, rows: Sequence[_Row]) -> None:
    """Add ends that the table does not have yet.

    Args:
        tables: where to.
        rows: from `Brokers.ends`.
    """
    frame = tables.spark.createDataFrame(list(rows), TABLES["ends"].schema)
    known = tables.read("ends").select(*_KEY)
    tables.append(ENDS_JOB, {"ends": frame.join(sql.broadcast(known), list(_KEY), "left_anti")})
