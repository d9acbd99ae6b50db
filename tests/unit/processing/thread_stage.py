"""A consumer whose records are processed in threads, and the story of a test."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from coopgroup.processing import process
from coopgroup.worker import Job
from tests.support.by_hand import Hand
from tests.support.fake_records import FakeConsumer, FakeRecord

__all__ = ["Group", "records"]

WORKER = "coopgroup-worker"
Place = tuple[int, int]


class Group:
    """A consumer, a handler whose records can be held, and the story of the test."""

    def __init__(self, hand: Hand, *records: FakeRecord, **options: Any) -> None:  # noqa: ANN401
        self.hand = hand
        self.consumer = FakeConsumer(deque(records))
        self.consumer.idle = self._idle
        self.stop = threading.Event()
        self.handled: list[Place] = []
        self._handled = 0
        self.held: set[Place] = set()
        self.options = {"workers": 4, "stop": self.stop, "stop_timeout_ms": 5_000, **options}
        self.handler: Callable[[FakeRecord], object] = self.handle
        self.story: Iterator[None] = iter(())
        hand.is_held = lambda job: _place(job) in self.held

    def play(
        self, story: Iterator[None] | None = None, run: Callable[[], None] | None = None
    ) -> None:
        """Process until the story is over."""
        consumer: Any = self.consumer
        handler: Any = self.handler
        self.story = iter((None,)) if story is None else story
        if run is None:
            process(consumer, handler, **self.options)
        else:
            run()

    def _idle(self, timeout_s: float) -> None:
        handled, self._handled = self._handled, len(self.handled)
        if self.hand.run_one(WORKER) or handled != self._handled:
            return
        try:
            next(self.story)
        except StopIteration:
            self.stop.set()
            self.hand.advance(max(timeout_s, 0.001))

    def handle(self, message: FakeRecord) -> None:
        self.handled.append((message.partition(), message.offset()))

    def hold(self, *places: Place) -> None:
        self.held.update(places)

    def release(self) -> None:
        self.held.clear()

    @property
    def began(self) -> set[Place]:
        """Return the records that were handled, and those in progress."""
        return {*self.handled, *map(_place, self.hand.jobs(WORKER))}


def _place(job: Job) -> Place:
    call: Any = job.call
    work = call.args[0]
    return work.tenure.partition[1], work.offset


def records(number: int, count: int, key: bytes | None = b"k") -> list[FakeRecord]:
    return [FakeRecord(number=number, at=at, its_key=key) for at in range(count)]
