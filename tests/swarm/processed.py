"""The swarm with `process` in threads, above the true listener of a consumer.

    run = draw_processed(seed)
    played = play(run)          # of the module `play`, as any other run

All is as in `polled`, except that the application calls `process` (`processing`). The threads, the
records and the brokers that store offsets are the simulation's.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field

from coopgroup.processing import threads
from coopgroup.processing.threads import ThreadProcessing
from tests.swarm.polled import PolledSimulation
from tests.swarm.processing import (
    HANDLERS,
    LOOK_MS,
    RETRY,
    ProcessingApplication,
    ProcessingSimulation,
    draw_processing,
)
from tests.swarm.strands import VirtualCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import TopicPartition

    from tests.support.fake_records import FakeRecord
    from tests.swarm.runs import SwarmRun

PROCESSED: Final = "processed"
"""What `SwarmRun.theirs` says of a group of consumers whose records are processed."""


def draw_processed(seed: int) -> SwarmRun:
    """Draw a run of a group whose records are processed in threads."""
    return draw_processing(seed, PROCESSED)


@define(eq=False, slots=False)
class _Changed(VirtualCondition):
    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.release()
        try:
            self.sleep(round(1_000 * timeout))
        finally:
            self.acquire()
        return True


@define(eq=False)
class _Consumer:
    """The consumer as `process` knows it."""

    application: ProcessedApplication
    _parts: Any

    @property
    def _closed(self) -> bool:
        return not self.application.owner.alive

    def poll(self, timeout_s: float) -> FakeRecord | None:
        found = self.consume(1, timeout_s)
        return found[0] if found else None

    def consume(self, count: int, timeout_s: float) -> Sequence[FakeRecord]:
        of = self.application
        of.serve()
        left_ms = round(1_000 * timeout_s)
        while not (found := of.fetching.take(count)) and left_ms > 0:
            if of.port.inbox.waiting or of.closing:
                break
            of.sleep(LOOK_MS)
            left_ms -= LOOK_MS
        return found

    def seek(self, place: TopicPartition) -> None:
        self.application.fetching.seek(place, place.offset)

    def revoke_later(self, partitions: list[TopicPartition]) -> Any:  # noqa: ANN401 - a token
        token = self.application.listener.revoke_later(partitions)
        if token is not None:
            self.application.oracle.puts_off(token)
        return token

    def finish_revoke(self, token: Any) -> None:  # noqa: ANN401 - a token
        self.application.oracle.finishes(token)
        self.application.listener.finish_revoke(token)


@define(eq=False)
class _Processing(ThreadProcessing):
    """`process` on the threads of the simulation."""

    application: ProcessedApplication = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        of = self.application
        self._changed = _Changed(of.owner.world, of.sleep)
        self._worker = cast("Any", SimpleNamespace(submit=of.submit, close=lambda _: None))

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        with self.application.told("on_revoke", partitions):
            super()._on_revoke(consumer, partitions)

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        with self.application.told("on_lost", partitions):
            super()._on_lost(consumer, partitions)

    def _wind_down(self, *, is_complete: bool) -> None:
        self.application.winds_down()
        super()._wind_down(is_complete=is_complete)


@define(kw_only=True, eq=False)
class ProcessedApplication(ProcessingApplication):
    """The application of one process, which calls `process` on its thread."""

    _gives_up: bool = False

    def start(self) -> None:
        super().start()
        self.group.strands.begin(self._main)

    def _main(self) -> None:
        consumer = self.listener.consumer = cast("Any", _Consumer(self, self.parts))
        while not self.closing:
            scheduler, timing = self.new_life()
            handle = cast("Any", partial(self._handle, self._lives))
            with suppress(ValueError):  # raised by a callback
                _Processing(
                    consumer, handle, RETRY, scheduler, timing, HANDLERS, application=self
                ).run()
            self.sleep(1)
        self._close()

    def serve(self) -> None:
        since_ms = self.process.world.now_ms
        super().serve()
        self.oracle.served(since_ms)

    def _wake(self) -> None:
        pass  # its polls look

    def close(self) -> None:
        self.closing = True

    def _close(self) -> None:
        self._gives_up = True
        super()._close()

    def _leave(self) -> None:
        # `process` ends before its consumer closes, and may answer a loss meanwhile.
        if self._gives_up:
            super()._leave()

    def submit(self, call: Callable[[], None], *, after_s: float = 0.0) -> None:
        """Run a job on a thread of its own."""
        self.process.later(round(1_000 * after_s), self.group.strands.begin, call)

    def _called(self, name: str, _: object, partitions: list[TopicPartition]) -> None:
        if self.listener.interceptor is None or name not in {"on_revoke", "on_lost"}:
            # Between two calls of `process`, an application without `on_lost` hears `on_revoke`.
            self.oracle.hears_losses = self.listener.callbacks.on_lost is not None
            try:
                super()._called(name, _, partitions)
            finally:
                self.oracle.hears_losses = True
            return
        self.hears_end(partitions)
        self.sleep(1)
        if self.happens("raises"):
            raise ValueError("no")

    def _handle(self, life: int, record: FakeRecord) -> None:
        with self.handling(life, record) as for_ms:
            self.sleep(for_ms)


@define(kw_only=True, eq=False)
class ProcessedSimulation(ProcessingSimulation):
    """A group of such applications."""

    application_class = ProcessedApplication
    modules = (*PolledSimulation.modules, threads)
