"""Advice for people and programs: one value, `AdviceView`, for the terminal, the page and JSON.

`view_of` makes all texts, tables and charts of an advice. The command and the page show this value.
`advice_json` has its texts beside the plain figures. So no part can contradict another one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import asdict, evolve

from coopgroup.pipeline.advice.choose import CONFIDENCE, ENOUGH
from coopgroup.pipeline.advice.cost import break_even_ms, waits_ms, warmup_in
from coopgroup.pipeline.advice.history import span_words
from coopgroup.printable import printable_json
from coopgroup.report.advice_page import AdviceView, TriedRow
from coopgroup.report.charts import Chart, Curve, Mark
from coopgroup.report.verdict import PolicyCost, best_words, price_chart, reaches_of
from coopgroup.report.wording import counted, rounded, seconds
from coopgroup.simulator.scenario import How

if TYPE_CHECKING:
    from coopgroup.pipeline.advice.choose import Advice, Estimate, Option
    from coopgroup.pipeline.advice.history import GroupHistory
    from coopgroup.simulator.scenario import Choice

__all__ = ["advice_json", "names_of", "setting_words", "view_of"]

_CLASSES: Final = {
    "simple": "SimplePolicy",
    "deferred": "DeferredPolicy",
    "incremental": "IncrementalPolicy",
}
_SECOND_MS: Final = 1_000
_ROWS_MAX: Final = 5
_CURVES_MAX: Final = 5
_CHOICES_MIN: Final = 2


def view_of(advice: Advice) -> AdviceView:
    """Return the content of an advice page."""
    history = advice.history
    shown, more = _tried_rows(advice)
    price = _price_chart(advice, [one.place for one in (*shown, *more)])
    return AdviceView(
        title=f"Advice for group {history.group}",
        lead=_headline(advice),
        figures=(
            f"partition-seconds out of service and moves {_period_words(advice)}, "
            f"{'with nine of ten resampled histories' if advice.is_enough else 'without intervals'}"
        ),
        under=" · ".join(
            (
                f"{span_words(history.days)} of history",
                counted(history.members, "member"),
                counted(history.partitions, "partition"),
                counted(len(history.episodes), "episode"),
                *([] if history.as_of_ms is None else [_as_of_words(history.as_of_ms)]),
            )
        ),
        reasons=_reasons(advice),
        notes=_notes(advice),
        cards=_cards(advice),
        columns=(
            f"partition-seconds out of service {_period_words(advice)}",
            f"partitions moved {_period_words(advice)}",
            "peak lag of an episode",
            "most out of service at once",
        ),
        rows=shown,
        more=more,
        price="" if price is None else price[0],
        charts=(*(() if price is None else (price[1],)), *_charts(advice)),
        snippet=_snippet(advice),
    )


def advice_json(advice: Advice) -> dict[str, Any]:
    """Return the whole advice as plain values."""
    history, view = advice.history, view_of(advice)
    period = _period_words(advice).split()[-1]
    return {
        "group": history.group,
        "history": {
            "days": round(history.days, 3),
            "as_of_ms": history.as_of_ms,
            "members": history.members,
            "partitions": history.partitions,
            "episodes": len(history.episodes),
            "absences": sum(len(one.absences) for one in history.episodes),
            "proven_returns": history.proven,
            "likely_returns": history.likely,
            "uses_likely_returns": history.uses_likely,
            "is_enough": advice.is_enough,
            "observed": {
                "unavailable_partition_s_per_day": history.observed.unavailable_s,
                "moved_per_day": history.observed.moved,
                "lag_peak": history.observed.lag_peak,
            },
        },
        "cost": asdict(advice.cost),
        "confidence": CONFIDENCE,
        "today": _option_json(advice, advice.current),
        "advised": _option_json(advice, advice.advised) if advice.is_enough else None,
        f"saving_partition_s_per_{period}": _estimate_json(advice, advice.saving_s),
        f"model_error_partition_s_per_{period}": advice.model_error_s,
        "is_clear": advice.is_clear,
        "near_best": advice.near_best if advice.is_enough else None,
        "options": [_option_json(advice, one) for one in advice.options],
        "with_proven_returns_only": None if advice.proven is None else advice_json(advice.proven),
        "headline": view.lead,
        "reasons": list(view.reasons),
        "notes": list(view.notes),
        "snippet": view.snippet or None,
    }


def _option_json(advice: Advice, option: Option) -> dict[str, Any]:
    period = _period_words(advice).split()[-1]
    return {
        "policy": option.policy.name,
        "options": dict(option.policy.options),
        f"unavailable_partition_s_per_{period}": _estimate_json(advice, option.unavailable_s),
        f"moved_per_{period}": _estimate_json(advice, option.moved),
        "lag_peak": _estimate_json(advice, option.lag_peak),
        "unavailable_peak": option.unavailable_peak,
    }


def _estimate_json(advice: Advice, one: Estimate) -> dict[str, float]:
    # An interval from a few episodes would look certain.
    return asdict(one) if advice.is_enough else {"mean": one.mean}


# --- settings and tables --------------------------------------------------------------------------


def _warmup_words(policy: Choice) -> str:
    warmup = warmup_in(policy)
    if warmup is None:
        return ""
    return " with warm-ups and a standby" if warmup.standbys else " with warm-ups"


def setting_words(policy: Choice) -> str:
    """Return the name of a setting within a sentence."""
    if policy.name == "eager":
        return "eager rebalancing, which stops everything"
    words = f"the {policy.name} policy{_warmup_words(policy)}"
    if policy.name == "simple":
        return f"{words}, which does not wait for a lost member"
    waits = waits_ms(policy)
    if waits:
        words += f", which waits {seconds(waits)} for a lost member"
    ration = policy.options.get("max_moves_per_round")
    if isinstance(ration, int):
        every_ms = policy.options.get("move_interval_ms", 0)
        every = seconds(every_ms) if isinstance(every_ms, int) else "0 s"
        joint = " and" if waits else ", which"
        words += f"{joint} moves at most {counted(ration, 'partition')} every {every}"
    return words


def names_of(policies: Sequence[Choice]) -> str:
    """Return the short names of settings; settings of the same policy share one.

    Example:
        "deferred, waits 12 or 14 s; incremental, waits 12 s, 1 move every 1 s or 4 moves every 1 s"
    """
    waits: dict[tuple[str, str], list[int]] = {}
    for policy in policies:
        # Legends of charts must fit a phone, too.
        warmth = _warmup_words(policy).replace(" with", ",").replace("a standby", "standby")
        around = policy.name + warmth, _ration_words(policy)
        waits.setdefault(around, []).append(waits_ms(policy))
    names: dict[str, list[str]] = {}
    for (before, after), some in waits.items():
        times = [seconds(one).removesuffix(" s") for one in sorted(some) if one]
        name = f"{before}, waits {_either(times)} s" if times else before
        names.setdefault(f"{name}, " if after else name, []).append(after)
    return "; ".join(name + _either(some) for name, some in names.items())


def _either(words: Sequence[str]) -> str:
    """Return "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _ration_words(policy: Choice) -> str:
    """Return the part of a setting's short name after its time-out."""
    hidden = {"scheduled_rebalance_timeout_ms", "warmup"}
    ration = policy.options.get("max_moves_per_round")
    every_ms = policy.options.get("move_interval_ms")
    words = []
    if isinstance(ration, int) and isinstance(every_ms, int):
        words.append(f"{counted(ration, 'move')} every {seconds(every_ms)}")
        hidden |= {"max_moves_per_round", "move_interval_ms"}
    words += [f"{key}={one}" for key, one in sorted(policy.options.items()) if key not in hidden]
    return ", ".join(words)


