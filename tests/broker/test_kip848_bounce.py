"""A group of KIP-848 moves to coopgroup and back in one bounce each way, under a steady producer.

Each member is closed, and the member that replaces it starts immediately. The measure of a good
bounce is the bounce that replaces members of KIP-848 by members of KIP-848, in the same test.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coopgroup import DeferredPolicy, SimplePolicy
from coopgroup.policies import Policy
from coopgroup.testing import KafkaCluster
from tests.support.kip848 import FAST_BROKER
from tests.support.mixed_group import MixedGroup

DEFAULTS: Mapping[str, Any] = {"heartbeat_interval_ms": 3_000, "session_timeout_ms": 30_000}
NEXT_BEAT_S = 1.0
"""A pause that ends one heartbeat later counts the same: the moment of a heartbeat is chance."""


@pytest.fixture(scope="module")
def fast_broker() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=FAST_BROKER) as cluster:
        yield cluster


def bounce(
    group: MixedGroup, names: list[str], new: list[str], start: Callable[[str], object]
) -> float:
    """Replace the members one by one; return the longest time of a partition without an owner."""
    began_s, members = time.monotonic(), list(names)
    for goes, comes in zip(names, new, strict=True):
        group.stop(goes)
        start(comes)
        members = [*members[1:], comes]
        group.until(lambda: group.is_even(*members), f"{comes} for {goes}")  # noqa: B023
    return group.ledger.gap_s(began_s)


def there_and_back(
    group: MixedGroup, policy: Policy, settings: Mapping[str, Any]
) -> tuple[float, float, float]:
    """Return the longest times without an owner: among KIP-848, to coopgroup, and back."""
    first, second, third = (["k1", "k2"], ["k3", "k4"], ["k5", "k6"])
    ours = ["a", "b"]
    for name in first:
        group.kip848(name)
    group.until(lambda: group.is_even(*first), "two of KIP-848")
    among = bounce(group, first, second, group.kip848)

    def start(name: str) -> object:
        return group.ours(name, "coopgroup", policy=policy, **settings)

    there = bounce(group, second, ours, start)
    group.settle(*ours, protocol="coopgroup")
    back = bounce(group, ours, third, group.kip848)
    return among, there, back


@pytest.mark.parametrize("policy", [SimplePolicy(), DeferredPolicy()], ids=["simple", "deferred"])
def test_bounce_loses_and_repeats_nothing(
    fast_broker: KafkaCluster, tmp_path: Path, policy: Policy
) -> None:
    """Every record is handed out once: each member commits before it gives up a partition."""
    with MixedGroup(fast_broker, None, tmp_path) as group:
        there_and_back(group, policy, {})
        group.finish()
        assert (group.ledger.repeated(), group.ledger.lost) == (0, [])


@pytest.mark.verify
def test_bounce_at_all_defaults_pauses_no_longer_than_among_kip_848(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Members of KIP-848 send a heartbeat in 5 s, and ours in 3 s."""
    with MixedGroup(kafka_cluster, None, tmp_path) as group:
        among, there, back = there_and_back(group, DeferredPolicy(), DEFAULTS)
        group.finish()
        assert max(there, back) <= among + NEXT_BEAT_S, (among, there, back)
        assert (group.ledger.repeated(), group.ledger.lost) == (0, [])
