"""Virtual time: order, random numbers, records."""

from coopgroup.simulator.world import World


def test_actions_run_in_order_of_time_and_then_of_their_coming() -> None:
    world, seen = World(), list[str]()
    world.later(5, seen.append, "late")
    world.later(1, lambda: world.later(0, seen.append, "second"))
    world.later(1, seen.append, "first")
    world.at(-3, seen.append, "overdue")
    world.run(5)
    assert seen == ["overdue", "first", "second", "late"]
    assert world.now_ms == 5


def test_dice_depend_on_seed_and_purpose_only() -> None:
    one, other = World(seed=7), World(seed=7)
    one.dice("network").random()
    assert one.dice("costs").random() == other.dice("costs").random()
    assert World(seed=8).dice("costs").random() != World(seed=7).dice("costs").random()
