"""The methods of the consumer, over stand-ins for librdkafka and for the group."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.error import ValueDeserializationError

from coopgroup import ConfigurationError
from coopgroup.aio import AsyncCooperativeConsumer, OffsetAndMetadata
from coopgroup.kafka.records.decoding import Decoder, Deserializers
from coopgroup.kafka.rpc.questions import CommittedOffset
from coopgroup.worker import Worker
from tests.support.inner import inner
from tests.support.virtual_loop import time_passes
from tests.unit.aio.aio_stage import BOTH, P0, P1, ZERO, AioStage
from tests.unit.kafka.fakes import record


def offsets(records: dict[TopicPartition, list[Any]]) -> dict[int, list[int]]:
    return {one.partition: [record.offset for record in found] for one, found in records.items()}


async def test_getone_when_records_come_returns_them_in_order(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await time_passes(0.02)
        stage.feed(0, 5, 6)
        first, second = await waiting, await consumer.getone()
        assert (first.topic, first.partition, first.offset, first.value) == ("t", 0, 5, b"v")
        assert (second.offset, second.key, second.headers) == (6, None, ())
        assert first.message.offset() == 5


async def test_getmany_groups_records_and_keeps_to_the_limit(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        began_s = stage.hand.now_s
        assert await consumer.getmany() == {}
        assert stage.hand.now_s == began_s
        assert await consumer.getmany(timeout=0.04) == {}
        assert stage.hand.now_s == pytest.approx(began_s + 0.04)
        await time_passes(0.02)  # now the polling waits in librdkafka
        stage.librdkafka.feed([record(0, 0), record(0, 1), record(1, 7), record(0, 2)])
        found = offsets(await consumer.getmany(timeout_ms=1000, max_records=3))
        assert found == {0: [0, 1], 1: [7]}
        assert offsets(await consumer.getmany(timeout=1)) == {0: [2]}
        with pytest.raises(ValueError, match="max_records is 0: it must be at least 1"):
            await consumer.getmany(max_records=0)


async def first_of(consumer: AsyncCooperativeConsumer) -> object:
    async for one in consumer:
        return one
    return None


@pytest.mark.parametrize("call", [first_of, AsyncCooperativeConsumer.getone, anext])
async def test_record_without_a_subscription_is_refused(
    stage: AioStage, call: Callable[[AsyncCooperativeConsumer], Any]
) -> None:
    """No record can ever come: the task waited without end."""
    async with stage.consumer() as consumer:
        with pytest.raises(RuntimeError, match=r"^the consumer is not subscribed: call subscribe"):
            await call(consumer)
        assert await consumer.getmany(timeout=0.1) == {}
        consumer.subscribe(["t"])
        stage.feed(0, 5)
        assert (await call(consumer)).offset == 5


async def test_iteration_ends_when_another_task_closes(stage: AioStage) -> None:
    consumer = stage.consumer("t")
    await consumer.start()
    stage.feed(0, 0, 1)
    got = []

    async def read() -> None:
        async for one in consumer:
            got.append(one.offset)  # noqa: PERF401 -- as users write it

    task = asyncio.create_task(read())
    await time_passes()
    assert len(got) == 2
    await consumer.stop()
    await task
    with pytest.raises(RuntimeError, match="Consumer closed"):
        await consumer.getone()
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)


async def test_ready_records_let_other_tasks_run(stage: AioStage) -> None:
    """Without a pause now and then, nothing could cancel a task that always finds records."""
    async with stage.consumer("t") as consumer:
        stage.feed(0, *range(500))
        seen = 0

        async def read() -> None:
            nonlocal seen
            async for _ in consumer:
                seen += 1
                stage.hand.now_s += 0.001

        task = asyncio.create_task(read())
        await time_passes(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 40 <= seen <= 60


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({P0: 5, P1: (6, "note")}, [(0, 5), (1, 6)]),
        ({P0: OffsetAndMetadata(5, "note")}, [(0, 5)]),
        ([TopicPartition("t", 1, 9)], [(1, 9)]),
        (Message(topic="t", partition=1, offset=3), [(1, 4)]),
    ],
    ids=["mapping", "metadata", "partitions", "message"],
)
async def test_commit_takes_offsets_in_all_forms(
    stage: AioStage,
    given: Any,  # noqa: ANN401  (several kinds)
    expected: list[tuple[int, int]],
) -> None:
    async with stage.consumer("t") as consumer:
        await consumer.commit(given)
        assert stage.committed == expected


async def test_commit_of_a_record_is_the_offset_after_it(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(1, 3)
        record = await consumer.getone()
        await consumer.commit(record)
        assert stage.committed == [(1, 4)]
        assert await consumer.position(P1) == 4
        with pytest.raises(TypeError, match=r"offsets.* is 'x': it must be a whole number"):
            await consumer.commit({P0: "x"})
        stage.driver.code = 25
        with pytest.raises(KafkaException, match="Commit failed"):
            await consumer.commit(record)


async def test_store_offsets_is_committed_only_up_to_what_was_stored(stage: AioStage) -> None:
    stage.committing.store.automatic = False
    async with stage.consumer("t", **{"enable.auto.offset.store": False}) as one:
        stage.feed(0, 0, 1, 2)
        await one.getmany(timeout=1)
        one.store_offsets({P0: 1})
        await one.commit()
        assert stage.committed == [(0, 1), (1, 0)]
        other = TopicPartition("u", 0)
        with pytest.raises(KafkaException, match=r"StoreOffsets failed: u \[0\] is not assigned"):
            one.store_offsets({other: 1})


async def test_pause_is_immediate_and_resume_goes_on_there(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1)
        stage.feed(1, 0)
        assert (await consumer.getone()).partition == 0
        consumer.pause(P0)
        assert consumer.paused() == {P0}
        stage.feed(0, 2)
        stage.feed(1, 1)
        found = [await consumer.getone(), await consumer.getone()]
        assert [one.partition for one in found] == [1, 1]
        assert await consumer.getmany(timeout=0.02) == {}
        waiting = asyncio.create_task(consumer.getmany(timeout=5))
        await time_passes(0.01)
        consumer.resume(P0)
        assert offsets(await waiting) == {0: [1, 2]}
        assert consumer.paused() == frozenset()
        wrong: Any = "t"
        for call in (consumer.pause, consumer.resume):
            with pytest.raises(TypeError, match="got a str, expected a TopicPartition"):
                call(wrong)


async def test_pause_in_on_assign_ends_with_resume(stage: AioStage) -> None:
    """The partition is not fetched yet."""
    async with stage.joined(on_assign=lambda one, _: one.pause(P0)) as consumer:
        assert consumer.paused() == {P0}
        assert stage.fetching.fetched == BOTH
        stage.feed(0, 0)
        assert await consumer.getmany(timeout=0.05) == {}
        consumer.resume(P0)
        assert (await consumer.getone()).offset == 0


async def test_paused_records_are_bounded_by_a_pause_of_librdkafka(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        consumer.pause(P0)
        stage.feed(0, *range(3_000))
        await time_passes()
        assert ("pause", [(0, -1001)]) in stage.librdkafka.calls
        consumer.resume(P0)
        await time_passes()
        assert ("resume", [(0, -1001)]) in stage.librdkafka.calls


@pytest.mark.parametrize("is_known", [False, True])
async def test_commit_after_seek_commits_the_new_offset(stage: AioStage, is_known: bool) -> None:
    """Whether the polling thread has done the seek or not; librdkafka has no position yet."""
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1, 2)
        stage.feed(1, 0)
        for _ in range(4):
            await consumer.getone()
        consumer.seek(P0, 1)
        if is_known:
            await time_passes()
            assert ("seek", [(0, 1)]) in stage.librdkafka.calls
        await consumer.commit()
        assert dict(stage.committed) == {0: 1, 1: 1}
        await consumer.commit()
        await time_passes()
        assert ("seek", [(0, 1)]) in stage.librdkafka.calls
        stage.feed(0, 1)
        assert (await consumer.getone()).offset == 1
        await consumer.commit()
        assert stage.committed[-1] == (0, 2)


async def test_seek_when_records_wait_skips_them(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1, 2)
        await consumer.getone()
        consumer.seek(P0, 10)
        assert await consumer.position(P0) == 10
        await time_passes()
        assert ("seek", [(0, 10)]) in stage.librdkafka.calls
        stage.feed(0, 10)
        assert (await consumer.getone()).offset == 10
        with pytest.raises(ValueError, match="offset is -1: it must be at least 0"):
            consumer.seek(P0, -1)
        with pytest.raises(KafkaException, match=r"seek: u \[0\] is not assigned"):
            consumer.seek(TopicPartition("u", 0), 1)


@pytest.mark.parametrize(("edge", "offset"), [("end", 9), ("beginning", 2)])
@pytest.mark.parametrize("given", [True, False], ids=["one partition", "all"])
async def test_seek_to_an_end_of_the_log_is_a_number_at_once(
    stage: AioStage, edge: str, offset: int, given: bool
) -> None:
    """Aiokafka's users skip a backlog by `seek_to_end` and `commit`."""
    coordinator: Any = stage.fetching.starts.lookup.transport
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1, 2)
        assert (await consumer.getone()).offset == 0
        coordinator.logs = {("t", 0): (2, 9), ("t", 1): (2, 9)}
        await getattr(consumer, f"seek_to_{edge}")(*([P0] if given else []))
        assert await consumer.position(P0) == offset
        await consumer.commit()
        assert dict(stage.committed) == {0: offset, 1: 0 if given else offset}
        await time_passes()
        assert ("seek", [(0, offset)]) in stage.librdkafka.calls
        assert await consumer.position(P0) == offset
        await consumer.commit()
        assert len(stage.committed) == 2
        stage.feed(0, offset)
        assert (await consumer.getone()).offset == offset


