"""Virtual time: order, random numbers, records."""

import random

import pytest

from coopgroup.simulator.world import World
from coopgroup.simulator.world.drawing import between


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


# --- numbers are drawn as `randint` draws them ----------------------------------------------------


SPANS = ((0, 0), (5, 5), (0, 1), (-3, 4), (1, 10), (20, 80), (1, 1_000))


def test_numbers_are_those_of_randint() -> None:
    """The golden transcripts depend on the same numbers in the same order."""
    ours, theirs = random.Random(7), random.Random(7)
    spans = [span for _ in range(200) for span in SPANS]
    assert [between(ours, *span) for span in spans] == [theirs.randint(*span) for span in spans]


@pytest.mark.parametrize("span", [(1, 0), (5, -5), (1, -1_000)])
def test_numbers_when_there_are_none_are_refused(span: tuple[int, int]) -> None:
    """The search for a number would never end."""
    with pytest.raises(ValueError, match="there is no number from"):
        between(random.Random(7), *span)
