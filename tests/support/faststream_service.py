"""A service of FastStream on coopgroup, which writes down what happens to it.

The file NAME.rows gets the records of the handler, and NAME.gives the partitions that are revoked.

Arguments: the broker's address, the topic, the name of this process.
"""

import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from confluent_kafka import TopicPartition
from faststream import FastStream
from faststream.confluent.annotations import KafkaMessage
from faststream.middlewares import AckPolicy

from coopgroup.integrations.faststream import KafkaBroker

address, topic, name = sys.argv[1:]
broker = KafkaBroker(address, log_level=logging.DEBUG)
rows = Path(f"{name}.rows").open("w", buffering=1)  # noqa: SIM115 - until the process ends


gives = Path(f"{name}.gives").open("w", buffering=1)  # noqa: SIM115


def give_up(_: object, partitions: list[TopicPartition]) -> None:
    gives.write(f"{json.dumps([time.monotonic(), [one.partition for one in partitions]])}\n")


@broker.subscriber(
    topic,
    group_id=topic,
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.ACK,
    session_timeout_ms=6_000,
    on_revoke=give_up,
)
async def handle(order: str, message: KafkaMessage) -> None:
    record = message.raw_message
    assert not isinstance(record, tuple)
    delay_ms = time.time() * 1000 - record.timestamp()[1]
    row = [time.monotonic(), delay_ms, name, record.partition(), record.offset()]
    rows.write(f"{json.dumps(row)}\n")


asyncio.run(FastStream(broker).run())
