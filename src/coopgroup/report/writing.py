"""Write report pages: of one history, of one run, or of several policies side by side.

Theory of operation: records become a `History`. The history becomes figures (`drawing`), and a
template puts them on a page (`page`). The result is one file with Bokeh, figures, style and script
that a browser opens without a server or a network. `drawing` is imported late, because Bokeh is an
extra.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.errors import ConfigurationError, MissingExtraError
from coopgroup.extras import install_command
from coopgroup.report.charts import Chart
from coopgroup.report.history import History, facts_of, history_of
from coopgroup.report.history.lag_lines import lag_lines
from coopgroup.report.history.timeline import Timeline, unowned_counts
from coopgroup.report.measures import comparison_rows, measure_rows
from coopgroup.report.page import Figures, Legend, Objection, legend_of, write_page
from coopgroup.report.palette import Paint, paints, ranks
from coopgroup.report.verdict import verdict_of
from coopgroup.report.wording import counted, seconds
from coopgroup.telemetry import Envelope, RoundRefused

if TYPE_CHECKING:
    from coopgroup.simulator import Run

_EPOCH_MS_MIN: Final = 100_000_000_000  # virtual time starts near 0; this is in 1973
_HINT: Final = (
    "A row is a partition, a colour the member that works on it. Black: nobody does. Red lines are "
    "faults, dotted lines rounds."
)


@frozen(kw_only=True)
class _Timeline:
    figures: Figures
    hint: str
    legend: Legend
    ownership: tuple[str, ...]
    warmups: tuple[str, ...]
    lag: tuple[str, ...]
    lag_hint: str


@frozen(kw_only=True)
class _SideBySide:
    figures: Figures
    legend: Legend
    divs_by_policy: Mapping[str, tuple[str, ...]]
    charts: tuple[str, ...]


def require_bokeh() -> None:
    """Check that Bokeh is installed.

    Raises:
        MissingExtraError: Bokeh is not installed.
    """
    if importlib.util.find_spec("bokeh") is None:
        raise MissingExtraError(
            f"pages are drawn with Bokeh, which is not installed: {install_command('report')}"
        )


def write_history_page(
    envelopes: Iterable[Envelope],
    path: str | Path,
    *,
    title: str,
    lag: LagHistory | None = None,
    measures: object | None = None,
    objections: Sequence[Objection] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the page of one group.

    Args:
        envelopes: records of the group, in any order.
        path: file to write; an existing file is replaced.
        title: heading of the page.
        lag: lag over time, if measured.
        measures: an attrs value whose numbers are shown; None derives figures from the records.
        objections: violations that checkers found; None if nothing was checked.
        notes: sentences about the records, shown first.

    Raises:
        ConfigurationError: the file cannot be written.
        MissingExtraError: Bokeh is not installed.
    """
    _write_history(
        history_of(envelopes, lag),
        path,
        title=title,
        measures=measures,
        objections=objections,
        notes=notes,
    )


def write_run_page(run: Run, path: str | Path) -> None:
    """Write the page of a simulated run.

    Args:
        run: result of `simulate`.
        path: file to write; an existing file is replaced.

    Raises:
        ConfigurationError: the file cannot be written.
        MissingExtraError: Bokeh is not installed.
    """
    _write_history(
        history_of(run.telemetry, run.lag, settled_ms=run.begin_ms),
        path,
        title=f"{_scenario_title(run)}: {run.policy}",
        about=f"seed {run.seed}",
        measures=run.measures,
        objections=_objections(run),
    )


