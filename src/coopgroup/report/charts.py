"""Charts of many runs as values, without Bokeh: curves with bands, and heat maps.

Frozen values, which `drawing.charts` draws. `charts_of` and `heats_of` make the charts of a sweep.

Theory of operation: an *axis* is a parameter with several numbers within a scenario. Each axis and
measure has a chart, with a curve for every combination of the other varied parameters. A policy
without the parameter is a level line. The axis with the most values also has a heat map for each
measure, with these combinations as rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from coopgroup.report.wording import seconds

MEASURE_WORDS: Final[Mapping[str, str]] = {
    "unavailable_partition_s": "unavailable partition-seconds",
    "moved": "partitions moved",
    "unavailable_peak": "most unavailable at once",
    "converge_ms": "time to converge",
    "lag_peak": "peak lag",
}
"""Measures that are drawn, with their titles."""

AXIS_WORDS: Final[Mapping[str, str]] = {
    "scheduled_rebalance_timeout_ms": "time-out for lost partitions",
    "max_moves_per_round": "ration: moves per round",
    "move_interval_ms": "interval of moves",
    "initial_delay_ms": "initial delay",
    "session_timeout_ms": "session time-out",
    "rebalance_timeout_ms": "rebalance time-out",
    "heartbeat_interval_ms": "heartbeat interval",
    "window_heartbeat_interval_ms": "heartbeat interval in a window",
    "commit_interval_ms": "commit interval",
    "size": "size of the group",
}
"""Parameters that can be an axis, with their titles."""

_ROWS_MAX: Final = 40
_CURVES_MAX: Final = 20


@frozen(kw_only=True)
class Curve:
    """A line over numbers, with an optional band from the lowest to the highest value.

    Attributes:
        x: positions on the axis, ascending; a level line needs only one.
        low: lower end of the band for each position; empty without a band.
        is_level: whether the value does not depend on the axis; such a line is dashed from end to
            end.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_level: bool = False


@frozen(kw_only=True)
class Mark:
    """A labelled position on the horizontal axis."""

    x: float
    label: str


@frozen(kw_only=True)
class Chart:
    """A figure of curves.

    Attributes:
        name: name of its model, unique on the page.
        ticks: labels of the positions on the horizontal axis; empty for numbers.
    """

    name: str
    title: str
    x_label: str
    y_label: str = ""
    ticks: tuple[str, ...] = ()
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()


@frozen(kw_only=True)
class Heat:
    """A figure of cells; lower numbers are better.

    Attributes:
        name: name of its model, unique on the page.
        cells: column, row, number and text of each existing cell.
    """

    name: str
    title: str
    x_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[int, int, float, str], ...]


@frozen(kw_only=True)
class Spread:
    """A measure over seeds: median, lowest and highest value of the runs that have it."""

    median: float
    low: float
    high: float


@frozen(kw_only=True)
class Setting:
    """The parameters of some runs, without the seed, and their costs.

    Attributes:
        parameters: by name; those of `AXIS_WORDS` are numbers or None.
        seeds: number of runs, including failed ones.
        spreads: by measure; a measure that at least half of the runs lack is left out.
    """

    parameters: Mapping[str, str | int | None]
    seeds: int
    failed: int
    violations: int
    spreads: Mapping[str, Spread]


