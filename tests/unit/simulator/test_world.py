"""Virtual time: order, random numbers, records."""

from coopgroup.simulator.world import Violation, World
from coopgroup.telemetry import Envelope, FaultInjected


def test_actions_run_in_order_of_time_and_then_of_their_coming() -> None:
    world, seen = World(), list[str]()
    world.later(5, seen.append, "late")
    world.later(1, lambda: world.later(0, seen.append, "second"))
    world.later(1, seen.append, "first")
    world.at(-3, seen.append, "overdue")
    world.run(5)
    assert seen == ["overdue", "first", "second", "late"]
    assert world.now_ms == 5


def test_run_leaves_what_is_not_due() -> None:
    world, seen = World(), list[str]()
    world.later(10, seen.append, "later")
    world.run(9)
    assert (seen, world.now_ms) == ([], 9)
    world.run(10)
    assert seen == ["later"]


def test_dice_depend_on_seed_and_purpose_only() -> None:
    one, other = World(seed=7), World(seed=7)
    one.dice("network").random()
    assert one.dice("costs").random() == other.dice("costs").random()
    assert World(seed=8).dice("costs").random() != World(seed=7).dice("costs").random()


def test_what_is_written_has_its_time() -> None:
    world = World(group_id="g")
    world.run(42)
    world.fault("it rains")
    world.object_to("rule", "is broken")
    record = FaultInjected(description="it rains")
    assert world.telemetry == [
        Envelope(at_ms=42, group="g", member="", generation=-1, record=record)
    ]
    assert world.violations == [Violation(checker="rule", at_ms=42, message="is broken")]
