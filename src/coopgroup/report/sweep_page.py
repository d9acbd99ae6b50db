"""The page of a sweep: one HTML file with curves and heat maps for each scenario."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from coopgroup.report.charts import (
    MEASURE_WORDS,
    Setting,
    charts_of,
    heats_of,
    labelled,
    value_text,
    varied,
)
from coopgroup.report.page import write_page
from coopgroup.report.wording import counted
from coopgroup.report.writing import require_bokeh

_ROWS_MAX: Final = 2_000


def write_sweep_page(title: str, settings: Sequence[Setting], path: str | Path) -> None:
    """Write the page of a sweep.

    Raises:
        ConfigurationError: the file cannot be written.
        MissingExtraError: Bokeh is not installed.
    """
    require_bokeh()
    from coopgroup.report import drawing  # noqa: PLC0415 - Bokeh comes with an extra
    from coopgroup.report.drawing.charts import (  # noqa: PLC0415 - likewise
        chart_figure,
        heat_figure,
    )

    by_scenario: dict[str, list[Setting]] = {}
    for one in settings:
        by_scenario.setdefault(str(one.parameters["scenario"]), []).append(one)
    drawn = []
    for name, some in by_scenario.items():
        prefix = re.sub(r"\W+", "_", name) + "_"
        curves = [chart_figure(one) for one in charts_of(some, prefix)]
        heats = [heat_figure(one) for one in heats_of(some, prefix)]
        drawn.append((curves, heats))
    figures = drawing.embedded([one for curves, heats in drawn for one in (*curves, *heats)])
    divs = iter(figures.divs)
    write_page(
        path,
        "sweep.html",
        figures,
        title=title,
        under=_under(settings),
        notes=_notes(settings),
        measures=list(MEASURE_WORDS.values()),
        scenarios=[
            {
                "name": name.replace("_", " "),
                "curves": list(islice(divs, len(curves))),
                "heats": list(islice(divs, len(heats))),
                "parameters": _parameters(some),
                "rows": [_row(one, _parameters(some)) for one in some[:_ROWS_MAX]],
            }
            for (name, some), (curves, heats) in zip(by_scenario.items(), drawn, strict=True)
        ],
    )


def _under(settings: Sequence[Setting]) -> str:
    runs = sum(one.seeds for one in settings)
    return f"{counted(len(settings), 'setting')} · {counted(runs, 'run')}"


def _notes(settings: Sequence[Setting]) -> tuple[str, ...]:
    failed = sum(one.failed for one in settings)
    broken = sum(one.violations for one in settings)
    notes = []
    if failed:
        notes.append(f"{counted(failed, 'run')} could not be played and count for nothing here.")
    if broken:
        notes.append(f"{counted(broken, 'invariant was', 'invariants were')} broken.")
    return tuple(notes)


def _parameters(settings: Sequence[Setting]) -> tuple[str, ...]:
    return tuple(name for name in varied(settings) if name != "scenario") or ("policy",)


def _row(setting: Setting, names: Sequence[str]) -> tuple[list[str], list[str]]:
    spreads = {measure: setting.spreads.get(measure) for measure in MEASURE_WORDS}
    return [labelled(name, setting.parameters[name]) for name in names], [
        "never" if spread is None else value_text(measure, spread.median)
        for measure, spread in spreads.items()
    ]
