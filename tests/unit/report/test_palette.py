"""Distinguishable colours, and names in natural order."""

from coopgroup.report.palette import COLOURS, PATTERNS, PLAIN, Paint, paints, ranks


def test_paints_beyond_the_colours_have_a_pattern() -> None:
    made = paints(180)
    assert made[0] == Paint(COLOURS[0], PLAIN)
    assert made[20] == Paint(COLOURS[0], PATTERNS[1])
    assert len(set(made)) == 180
    assert paints(181)[180] == made[0]


def test_ranks_count_numbers_within_names() -> None:
    assert ranks(["c-10", "c-2", "b", "c-2-x", "7", ""]) == (5, 3, 2, 4, 1, 0)
