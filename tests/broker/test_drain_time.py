"""Members of unequal speed on a real cluster: how soon they finish a backlog."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, Self

import pytest
from attrs import define, field

from coopgroup import CooperativeConsumer, DrainTimeAssignor, RangeAssignor, StickyAssignor
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.verify, pytest.mark.timeout(120)]

PARTITIONS: Final = 200
BACKLOG: Final = 22
MEASURED_RECORDS: Final = 60
"""So many in a row show how fast a member is."""
RECORD_S: Final[Mapping[str, float]] = {"a": 0.012, "b": 0.012, "c": 0.012, "d": 0.036}
"""How long each member works on a record: `d` is throttled to a third. It sleeps, so a machine
that does other things changes little, and the best possible is measured all the same."""


@define(eq=False)
class Worker:
    """A member on its own thread.

    Attributes:
        consumer: its consumer.
        record_s: sleep per record, in seconds.
        over: set when it must end.
        done: number of processed records.
        worked_s: time spent on them, polls included, in seconds.
    """

    consumer: CooperativeConsumer
    record_s: float
    over: threading.Event
    done: int = 0
    worked_s: float = 0.0
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def end(self) -> None:
        self._thread.join(20)
        self.consumer.close()

    def _work(self) -> None:
        while not self.over.is_set():
            # The poll counts: on a busy machine it costs a part of what the best possible can do.
            began_s = time.monotonic()
            message = self.consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            time.sleep(self.record_s)
            self.worked_s += time.monotonic() - began_s
            self.done += 1


@define(eq=False)
class Workers:
    """A group of four.

    Attributes:
        workers: its members.
        through_s: when it finished the backlog, None before.
    """

    over: threading.Event
    workers: dict[str, Worker] = field(factory=dict)
    through_s: float | None = None

    @classmethod
    def start(cls, cluster: KafkaCluster, topics: list[str], assignor: Any) -> Self:  # noqa: ANN401
        group = cls(threading.Event())
        group_id = unique("drain")
        for name, record_s in RECORD_S.items():
            settings = {
                **cluster.client_config(),
                "group.id": group_id,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "heartbeat.interval.ms": 200,
                "topic.metadata.refresh.interval.ms": 300,
            }
            consumer = CooperativeConsumer(settings, assignor=assignor)
            consumer.subscribe(topics)
            group.workers[name] = Worker(consumer, record_s, group.over)
        return group

    def end(self) -> None:
        self.over.set()
        for worker in self.workers.values():
            worker.end()

    @property
    def done(self) -> int:
        return sum(worker.done for worker in self.workers.values())

    def counts(self) -> dict[str, int]:
        return {name: len(one.consumer.assignment()) for name, one in self.workers.items()}

    def best_s(self, records: int) -> float:
        """Return the time for the records if all members always work, at their rates."""
        return records / sum(worker.done / worker.worked_s for worker in self.workers.values())


def test_backlog_when_one_member_is_throttled_is_drained_nearly_as_soon_as_can_be(
    kafka_cluster: KafkaCluster,
) -> None:
    """Near total work / total rate; range and sticky take far longer beside it.

    It takes less than 15 % more on a quiet machine. Beside other tests, 19 % was seen: members that
    wait for a core measure other rates than they have later.

    All groups process the same topic. When the members have measured their rates, a new topic with
    one empty partition triggers a rebalance of each group.
    """
    topic, later = unique("backlog"), unique("later")
    kafka_cluster.create_topic(topic, PARTITIONS)
    assignors = {
        "drain-time": DrainTimeAssignor(),
        "range": RangeAssignor(),
        "sticky": StickyAssignor(),
    }
    with ExitStack() as ending:
        groups = {}
        for name, assignor in assignors.items():
            groups[name] = Workers.start(kafka_cluster, [topic, later], assignor)
            ending.callback(groups[name].end)
        even = Counter(dict.fromkeys(RECORD_S, PARTITIONS // len(RECORD_S)))
        wait_for(lambda: all(one.counts() == even for one in groups.values()), "even shares")
        began_s, backlog = time.monotonic(), BACKLOG * PARTITIONS
        produce(kafka_cluster, topic, [BACKLOG] * PARTITIONS)
        drained = groups["drain-time"]
        workers = drained.workers.values()
        wait_for(lambda: min(one.done for one in workers) >= MEASURED_RECORDS, "some work")
        kafka_cluster.create_topic(later, 1)
        wait_for(lambda: drained.done == backlog, "the end of the backlog", 60)
        took_s = time.monotonic() - began_s
        best_s = drained.best_s(backlog)
        time.sleep(max(0.0, 1.7 * best_s - took_s))
        left = {name: backlog - one.done for name, one in groups.items()}
        shares = drained.counts()
    assert took_s <= 1.3 * best_s, shares
    assert shares["d"] < PARTITIONS // 8 < PARTITIONS // 4 < min(shares[name] for name in "abc")
    assert left["drain-time"] == 0
    assert min(left["range"], left["sticky"]) > 0