def _as_of_words(as_of_ms: int) -> str:
    return f"as of {datetime.fromtimestamp(as_of_ms / _SECOND_MS, UTC):%Y-%m-%d %H:%M} UTC"


def _tried_rows(advice: Advice) -> tuple[tuple[TriedRow, ...], tuple[TriedRow, ...]]:
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
    period = _period_words(advice)
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
            title=f"{title} {_period_words(advice)}",
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
    away = _away_ms(advice.history)
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


# --- sentences ------------------------------------------------------------------------------------


def _away_ms(history: GroupHistory) -> list[float]:
    """Return the length of each absence, in ms, ascending; infinite if permanent."""
    return sorted(
        math.inf if one.absent_ms is None else float(one.absent_ms)
        for episode in history.episodes
        for one in episode.absences
    )


def _headline(advice: Advice) -> str:
    """Return the advice in one line."""
    if not advice.is_enough:
        return f"Not enough history ({len(advice.history.episodes)} of {ENOUGH} episodes)."
    is_kept = advice.best == advice.today
    words = f"{'Keep' if is_kept else 'Use'} {setting_words(advice.advised.policy)}"
    if not advice.cost.is_known:
        return f"{words}, if a move costs nothing: --move-cost-ms decides."
    return (
        f"{words}." if is_kept or advice.is_clear else f"{words}, if anything: it hardly matters."
    )


