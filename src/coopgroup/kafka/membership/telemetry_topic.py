"""The topic of a group's telemetry: each member adds its records in batches.

Records wait in a bounded queue. The transport's thread takes them from there, and one batch at a
time goes to the leader of the group's partition, on a connection of its own. So the topic costs no
thread, and a slow broker delays no heartbeat.

Rules of this file: everything runs on the transport's thread, except `put` and `finish`. `put`
never waits. A record is acknowledged by all in-sync replicas, or counted as dropped, and drops are
logged. An answer that is lost after the broker has added the batch adds it a second time. Readers
know a repeated record by its content.

A producer of confluent_kafka would cost five threads with three brokers, and it gives up the
records of a missing topic after 30 s.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from attrs import define, field

from coopgroup.core.member.error_actions import error_name
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.membership.telemetry_writer import TelemetryWriter
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.topics import (
    RECORD_REFUSALS,
    TOPIC_REFUSALS,
    FindPartition,
    FoundPartition,
    Produce,
    ProduceAnswer,
)
from coopgroup.kafka.rpc.transport import GroupTransport, TopicLane
from coopgroup.kafka.trouble import Trouble
from coopgroup.telemetry import Envelope, to_json

# The records of a round come within moments: they make one batch.
_LINGER_S: Final = 0.1
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 64 * 1024
_ALL_IN_SYNC: Final = -1
_FIRST_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 30.0
# A topic or a right may be added later. Until then each try only costs the broker time.
_REFUSED_PAUSE_S: Final = 60.0


@define(eq=False, kw_only=True)
class TelemetryTopic(TelemetryWriter):
    """Adds the records of one member to a topic.

    Attributes:
        warn: called with an event and its fields.
        timeout_ms: time limit of a request.
    """

    transport: GroupTransport
    topic: str
    group_id: str
    warn: Callable[..., None]
    timeout_ms: int
    # Set while all records are acknowledged, or nothing more is tried.
    _is_idle: threading.Event = field(factory=threading.Event, init=False)
    # Only the transport's thread uses the rest.
    _batch_records: int = field(default=_BATCH_RECORDS, init=False)
    _place: FoundPartition | None = field(default=None, init=False)
    _is_asked: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _trouble: Trouble = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = Trouble(
            self.warn, "telemetry_topic_unavailable", "telemetry_topic_available"
        )

    # --- any thread ------------------------------------------------------------------------------

    def finish(self, timeout_s: float) -> None:
        """Send the waiting records, for a bounded time; later records are not taken."""
        if not self._take_no_more():
            return
        if self._is_awake and self.transport.later(0.0, self._go_on):
            self._is_idle.wait(timeout_s)
        self.dropped += len(self._waiting)
        if self.dropped:
            self._tell_dropped(self.dropped)

    @property
    def is_behind(self) -> bool:
        """Return whether records wait for the broker."""
        return bool(self._waiting)

    def _wake(self) -> bool:
        self._is_idle.clear()
        return self.transport.later(_LINGER_S, self._go_on)

    def _tell_dropped(self, dropped: int) -> None:
        self.warn("telemetry_topic_dropped", topic=self.topic, records=dropped)

    # --- the transport's thread ------------------------------------------------------------------

    def _go_on(self) -> None:
        """Ask for the partition, or send the next batch; each answer calls this again."""
        if self._is_asked:
            return
        place = self._place
        if not self._waiting:
            with self._lock:  # a record that comes between the two would count as written
                self._rest()
                if not self._is_awake:
                    self._is_idle.set()
        elif place is None:
            find = FindPartition(topic=self.topic, group_id=self.group_id)
            self._ask(find, self._take_place, None)
        else:
            self._send(place)

    def _send(self, place: FoundPartition) -> None:
        batch = self._next_batch()
        produce = Produce(
            topic=self.topic,
            partition=place.partition,
            group_id=self.group_id,
            records=batch,
            timeout_ms=self.timeout_ms,
            acks=_ALL_IN_SYNC,
        )
        if batch:
            self._ask(produce, lambda answer: self._take_answer(len(batch), answer), place.leader)
        else:
            self._go_on()

    def _next_batch(self) -> tuple[tuple[int, bytes], ...]:
        """Return the oldest records, encoded, with their times; they wait until the answer."""
        batch: list[tuple[int, bytes]] = []
        size = 0
        with self._lock:
            oldest = tuple(islice(self._waiting, self._batch_records))
        for envelope in oldest:
            assert isinstance(envelope, Envelope)  # nobody flushes a topic
            try:
                value = json.dumps(to_json(envelope), separators=(",", ":")).encode()
            except Exception as error:  # noqa: BLE001 -- the next record may be encoded
                if batch:
                    break
                self._give_up_oldest(repr(error))
            else:
                batch.append((envelope.at_ms, value))
                size += len(value)
            if size >= _BATCH_BYTES:
                break
        return tuple(batch)

    def _ask(
        self,
        request: FindPartition | Produce,
        on_answer: Callable[[Any], None],
        node: Coordinator | None,
    ) -> None:
        def take(answer: Any) -> None:  # noqa: ANN401  (one of several kinds)
            self._is_asked = False
            on_answer(answer)

        self._is_asked = True
        self.transport.send(
            TopicLane.TELEMETRY, request, take, node=node, timeout_ms=self.timeout_ms
        )

    def _take_place(self, answer: FoundPartition | TransportFailure) -> None:
        if isinstance(answer, TransportFailure) or answer.leader is None:
            self._try_again(answer)
            return
        self._place = answer
        self._go_on()

    def _take_answer(self, count: int, answer: ProduceAnswer | TransportFailure) -> None:
        if isinstance(answer, TransportFailure):
            self._try_again(answer)
        elif answer.error_code in RECORD_REFUSALS:
            self._divide(count, RECORD_REFUSALS[answer.error_code])
        elif answer.error_code:
            self._try_again(answer)
        else:
            for _ in range(count):
                self._waiting.popleft()
            self._batch_records, self._failures = _BATCH_RECORDS, 0
            self._trouble.succeed(topic=self.topic, dropped=self._accept())
            self._go_on()

    def _divide(self, count: int, error: str) -> None:
        """Halve a batch with records that the broker refuses; drop a refused single record."""
        if count > 1:
            self._batch_records = count // 2
        else:
            self._give_up_oldest(error)
        self._go_on()

    def _give_up_oldest(self, error: str) -> None:
        self._waiting.popleft()
        self.warn("telemetry_topic_not_written", topic=self.topic, error=error)
        self._drop()

    def _try_again(self, answer: FoundPartition | ProduceAnswer | TransportFailure) -> None:
        """Find the partition again after a pause; its leader may have moved."""
        self._place = None
        if self._is_closed:
            self._is_idle.set()
            return
        if isinstance(answer, TransportFailure):
            is_refused, error = False, answer.message
        else:
            is_refused = answer.error_code in TOPIC_REFUSALS
            error = TOPIC_REFUSALS.get(answer.error_code) or error_name(answer.error_code)
        if self._trouble.fail(at_once=is_refused, topic=self.topic, error=error):
            self._refuse()
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(self._failures, 16), _PAUSE_S_MAX)
        self._failures += 1
        self.transport.later(_REFUSED_PAUSE_S if is_refused else pause_s, self._go_on)
