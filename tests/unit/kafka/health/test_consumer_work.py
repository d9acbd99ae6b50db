"""Samples of a consumer are taken on its own thread, and log ends come from two clients."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.health.consumer_work import ConsumerWork
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FakeLibrdkafka, record, starts

OWNED = ResourceSet({"t": [0, 1]})


class Stage:
    """A consumer that owns two partitions, over a stand-in for librdkafka."""

    def __init__(self) -> None:
        self.client = FakeLibrdkafka(ends={("t", 0): 9, ("t", 1): 4})
        self.fetching = Fetching(self.client, starts())
        self.inbox = ApplicationInbox()
        self.store = OffsetStore(self.fetching, automatic=True)
        self.listener: Any
        self.listener = SimpleNamespace(
            driver=SimpleNamespace(inbox=self.inbox),
            owned=OWNED,
            stopping=EMPTY,
            stopping_since_s=None,
        )
        committing: Any = SimpleNamespace(store=self.store, meter=CommitMeter())
        self.look_ups, self.log_range = 0, (0, 50)
        self.work = ConsumerWork(
            self.listener, self.fetching, committing, self._log_ranges, "earliest"
        )
        self.fetching.begin([TopicPartition("t", 0, 3), TopicPartition("t", 1, 4)])

    def _log_ranges(self, resources: ResourceSet) -> dict[tuple[str, int], tuple[int, int]]:
        self.look_ups += 1
        return dict.fromkeys(resources, self.log_range)

    def poll(self, *, handed: int = 0) -> None:
        """Act as the application: get records, and run waiting calls."""
        self.client.feed(record(0, offset) for offset in range(3, 3 + handed))
        self.fetching.fetch(10, 0.0)
        self.fetching.record_buffer.take(handed)
        while (call := self.inbox.take_call()) is not None:
            call()


def test_first_readings_make_one_request_and_wait_for_nothing() -> None:
    """The application may not poll."""
    stage = Stage()
    for _ in range(5):
        assert (stage.work.read().partitions, stage.inbox.waiting) == ({}, True)
    call = stage.inbox.take_call()
    assert call is not None
    assert stage.inbox.take_call() is None
    stage.client.feed([record(0, 3), record(0, 4)])
    stage.fetching.fetch(10, 0.0)
    stage.fetching.record_buffer.take(2)
    call()
    sample = stage.work.read().partitions["t", 0]
    assert (sample.position, sample.end) == (5, 9)


def test_log_end_of_another_client_counts_if_it_is_higher(hand: Hand) -> None:
    """The consumer of librdkafka may hear nothing any longer."""
    stage = Stage()
    stage.work.look_up_ends([("t", 0)])
    hand.run()
    stage.work.read()
    stage.poll(handed=1)
    ends = {key: one.end for key, one in stage.work.read().partitions.items()}
    assert ends == {("t", 0): 50, ("t", 1): 4}
    hand.advance(30.0)  # the topic may have been made again since
    stage.work.take()
    assert stage.work.read().partitions["t", 0].end == 9


@pytest.mark.parametrize(("reset", "position"), [("earliest", 40), ("latest", 50)])
def test_partition_whose_records_were_all_deleted_has_the_lag_of_its_reset(
    hand: Hand, reset: str, position: int
) -> None:
    """Without a record librdkafka has no position, and the committed one is outside of the log."""
    stage = Stage()
    stage.work.offset_reset, stage.log_range = reset, (40, 50)
    stage.work.look_up_ends([("t", 0)])
    hand.run()
    stage.work.take()
    assert stage.work.read().partitions["t", 0].position == position


def test_log_ends_are_looked_up_again_only_after_a_while(hand: Hand) -> None:
    stage = Stage()
    for passed_s, look_ups in ((0.0, 1), (14.9, 1), (0.1, 2)):
        hand.advance(passed_s)
        stage.work.look_up_ends([("t", 0)])
        hand.run()
        assert stage.look_ups == look_ups


def test_request_keeps_no_dropped_consumer_alive() -> None:
    stage = Stage()
    stage.work.read()
    gone = weakref.ref(stage.work)
    del stage.work
    gc.collect()
    assert gone() is None
    stage.poll()
