"""The bell between simulated processes: delays, losses, false rings, and its worth."""

import pytest

from coopgroup.simulator.scenario import Bell, Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.world import World
from coopgroup.simulator.world.bell import SimulatedBell
from tests.support.members import played_group


class Ear:
    """Notes when it hears a ring."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard_at_ms: list[int] = []

    def hear(self) -> None:
        self.heard_at_ms.append(self.world.now_ms)


def hung(times: Bell, *, ears: int = 1) -> tuple[SimulatedBell, list[Ear]]:
    world = World(seed=3)
    listeners = [Ear(world) for _ in range(ears)]
    return SimulatedBell(world=world, times=times, listeners=lambda: listeners), listeners


def test_each_process_hears_a_ring_after_its_own_delay() -> None:
    bell, ears = hung(Bell(delay_ms=Span(5, 50)), ears=20)
    bell.ring()
    bell.world.run(1_000)
    assert all(len(ear.heard_at_ms) == 1 for ear in ears)
    times = {ear.heard_at_ms[0] for ear in ears}
    assert len(times) > 1
    assert times <= set(range(5, 51))


def test_false_rings_have_their_mean_distance() -> None:
    bell, (ear,) = hung(Bell(false_every_ms=100))
    bell.world.run(100_000)
    assert len(ear.heard_at_ms) == pytest.approx(1_000, rel=0.1)


def settling_ms(group: Simulation) -> int:
    """Return how long two settled members take to share with a third one."""
    group.start("a", ("T",))
    group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    group.run(group.config.heartbeat_interval_ms // 2)
    third, begun_ms = group.start("c", ("T",)), group.world.now_ms
    while not third.application.working:
        group.run(1)
    return group.world.now_ms - begun_ms


def test_members_hear_of_a_round_ahead_of_their_heartbeats() -> None:
    with_bell = played_group()
    with_bell.hang_bell(Bell())
    assert settling_ms(with_bell) < 100
    assert settling_ms(played_group()) > 200


def test_paused_process_and_one_that_is_cut_off_hear_nothing() -> None:
    group = played_group()
    group.hang_bell(Bell())
    paused, cut = group.start("a", ("T",)), group.start("b", ("T",))
    assert group.run_until_rest(5_000, 200)
    paused.pause()
    group.cut(cut, 500)
    before = paused.session.member, cut.session.member
    paused.hear()
    cut.hear()
    assert (paused.session.member, cut.session.member) == before