@pytest.mark.parametrize("edge", ["end", "beginning"])
async def test_seek_to_an_end_of_a_log_whose_leader_is_silent_fails(
    stage: AioStage, edge: str
) -> None:
    coordinator: Any = stage.fetching.starts.lookup.transport
    async with stage.joined() as consumer:
        assert await consumer.position(P0) == 0
        seek = getattr(consumer, f"seek_to_{edge}")
        with pytest.raises(KafkaException, match=r"seek: u \[0\] is not assigned"):
            await seek(P0, TopicPartition("u", 0))
        coordinator.is_silent = True
        with pytest.raises(KafkaException, match=r"end of the log of t \[0\] not found: no answer"):
            await seek(P0)
        assert await consumer.position(P0) == 0


async def test_seek_to_committed_continues_at_the_commit(stage: AioStage) -> None:
    coordinator: Any = stage.fetching.starts.lookup.transport
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1, 2)
        for _ in range(3):
            await consumer.getone()
        committed = {P0: 1, P1: None}

        async def look_up(partition: TopicPartition) -> int | None:
            return committed[partition]

        consumer.committed = look_up  # type: ignore[method-assign]
        assert await consumer.seek_to_committed() == committed
        assert (await consumer.position(P0), await consumer.position(P1)) == (1, 0)
        assert coordinator.committed == {}