def write_comparison_page(runs_by_policy: Mapping[str, Sequence[Run]], path: str | Path) -> None:
    """Write the page that compares policies.

    Args:
        runs_by_policy: runs of one scenario with each policy, for one or more seeds. The timeline
            shows the first run of each policy.
        path: file to write; an existing file is replaced.

    Raises:
        ConfigurationError: there is nothing to compare, or the file cannot be written.
        MissingExtraError: Bokeh is not installed.
    """
    require_bokeh()
    if not runs_by_policy or not all(runs_by_policy.values()):
        raise ConfigurationError("runs_by_policy", dict(runs_by_policy), "a run of each policy")
    firsts = {policy: runs[0] for policy, runs in runs_by_policy.items()}
    histories = {
        policy: history_of(run.telemetry, run.lag, settled_ms=run.begin_ms)
        for policy, run in firsts.items()
    }
    measured = {policy: [run.measures for run in runs] for policy, runs in runs_by_policy.items()}
    rows = comparison_rows(measured)
    scenario = next(iter(firsts.values())).scenario
    verdict = verdict_of(measured, scenario.move_ms, returns_pay=scenario.returns_pay)
    seeds = max(map(len, runs_by_policy.values()))
    charts = () if verdict is None or verdict.chart is None else (verdict.chart,)
    drawn = _drawn_side_by_side(histories, charts)
    write_page(
        path,
        "comparison.html",
        drawn.figures,
        title=f"{_scenario_title(next(iter(firsts.values())))}: policies compared",
        lead="" if verdict is None else verdict.summary,
        under=" · ".join((counted(len(firsts), "policy", "policies"), counted(seeds, "seed"))),
        hint=_HINT,
        verdict=() if verdict is None else verdict.sentences,
        charts=drawn.charts,
        objections=[
            evolve(one, source=f"{policy}, seed {run.seed}: {one.source}")
            for policy, runs in runs_by_policy.items()
            for run in runs
            for one in _objections(run)
        ],
        seeds=seeds,
        policies=list(runs_by_policy),
        rows=rows,
        legend=drawn.legend,
        timelines=[
            (policy, firsts[policy].seed, divs) for policy, divs in drawn.divs_by_policy.items()
        ],
    )


def _write_history(
    history: History,
    path: str | Path,
    *,
    title: str,
    about: str = "",
    measures: object | None,
    objections: Sequence[Objection] | None,
    notes: Sequence[str] = (),
) -> None:
    require_bokeh()
    found = [*(objections or ()), *_refusals(history)]
    if objections is None:
        found += _double_owners(history)
    rows = _fact_rows(history) if measures is None else measure_rows(measures)
    timeline = _drawn(history) if history.ledger.resources else None
    write_page(
        path,
        "history.html",
        Figures() if timeline is None else timeline.figures,
        title=title,
        lead=_lead(history, measures),
        under=_under(history, about),
        notes=notes,
        cards=[*rows, ("violations", f"{len(found):,}" if found else "none")],
        objections=found,
        timeline=timeline,
        rounds=history.rounds,
        begin_ms=history.ledger.begin_ms,
    )


def _drawn(history: History) -> _Timeline:
    from coopgroup.report import drawing  # noqa: PLC0415 - Bokeh comes with an extra

    clients = history.ledger.clients
    paint = _paint(clients)
    lag = None if history.lag is None else lag_lines(history.ledger, history.lag)
    drawn = drawing.draw_history(history, paint, lag)
    figures = drawing.embedded(drawn.figures)
    others = lag.others if lag is not None else 0
    ownership, rest = figures.divs[:3], figures.divs[3:]
    with_warmups = 1 if history.ledger.warm_spans else 0
    return _Timeline(
        figures=figures,
        hint=_HINT + _scale_words(history) + _exactness(drawn.timelines),
        legend=legend_of(clients, paint),
        ownership=ownership,
        warmups=rest[:with_warmups],
        lag=rest[with_warmups:],
        lag_hint="Records that wait, by the member that works on their partitions, in its colour. "
        "In the colour of the curve above: of those that nobody works on."
        + (f" Grey: lowest to highest of {others:,} other members." if others else ""),
    )


def _drawn_side_by_side(histories: Mapping[str, History], charts: Sequence[Chart]) -> _SideBySide:
    from coopgroup.report import drawing  # noqa: PLC0415 - Bokeh comes with an extra
    from coopgroup.report.drawing.charts import chart_figure  # noqa: PLC0415 - likewise

    clients = sorted({name for one in histories.values() for name in one.ledger.clients})
    paint_of = dict(zip(clients, _paint(clients), strict=True))
    time = drawing.time_axis(list(histories.values()))
    gaps_max = max(_most_unowned(one) for one in histories.values())
    drawings = [
        drawing.draw_small(
            one,
            [paint_of[name] for name in one.ledger.clients],
            time,
            prefix=f"{policy}_",
            gaps_max=gaps_max,
        )
        for policy, one in histories.items()
    ]
    figures = drawing.embedded(
        [
            *(one for drawn in drawings for one in drawn.figures),
            *(chart_figure(chart) for chart in charts),
        ]
    )
    divs = iter(figures.divs)
    return _SideBySide(
        figures=figures,
        legend=legend_of(clients, [paint_of[name] for name in clients]),
        divs_by_policy={
            policy: tuple(islice(divs, len(drawn.figures)))
            for policy, drawn in zip(histories, drawings, strict=True)
        },
        charts=tuple(divs),
    )