def _period_words(advice: Advice) -> str:
    """Return the unit of the figures: "a day", or "an episode" if the history is too short."""
    return "a day" if advice.is_enough else "an episode"


def _reasons(advice: Advice) -> tuple[str, ...]:
    """Return the reasons in a few sentences: absences, cost of a move, result, certainty."""
    sentences = [
        *_absence_words(advice.history),
        *_session_words(advice.history),
        *_proof_words(advice),
        _price_words(advice),
    ]
    if advice.is_enough:
        if advice.best == advice.cheapest:
            sentences.append(_choice_words(advice))
        if advice.best != advice.today:
            sentences.append(_worst_words(advice))
            sentences += _warmup_reason(advice)
        sentences.append(_sure_words(advice))
    sentences += _model_words(advice)
    return tuple(sentences)


def _notes(advice: Advice) -> tuple[str, ...]:
    """Return remarks that the reader needs for the figures; warnings first."""
    history = advice.history
    found = []
    if not advice.is_enough:
        found.append(
            f"Advice needs at least {ENOUGH} episodes: departures, deployments or new members. "
            f"This history has {len(history.episodes)} in {span_words(history.days)}."
        )
        if advice.cost.is_known:
            found.append(
                "Until then, a time-out of what a move there and back costs, here "
                f"{seconds(break_even_ms(advice.cost))}, never costs more than twice as much as "
                "the best time-out."
            )
    if history.left_out:
        found.append(
            f"{counted(history.left_out, 'absence')} began shortly before the history ends, so "
            "nobody knows how long; left out."
        )
    if advice.failed:
        found.append(f"{counted(advice.failed, 'replay')} failed and count for nothing.")
    if advice.violations:
        found.append(
            f"{counted(advice.violations, 'invariant was', 'invariants were')} broken in replays: "
            "a bug of coopgroup, please report it."
        )
    return (*found, *history.notes)


def _snippet(advice: Advice) -> str:
    """Return Python code to paste: the consumer with the advised policy.

    Returns:
        "" without advice, and for a policy that coopgroup does not have.
    """
    policy = advice.advised.policy
    if not advice.is_enough or policy.name not in _CLASSES:
        return ""
    name = _CLASSES[policy.name]
    options = [
        f"{key}={value:_}" for key, value in sorted(policy.options.items()) if key != "warmup"
    ]
    warmup = warmup_in(policy)
    more = ""
    if warmup is not None:
        more = "from coopgroup.policies import Warmup\n"
        values = f"max_concurrent={warmup.max_concurrent}, timeout_ms={warmup.timeout_ms:_}"
        standbys = f", standbys={warmup.standbys}" if warmup.standbys else ""
        options.append(f"warmup=Warmup({values}{standbys})")
    return (
        f"from coopgroup import CooperativeConsumer, {name}\n{more}\n"
        "consumer = CooperativeConsumer(\n"
        '    {"bootstrap.servers": "...", "group.id": '
        f"{printable_json(json.dumps(advice.history.group, ensure_ascii=False))}}},\n"
        f"    policy={name}({', '.join(options)}),\n"
        ")\n"
    )


