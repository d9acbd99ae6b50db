"""Colours of owners that readers with colour blindness can also distinguish.

The first eight colours keep a distance of 15, and all twenty a distance of 8 (CIE 1976), in normal
sight and for protanopes, deuteranopes and tritanopes. All are far from the dark colour of a gap.
Owners beyond the twentieth repeat the colours with one of eight patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

COLOURS: Final = (
    "#0072b2",
    "#ec7014",
    "#ffaabb",
    "#56b4e9",
    "#eedd88",
    "#cc6677",
    "#cc79a7",
    "#5aae61",
    "#99ddff",
    "#228833",
    "#bbcc33",
    "#acd39e",
    "#c2a5cf",
    "#eecc66",
    "#ee8866",
    "#cc4c02",
    "#9970ab",
    "#e69f00",
    "#44bb99",
    "#6699cc",
)
PLAIN: Final = " "
PATTERNS: Final = (PLAIN, "/", "x", "-", ".", "\\", "|", "+", "o")  # Bokeh's names
GAP: Final = "#15181c"
"""No process works on it."""
DOUBLE: Final = "#ff0033"
"""Two processes work on it at the same time."""
UNKNOWN: Final = "#eceef1"
"""Before the resource appears in the records."""


_RUNS: Final = re.compile(r"\d+|\D+")


@frozen
class Paint:
    """Colour and pattern of an owner.

    Attributes:
        colour: "#rrggbb".
        pattern: name of a Bokeh hatch pattern; `PLAIN` for none.
    """

    colour: str
    pattern: str


def paints(count: int) -> tuple[Paint, ...]:
    """Return paint for `count` owners; the first are the most distinct."""
    cycle = len(COLOURS)
    return tuple(
        Paint(COLOURS[number % cycle], PATTERNS[number // cycle % len(PATTERNS)])
        for number in range(count)
    )


def ranks(names: Iterable[str]) -> tuple[int, ...]:
    """Return the rank of each name, with numbers in names compared as numbers: c-2 before c-10."""
    listed = list(names)
    order = sorted(range(len(listed)), key=lambda place: _natural(listed[place]))
    found = [0] * len(listed)
    for rank, place in enumerate(order):
        found[place] = rank
    return tuple(found)


def _natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a sort key: digits by length, then value, before letters; then the spelling."""
    parts = []
    for run in _RUNS.findall(name):
        digits = run.lstrip("0") if run.isdecimal() else ""
        parts.append((not run.isdecimal(), len(digits), digits or run))
    return parts, name
