"""Numbers are drawn as `randint` draws them."""

import random

from coopgroup.simulator.drawing import between

SPANS = ((0, 0), (5, 5), (0, 1), (-3, 4), (1, 10), (20, 80), (1, 1_000))


def test_numbers_are_those_of_randint() -> None:
    """The same ones, from the same dice, in the same order: golden transcripts stay."""
    ours, theirs = random.Random(7), random.Random(7)
    spans = [span for _ in range(200) for span in SPANS]
    assert [between(ours, *span) for span in spans] == [theirs.randint(*span) for span in spans]
