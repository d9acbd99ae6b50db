"""A service on asyncio: it counts the words of a topic, and commits what it has counted.

    python examples/async_service.py --bootstrap localhost:9092 --topic lines --group counters

Start as many as you like. Ctrl-C or SIGTERM ends a process: it passes its partitions on while it
goes on counting, writes its counts, commits, and leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections import Counter

from coopgroup.aio import AsyncCooperativeConsumer, TopicPartition

HAND_OVER_S = 10.0
WAIT_S = 1.0


class WordCounter:
    """Counts words by partition, so that a partition's counts can be written when it moves."""

    def __init__(self) -> None:
        self.words: dict[TopicPartition, Counter[bytes]] = {}

    def add(self, partition: TopicPartition, line: bytes | None) -> None:
        """Count the words of a line."""
        self.words.setdefault(partition, Counter()).update((line or b"").split())

    async def write(self, partition: TopicPartition) -> None:
        """Write the counts of a partition to the database, which takes its time."""
        counts = self.words.pop(partition, Counter())
        await asyncio.sleep(0.05)
        print(f"{partition.topic}-{partition.partition}: {counts.total()} words", flush=True)


async def count(consumer: AsyncCooperativeConsumer, counter: WordCounter) -> None:
    """Count until cancelled; a cancellation loses no record."""
    while True:
        batch = await consumer.getmany(timeout=WAIT_S, max_records=500)
        for partition, records in batch.items():
            for record in records:
                counter.add(partition, record.value)
            print(f"counted {len(records)} lines of {partition.topic}", flush=True)


async def serve(bootstrap: str, topic: str, group: str) -> None:
    """Run the service until a signal."""
    counter = WordCounter()

    async def on_revoke(_: AsyncCooperativeConsumer, partitions: list[TopicPartition]) -> None:
        # Only these partitions wait. Their positions are committed when this returns.
        for partition in partitions:
            await counter.write(partition)

    def on_lost(_: AsyncCooperativeConsumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            counter.words.pop(partition, None)  # another member counts these records again

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
    }
    consumer = AsyncCooperativeConsumer(config)
    consumer.subscribe([topic], on_revoke=on_revoke, on_lost=on_lost)
    async with consumer:
        counting = asyncio.create_task(count(consumer, counter))
        await asyncio.wait(
            [counting, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        if not counting.done():
            await consumer.hand_over(timeout=HAND_OVER_S)
            counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="lines")
    parser.add_argument("--group", default="counters")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.bootstrap, arguments.topic, arguments.group))


if __name__ == "__main__":
    main()