def _absence_words(history: GroupHistory) -> list[str]:
    away = _away_ms(history)
    joined = sum(one.joined for one in history.episodes)
    sentences = []
    if away:
        ended = [one for one in away if math.isfinite(one)]
        words = f"In {span_words(history.days)} {counted(len(away), 'absence')} began"
        if ended:
            half, most = np.quantile(ended, [0.5, 0.9]).tolist()
            words += (
                f"; {len(ended):,} ended: half of them within {_about(half)}, nine of ten within "
                f"{_about(most)}, the longest after {_about(ended[-1])}"
            )
        gone = len(away) - len(ended)
        words += f"; {gone:,} without a known return." if ended and gone else "."
        sentences.append(words if ended else f"{words[:-1]}, without a known return.")
    if joined:
        sentences.append(f"{counted(joined, 'new member')} joined.")
    return sentences


def _session_words(history: GroupHistory) -> list[str]:
    """Return the cost of the session timeout, if it is most of the time out of service.

    Static members are left out: their session timeout is the time to restart.
    """
    deaths = sum(one.how is How.CRASH for episode in history.episodes for one in episode.absences)
    waited_s = history.session_timeout_ms / _SECOND_MS * history.partitions / history.members
    per_day_s = deaths * waited_s / history.days
    if history.is_static or not 0 < (history.observed.unavailable_s or 0) <= 2 * per_day_s:
        return []
    words = counted(deaths, "absence was a death", "absences were deaths")
    session = seconds(history.session_timeout_ms)
    words += f": the group noticed a death only after the session timeout of {session}."
    cost = f"This took about {rounded(per_day_s)} partition-seconds a day, under any policy."
    return [f"{words} {cost} A shorter session timeout takes less."]


def _proof_words(advice: Advice) -> list[str]:
    """Return the share of proven returns, and the other advice if likely returns count."""
    history = advice.history
    if not history.absent:
        return []
    share = f"{history.proven / history.absent:.0%}"
    words = f"{history.proven:,} of {counted(history.absent, 'absence')} ({share})"
    sentences = [f"{words} ended with a proven return: a static id, or a name in telemetry."]
    if history.likely and advice.proven is None:
        sentences.append(
            f"{history.likely:,} ended with a likely return (the same client id and host), which "
            "counts as a departure and a new member. --likely-returns use counts it as a return."
        )
    if advice.proven is not None:
        sentences.append(
            f"{history.likely:,} ended with a likely return, which counts as a return here. "
            f"With proven returns only: {_headline(advice.proven)}"
        )
    return sentences


def _about(duration_ms: float) -> str:
    """Return a duration to the second; a short one to a tenth of a second."""
    return seconds(round(duration_ms, -2 if duration_ms < 10_000 else -3))


def _price_words(advice: Advice) -> str:
    cost = advice.cost
    if not cost.is_known:
        return "The cost of a move is unknown: 0 s was assumed, which favours not waiting."
    if not cost.move_ms:
        return "A move costs this group nothing: a partition does useful work as soon as assigned."
    words = f"A partition that moves does useful work {seconds(cost.move_ms)} after its assignment"
    if cost.return_ms != cost.move_ms:
        words += f", and a partition that returns to its process after {seconds(cost.return_ms)}"
    return f"{words}. If a member returns after its partitions moved, they move twice."


