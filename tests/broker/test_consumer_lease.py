"""Frozen processes, and a thread that holds the GIL for longer than a session."""

import ctypes
import time
from pathlib import Path

import numpy as np
import pytest

from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from tests.lab.analysis import Window, measure
from tests.lab.recording import Event, EventReader, RowReader
from tests.support.live_group import Crew, Player, playing, produce, unique

SESSION_MS = 1_500
FREEZES = ("m1", "m2", "m3")
SHORT = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}


def _freeze_and_wake(player: Player, name: str) -> tuple[int, int]:
    """Freeze a member for longer than its session timeout; return when it stopped and continued."""
    frozen_ns = time.monotonic_ns()
    player.group.freeze(name)
    time.sleep(2 * SESSION_MS / 1000)
    player.settle(fair=False)
    woken_ns = time.monotonic_ns()
    player.group.resume(name)
    player.settle()
    return frozen_ns, woken_ns


def _events(player: Player, name: str) -> list[Event]:
    return EventReader(player.group.member(name).events_path).read_new()


def _handed_out(player: Player, name: str, begin_ns: int, end_ns: int) -> int:
    moments = RowReader(player.group.member(name).records_path).read_new()["at_ns"]
    return int(np.count_nonzero((moments >= begin_ns) & (moments < end_ns)))


@pytest.mark.verify
def test_not_one_record_is_handed_out_when_a_frozen_member_wakes(
    kafka_cluster: KafkaCluster,
) -> None:
    """First on_lost, no record of the old generation, then work again.

    The other members take over without a pause; no partition has two owners.
    """
    with playing(
        kafka_cluster, rate=150.0, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=200
    ) as player:
        player.group.start(*FREEZES)
        player.settle()
        begin_ns = time.monotonic_ns()
        freezes = [(name, *_freeze_and_wake(player, name)) for name in FREEZES]
        window = Window(begin_ns=begin_ns, end_ns=time.monotonic_ns())
        player.trial.finish()
        facts = measure(player.log(), window)
        losses = player.telemetry(MembershipLost)
        for name, frozen_ns, woken_ns in freezes:
            after = [one for one in _events(player, name) if one.at_ns > woken_ns]
            callbacks = [one.name for one in after if one.name in {"lost", "assigned", "revoking"}]
            assigned_ns = next(one.at_ns for one in after if one.name == "assigned")
            assert callbacks[:2] == ["lost", "assigned"]
            # A call that was running at the time of the signal may still be recorded.
            assert _handed_out(player, name, frozen_ns + 20_000_000, assigned_ns) == 0
            assert _handed_out(player, name, assigned_ns, window.end_ns) > 0
    assert (facts.lost, facts.double_owner_transitions) == (0, 0)
    assert sorted(name for name, _ in losses) == list(FREEZES)


def test_member_comes_back_after_a_c_call_that_held_the_gil(
    kafka_cluster: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A known limit: no heartbeat is sent meanwhile. The log says why the membership was lost."""
    topic = unique("gil")
    kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration=SHORT).subscribe([topic])
        crew.until(lambda: crew.counts() == [2], "it works")
        ctypes.PyDLL(None).usleep(3_000_000)
        crew.until(lambda: crew.telemetry("a", MembershipLost) != [], "the loss")
        crew.until(lambda: crew.counts() == [2], "it works again")
        produce(kafka_cluster, topic, [1, 1])
        crew.until(lambda: len(crew.messages["a"]) == 2, "its records")
    said = [one.getMessage() for one in caplog.records if "group_thread_late" in one.getMessage()]
    assert any("may have dropped" in one for one in said)  # a busy machine may add a shorter one
