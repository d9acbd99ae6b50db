"""A rolling restart from the classic protocol to `group.protocol=consumer`, and back.

Members of both protocols are in one group meanwhile. The broker assigns to all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from tests.support.mixed_group import MixedGroup

PAUSE_MS_MAX = 500.0


@pytest.fixture
def mixed(consumer_cluster: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    with MixedGroup(consumer_cluster, None, tmp_path) as group:
        yield group


def start(mixed: MixedGroup, name: str, protocol: str) -> None:
    if protocol == "classic":
        mixed.ours(name)
    else:
        mixed.consumer(name)


def restart_all(mixed: MixedGroup, names: str, protocol: str) -> list[float]:
    """Restart one member after the other; return the longest pause of what stayed, in ms."""
    pauses = []
    for name in names:
        others = names.replace(name, "")
        for act in (mixed.stop, lambda one: start(mixed, one, protocol)):
            began_s = time.monotonic()
            act(name)
            mixed.settle(*(others if act == mixed.stop else names))
            now_s = time.monotonic()
            pauses += [
                mixed.ledger.pause_ms(other, partition, began_s, now_s)
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
    pauses = sorted(restart_all(mixed, names, after))
    check(mixed, names)
    print(f"{before} -> {after}: longest pauses {[round(one) for one in pauses[-5:]]} ms")
    assert pauses[-1] < PAUSE_MS_MAX
