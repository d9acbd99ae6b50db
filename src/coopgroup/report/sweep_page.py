"""The page of a sweep: one HTML file with curves and heat maps for each scenario."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from coopgroup.errors import ConfigurationError
from coopgroup.report import page
from coopgroup.report.charts import labelled, value_text
from coopgroup.report.sweep_charts import (
    MEASURE_WORDS,
    Setting,
    charts_of,
    heats_of,
    varied,
)
from coopgroup.report.wording import counted
from coopgroup.report.writing import require_bokeh

__all__ = ["write_page_file", "write_sweep_page"]

_HINT: Final = (
    "Medians over the seeds, with bands from the lowest to the highest. Dashed: a policy that does "
    "not know what is varied. Darker cells are higher numbers."
)
_ROWS_MAX: Final = 2_000


def write_sweep_page(title: str, settings: Sequence[Setting], path: str | Path) -> None:
    """Write the page of a sweep.

    Args:
        title: heading of the page.
        settings: the played settings; at least one.
        path: file to write; an existing file is replaced.

    Raises:
        ConfigurationError: the file cannot be written.
        CoopgroupError: Bokeh is not installed.
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
    figures, counts = [], []
    for name, some in by_scenario.items():
        prefix = re.sub(r"\W+", "_", name) + "_"
        curves = [chart_figure(one) for one in charts_of(some, prefix)]
        heats = [heat_figure(one) for one in heats_of(some, prefix)]
        figures += [*curves, *heats]
        counts.append((len(curves), len(heats)))
    script, divs = drawing.script_and_divs(figures) if figures else ("", ())
    sections = [page.notes_section(_notes(settings))]
    for (name, some), count in zip(by_scenario.items(), counts, strict=True):
        inner, divs = divs[: sum(count)], divs[sum(count) :]
        grids = "".join(map(_grid, (inner[: count[0]], inner[count[0] :])))
        sections.append(page.section(name.replace("_", " "), _HINT, grids, _table(some)))
    scripts = (drawing.library(), script) if figures else ()
    write_page_file(path, page.html_page(title, _under(settings), sections, scripts))


def write_page_file(path: str | Path, text: str) -> None:
    """Write a page.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(
            "path", str(path), f"a file that can be written: {error.strerror}"
        ) from None


def _grid(divs: Sequence[str]) -> str:
    """Return figures side by side."""
    cells = "".join(f"<section>{one}</section>" for one in divs)
    return f'<div class="compare">{cells}</div><br>' if cells else ""


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


def _table(settings: Sequence[Setting]) -> str:
    """Return the table of all settings with their medians."""
    names = [name for name in varied(settings) if name != "scenario"] or ["policy"]
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in names)
    head += "".join(
        f'<th scope="col" class="number">{escape(words)}</th>' for words in MEASURE_WORDS.values()
    )
    body = "".join(_row(one, names) for one in settings[:_ROWS_MAX])
    return (
        '<div class="scroll"><table class="settings">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(setting: Setting, names: Sequence[str]) -> str:
    cells = "".join(
        f"<td>{escape(labelled(name, setting.parameters[name]))}</td>" for name in names
    )
    for measure in MEASURE_WORDS:
        spread = setting.spreads.get(measure)
        text = "never" if spread is None else value_text(measure, spread.median)
        cells += f'<td class="number">{escape(text)}</td>'
    return f"<tr>{cells}</tr>"
