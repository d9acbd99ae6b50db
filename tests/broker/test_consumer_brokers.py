"""The group survives restarts of its brokers, and a group coordinator that moves."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from coopgroup.telemetry import MembershipLost, RequestRefused, RoundDecided
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import TrialLog, Window, measure
from tests.support.coordinators import committed_offsets
from tests.support.live_group import NOISE_MS, Player, playing

pytestmark = pytest.mark.verify

# Longer than a broker restart, or the election of another group coordinator.
SESSION_MS = 12_000
AUTO_COMMIT = {"enable.auto.commit": True, "auto.commit.interval.ms": 200}
PARTITIONS = 6


@pytest.fixture
def one_broker() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


def _committed(cluster: KafkaCluster, player: Player) -> list[int]:
    (topic,) = player.trial.topics
    return committed_offsets(cluster, player.group.group_id, topic, PARTITIONS)


def _ends(log: TrialLog) -> list[int]:
    rows = log.acknowledged
    return [int(rows[rows["partition"] == one]["offset"].max()) + 1 for one in range(PARTITIONS)]


def _pauses_ms(log: TrialLog, window: Window) -> list[float]:
    rows = log.rows[(log.rows["at_ns"] >= window.begin_ns) & (log.rows["at_ns"] < window.end_ns)]
    waits = (rows["at_ns"] - np.maximum(rows["waiting_since_ns"], window.begin_ns)) / 1e6
    return [float(waits[rows["partition"] == one].max(initial=0.0)) for one in range(PARTITIONS)]


def test_the_group_keeps_its_assignment_when_its_broker_restarts(
    one_broker: KafkaCluster,
) -> None:
    """A graceful stop, then SIGKILL: no member loses partitions, and no rebalance follows."""
    with playing(
        one_broker,
        partitions=PARTITIONS,
        commit_interval_ms=0,
        extra_config=AUTO_COMMIT,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
    ) as player:
        player.group.start("m1", "m2")
        player.settle()
        rounds = len(player.telemetry(RoundDecided))
        begin_ns = time.monotonic_ns()
        one_broker.stop_broker(1)
        one_broker.start_broker(1)
        player.settle()
        one_broker.kill(1)
        one_broker.start_broker(1)
        player.settle()
        window = Window(begin_ns=begin_ns, end_ns=time.monotonic_ns())
        assert len(player.telemetry(RoundDecided)) == rounds
        assert player.telemetry(MembershipLost) == []
        player.trial.finish()
        log = player.log()
        facts = measure(log, window)
        assert (facts.lost, facts.moved, facts.double_owner_transitions) == (0, 0, 0)
        assert _committed(one_broker, player) == _ends(log)


def test_partitions_elsewhere_do_not_pause_when_the_coordinator_dies() -> None:
    """Three brokers; the group coordinator is killed, and another broker takes over the same group.

    Partitions with living leaders continue without a pause; commits find the new coordinator.
    """
    with (
        KafkaCluster(brokers=3) as cluster,
        playing(
            cluster,
            partitions=PARTITIONS,
            commit_interval_ms=0,
            extra_config=AUTO_COMMIT,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
        ) as player,
    ):
        player.group.start("m1", "m2")
        player.settle()
        rounds = len(player.telemetry(RoundDecided))
        (topic,) = player.trial.topics
        coordinator = cluster.group_coordinator(player.group.group_id)
        elsewhere = [
            one for one in range(PARTITIONS) if cluster.leader_of(topic, one) != coordinator
        ]
        with player.trial.window() as opened:
            cluster.kill(coordinator)
            deadline = time.monotonic() + 15
            while cluster.group_coordinator(player.group.group_id) == coordinator:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            time.sleep(1.5)
        before = _committed(cluster, player)
        time.sleep(1.0)
        after = _committed(cluster, player)
        assert all(after[one] > before[one] for one in elsewhere)
        cluster.start_broker(coordinator)
        player.settle()
        assert len(player.telemetry(RoundDecided)) == rounds
        assert player.telemetry(MembershipLost) == []
        assert player.telemetry(RequestRefused) != []  # the member did notice
        player.trial.finish()
        log = player.log()
        facts = measure(log, opened.window)
        pauses = _pauses_ms(log, opened.window)
        assert len(elsewhere) >= PARTITIONS // 2
        assert max(pauses[one] for one in elsewhere) < NOISE_MS
        assert (facts.lost, facts.moved, facts.double_owner_transitions) == (0, 0, 0)
        assert _committed(cluster, player) == _ends(log)
