"""The group survives restarts of its brokers, and a group coordinator that moves."""

import time
from collections.abc import Iterator

import pytest

from coopgroup.telemetry import MembershipLost, RoundDecided
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import TrialLog, Window, measure
from tests.support.coordinators import committed_offsets
from tests.support.live_group import Player, playing

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