def labelled(axis: str, value: object) -> str:
    """Format a value of an axis: "30 s" for 30000 of `session_timeout_ms`."""
    if value is None:
        return "none"
    if axis.endswith("_ms") and isinstance(value, int | float):
        return seconds(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def value_text(measure: str, value: float) -> str:
    """Format a number of a measure."""
    if measure.endswith("_ms"):
        return labelled(measure, value)
    return f"{value:,.1f}".removesuffix(".0")


def varied(settings: Sequence[Setting]) -> tuple[str, ...]:
    """Return the names of parameters that differ between settings, in their usual order."""
    names = settings[0].parameters if settings else ()
    return tuple(name for name in names if len({one.parameters[name] for one in settings}) > 1)


def charts_of(settings: Sequence[Setting], prefix: str) -> tuple[Chart, ...]:
    """Return the curves of one scenario."""
    return tuple(
        chart
        for axis in _axes(settings)
        for measure in MEASURE_WORDS
        if (chart := _chart(settings, axis, measure, prefix)) is not None
    )


def heats_of(settings: Sequence[Setting], prefix: str) -> tuple[Heat, ...]:
    """Return the heat maps of one scenario."""
    axes = _axes(settings)
    if not axes:
        return ()
    axis = max(axes, key=lambda name: len(_values(settings, name)))
    return tuple(
        heat
        for measure in MEASURE_WORDS
        if (heat := _heat(settings, axis, measure, prefix)) is not None
    )


def _axes(settings: Sequence[Setting]) -> tuple[str, ...]:
    return tuple(
        name
        for name in AXIS_WORDS
        if settings and name in settings[0].parameters and len(_values(settings, name)) > 1
    )


def _values(settings: Sequence[Setting], axis: str) -> tuple[int, ...]:
    found = {one.parameters[axis] for one in settings}
    return tuple(sorted(value for value in found if isinstance(value, int)))


def _by_rest(
    settings: Sequence[Setting], axis: str, measure: str
) -> dict[str, dict[int | None, Spread]]:
    """Return the measure by value of the axis, for each combination of the other parameters."""
    rest = [name for name in varied(settings) if name != axis]
    found: dict[str, dict[int | None, Spread]] = {}
    for one in settings:
        spread = one.spreads.get(measure)
        value = one.parameters[axis]
        if spread is not None and not isinstance(value, str):
            found.setdefault(_label(one, rest), {})[value] = spread
    return found


def _label(setting: Setting, names: Sequence[str]) -> str:
    """Return the text that distinguishes a combination; absent parameters are left out."""
    parts = []
    for name in names:
        value = setting.parameters[name]
        if name not in AXIS_WORDS:
            parts.append(str(value))
        elif value is not None:
            parts.append(f"{AXIS_WORDS[name]} {labelled(name, value)}")
    return ", ".join(parts) or "all"


def _chart(settings: Sequence[Setting], axis: str, measure: str, prefix: str) -> Chart | None:
    values = _values(settings, axis)
    is_time = measure.endswith("_ms")
    unit = 1_000 if is_time else 1  # times are drawn in seconds
    curves = []
    for label, spreads in list(_by_rest(settings, axis, measure).items())[:_CURVES_MAX]:
        known = [value for value in values if value in spreads]
        level = spreads.get(None)
        chosen = [spreads[value] for value in known] if known else [level] if level else []
        places = tuple(float(values.index(value)) for value in known) or (0.0,)
        curves.append(
            Curve(
                label=label,
                x=places,
                y=tuple(one.median / unit for one in chosen),
                low=tuple(one.low / unit for one in chosen),
                high=tuple(one.high / unit for one in chosen),
                is_level=not known,
            )
        )
    if not curves:
        return None
    return Chart(
        name=f"{prefix}{axis}_{measure}",
        title=f"{MEASURE_WORDS[measure]} over {AXIS_WORDS[axis]}",
        x_label=AXIS_WORDS[axis],
        y_label="s" if is_time else "",
        ticks=tuple(labelled(axis, value) for value in values),
        curves=tuple(curves),
    )


def _heat(settings: Sequence[Setting], axis: str, measure: str, prefix: str) -> Heat | None:
    values = _values(settings, axis)
    rows = list(_by_rest(settings, axis, measure).items())[:_ROWS_MAX]
    cells = [
        (place, number, spread.median, value_text(measure, spread.median))
        for number, (_, spreads) in enumerate(rows)
        for place, value in enumerate(values)
        # A policy without the parameter costs the same for every value of the axis.
        if (spread := spreads.get(value, spreads.get(None))) is not None
    ]
    if not cells:
        return None
    return Heat(
        name=f"{prefix}heat_{measure}",
        title=MEASURE_WORDS[measure],
        x_label=AXIS_WORDS[axis],
        columns=tuple(labelled(axis, value) for value in values),
        rows=tuple(label for label, _ in rows),
        cells=tuple(cells),
    )
