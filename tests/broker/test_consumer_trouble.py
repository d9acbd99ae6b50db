"""Members are started, closed, killed and frozen faster than the group settles."""

import random
import time

import pytest

from coopgroup.telemetry import RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import Window, measure
from tests.support.live_group import Player, playing

pytestmark = pytest.mark.verify

SESSION_MS = 1_500
TROUBLE_S = 10.0
NAMES = ("m1", "m2", "m3", "m4", "m5")


def _make_trouble(player: Player, chance: random.Random, thaw_at: dict[str, float]) -> None:
    group = player.group
    for name in [one for one, at in thaw_at.items() if at <= time.monotonic()]:
        group.resume(name)
        del thaw_at[name]
    well = [name for name in group.living if name not in thaw_at]
    away = [name for name in NAMES if name not in group.living]
    what = chance.choice(("start", "stop", "kill", "freeze", "freeze"))
    if what == "start" or len(well) < 2:
        group.start(*away[:1])
        return
    name = chance.choice(well)
    match what:
        case "stop":
            group.stop(name)
        case "kill":
            group.kill(name)
        case _:
            group.freeze(name)
            thaw_at[name] = time.monotonic() + chance.uniform(0.2, 3.0)


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_or_owned_twice_when_members_are_in_trouble(
    kafka_cluster: KafkaCluster, seed: int
) -> None:
    """No record is lost, no partition has two owners, no round is refused; the group settles."""
    chance = random.Random(seed)
    thaw_at: dict[str, float] = {}
    with playing(
        kafka_cluster, rate=60.0, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=200
    ) as player:
        player.group.start("m1", "m2", "m3")
        player.settle()
        begin_ns = time.monotonic_ns()
        while time.monotonic_ns() - begin_ns < TROUBLE_S * 1e9:
            _make_trouble(player, chance, thaw_at)
            time.sleep(chance.uniform(0.0, 0.8))
        for name in sorted(thaw_at):
            player.group.resume(name)
        player.settle()
        window = Window(begin_ns=begin_ns, end_ns=time.monotonic_ns())
        assert player.telemetry(RoundRefused) == []
        assert [record for _, record in player.telemetry(RoundDecided) if record.contested] == []
        player.trial.finish()
        facts = measure(player.log(), window)
    assert (facts.lost, facts.double_owner_transitions) == (0, 0)