async def test_commit_of_an_idle_partition_commits_where_it_began(stage: AioStage) -> None:
    """Otherwise the next owner would resolve "latest" again, and skip records."""
    coordinator: Any = stage.fetching.starts.lookup.transport
    coordinator.logs = {("t", 0): (0, 4)}
    coordinator.committed = {("t", 1): CommittedOffset(5)}
    stage.fetching.starts.lookup.reset_of = lambda _: OFFSET_END
    async with stage.joined() as consumer:
        assert [await consumer.position(one) for one in (P0, P1)] == [4, 5]
        await consumer.commit()
        assert stage.committed == [(0, 4)]
        await consumer.commit()
        assert stage.committed == [(0, 4)]


async def test_position_in_on_assign_is_the_one_that_commit_commits(stage: AioStage) -> None:
    """The end of the log moves on until `on_assign` has ended."""
    coordinator: Any = stage.fetching.starts.lookup.transport
    coordinator.logs = {("t", 0): (0, 4), ("t", 1): (0, 4)}
    stage.fetching.starts.lookup.reset_of = lambda _: OFFSET_BEGINNING
    seen: list[int] = []

    async def assigned(consumer: AsyncCooperativeConsumer, _: list[TopicPartition]) -> None:
        await consumer.seek_to_end(P0)
        seen.append(await consumer.position(P0))

    async with stage.joined(on_assign=assigned) as consumer:
        await time_passes(0.1)
        coordinator.logs = {}
        assert (seen, await consumer.position(P0), await consumer.position(P1)) == ([4], 4, 0)
        assert stage.librdkafka.calls[-1] == ("assign", [(0, 4), (1, 0)])
        await consumer.commit()
        assert dict(stage.committed) == {0: 4, 1: 0}


