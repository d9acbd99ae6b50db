"""`python -m tests.lab.rollouts`: play and keep the history of a real group, for the demonstration.

A group of confluent_kafka with static ids consumes on a real broker, and 20 rollouts restart its
members one after the other. A restart takes longer than the session, so each of them moves
partitions there and back. `CANNED` then has what the pipeline reads of such a group: the records of
`__consumer_offsets`, and the ends of the partitions. This takes half an hour.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.errors import DecodeError
from coopgroup.pipeline.ends import Cluster
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.topic.codec import decode_key
from coopgroup.pipeline.topic.decoding import RAW
from coopgroup.testing import KafkaCluster
from tests.lab.controller import Trial
from tests.lab.processes import TrialError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.group import Group

CANNED: Final = Path(__file__).parent / "canned"
RECORDS, ENDS = "records.parquet", "ends.parquet"
GROUP: Final = "billing"
TOPIC: Final = "invoices"
PARTITIONS: Final = 6
MEMBERS: Final = ("m1", "m2", "m3")
ROLLOUTS: Final = 20
RATE_PER_PARTITION: Final = 20.0
COMMIT_MS: Final = 2_000
DOWN_S: Final = (6.5, 10.5)  # the session is 6 s
REST_S: Final = 32.0  # after 30 s advice sees another rollout
ENDS_EVERY_MS: Final = 10_000
_INTERNAL_TOPIC: Final = "__consumer_offsets"
_ANSWER_S: Final = 10.0


@click.command()
def command() -> None:
    """Play the rollouts and write the files."""
    dice = random.Random(20)
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        config = dict(cluster.client_config())
        since_ms = int(1_000 * time.time())
        with Trial(client_config=config, topics=[TOPIC], partitions_per_topic=PARTITIONS) as trial:
            trial.start_producer(rate_per_partition=RATE_PER_PARTITION)
            group = trial.group(
                "cooperative-sticky-static", group_id=GROUP, commit_interval_ms=COMMIT_MS
            )
            group.start(*MEMBERS)
            _settle(group)
            for number in range(ROLLOUTS):
                time.sleep(REST_S)
                click.echo(f"rollout {number + 1} of {ROLLOUTS}")
                for name in MEMBERS:
                    group.stop(name)
                    time.sleep(dice.uniform(*DOWN_S))
                    group.start(name)
                    _settle(group)
            time.sleep(REST_S)
            until_ms = int(1_000 * time.time())
            records = [*_records(config)]
            ends = _ends(config, range(since_ms, until_ms, ENDS_EVERY_MS))
            trial.finish()
    CANNED.mkdir(exist_ok=True)
    for file, rows, schema in (
        (RECORDS, records, RAW),
        (ENDS, ends, TABLES["ends"].schema),
    ):
        table = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema))
        pq.write_table(  # type: ignore[no-untyped-call]
            table, CANNED / file, compression="zstd", compression_level=19
        )
        click.echo(f"{table.num_rows:,} rows in {CANNED / file}")


def _settle(group: Group) -> None:
    if not group.wait_settled(timeout_s=60.0):
        raise TrialError("the group did not settle")


def _records(config: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the records of the group in the internal topic, as Spark would read them."""
    own = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**config, **own, "auto.offset.reset": "earliest"})
    numbers = [*consumer.list_topics(_INTERNAL_TOPIC).topics[_INTERNAL_TOPIC].partitions]
    consumer.assign([TopicPartition(_INTERNAL_TOPIC, number, 0) for number in numbers])
    left = {*numbers}
    while left:
        message = consumer.poll(_ANSWER_S)
        if message is None:
            raise TrialError(f"the broker has sent nothing of {_INTERNAL_TOPIC} any longer")
        if message.error() is not None:
            left.discard(message.partition())
        elif _group_of(message.key()) == GROUP:
            yield {
                "key": message.key(),
                "value": message.value(),
                "source_partition": message.partition(),
                "source_offset": message.offset(),
                "written_ms": message.timestamp()[1],
            }
    consumer.close()


def _group_of(key: bytes | None) -> str | None:
    try:
        return None if key is None else decode_key(key).group
    except DecodeError:
        return None


def _ends(config: dict[str, str], moments_ms: range) -> list[dict[str, Any]]:
    """Return the ends of all partitions at some moments, as the job `lag` would look them up."""
    names = TABLES["ends"].schema.names
    found = Cluster(config=config).ends([TOPIC], moments_ms, None)
    return [dict(zip(names, row, strict=True)) for rows in found for row in rows]


if __name__ == "__main__":
    command()
