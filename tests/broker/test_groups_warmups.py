"""Named resources with state on a real broker: a resource moves when its new process is warm."""

from __future__ import annotations

import threading

from coopgroup import CooperativeGroup, SimplePolicy
from coopgroup.policies import Warmup
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

ALL = [("shard", number) for number in range(4)]


class _Member:
    """A process with state that restores nothing until the test lets it."""

    def __init__(self, cluster: KafkaCluster, group_id: str) -> None:
        self.calls: list[tuple[str, int]] = []
        self.kept: list[int] = []
        self.restores = threading.Event()
        self.group = CooperativeGroup(
            {
                **cluster.client_config(),
                "group.id": group_id,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
            },
            catalogue=ALL,
            start=lambda one: self.calls.append(("start", one.index)),
            stop=lambda one: self._stop(one.index),
            warm=lambda one: self._warm(one.index),
            cool=lambda one: self.calls.append(("cool", one.index)),
            policy=SimplePolicy(warmup=Warmup(standbys=1)),
        )

    def _stop(self, index: int) -> None:
        self.calls.append(("stop", index))
        self.kept += [one.index for one in self.group.warmups() if one.index == index]

    def _warm(self, index: int) -> None:
        self.calls.append(("warm", index))
        assert self.restores.wait(60)

    def what(self, action: str) -> list[int]:
        return sorted(index for one, index in tuple(self.calls) if one == action)


def test_resource_moves_when_its_new_process_is_warm(kafka_cluster: KafkaCluster) -> None:
    group_id = unique("warm-group")
    first, second = (_Member(kafka_cluster, group_id) for _ in range(2))
    first.restores.set()
    with first.group:
        wait_for(lambda: len(first.group.held()) == len(ALL), "the first has all")
        with second.group:
            wait_for(lambda: len(second.what("warm")) == 2, "two warm-ups begin")
            moving = second.what("warm")
            assert first.what("stop") == second.what("start") == []
            second.restores.set()
            wait_for(lambda: len(second.group.held()) == 2, "two resources move")
            assert [one.index for one in second.group.held()] == moving
            assert first.what("stop") == sorted(first.kept) == moving
            wait_for(lambda: first.what("warm") == moving, "the first keeps what it gave up")
            # the standbys of the other two
            wait_for(lambda: len(second.what("warm")) == len(ALL), "the second is a standby")
            assert second.what("cool") == []