async def test_lag_counts_records_that_were_not_handed_out(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        assert consumer.lag(P0) is None
        stage.feed(0, 0, 1, 2)
        stage.librdkafka.ends["t", 0] = 10
        await consumer.getone()
        await time_passes()
        assert consumer.highwater(P0) == 10
        assert consumer.lag(P0) == 9
        stage.feed(0, *range(3, 20))  # the log has grown since its end was read
        for _ in range(19):
            await consumer.getone()
        assert (consumer.highwater(P0), consumer.lag(P0)) == (20, 0)


async def test_error_event_is_raised_after_the_records_before_it(stage: AioStage) -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    async with stage.consumer("t") as consumer:
        event = Message(topic="t", partition=0, offset=0, error=error)
        stage.librdkafka.feed([record(0, 0), event, record(0, 1)])
        assert offsets(await consumer.getmany(timeout=1)) == {0: [0]}
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.getmany(timeout=1)
        assert (await consumer.getone()).offset == 1


async def test_lease_that_is_over_lets_no_record_leave(stage: AioStage) -> None:
    async with stage.consumer("t") as consumer:
        stage.feed(0, 0, 1)
        await consumer.getone()
        stage.driver.lease_until_s = stage.hand.now_s
        assert await consumer.getmany(timeout=0.05) == {}
        waiting = asyncio.create_task(consumer.getone())
        await time_passes(0.02)
        assert not waiting.done()
        stage.driver.lease_until_s = math.inf
        assert (await waiting).offset == 1


async def test_hand_over_waits_until_nothing_is_owned(stage: AioStage) -> None:
    async with stage.joined() as consumer:
        assert await consumer.hand_over(timeout=0.05) is False
        assert stage.handed_over
        assert consumer.assignment() == {P0, P1}


async def test_hand_over_if_the_broker_assigns_is_refused_at_once(stage: AioStage) -> None:
    """Without a time limit it would wait for ever, and the error would come with a record."""
    consumer = stage.consumer("t", **{"group.protocol": "consumer"})
    with pytest.raises(ConfigurationError, match="hand_over needs a leader"):
        await consumer.hand_over()


async def test_calls_before_start_and_after_close_are_refused(stage: AioStage) -> None:
    consumer = stage.consumer("t")
    calls: list[Callable[[], Any]] = [
        consumer.getone,
        consumer.getmany,
        consumer.commit,
        partial(consumer.position, P0),
        partial(consumer.committed, P0),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="the consumer is not started: use `async with`"):
            await call()
    async with consumer:
        with pytest.raises(RuntimeError, match="the consumer was started before"):
            await consumer.start()
    for call in calls:
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await call()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.subscribe(["t"])


def test_configuration_is_checked_without_a_loop() -> None:
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        AsyncCooperativeConsumer({"bootstrap.servers": "localhost:1", "group.id": ""})


async def test_callbacks_of_the_configuration_run_on_the_loop(stage: AioStage) -> None:
    heard: list[tuple[str, bool]] = []
    loop = asyncio.get_running_loop()

    async def stats(text: str) -> None:
        await time_passes(0)
        heard.append((text, asyncio.get_running_loop() is loop))

    consumer = stage.consumer("t", stats_cb=stats)
    async with consumer:
        stats_cb = inner(consumer, "_settings").librdkafka["stats_cb"]
        Worker("librdkafka").submit(partial(stats_cb, "{}"))
        await time_passes()
    assert heard == [("{}", True)]


def test_credentials_reach_librdkafka_and_the_connections_of_the_group() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "old"}
    address = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}

    async def main() -> None:
        consumer = AsyncCooperativeConsumer({**address, **login, "group.id": "g", "log_level": 0})
        with pytest.raises(RuntimeError, match="not started"):
            consumer.set_sasl_credentials("me", "new")
        async with consumer:
            wrong: Any = 5
            with pytest.raises(TypeError):  # it is librdkafka's
                consumer.set_sasl_credentials("me", wrong)
            consumer.set_sasl_credentials("me", "new")
            driver = inner(consumer, "_polling", "parts").driver
            assert driver.settings.connection.credentials.newest == ("me", "new")

    asyncio.run(main())


# --- deserializers -------------------------------------------------------------------------------


def value_of(number: int, partition: int, value: bytes) -> Message:
    return Message(topic="t", partition=partition, offset=number, value=value)


async def test_record_that_cannot_be_decoded_leaves_in_the_exception(stage: AioStage) -> None:
    """The records before it leave first, and those after it next."""
    stage.pump.decoder = Decoder(Deserializers(key=None, value=lambda data, _: int(data)))
    async with stage.joined() as consumer:
        stage.librdkafka.feed(value_of(at, 0, value) for at, value in enumerate((b"5", b"x", b"7")))
        assert offsets(await consumer.getmany(timeout=1)) == {0: [0]}
        assert await consumer.position(P0) == 1
        with pytest.raises(ValueDeserializationError) as caught:
            await consumer.getone()
        assert caught.value.kafka_message is not None
        assert caught.value.kafka_message.offset() == 1
        assert await consumer.position(P0) == 2
        last = await consumer.getone()
        assert (last.offset, str(last.value)) == (2, "7")


async def test_records_given_up_while_a_deserializer_runs_are_not_put_back(stage: AioStage) -> None:
    """Otherwise this member would hand out records of the next owner."""

    def read(data: bytes, _: object) -> int:
        if data == b"x":
            stage.fetching.end(ZERO)  # the polling thread does this meanwhile
        return int(data)

    stage.pump.decoder = Decoder(Deserializers(key=None, value=read))
    async with stage.joined() as consumer:
        places = [(0, 1, b"5"), (0, 0, b"x"), (1, 0, b"6"), (1, 1, b"7")]
        stage.librdkafka.feed(value_of(*one) for one in places)
        got: list[tuple[int, int]] = []
        while len(got) < 2:
            with suppress(ValueDeserializationError):  # only if the bad record is first of a batch
                for records in (await consumer.getmany(timeout=1)).values():
                    got += [(one.partition, one.offset) for one in records]
        assert got == [(1, 0), (1, 1)]