def _choice_words(advice: Advice) -> str:
    waits = waits_ms(advice.advised.policy)
    away = np.array(_away_ms(advice.history))
    if not away.size:
        return "Nobody was absent, so the time-out made no difference."
    if waits:
        heard_ms = advice.history.session_timeout_ms if advice.history.is_static else 0
        share = float((away <= waits + heard_ms).mean())
        longest = max((one for one in away.tolist() if math.isfinite(one)), default=0.0)
        more = (
            "The time-out is longer than the longest of them, as longer ones will come."
            if longest < waits
            else "Waiting longer would keep the partitions of those that take longer out of "
            "service for more than it saves."
        )
        return (
            f"{share:.0%} of the absences end within {seconds(waits)}: waiting for these costs "
            f"less than moving their partitions there and back. {more}"
        )
    if not advice.cost.is_known:
        return "If moves cost nothing, waiting for a lost member only makes an outage longer."
    if not advice.cost.move_ms:
        return "So waiting for a lost member only makes an outage longer."
    return (
        "As far as known, too few return soon enough: waiting would cost more than moving, "
        "whatever the time-out."
    )


def _worst_words(advice: Advice) -> str:
    """Return moves and worst moment of the advised setting, compared with today's."""
    now, then = advice.current, advice.advised
    return (
        f"Partitions would move {rounded(then.moved.mean)} times {_period_words(advice)}, against "
        f"{rounded(now.moved.mean)} with today's setting, and at most "
        f"{rounded(then.unavailable_peak)} would be out of service at once, against "
        f"{rounded(now.unavailable_peak)}."
    )


def _warmup_reason(advice: Advice) -> list[str]:
    """Return what warm-ups save, and their price, if they are advised."""
    warmup = warmup_in(advice.advised.policy)
    if warmup is None:
        return []
    words = (
        f"With warm-ups a new owner restores its {seconds(advice.cost.move_ms)} of state while the "
        "old owner works on. Your application needs the callback on_warmup for this"
    )
    if not warmup.standbys:
        return [f"{words}, and members restore beside their work."]
    return [f"{words}. The standby holds each state a second time, permanently."]


def _sure_words(advice: Advice) -> str:
    now, then = advice.current.unavailable_s, advice.options[advice.cheapest].unavailable_s
    today_s = rounded(now.mean)
    if advice.cheapest == advice.today:
        return f"No other setting would have cost clearly less than the {today_s} of today."
    saved = advice.saving_s
    if advice.best == advice.today:
        return (
            f"The cheapest setting saves {rounded(saved.mean)} partition-seconds a day, which is "
            "less than the error of the model."
        )
    words = (
        f"Partitions would be out of service for {rounded(then.mean)} partition-seconds a day, "
        f"against {today_s} with today's setting: {rounded(saved.mean)} less, and between "
        f"{rounded(saved.low)} and {rounded(saved.high)} less in {CONFIDENCE:.0%} of the resampled "
        "histories"
    )
    if saved.low <= 0:
        return f"{words}, so the difference may be chance."
    return f"{words}; in {advice.near_best:.0%} of these it is within 5 % of the best there is."


def _model_words(advice: Advice) -> list[str]:
    """Return how far the replay of today's setting is from the history."""
    seen, error = advice.observed_s, advice.model_error_s
    if seen is None or error is None:
        words = "The history does not show the time out of service, so nothing checks the replays."
        return [words] if advice.is_enough else []
    figures = ""
    if advice.replayed_s and seen:
        figures = " All figures of time out of service are scaled by this difference."
    words = (
        f"Today's setting costs {rounded(seen)} partition-seconds {_period_words(advice)}, as the "
        f"history shows. The replays are wrong by {rounded(error)}.{figures}"
    )
    shown, replayed = advice.history.observed.moved, advice.current.moved.mean
    if shown:
        per_day = replayed * _per_day(advice)
        words += f" They move {per_day / shown:.0%} of the partitions that moved in the history."
    return [words]


def _per_day(advice: Advice) -> float:
    """Return the number of periods of a day."""
    return 1.0 if advice.is_enough else len(advice.history.episodes) / advice.history.days
