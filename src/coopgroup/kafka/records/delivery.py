"""The slow path of `poll` and `consume`: hand out records, run callbacks, wait.

Two rules. Records leave only while the lease holds and the group has no notice; both are checked
immediately before. Notices are handled only while no record is on its way to the application. So an
offset counts as handed out if, and only if, the application got the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaError, Message
from confluent_kafka.error import ConsumeError

from coopgroup.kafka.callbacks.listener import GroupListener
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.decoding import Decoder, error_of
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.pace import AWAY_S, IDLE_S, Pace
from coopgroup.kafka.records.record_buffer import partition_of

__all__ = ["DecodedDelivery", "Delivery"]

# Maximum wait in librdkafka for a large batch.
_BATCH_S: Final = 0.005
# How often a consumer without records looks at all its other work.
_LOOK_S: Final = 1.0


@define(eq=False)
class Delivery:
    """Passes fetched records to the application."""

    driver: GroupDriver
    fetching: Fetching
    committing: Committing
    listener: GroupListener
    meter: WorkMeter
    pace: Pace = field(factory=Pace)
    _look_at_s: float = field(default=0.0, init=False)

    def take(self, count: int, timeout_s: float | None) -> list[Message]:
        """Take up to a number of records; wait for the full number until the time is over.

        Raises:
            BaseException: raised by a callback or a signal handler; no record is lost by it.
        """
        stalled_at_s = self.driver.inbox.take_stall()
        if stalled_at_s is not None:
            message = self._tell_stall(stalled_at_s)
            self.driver.polled_at_s = now_s()
            return [message]
        called_s, record_buffer = now_s(), self.fetching.record_buffer
        self.meter.pause(called_s, len(record_buffer.ready), record_buffer.rearranged)
        limit_s = math.inf if timeout_s is None or timeout_s < 0 else timeout_s
        taken = record_buffer.leaving = self._take(count, called_s + limit_s)
        if not taken:
            return taken
        try:
            waiting = max(0, len(record_buffer.ready) - len(taken))
            self.meter.go_on(now_s(), len(taken), waiting, record_buffer.rearranged)
            record_buffer.take(len(taken))
        except BaseException:
            self.put_back(taken)
            raise
        record_buffer.leaving = ()  # no call follows, so no signal handler can run
        return taken

    def _tell_stall(self, stalled_at_s: float) -> Message:
        """Return confluent_kafka's event for a stall, with its text; it precedes `on_lost`."""
        limit_ms = self.driver.settings.max_poll_interval_ms
        late_ms = max(0, round((stalled_at_s - self.driver.polled_at_s) * 1000) - limit_ms)
        words = f"Application maximum poll interval ({limit_ms}ms) exceeded by {late_ms}ms"
        code = KafkaError._MAX_POLL_EXCEEDED
        return Message(
            partition=0, value=words.encode(), error=KafkaError(code, words), timestamp=(0, -1)
        )

    def put_back(self, messages: Sequence[Message]) -> None:
        """Queue records again if a signal's exception kept them from the application.

        Records of partitions that the signal handler gave up are dropped.
        """
        fetched = self.fetching.fetched
        kept = [one for one in messages if partition_of(one) in fetched]
        self.fetching.record_buffer.put_back(kept)

    def _take(self, count: int, deadline_s: float) -> list[Message]:
        record_buffer = self.fetching.record_buffer
        while True:
            if self.driver.inbox.waiting:
                self.pace.restart()
            self.listener.serve()
            self.committing.commit_by_clock(self.listener.owned)
            if count > 1 and not record_buffer.ready and self.fetching.fetched:
                taken = self._take_past(count, deadline_s)
                if taken:
                    return taken
            self._gather(count, deadline_s)
            taken = record_buffer.peek(count)
            is_over = now_s() >= deadline_s
            if self._may_leave():
                if len(taken) >= count or is_over:
                    return taken
            elif is_over:
                return []

    def _take_past(self, count: int, deadline_s: float) -> list[Message]:
        """Take a large batch directly if it is available immediately, without queueing it first."""
        driver = self.driver
        now = now_s()
        if now >= driver.lease_until_s:
            return []
        driver.polled_at_s = math.inf
        taken: list[Message] = []
        try:
            wait_s = max(0.0, min(_BATCH_S, deadline_s - now))
            taken = self.fetching.fetch_past(count, wait_s, self._may_leave)
            driver.polled_at_s = now_s()
        except BaseException:
            self.put_back(taken)
            driver.polled_at_s = now_s()
            raise
        return taken

    def _may_leave(self) -> bool:
        # Check the lease first: the loss is queued before the lease is cleared.
        return now_s() < self.driver.lease_until_s and not self.driver.inbox.waiting

    def _gather(self, count: int, deadline_s: float) -> None:
        driver, ready = self.driver, self.fetching.record_buffer.ready
        # Waiting here counts as polling; the application can stall only outside of `poll`.
        driver.polled_at_s = math.inf
        try:
            now = now_s()
            # Without a lease, a full buffer must wait, too: a loop without a pause would keep the
            # GIL from the thread that is about to report the loss.
            while len(ready) < count or now >= driver.lease_until_s:
                slice_s = self._slice_s(now)
                if count - len(ready) > 1:  # librdkafka waits for a full batch, and for no signal
                    slice_s = min(slice_s, IDLE_S)
                wait_s = max(0.0, _whole_ms(min(slice_s, deadline_s - now)))
                if now >= driver.lease_until_s:
                    # No record may leave, and the group is about to report the reason.
                    driver.inbox.wait(wait_s)
                    return
                if not self.fetching.fetched:
                    # No record can arrive, and librdkafka does not wake up for the group.
                    until_s = min(deadline_s, now + AWAY_S, self.committing.due_at_s)
                    driver.inbox.wait(max(0.0, until_s - now))
                    wait_s = 0.0
                    self._look_at_s = now
                else:
                    limit_s = min(deadline_s, self.committing.due_at_s)
                    self._look_at_s = min(limit_s, now + _LOOK_S)
                self.fetching.fetch(count - len(ready), wait_s, self._again_s)
                if ready:
                    self.pace.hear()
                now = now_s()
                if now >= min(deadline_s, self.committing.due_at_s) or driver.inbox.waiting:
                    return
        finally:
            driver.polled_at_s = now_s()

    def _again_s(self) -> float:
        """Return how long to wait again for a record, in seconds; 0 if other work may be due.

        The code between two slices is most of the CPU time of an idle consumer, so it is short.
        """
        driver, now = self.driver, now_s()
        if now >= self._look_at_s or now >= driver.lease_until_s:
            return 0.0
        if driver.inbox.waiting or self.fetching.waiting:
            return 0.0
        return _whole_ms(min(self._slice_s(now), self._look_at_s - now))

    def _slice_s(self, now: float) -> float:
        """Return how long to wait in librdkafka before looking at the group again, in seconds."""
        driver, fetching = self.driver, self.fetching
        is_quiet = driver.is_quiet and not (fetching.waiting and fetching.is_about_to_begin)
        slice_s = self.pace.slice_s(now, is_quiet=is_quiet)
        # Each record comes this way, but an idle consumer only a few times per second.
        if slice_s != IDLE_S or not is_quiet or fetching.waiting:
            return slice_s
        if fetching.record_buffer.paused or driver.commits.are_waited_for:
            return slice_s
        return self.pace.slice_s(now, is_quiet=True, calm_until_s=driver.calm_until_s)


