"""Offsets of a consumer: commits, positions, seeks and look-ups.

Rules of this file: commits and positions count only records that the application received. No call
waits for the polling thread, because that thread may wait for a callback that makes the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.aio.loop_port import LoopPort, aside
from coopgroup.aio.polling import Polling
from coopgroup.aio.records import GivenOffsets, read_offsets_to_commit
from coopgroup.core.member.events import Offset
from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.records.committing import read_committed
from coopgroup.kafka.records.log_edges import Edges
from coopgroup.kafka.records.offsets import check_storable
from coopgroup.kafka.records.record_buffer import Partition
from coopgroup.kafka.records.starting_offsets import RESET_TO

T = TypeVar("T")

_STEP_S: Final = 0.02
_LOOK_UP_S: Final = 30.0


@define(eq=False)
class Offsets:
    """The offsets of one consumer; only the loop's thread calls."""

    port: LoopPort
    settings: ConsumerSettings
    polling: Polling
    is_closed: Callable[[], bool]
    _seeking: dict[Partition, int] = field(factory=dict, init=False)
    # Partitions of `seek` whose new offsets were not committed yet.
    _sought: set[Partition] = field(factory=set, init=False)

    async def commit(self, offsets: GivenOffsets | None) -> None:
        """Commit offsets, or what is due."""
        parts, loop = self.polling.parts, self.port.bind()
        sought = self._sought.intersection(parts.listener.owned)
        wanted = self._due(sought) if offsets is None else read_offsets_to_commit(offsets)
        if not wanted:
            return
        if offsets is None:
            self._sought -= sought
        answer: asyncio.Future[KafkaException | None] = loop.create_future()

        def settle(refusal: KafkaException | None) -> None:
            if not answer.done():  # otherwise it was cancelled
                answer.set_result(refusal)

        def tell(refusal: KafkaException | None) -> None:
            self.port.call(settle, refusal)

        parts.committing.commit_then(wanted, tell)
        refusal = await answer
        if refusal is not None:
            self._sought |= sought
            raise refusal

    def _due(self, sought: set[Partition]) -> tuple[Offset, ...]:
        """Return what is due; `seek` counts before the polling thread or librdkafka knows of it."""
        store = self.polling.parts.committing.store
        due = store.due(self.polling.parts.listener.owned)
        if not store.automatic or not sought:
            return due
        others = [one for one in due if (one.topic, one.partition) not in sought]
        found = {one: self.known_position(one) for one in sorted(sought)}
        return (*others, *(Offset(*one, at) for one, at in found.items() if at is not None))

    def store(self, offsets: GivenOffsets) -> None:
        """Store offsets for the next commit."""
        wanted = read_offsets_to_commit(offsets)
        parts, is_automatic = self.polling.parts, self.settings.auto_offset_store
        check_storable(wanted, parts.listener.owned, is_automatic=is_automatic)
        parts.committing.store.store(wanted)

    async def committed(self, key: Partition) -> int | None:
        """Return the committed offset of a partition."""
        parts = self.polling.parts

        def look_up() -> list[TopicPartition]:
            return read_committed(
                parts.driver, self.settings, [TopicPartition(*key)], _LOOK_UP_S, self.is_closed
            )

        (found,) = await aside(self.port, look_up)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    # --- positions -------------------------------------------------------------------------------

    async def position(self, key: Partition) -> int:
        """Return the position of a partition, once it is known."""
        fetching = self.polling.parts.fetching
        while True:
            self._check_owned(key, "position")
            known = self.known_position(key)
            if known is not None:
                return known
            if key in fetching.held:
                return await self._position_before_begin(key)
            await asyncio.sleep(_STEP_S)

    async def _position_before_begin(self, key: Partition) -> int:
        """Return where a partition will begin whose `on_assign` has not ended.

        `on_assign` itself may ask, and the partition waits for it. So this looks up the offset.
        """
        committed = await self.committed(key)
        if committed is not None:
            return committed
        edge = RESET_TO.get(self.settings.offset_reset)
        if edge is None:
            raise kafka_exception(
                KafkaError._AUTO_OFFSET_RESET,
                f"position: {key[0]} [{key[1]}] has no committed offset",
            )
        offset = (await self._edges({key: edge}))[key]
        known = self.known_position(key)  # `on_assign` may have called `seek` meanwhile
        if known is None and key in self.polling.parts.listener.owned:
            self.seek(key, offset)  # the end of the log would move on until the partition begins
        return offset if known is None else known

    def known_position(self, key: Partition) -> int | None:
        """Return the position of a partition, or None if nothing was fetched yet."""
        if key in self._seeking:
            return self._seeking[key]
        fetching = self.polling.parts.fetching
        (found,) = fetching.positions([TopicPartition(*key)])
        return found.offset if found.offset >= 0 else None

    def highwater(self, key: Partition) -> int | None:
        """Return the log end offset of the last fetch.

        The offsets are read from time to time. The records that came since then show that the log
        is longer.
        """
        self.polling.are_ends_wanted = True
        high = self.polling.ends.get(key, -1)
        if high < 0:
            return None
        return high if key in self._seeking else max(high, self.known_position(key) or 0)

    def lag(self, key: Partition) -> int | None:
        """Return the log end offset minus the position."""
        high, position = self.highwater(key), self.known_position(key)
        return None if high is None or position is None else max(0, high - position)

    async def seek_to_edge(self, keys: Iterable[Partition], edge: int) -> None:
        """Continue at an end of the logs, which is a number when this call returns."""
        wanted = dict.fromkeys(keys, edge)
        for key in wanted:
            self._check_owned(key, "seek")
        for key, offset in (await self._edges(wanted)).items():
            self.seek(key, offset)

    async def _edges(self, wanted: Edges) -> dict[Partition, int]:
        """Return the offsets of ends of logs, all of them.

        Raises:
            KafkaException: the leaders of the partitions do not answer in time.
        """
        edges = self.polling.parts.fetching.starts.lookup.edges
        found: dict[Partition, int] = {}
        reasons = ["no answer"]
        answer: asyncio.Future[None] = self.port.bind().create_future()

        def take(some: Mapping[Partition, int]) -> None:
            found.update(some)
            if len(found) == len(wanted) and not answer.done():
                answer.set_result(None)

        if not wanted or edges is None:
            return found
        edges.find(
            wanted,
            lambda key: key not in found and not answer.done(),
            lambda some: self.port.call(take, some),
            reasons.append,
        )
        try:
            await asyncio.wait_for(answer, _LOOK_UP_S)
        except TimeoutError:
            late = min(wanted.keys() - found.keys())
            raise kafka_exception(
                KafkaError._TIMED_OUT,
                f"end of the log of {late[0]} [{late[1]}] not found: {reasons[-1]}",
            ) from None
        return found

    def seek(self, key: Partition, offset: int) -> None:
        """Continue at another offset."""
        self._check_owned(key, "seek")
        parts, seeking = self.polling.parts, self._seeking
        seeking[key] = offset
        self._sought.add(key)

        def seek() -> None:
            try:
                if key in parts.listener.owned:
                    parts.fetching.seek(TopicPartition(*key, offset))
            finally:
                if seeking.get(key) == offset:
                    del seeking[key]

        self.polling.call(seek)

    # --- look-ups --------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return the names of all topics."""

        def ask(client: Any) -> set[str]:  # noqa: ANN401  (librdkafka's, or a test's)
            return set(client.list_topics(timeout=_LOOK_UP_S).topics)

        return await self._look_up(ask)

    async def watermarks(self, key: Partition) -> tuple[int, int]:
        """Return the lowest offset of a partition, and its log end offset."""

        def ask(client: Any) -> tuple[int, int]:  # noqa: ANN401  (librdkafka's, or a test's)
            found: tuple[int, int] = client.get_watermark_offsets(TopicPartition(*key), _LOOK_UP_S)
            return found

        return await self._look_up(ask)

    async def for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time."""
        asked = [TopicPartition(one.topic, one.partition, ms) for one, ms in timestamps.items()]

        def ask(client: Any) -> list[TopicPartition]:  # noqa: ANN401  (librdkafka's, or a test's)
            found: list[TopicPartition] = client.offsets_for_times(asked, _LOOK_UP_S)
            return found

        found = await self._look_up(ask)
        return {one: one.offset if one.offset >= 0 else None for one in found}

    async def _look_up(self, ask: Callable[[Any], T]) -> T:
        """Ask the brokers with another client: a client serves one thread only (`fetching`)."""
        renew = self.polling.parts.fetching.renew

        def look_up() -> T:
            if renew is None:
                raise RuntimeError("this consumer has no second client")
            with renew() as client:
                pass  # its end uses the client, so it comes before `close`
            try:
                return ask(client)
            finally:
                client.close()

        return await aside(self.port, look_up)

    def _check_owned(self, key: Partition, act: str) -> None:
        if key not in self.polling.parts.listener.owned:
            raise kafka_exception(
                KafkaError._STATE, f"{act}: {key[0]} [{key[1]}] is not assigned to this consumer"
            )
