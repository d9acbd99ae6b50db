"""A rolling restart from the classic protocol to `group.protocol=consumer`, and back.

Members of both protocols are in one group meanwhile. The broker assigns to all of them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from attrs import define, field
from confluent_kafka import Consumer, TopicPartition

from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from tests.support.ledger import Ledger
from tests.support.mixed_group import PARTITIONS, MixedGroup
from tests.support.waiting import wait_for

PAUSE_MS_MAX = 500.0
# Members of KIP-848 send regular heartbeats every 15 s here.
BELL_S_MAX = 12.0


@pytest.fixture
def mixed(consumer_cluster: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    with MixedGroup(consumer_cluster, None, tmp_path) as group:
        yield group


@define(eq=False)
class Bystander:
    """A reader of the same topic that is in no group: its pauses are those of the machine."""

    mixed: MixedGroup
    ledger: Ledger = field(factory=Ledger)
    _is_over: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_for(lambda: len(self.ledger.handed) > PARTITIONS, "the first records")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def pause_ms(self, since_s: float, until_s: float) -> float:
        """Return its longest time without a record of some partition."""
        return max(
            self.ledger.pause_ms("bystander", one, since_s, until_s) for one in range(PARTITIONS)
        )

    def _read(self) -> None:
        settings = {**self.mixed.cluster.client_config(), "group.id": "none"}
        reader = Consumer({**settings, "enable.auto.commit": False})
        reader.assign([TopicPartition(self.mixed.topic, one, 0) for one in range(PARTITIONS)])
        while not self._is_over.is_set():
            for one in reader.consume(200, 0.02):
                if one.error() is None:
                    at = (one.partition() or 0, one.offset() or 0)
                    records = range(at[1], at[1] + 1)
                    self.ledger.hand("bystander", at[0], records, time.monotonic())
        reader.close()


def start(mixed: MixedGroup, name: str, protocol: str) -> None:
    if protocol == "classic":
        mixed.ours(name)
    else:
        mixed.consumer(name)


def restart_all(
    mixed: MixedGroup, names: str, protocol: str, bystander: Bystander | None = None
) -> list[float]:
    """Restart one member after the other.

    Returns:
        The longest pause of each partition that stayed in a step, in ms, beyond that of the
        bystander.
    """
    pauses = []
    for name in names:
        others = names.replace(name, "")
        for act in (mixed.stop, lambda one: start(mixed, one, protocol)):
            began_s = time.monotonic()
            act(name)
            mixed.settle(*(others if act == mixed.stop else names))
            now_s = time.monotonic()
            assert now_s - began_s < BELL_S_MAX
            usual_ms = 0.0 if bystander is None else bystander.pause_ms(began_s, now_s)
            pauses += [
                mixed.ledger.pause_ms(other, partition, began_s, now_s) - usual_ms
                for other in others
                for partition in mixed.ledger.held_throughout(other, began_s)
            ]
    return pauses


def check(mixed: MixedGroup, names: str) -> None:
    mixed.finish()
    assert (mixed.ledger.repeated(), mixed.ledger.lost) == (0, [])
    assert all(mixed.records(name, MembershipLost) == [] for name in names)


def test_two_members_move_to_kip_848_and_back(mixed: MixedGroup) -> None:
    for name in "ab":
        start(mixed, name, "classic")
    mixed.settle(*"ab")
    assert restart_all(mixed, "ab", "consumer")
    assert mixed.protocol() == "uniform"
    assert restart_all(mixed, "ab", "classic")
    assert mixed.protocol() == "coopgroup"
    check(mixed, "ab")


@pytest.mark.verify
@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
def test_partitions_that_stay_hardly_pause(mixed: MixedGroup, before: str, after: str) -> None:
    names = "abc"
    for name in names:
        start(mixed, name, before)
    mixed.settle(*names)
    with Bystander(mixed) as bystander:
        pauses = sorted(restart_all(mixed, names, after, bystander))
    check(mixed, names)
    longest = [round(one) for one in pauses[-5:]]
    sys.stdout.write(f"{before} -> {after}: pauses of {longest} ms beyond a bystander's\n")
    assert pauses[-1] < PAUSE_MS_MAX
