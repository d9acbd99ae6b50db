"""A partition moves between asyncio members when its new owner is warm."""

from __future__ import annotations

import asyncio

from coopgroup import SimplePolicy
from coopgroup.aio import AsyncCooperativeConsumer, TopicPartition
from coopgroup.policies import Warmup
from coopgroup.testing import KafkaCluster
from tests.broker.test_aio import PARTITIONS, produce, settings, until

TOPIC = "aio-warm"


class _Stateful:
    """An application that restores with coroutines, and only when it may."""

    def __init__(self, cluster: KafkaCluster) -> None:
        policy = SimplePolicy(warmup=Warmup(standbys=1))
        config = settings(cluster, TOPIC)
        self.consumer = AsyncCooperativeConsumer(config, policy=policy)
        self.heard: list[tuple[str, list[int]]] = []
        self.kept: set[int] = set()
        self.values: list[bytes | None] = []
        self.may_restore = asyncio.Event()
        self.consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, partitions: self._note("assign", partitions),
            on_revoke=self._revoke,
            on_warmup=self._warm_up,
            on_warmup_cancelled=lambda _, partitions: self._note("cancelled", partitions),
        )

    def calls(self, name: str) -> list[int]:
        return sorted(number for one, numbers in self.heard if one == name for number in numbers)

    async def read(self) -> None:
        async for record in self.consumer:
            self.values.append(record.value)

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.heard.append((name, sorted(one.partition for one in partitions)))

    async def _revoke(
        self, consumer: AsyncCooperativeConsumer, partitions: list[TopicPartition]
    ) -> None:
        await asyncio.sleep(0.05)
        self._note("revoke", partitions)
        self.kept.update(one.partition for one in consumer.warmups() if one in partitions)

    async def _warm_up(
        self, consumer: AsyncCooperativeConsumer, partitions: list[TopicPartition]
    ) -> None:
        self._note("warmup", partitions)
        await self.may_restore.wait()
        consumer.warmed_up(partitions)


def test_partition_moves_when_the_coroutine_has_restored_it(kafka_cluster: KafkaCluster) -> None:
    """The old owner works on meanwhile, and keeps the state as a standby."""
    kafka_cluster.create_topic(TOPIC, PARTITIONS)

    async def main() -> None:
        first, second = _Stateful(kafka_cluster), _Stateful(kafka_cluster)
        async with first.consumer:
            tasks = [asyncio.create_task(first.read())]
            await until(lambda: len(first.consumer.assignment()) == PARTITIONS)
            async with second.consumer:
                tasks.append(asyncio.create_task(second.read()))
                await until(lambda: len(second.calls("warmup")) == PARTITIONS // 2)
                produce(kafka_cluster, TOPIC, 0, 20)
                await until(lambda: len(first.values) == 20)
                await asyncio.sleep(1.5)  # three heartbeats, in which nothing may move
                assert second.consumer.assignment() == frozenset()
                assert first.calls("revoke") == []
                moving = second.calls("warmup")
                second.may_restore.set()
                await until(lambda: second.calls("assign") == moving)
                await until(lambda: set(first.calls("warmup")) == set(moving))
                assert first.calls("revoke") == sorted(first.kept) == moving
                assert second.calls("cancelled") == []
                produce(kafka_cluster, TOPIC, 20, 40)
                await until(lambda: len(first.values) + len(second.values) == 40)
        await asyncio.gather(*tasks)
        assert sorted(map(int, [*first.values, *second.values])) == list(range(40))  # type: ignore[arg-type]

    asyncio.run(main())
