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
    period_words,
    reasons,
    snippet,
)
from coopgroup.report.advice_page import AdviceView, TriedRow
from coopgroup.report.charts import Chart, Curve, Mark
from coopgroup.report.wording import counted, seconds

if TYPE_CHECKING:
    from coopgroup.pipeline.advice import Advice, Option
    from coopgroup.pipeline.advice_bootstrap import Estimate

__all__ = ["columns_of", "tried_rows", "view_of"]

_SECOND_MS: Final = 1_000


def columns_of(advice: Advice) -> tuple[str, ...]:
    """Return the headings of the figures of a setting."""
    period = period_words(advice)
    return (
        f"partition-seconds out of service {period}",
        f"partitions moved {period}",
        "peak lag of an episode",
        "most out of service at once",
    )


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
        columns=columns_of(advice),
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
            cells=_cells(advice, advice.options[place]),
            role=_role(advice, place),
        )
        for place in order
    )


def _role(advice: Advice, place: int) -> str:
    roles = {"advised": advice.best, "today": advice.today}
    if not advice.is_enough:
        del roles["advised"]
    return ", ".join(word for word, one in roles.items() if one == place)


def _cells(advice: Advice, option: Option) -> tuple[str, ...]:
    return (
        _range(advice, option.unavailable_s),
        _range(advice, option.moved),
        _range(advice, option.lag_peak),
        f"{option.unavailable_peak:,.0f}",
    )


def _range(advice: Advice, one: Estimate) -> str:
    if not advice.is_enough:
        return f"{one.mean:,.1f}"
    return f"{one.mean:,.1f} ({one.low:,.1f} to {one.high:,.1f})"


def _cards(advice: Advice) -> tuple[tuple[str, str], ...]:
    period = period_words(advice)
    rows = [
        (f"out of service {period}, today", f"{advice.current.unavailable_s.mean:,.1f} s"),
        (f"moves {period}, today", f"{advice.current.moved.mean:,.1f}"),
    ]
    if advice.is_enough:
        rows += [
            (f"out of service {period}, advised", f"{advice.advised.unavailable_s.mean:,.1f} s"),
            (f"moves {period}, advised", f"{advice.advised.moved.mean:,.1f}"),
        ]
    cost = seconds(advice.cost.move_ms) if advice.cost.is_known else "unknown"
    rows.append(("a move costs", cost))
    if advice.observed_s is not None:
        rows.append((f"out of service {period}, as observed", f"{advice.observed_s:,.1f} s"))
    if advice.observed_moves is not None:
        rows.append((f"moves {period}, as observed", f"{advice.observed_moves:,.1f}"))
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
            title=columns_of(advice)[0],
            x_label="time-out for lost partitions",
            ticks=ticks,
            curves=(
                _curve(
                    advice, [one.unavailable_s for one in plain], plain, ticks, "out of service"
                ),
            ),
            marks=marks,
        ),
        Chart(
            name="moves_over_timeout",
            title=columns_of(advice)[1],
            x_label="time-out for lost partitions",
            ticks=ticks,
            curves=(_curve(advice, [one.moved for one in plain], plain, ticks, "moves"),),
            marks=marks,
        ),
    ]
    returns = _returns_chart(advice)
    return charts if returns is None else [*charts, returns]


def _curve(
    advice: Advice,
    values: list[Estimate],
    options: list[Option],
    ticks: tuple[str, ...],
    label: str,
) -> Curve:
    places = [float(ticks.index(seconds(waits_ms(one.policy)))) for one in options]
    if not advice.is_enough:
        return Curve(label=label, x=tuple(places), y=tuple(one.mean for one in values))
    return Curve(
        label=label,
        x=tuple(places),
        y=tuple(one.mean for one in values),
        low=tuple(one.low for one in values),
        high=tuple(one.high for one in values),
    )


def _marks(advice: Advice, ticks: tuple[str, ...]) -> tuple[Mark, ...]:
    found: dict[float, list[str]] = {}
    chosen = [("advised", advice.advised)] if advice.is_enough else []
    for word, option in (*chosen, ("today", advice.current)):
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
        marks=(Mark(x=waits_s, label="advised"),) if waits_s and advice.is_enough else (),
    )
