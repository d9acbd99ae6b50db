"""Content of an advice page: texts and charts, in the words of `words`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from attrs import evolve

from coopgroup.pipeline.advice.cost import waits_ms, warmup_in
from coopgroup.pipeline.advice.history import span_words
from coopgroup.pipeline.advice.words import (
    away_ms,
    headline,
    names_of,
    notes,
    period_words,
    reasons,
    snippet,
)
from coopgroup.report.advice_page import AdviceView, TriedRow
from coopgroup.report.charts import Chart, Curve, Mark
from coopgroup.report.verdict import PolicyCost, best_words, price_chart, reaches_of
from coopgroup.report.wording import counted, rounded, seconds

if TYPE_CHECKING:
    from coopgroup.pipeline.advice.choose import Advice, Estimate, Option

__all__ = ["tried_rows", "view_of"]

_SECOND_MS: Final = 1_000
_ROWS_MAX: Final = 5
_CURVES_MAX: Final = 5
_CHOICES_MIN: Final = 2


def view_of(advice: Advice) -> AdviceView:
    """Return the content of an advice page."""
    history = advice.history
    shown, more = tried_rows(advice)
    price = _price_chart(advice, [one.place for one in (*shown, *more)])
    return AdviceView(
        title=f"Advice for group {history.group}",
        lead=headline(advice),
        under=" · ".join(
            (
                f"{span_words(history.days)} of history",
                counted(history.members, "member"),
                counted(history.partitions, "partition"),
                counted(len(history.episodes), "episode"),
                *([] if history.as_of_ms is None else [_as_of_words(history.as_of_ms)]),
            )
        ),
        reasons=reasons(advice),
        notes=notes(advice),
        cards=_cards(advice),
        columns=(
            f"partition-seconds out of service {period_words(advice)}",
            f"partitions moved {period_words(advice)}",
            "peak lag of an episode",
            "most out of service at once",
        ),
        rows=shown,
        more=more,
        price="" if price is None else price[0],
        charts=(*(() if price is None else (price[1],)), *_charts(advice)),
        snippet=snippet(advice),
    )


def _as_of_words(as_of_ms: int) -> str:
    return f"as of {datetime.fromtimestamp(as_of_ms / _SECOND_MS, UTC):%Y-%m-%d %H:%M} UTC"


def tried_rows(advice: Advice) -> tuple[tuple[TriedRow, ...], tuple[TriedRow, ...]]:
    """Return the settings that were tried, cheapest first, and equal settings in one row.

    Returns:
        The rows to show, with the advised setting and today's; and all other rows.
    """
    options = advice.options
    equal: dict[tuple[str, ...], list[int]] = {}
    costs = {place: one.unavailable_s.mean for place, one in enumerate(options)}
    for place in sorted(costs, key=lambda one: (costs[one], one != advice.best)):
        equal.setdefault(_cells(advice, options[place]), []).append(place)
    marked = (advice.best, advice.today)

    def simplest_first(place: int) -> tuple[bool, int, int]:
        return place not in marked, len(options[place].policy.options), place

    rows = [
        TriedRow(
            words=names_of([options[one].policy for one in sorted(places, key=simplest_first)]),
            cells=(unavailable, moved, _between(options[place] for place in places), peak),
            role=_role(advice, places),
            place=next((one for one in marked if one in places), places[0]),
        )
        for (unavailable, moved, peak), places in equal.items()
    ]
    named = sum(bool(row.role) for row in rows)
    others = [row for row in rows if not row.role][: _ROWS_MAX - named]
    shown = tuple(row for row in rows if row.role or row in others)
    return shown, tuple(row for row in rows if row not in shown)


def _role(advice: Advice, places: Sequence[int]) -> str:
    roles = {"advised": advice.best, "today": advice.today}
    if not advice.is_enough:
        del roles["advised"]
    return ", ".join(word for word, one in roles.items() if one in places)


def _cells(advice: Advice, option: Option) -> tuple[str, str, str]:
    """Return the figures that make settings equal, in words; lags are different by chance."""
    one = option.unavailable_s
    mean, low, high = rounded(one.mean), rounded(one.low), rounded(one.high)
    is_exact = not advice.is_enough or mean == low == high
    cost = mean if is_exact else f"{mean} ({low} to {high})"
    return cost, rounded(option.moved.mean), rounded(option.unavailable_peak)


def _between(options: Iterable[Option]) -> str:
    """Return the peak lags of settings: a number, or the lowest and the highest."""
    lags = [one.lag_peak.mean for one in options]
    low, high = rounded(min(lags)), rounded(max(lags))
    return low if low == high else f"{low} to {high}"


def _cards(advice: Advice) -> tuple[tuple[str, str], ...]:
    period = period_words(advice)
    settings = {"today": advice.current}
    if advice.is_enough:
        settings["advised"] = advice.advised
    rows = []
    for name, one in settings.items():
        rows.append((f"out of service {period}, {name}", f"{rounded(one.unavailable_s.mean)} s"))
        rows.append((f"moves {period}, {name}", rounded(one.moved.mean)))
    cost = seconds(advice.cost.move_ms) if advice.cost.is_known else "unknown"
    rows.append(("a move costs", cost))
    return tuple(rows)


def _price_chart(advice: Advice, places: Sequence[int]) -> tuple[str, Chart] | None:
    """Return where the choice tips, and the cost of settings over the price of a move.

    Args:
        advice: the advice.
        places: numbers of the settings, without equal ones.

    Returns:
        `None` if the price changes nothing, or the history is too short. Also if the advice has
        another reason than the price, such as the error of the model: the page has one advice.
    """
    options = {place: advice.options[place] for place in places}
    costs = {
        place: PolicyCost(
            policy=names_of([one.policy]),
            unavailable_s=one.unavailable_s.mean,
            low_s=one.unavailable_s.low,
            high_s=one.unavailable_s.high,
            moved=one.moved.mean,
            restores=one.restores,
            warmups=float(warmup_in(one.policy) is not None),
            is_settled=True,
        )
        for place, one in options.items()
        if place in {advice.best, advice.today} or _is_plain(one)
    }
    played_s = advice.cost.move_ms / _SECOND_MS
    reaches = reaches_of(tuple(costs.values()), played_s)
    if len(reaches) < _CHOICES_MIN or not advice.is_enough:
        return None
    here = next(one for one in reversed(reaches) if one.from_s <= played_s or one is reaches[0])
    if advice.best in costs and costs[advice.best].policy not in here.policies:
        return None
    # Of equally good settings, one name is enough: the advised one, or today's.
    known = [costs[place].policy for place in (advice.best, advice.today) if place in costs]
    reaches = tuple(
        evolve(one, policies=(*(name for name in known if name in one.policies), *one.policies)[:1])
        for one in reaches
    )
    shown = {*known, *(name for one in reaches for name in one.policies)}
    drawn = [cost for cost in costs.values() if cost.policy in shown]
    (words,) = best_words(reaches)
    return words, evolve(price_chart(drawn[:_CURVES_MAX], reaches, played_s), name="price_of_move")


def _is_plain(option: Option) -> bool:
    """Return whether a setting has only a time-out: rations and warm-ups have other costs."""
    return option.policy.name in {"simple", "deferred"} and warmup_in(option.policy) is None


def _charts(advice: Advice) -> list[Chart]:
    """Return the charts over the time-out, and that of the returns."""
    plain = sorted(filter(_is_plain, advice.options), key=lambda one: waits_ms(one.policy))
    ticks = tuple(dict.fromkeys(seconds(waits_ms(one.policy)) for one in plain))
    x = tuple(float(ticks.index(seconds(waits_ms(one.policy)))) for one in plain)
    marks = _marks(advice, ticks)

    def chart(name: str, title: str, y_label: str, label: str, values: list[Estimate]) -> Chart:
        curve = Curve(label=label, x=x, y=tuple(one.mean for one in values))
        if advice.is_enough:
            low, high = tuple(one.low for one in values), tuple(one.high for one in values)
            curve = evolve(curve, low=low, high=high)
        return Chart(
            name=name,
            title=f"{title} {period_words(advice)}",
            y_label=y_label,
            x_label="time-out for lost partitions",
            ticks=ticks,
            curves=(curve,),
            marks=marks,
        )

    idle, moved = [one.unavailable_s for one in plain], [one.moved for one in plain]
    title, unit = "out of service", "partition-seconds"
    return [
        chart("unavailable_over_timeout", title, unit, title, idle),
        chart("moves_over_timeout", "partitions moved", "", "moves", moved),
        *_returns_chart(advice),
    ]


def _marks(advice: Advice, ticks: tuple[str, ...]) -> tuple[Mark, ...]:
    found: dict[float, list[str]] = {}
    chosen = [("advised", advice.advised)] if advice.is_enough else []
    for word, option in (*chosen, ("today", advice.current)):
        tick = seconds(waits_ms(option.policy))
        if tick in ticks:
            found.setdefault(float(ticks.index(tick)), []).append(word)
    return tuple(Mark(x=x, label=", ".join(words)) for x, words in found.items())


def _returns_chart(advice: Advice) -> list[Chart]:
    """Return a chart of the part of the absences that have ended, by duration, if any has."""
    away = away_ms(advice.history)
    ended = [one / _SECOND_MS for one in away if math.isfinite(one)]
    if not ended:
        return []
    waits_s = waits_ms(advice.advised.policy) / _SECOND_MS
    shares = tuple(100 * (place + 1) / len(away) for place in range(len(ended)))
    chart = Chart(
        name="returns",
        title="absences that are over",
        x_label="seconds since the member went",
        y_label="%",
        curves=(Curve(label="over", x=(0.0, *ended), y=(0.0, *shares)),),
        marks=(Mark(x=waits_s, label="advised"),) if waits_s and advice.is_enough else (),
    )
    return [chart]
