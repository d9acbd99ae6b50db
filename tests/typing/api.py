"""The public API as a type checker sees it: checked by mypy, never run.

Each line is something that users write. A change that breaks one of them breaks their checks.
"""

import threading
from typing import Any, assert_type

from confluent_kafka import KafkaError, Message, TopicPartition

from coopgroup import (
    Catalogue,
    CooperativeConsumer,
    CooperativeGroup,
    DeferredPolicy,
    DrainTimeAssignor,
    IncrementalPolicy,
    LagAwareAssignor,
    Leadership,
    Resource,
    SimplePolicy,
    StickyAssignor,
    WeightedAssignor,
    WorkFailure,
)
from coopgroup.aio import AsyncCooperativeConsumer, ConsumerRecord, OffsetAndMetadata
from coopgroup.processing import Failure, Limits, Retry, Skip, Stop, process, run


def on_assign(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
    consumer.incremental_assign(partitions)


def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    print(error, partitions)  # noqa: T201


def construct() -> None:
    CooperativeConsumer({"group.id": "g", "on_commit": on_commit})
    CooperativeConsumer({"group.id": "g"}, policy=SimplePolicy(), assignor=StickyAssignor())
    CooperativeConsumer({"group.id": "g"}, assignor=LagAwareAssignor(), logger=None)
    CooperativeConsumer({"group.id": "g"}, assignor=DrainTimeAssignor(moves_max=50))
    CooperativeConsumer(
        {"group.id": "g"}, policy=DeferredPolicy(scheduled_rebalance_timeout_ms=30_000)
    )
    CooperativeConsumer(
        {"group.id": "g"}, policy=IncrementalPolicy(max_moves_per_round=4, move_interval_ms=500)
    )
    more: dict[str, Any] = {"client.id": "named"}
    CooperativeConsumer({"group.id": "g"}, **more)


def consume(consumer: CooperativeConsumer) -> None:
    consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_assign, on_lost=None)
    assert_type(consumer.poll(1.0), Message | None)
    assert_type(consumer.consume(num_messages=10, timeout=0.5), list[Message])
    assert_type(next(iter(consumer)), Message)
    assert_type(consumer.assignment(), list[TopicPartition])
    assert_type(consumer.commit(asynchronous=False), list[TopicPartition] | None)
    consumer.store_offsets(offsets=[TopicPartition("orders", 0, 5)])
    assert_type(consumer.position([TopicPartition("orders", 0)]), list[TopicPartition])
    assert_type(consumer.committed([TopicPartition("orders", 0)], 10), list[TopicPartition])
    consumer.pause([TopicPartition("orders", 0)])
    consumer.resume([TopicPartition("orders", 0)])
    consumer.seek(TopicPartition("orders", 0, 5))
    low, high = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10)
    assert_type(low + high, int)
    assert_type(consumer.offsets_for_times([], timeout=10), list[TopicPartition])
    assert_type(consumer.list_topics(timeout=10).topics["orders"].partitions[0].leader, int)
    assert_type(consumer.cluster_id(), str | None)
    assert_type(consumer.memberid(), str | None)
    assert_type(consumer.consumer_group_metadata(), bytes)
    with consumer as same:
        assert_type(same, CooperativeConsumer)
    put_off = consumer.revoke_later([TopicPartition("orders", 0)])
    if put_off:
        consumer.finish_revoke(put_off)
    consumer.finish_revoke([TopicPartition("orders", 0)])
    consumer.hand_over()
    consumer.unsubscribe()
    consumer.close()


def start(resource: Resource) -> None:
    print(resource.name, resource.index)  # noqa: T201


def fail(failure: WorkFailure) -> None:
    assert_type(failure.resource, Resource | None)
    print(failure.action, failure.error, failure.attempts)  # noqa: T201


def share() -> None:
    fixed = Catalogue.of_connectors({"light": 4, "heavy": [10, 10]}, version=7)
    CooperativeGroup({"group.id": "g"}, catalogue=fixed, start=start, stop=start)
    CooperativeGroup({"group.id": "g"}, catalogue=[("shard", 0)], start=start, stop=start)
    CooperativeGroup({"group.id": "g"}, catalogue={("shard", 0): 5}, start=start, stop=start)
    group = CooperativeGroup(
        {"group.id": "g"},
        catalogue=lambda: Catalogue.of({("shard", 0): 5}, version=1),
        start=start,
        stop=start,
        lost=start,
        on_error=fail,
        policy=SimplePolicy(),
        assignor=WeightedAssignor(tolerance=0.2),
    )
    with group as same:
        assert_type(same, CooperativeGroup)
    assert_type(group.held(), tuple[Resource, ...])
    assert_type(group.holds(("shard", 0)), bool)
    assert_type(group.owns(("shard", 0)), bool)
    assert_type(group.token(Resource("shard", 0)), int | None)
    assert_type(group.hand_over(timeout_s=5), bool)
    assert_type((group.leads, group.member_id, group.generation), tuple[bool, str, int])
    assert_type(group.failure, str | None)
    group.refresh()
    group.close(timeout_s=5)


