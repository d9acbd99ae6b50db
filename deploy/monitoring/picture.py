"""Draw the panels of the dashboard from a running Prometheus, as one SVG for the documentation.

    python -m deploy.monitoring.picture http://localhost:9090 GROUP MINUTES FILE.svg [UNTIL]

Grafana draws them with the same queries. Panels without a value are left out.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from deploy.monitoring.make import read_description

__all__ = ["drawn", "main"]

Line = tuple[str, list[tuple[float, float]]]
"""A legend, and points of time and value."""

COLUMNS, WIDTH, HEIGHT = 3, 330, 190
LEFT, TOP, RIGHT, BOTTOM = 44, 30, 8, 46  # room around the lines of a panel
LEGENDS_MAX = 4
_LARGE = 100
STEP_S = 2
COLOURS = ("#1f6f8b", "#e07a1f", "#3c8d40", "#b03a5b", "#7a5195", "#8c6d31", "#4a4a4a")
STYLE = "font: 11px sans-serif; fill: #333"


def lines_of(url: str, query: str, legend: str, since_s: float, until_s: float) -> list[Line]:
    """Return the series of a query."""
    asked = {"query": query, "start": since_s, "end": until_s, "step": STEP_S}
    address = f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - given by the user
        found = json.load(answer)["data"]["result"]
    lines = []
    for one in found:
        labels, name = one["metric"], legend
        for label in re.findall(r"{{(\w+)}}", legend):
            name = name.replace(f"{{{{{label}}}}}", labels.get(label, ""))
        points = [(at_s, float(value)) for at_s, value in one["values"]]
        lines.append((name.strip(), [point for point in points if math.isfinite(point[1])]))
    return lines


def drawn(
    rows: Sequence[tuple[str, Sequence[tuple[str, Sequence[Line]]]]], since_s: float, until_s: float
) -> str:
    """Return an SVG with a title for each row, and a chart for each of its panels."""
    parts, top = [], 0
    for title, panels in rows:
        parts.append(f'<text x="6" y="{top + 20}" style="{STYLE}; font-size: 15px">{title}</text>')
        top += 30
        for number, (name, lines) in enumerate(panels):
            top += HEIGHT if number and not number % COLUMNS else 0
            chart = _chart(name, lines, since_s, until_s)
            parts.append(f'<g transform="translate({number % COLUMNS * WIDTH} {top})">{chart}</g>')
        top += HEIGHT
    size = f'viewBox="0 0 {COLUMNS * WIDTH} {top}" width="{COLUMNS * WIDTH}"'
    paper = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{paper}{"".join(parts)}</svg>\n'


def _chart(name: str, lines: Sequence[Line], since_s: float, until_s: float) -> str:
    highest = max((value for _, points in lines for _, value in points), default=0.0) or 1.0
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(at_s: float, value: float) -> str:
        x = LEFT + wide * (at_s - since_s) / (until_s - since_s)
        return f"{x:.0f},{TOP + high * (1 - max(0.0, value) / highest):.1f}"

    top = f"{highest:,.0f}" if highest >= _LARGE else f"{highest:.3g}"
    scale = f'x="{LEFT - 4}" text-anchor="end" style="{STYLE}"'
    parts = [
        f'<text x="{LEFT}" y="18" style="{STYLE}; font-weight: bold">{escape(name)}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{wide}" height="{high}" fill="#f6f7f8"/>',
        f'<text {scale} y="{TOP + 9}">{top}</text>',
        f'<text {scale} y="{TOP + high}">0</text>',
    ]
    for number, (legend, points) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        for piece in _pieces(points):
            path = " ".join(place(*point) for point in piece)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            )
        if number < LEGENDS_MAX:
            x, y = LEFT + number % 2 * wide // 2, HEIGHT - BOTTOM + 15 + number // 2 * 14
            parts.append(
                f'<text x="{x}" y="{y}" style="{STYLE}; fill: {colour}">{escape(legend)}</text>'
            )
    return "".join(parts)


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Divide a line where values are missing, because its member was gone."""
    pieces: list[list[tuple[float, float]]] = []
    for point in points:
        if not pieces or point[0] - pieces[-1][-1][0] > STEP_S:
            pieces.append([])
        pieces[-1].append(point)
    return pieces


def main(url: str, group: str, minutes: str, file: str, until: str = "") -> None:
    """Write the picture of the last minutes, or of those before a time in seconds since 1970."""
    until_s = float(until or time.time())
    since_s = until_s - 60 * float(minutes)

    def lines(panel: dict[str, Any]) -> list[Line]:
        return [
            line
            for one in panel["queries"]
            for line in lines_of(
                url,
                one["query"]
                .replace("SELECT", f'group="{group}"')
                .replace("$__rate_interval", "20s"),
                one["legend"],
                since_s,
                until_s,
            )
            if any(value for _, value in line[1])
        ]

    rows = [
        (row["title"], [(one["title"], found) for one in row["panels"] if (found := lines(one))])
        for row in read_description()["rows"]
    ]
    Path(file).write_text(drawn(rows, since_s, until_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
