"""Distinguishable colours, and names in natural order."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from coopgroup.report.palette import COLOURS, GAP, PATTERNS, PLAIN, Paint, paints, ranks

Triple = npt.NDArray[np.float64]

# Effect of a full lack of one kind of cone on linear RGB: Machado, Oliveira and Fernandes, 2009.
SIGHTS = {
    "normal": "1 0 0; 0 1 0; 0 0 1",
    "protanope": "0.152286 1.052583 -0.204868; 0.114503 0.786281 0.099216;"
    " -0.003882 -0.048116 1.051998",
    "deuteranope": "0.367322 0.860646 -0.227968; 0.280085 0.672501 0.047413;"
    " -0.011820 0.042940 0.968881",
    "tritanope": "1.255528 -0.076749 -0.178779; -0.078411 0.930809 0.147602;"
    " 0.004733 0.691367 0.303900",
}
TO_XYZ = (
    "0.4124564 0.3575761 0.1804375; 0.2126729 0.7151522 0.0721750; 0.0193339 0.1191920 0.9503041"
)
WHITE = np.array([0.95047, 1, 1.08883])


def matrix(text: str) -> Triple:
    return np.array([[float(number) for number in row.split()] for row in text.split(";")])


def lab(colour: str, sight: str) -> Triple:
    """Return CIE L*a*b* of "#rrggbb" with that colour vision."""
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    relative = matrix(TO_XYZ) @ np.clip(matrix(SIGHTS[sight]) @ linear, 0, 1) / WHITE
    root = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def nearest(colours: tuple[str, ...], sight: str) -> float:
    return min(
        float(np.linalg.norm(lab(one, sight) - lab(other, sight)))
        for one, other in combinations(colours, 2)
    )


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_keep_their_distance_in_every_sight(sight: str) -> None:
    assert nearest(COLOURS[:8], sight) >= 15
    assert nearest(COLOURS, sight) >= 8
    assert min(nearest((colour, GAP), sight) for colour in COLOURS) >= 35


def test_paints_beyond_the_colours_have_a_pattern() -> None:
    made = paints(180)
    assert made[0] == Paint(COLOURS[0], PLAIN)
    assert made[20] == Paint(COLOURS[0], PATTERNS[1])
    assert len(set(made)) == 180
    assert paints(181)[180] == made[0]


def test_ranks_count_numbers_within_names() -> None:
    assert ranks(["c-10", "c-2", "b", "c-2-x", "7", ""]) == (5, 3, 2, 4, 1, 0)
