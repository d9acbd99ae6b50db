"""Content of an advice page: texts and charts, in the words of `advice_words`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from coopgroup.pipeline.advice import waits_ms
from coopgroup.pipeline.advice_history import span_words
from coopgroup.pipeline.advice_warmups import warmup_in
from coopgroup.pipeline.advice_words import (
    away_ms,
    headline,
    notes,
    reasons,
    snippet,
)
from coopgroup.report.advice_page import AdviceView, TriedRow
from coopgroup.report.charts import Chart, Curve, Mark
from coopgroup.report.wording import counted, seconds

if TYPE_CHECKING:
    from coopgroup.pipeline.advice import Advice, Option
    from coopgroup.pipeline.advice_bootstrap import Estimate

__all__ = ["COLUMNS", "tried_rows", "view_of"]

COLUMNS: Final = (
    "partition-seconds out of service a day",
    "partitions moved a day",
    "peak lag of an episode",
    "most out of service at once",
)
"""Headings of the figures of a setting."""

_SECOND_MS: Final = 1_000


def view_of(advice: Advice) -> AdviceView:
    """Return the content of an advice page."""
    history = advice.history
    return AdviceView(
        title=f"Advice for group {history.group}",
        under=" · ".join(
            (
                f"{span_words(history.days)} of history",
                counted(history.members, "member"),
                counted(history.partitions, "partition"),
                counted(len(history.episodes), "episode"),
            )
        ),
        headline=headline(advice),
        reasons=reasons(advice),
        notes=notes(advice),
        cards=_cards(advice),
        columns=COLUMNS,
        rows=tried_rows(advice),
        charts=tuple(_charts(advice)),
        snippet=snippet(advice),
    )


def tried_rows(advice: Advice) -> tuple[TriedRow, ...]:
    """Return all settings that were tried, cheapest first."""
    order = sorted(
        range(len(advice.options)),
        key=lambda place: (
            advice.options[place].unavailable_s.mean,
            place != advice.best,
            place,
        ),
    )
    return tuple(
        TriedRow(
            words=str(advice.options[place].policy).replace(",", ", "),
            cells=_cells(advice.options[place]),
            role=_role(advice, place),
        )
        for place in order
    )


def _role(advice: Advice, place: int) -> str:
    words = [
        word for word, one in (("advised", advice.best), ("today", advice.today)) if one == place
    ]
    return ", ".join(words)


def _cells(option: Option) -> tuple[str, ...]:
    return (
        _range(option.unavailable_s),
        _range(option.moved),
        _range(option.lag_peak),
        f"{option.unavailable_peak:,.0f}",
    )


def _range(one: Estimate) -> str:
    return f"{one.mean:,.1f} ({one.low:,.1f} to {one.high:,.1f})"


def _cards(advice: Advice) -> tuple[tuple[str, str], ...]:
    observed = advice.history.observed
    rows = [
        ("out of service a day, today", f"{advice.current.unavailable_s.mean:,.1f} s"),
        ("out of service a day, advised", f"{advice.advised.unavailable_s.mean:,.1f} s"),
        ("moves a day, today", f"{advice.current.moved.mean:,.1f}"),
        ("moves a day, advised", f"{advice.advised.moved.mean:,.1f}"),
        ("a move costs", seconds(advice.cost.move_ms)),
    ]
    if observed.unavailable_s is not None:
        rows.append(("out of service a day, as observed", f"{observed.unavailable_s:,.1f} s"))
    if observed.moved is not None:
        rows.append(("moves a day, as observed", f"{observed.moved:,.1f}"))
    return tuple(rows)


def _charts(advice: Advice) -> list[Chart]:
    plain = sorted(
        (
            one
            for one in advice.options
            if one.policy.name in {"simple", "deferred"} and warmup_in(one.policy) is None
        ),
        key=lambda one: waits_ms(one.policy),
    )
    ticks = tuple(dict.fromkeys(seconds(waits_ms(one.policy)) for one in plain))
    marks = _marks(advice, ticks)
    charts = [
        Chart(
            name="unavailable_over_timeout",
            title=COLUMNS[0],
            x_label="time-out for lost partitions",
            ticks=ticks,
            curves=(_curve([one.unavailable_s for one in plain], plain, ticks, "out of service"),),
            marks=marks,
        ),
        Chart(
            name="moves_over_timeout",
            title=COLUMNS[1],
            x_label="time-out for lost partitions",
            ticks=ticks,
            curves=(_curve([one.moved for one in plain], plain, ticks, "moves"),),
            marks=marks,
        ),
    ]
    returns = _returns_chart(advice)
    return charts if returns is None else [*charts, returns]


def _curve(
    values: list[Estimate], options: list[Option], ticks: tuple[str, ...], label: str
) -> Curve:
    places = [float(ticks.index(seconds(waits_ms(one.policy)))) for one in options]
    return Curve(
        label=label,
        x=tuple(places),
        y=tuple(one.mean for one in values),
        low=tuple(one.low for one in values),
        high=tuple(one.high for one in values),
    )


def _marks(advice: Advice, ticks: tuple[str, ...]) -> tuple[Mark, ...]:
    found: dict[float, list[str]] = {}
    for word, option in (("advised", advice.advised), ("today", advice.current)):
        tick = seconds(waits_ms(option.policy))
        if tick in ticks:
            found.setdefault(float(ticks.index(tick)), []).append(word)
    return tuple(Mark(x=x, label=", ".join(words)) for x, words in found.items())


def _returns_chart(advice: Advice) -> Chart | None:
    """Return a chart of the part of the absences that have ended, by duration."""
    away = away_ms(advice.history)
    ended = [one / _SECOND_MS for one in away if math.isfinite(one)]
    if not ended:
        return None
    waits_s = waits_ms(advice.advised.policy) / _SECOND_MS
    shares = tuple(100 * (place + 1) / len(away) for place in range(len(ended)))
    return Chart(
        name="returns",
        title="absences that are over",
        x_label="seconds since the member went",
        y_label="%",
        curves=(Curve(label="over", x=(0.0, *ended), y=(0.0, *shares)),),
        marks=(Mark(x=waits_s, label="advised"),) if waits_s else (),
    )