def _whole_ms(wait_s: float) -> float:
    """Round up to milliseconds: librdkafka rounds down, and would not wait at all at the end."""
    return math.ceil(wait_s * 1000) / 1000


@define(eq=False)
class DecodedDelivery(Delivery):
    """Passes decoded records to the application.

    Records are decoded while they still wait. So an exception of a signal handler loses none.
    """

    decoder: Decoder = field(kw_only=True)
    _before: Sequence[tuple[Message, Any, Any]] = field(default=(), init=False)

    def put_back(self, messages: Sequence[Message]) -> None:
        """Queue records again, with their bytes."""
        for message, key, value in self._before:
            if any(message is one for one in messages):
                message.set_key(key)
                message.set_value(value)
        super().put_back(messages)

    def _tell_stall(self, stalled_at_s: float) -> Message:
        event = super()._tell_stall(stalled_at_s)
        self.driver.polled_at_s = now_s()
        raise error_of(event)

    def _take(self, count: int, deadline_s: float) -> list[Message]:
        self._before = ()
        messages = super()._take(count, deadline_s)
        if not messages or self.decoder.is_paused:
            return messages
        self._before = [(one, one.key(), one.value()) for one in messages]
        try:
            return self.decoder.decode(messages)
        except ConsumeError:
            # No call from here on, so no signal handler takes the place of this exception.
            del self.fetching.record_buffer.ready[0]
            raise
        except BaseException:
            self.put_back(messages)
            raise

    def _take_past(self, count: int, deadline_s: float) -> list[Message]:
        return super()._take_past(count, deadline_s) if self.decoder.is_paused else []