def _paint(clients: Sequence[str]) -> list[Paint]:
    made = paints(len(clients))
    return [made[rank] for rank in ranks(clients)]


def _most_unowned(history: History) -> int:
    ledger = history.ledger
    counts = unowned_counts(history.ledger.gaps, ledger.begin_ms, ledger.until_ms)
    return counts.highest_from(history.settled_ms)


def _scale_words(history: History) -> str:
    since_ms = history.settled_ms - history.ledger.begin_ms
    if since_ms <= 0:
        return ""
    return f" The scales of the curves leave out the start, which ends at {seconds(since_ms)}."


def _exactness(timelines: Iterable[Timeline]) -> str:
    step_ms = max(timeline.step_ms for timeline in timelines)
    return "" if step_ms == 1 else f" Drawn to {seconds(step_ms)}; gaps are never left out."


def _lead(history: History, measures: object | None) -> str:
    """Return the line for readers who read only one."""
    facts = facts_of(history)
    out_s = getattr(measures, "unavailable_partition_s", facts.gap_seconds)
    worst_ms = getattr(measures, "worst_outage_ms", facts.worst_gap_ms)
    if not out_s:
        return "No partition was out of service."
    moved = getattr(measures, "moved", None)
    moves = "" if moved is None else f", {counted(moved, 'move')}"
    return (
        f"{out_s:,.1f} partition-seconds out of service{moves}. The longest outage of a partition "
        f"took {seconds(worst_ms)}."
    )


def _under(history: History, about: str) -> str:
    """Return the line below the heading: size, duration, setting and start."""
    ledger = history.ledger
    parts = [
        counted(len(ledger.resources), "partition"),
        counted(len(ledger.clients), "member"),
        seconds(ledger.until_ms - ledger.begin_ms),
        " / ".join(sorted({row.method for row in history.rounds if row.method})),
        about,
    ]
    if ledger.begin_ms >= _EPOCH_MS_MIN:
        begin = dt.datetime.fromtimestamp(ledger.begin_ms / 1000, tz=dt.UTC)
        parts.append(f"0 s is {begin:%Y-%m-%d %H:%M:%S} UTC")
    return " · ".join(part for part in parts if part)


def _fact_rows(history: History) -> list[tuple[str, str]]:
    facts = facts_of(history)
    return [
        ("rounds", f"{facts.rounds:,}"),
        ("partition-seconds nobody worked", f"{facts.gap_seconds:,.1f}"),
        ("longest gap of one partition", seconds(facts.worst_gap_ms)),
        *([("warm-ups", f"{facts.warmups:,}")] if history.ledger.warm_spans else []),
        *([("moved warm", f"{facts.moved_warm:,}")] if history.ledger.warm_spans else []),
    ]


def _refusals(history: History) -> list[Objection]:
    return [
        Objection(
            source=f"leader {one.client or one.member}",
            at_ms=one.at_ms - history.ledger.begin_ms,
            message=violation,
        )
        for one in history.envelopes
        if isinstance(one.record, RoundRefused)
        for violation in one.record.violations
    ]


def _double_owners(history: History) -> list[Objection]:
    """Return the times with two owners as violations, by the clocks of the writers."""
    ledger, spans = history.ledger, history.ledger.doubles.spans
    labels = [f"{name} {index}" for name, index in ledger.resources]
    return [
        Objection(
            source="two at once",
            at_ms=start_ms - ledger.begin_ms,
            message=f"{ledger.clients[owner]} and {ledger.clients[other]} worked on "
            f"{labels[resource]} for {seconds(end_ms - start_ms)}, by their clocks",
        )
        for resource, owner, other, start_ms, end_ms in zip(
            spans.resource.tolist(),
            spans.owner.tolist(),
            history.ledger.doubles.other.tolist(),
            spans.start_ms.tolist(),
            spans.end_ms.tolist(),
            strict=True,
        )
    ]


def _scenario_title(run: Run) -> str:
    return run.scenario.description or run.scenario.name.replace("_", " ")


def _objections(run: Run) -> list[Objection]:
    return [
        Objection(source=one.checker, at_ms=one.at_ms, message=one.message)
        for one in run.violations
    ]
