"""Numbers are drawn as `randint` draws them."""

import random

import pytest

from coopgroup.simulator.world.drawing import between

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