def lead() -> None:
    with Leadership({"group.id": "g"}, name="billing") as leadership:
        assert_type(leadership.wait(5), int | None)
        assert_type((leadership.leads, leadership.token), tuple[bool, int | None])
        assert_type(leadership.wait_lost(timeout_s=5), bool)
    Leadership({"group.id": "g"}, on_elected=print, on_lost=print, on_error=fail).join()


async def on_revoke(consumer: AsyncCooperativeConsumer, partitions: list[TopicPartition]) -> None:
    await consumer.commit(dict.fromkeys(partitions, 5))


class Listener:
    """A listener of aiokafka."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Hear of new partitions."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Hear of partitions that go."""


async def consume_with_asyncio() -> None:
    one = TopicPartition("orders", 0)
    named = AsyncCooperativeConsumer({"group.id": "g"}, "orders", policy=SimplePolicy())
    named.subscribe(["orders"], on_revoke=on_revoke, on_lost=lambda *_: None)
    named.subscribe(pattern="orders-.*", listener=Listener())
    await named.start()
    await named.stop()
    async with AsyncCooperativeConsumer({"group.id": "g"}, assignor=StickyAssignor()) as consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord)
            assert_type((record.topic, record.partition, record.offset), tuple[str, int, int])
            assert_type((record.key, record.value), tuple[bytes | None, bytes | None])
            assert_type(record.headers, tuple[tuple[str, bytes | None], ...])
            assert_type(record.message, Message)
            await consumer.commit(record)
        assert_type(await consumer.getone(one), ConsumerRecord)
        found = await consumer.getmany(one, timeout_ms=100, timeout=0.1, max_records=5)
        assert_type(found, dict[TopicPartition, list[ConsumerRecord]])
        await consumer.commit()
        await consumer.commit({one: 5})
        await consumer.commit({one: (5, "note")})
        await consumer.commit({one: OffsetAndMetadata(5, "note")})
        await consumer.commit([TopicPartition("orders", 0, 5)])
        consumer.store_offsets({one: 5})
        assert_type(await consumer.committed(one), int | None)
        assert_type(await consumer.position(one), int)
        assert_type((consumer.lag(one), consumer.highwater(one)), tuple[int | None, int | None])
        await control_with_asyncio(consumer, one)


async def control_with_asyncio(consumer: AsyncCooperativeConsumer, one: TopicPartition) -> None:
    consumer.seek(one, 5)
    await consumer.seek_to_beginning(one)
    await consumer.seek_to_end()
    assert_type(await consumer.seek_to_committed(), dict[TopicPartition, int | None])
    consumer.pause(one)
    consumer.resume(one)
    assert_type(consumer.paused(), frozenset[TopicPartition])
    assert_type(consumer.assignment(), frozenset[TopicPartition])
    assert_type(consumer.subscription(), frozenset[str])
    assert_type(await consumer.beginning_offsets([one]), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets([one]), dict[TopicPartition, int])
    assert_type(await consumer.offsets_for_times({one: 0}), dict[TopicPartition, int | None])
    assert_type((consumer.memberid(), consumer.consumer_group_metadata()), tuple[str | None, bytes])
    assert_type(await consumer.hand_over(timeout=10), bool)
    consumer.unsubscribe()
    await consumer.close()


def handle(message: Message) -> None:
    assert_type(message.error() is None, bool)


async def handle_on_a_loop(record: ConsumerRecord) -> None:
    assert_type(record.offset, int)


async def process_records(
    consumer: CooperativeConsumer, on_a_loop: AsyncCooperativeConsumer, stop: threading.Event
) -> None:
    """Both kinds of processing, each with its options."""
    retry = Retry(attempts=3, otherwise=Skip())
    process(consumer, handle, order="key", workers=8, on_error=retry, stop=stop)
    coroutine = process(on_a_loop, handle_on_a_loop, order="partition", concurrency=32, stop=stop)
    assert_type(await coroutine, None)
    process(consumer, handle, limits=Limits(records=10), on_error=decide)
    assert_type(run(consumer, ["orders"], handle), None)
    run(on_a_loop, ["orders"], handle_on_a_loop, concurrency=8)


def decide(failure: Failure) -> Skip | Stop | Retry:
    if isinstance(failure.error, TimeoutError):
        return Retry()
    return Skip() if failure.attempt > 1 else Stop()
