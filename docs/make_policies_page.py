"""Writes the tables and pictures of the page about policies, and one for the README.

Run as `python -m docs.make_policies_page`; it takes a minute or two. The tables are the medians of
`coopgroup compare`.

Rules of this file: every figure and every stroke comes out of a run of a scenario in `simulations`;
the same code makes the same files on every machine.

How the pictures are drawn: a panel for each policy, a row for each partition, time from left to
right. A partition has the colour of the process that works on it; where nobody does, the dark
background shows. Rows are in the order of their owners before the first event.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Final

import numpy as np
from attrs import evolve, frozen

from coopgroup.simulator import Run, Scenario, read_scenario
from coopgroup.simulator.comparison import Runner, compare, spread_of
from coopgroup.simulator.scenario import Choice, Span
from coopgroup.simulator.scenario.times import first_event_ms, last_event_ms
from coopgroup.telemetry import Ledger, ProcessEnded, ProcessStarted, read_ledger
from docs.sections import DOCS, with_section

__all__ = ["USE_CASES", "picture", "table"]

PAGE: Final = DOCS / "policies.md"
SIMULATIONS: Final = DOCS.parent / "simulations"
POLICIES: Final = ("eager", "simple", "deferred", "incremental")
WITH_WARMUPS: Final = "deferred with warm-ups"
SEEDS: Final = tuple(range(1, 6))
RESTORE_S: Final = (1, 10, 60, 300)
RESTORE_TIMES: Final = "restore_times"

MEASURES: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "unavailable_partition_s": ("unavailable partition-seconds", lambda one: f"{one:,.1f}"),
    "unavailable_peak": ("most unavailable at once", lambda one: f"{one:,.0f}"),
    "worst_outage_ms": ("longest outage of a partition, in s", lambda one: f"{one / 1000:,.1f}"),
    "moved": ("partitions moved", lambda one: f"{one:,.0f}"),
    "converge_ms": (
        "time to converge, in s",
        lambda one: "never" if math.isinf(one) else f"{one / 1000:,.1f}",
    ),
}
"""Title and format of each measure in the tables; `coopgroup compare` has more."""


@frozen(kw_only=True)
class UseCase:
    """A scenario as the page shows it.

    Attributes:
        name: of the scenario file.
        before_ms: how much of the time before the first event is drawn.
        after_ms: and of that after the last one.
        is_stateful: whether the file's own policy, with warm-ups, is one more column.
    """

    name: str
    before_ms: int
    after_ms: int
    is_stateful: bool = False

    @property
    def policies(self) -> tuple[str, ...]:
        """The columns of the table, and the panels of the picture."""
        return (*POLICIES, WITH_WARMUPS) if self.is_stateful else POLICIES


USE_CASES: Final = (
    UseCase(name="process_death", before_ms=5_000, after_ms=30_000),
    UseCase(name="rolling_bounce", before_ms=5_000, after_ms=25_000),
    UseCase(name="scale_up", before_ms=5_000, after_ms=40_000),
    UseCase(name="scale_down", before_ms=5_000, after_ms=25_000),
    UseCase(name="stateful_scale_up", before_ms=5_000, after_ms=120_000, is_stateful=True),
)
README_CASE: Final = USE_CASES[1]
README_PICTURE: Final = DOCS / "images" / "rolling_restart.svg"
README_POLICIES: Final = ("eager", "simple", "deferred")
README_ROW: Final = 2

# --- tables -------------------------------------------------------------------------------------


def table(runs_by_policy: Mapping[str, Sequence[Run]]) -> str:
    """A row for each measure, a column for each policy: medians over the seeds."""
    lines = [
        "| | " + " | ".join(runs_by_policy) + " |",
        "|---|" + "---:|" * len(runs_by_policy),
    ]
    for name, (title, shown) in MEASURES.items():
        cells = [shown(spread_of(name, runs).median) for runs in runs_by_policy.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# --- pictures -----------------------------------------------------------------------------------

WIDTH: Final = 760
LEFT: Final = 92
RIGHT: Final = 24
ROW: Final = 4
TOP: Final = 14
PANEL_GAP: Final = 22
AXIS: Final = 40
TICKS_MAX: Final = 10
TICK_STEPS_S: Final = (5, 10, 20, 30, 60)
NOBODY: Final = "#1b1b1f"
# Told apart also by readers who see colours differently: neighbours differ in lightness.
COLOURS: Final = (
    "#4e79a7",
    "#f6c86b",
    "#59a14f",
    "#e59aa7",
    "#7b5ea7",
    "#a5d8e6",
    "#d1713c",
    "#bfe3a8",
    "#2f6d72",
    "#f2e4c4",
)


def picture(runs: Mapping[str, Run], use_case: UseCase, *, row: int = ROW) -> str:
    """The runs of one scenario under each policy, one panel below the other, as SVG.

    Args:
        runs: a run for each panel, by the name of its policy.
        use_case: the scenario, and which part of it is drawn.
        row: height of a partition in pixels.
    """
    first = next(iter(runs.values()))
    begin_ms = (first_event_ms(first.scenario) or 0) - use_case.before_ms
    end_ms = min(last_event_ms(first.scenario) + use_case.after_ms, first.scenario.end_ms)
    scale = (WIDTH - LEFT - RIGHT) / (end_ms - begin_ms)
    clients = _clients(runs)
    panel = row * sum(topic.partitions for topic in first.scenario.topics)
    height = TOP + len(runs) * (panel + PANEL_GAP) + AXIS
    size = f'viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for place, (policy, run) in enumerate(runs.items()):
        top = TOP + place * (panel + PANEL_GAP)
        parts.append(f'<text x="4" y="{top + panel // 2 + 4}">{policy}</text>')
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{panel}" '
            f'fill="{NOBODY}"/>'
        )
        parts += _panel(run, clients, (begin_ms, end_ms), scale, (top, row))
        parts += _process_marks(run, (begin_ms, end_ms), scale, top)
    bottom = TOP + len(runs) * (panel + PANEL_GAP) - PANEL_GAP
    parts += _axis(begin_ms, end_ms, scale, bottom)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _clients(runs: Mapping[str, Run]) -> list[str]:
    """Processes of all runs in the order of their numbers."""
    names = {name for run in runs.values() for name in read_ledger(run.telemetry).clients}
    return sorted(names, key=lambda name: (len(name), name))


def _panel(
    run: Run,
    clients: Sequence[str],
    window: tuple[int, int],
    scale: float,
    top_and_row: tuple[int, int],
) -> list[str]:
    """One path for each process: everything that it works on."""
    begin_ms, end_ms = window
    top, height = top_and_row
    owned = read_ledger(run.telemetry, until_ms=run.scenario.end_ms)
    row_of = _rows(owned, begin_ms)
    strokes: dict[str, list[str]] = {name: [] for name in clients}
    for resource, owner, start, end in zip(
        owned.work.resource.tolist(),
        owned.work.owner.tolist(),
        np.clip(owned.work.start_ms, begin_ms, end_ms).tolist(),
        np.clip(owned.work.end_ms, begin_ms, end_ms).tolist(),
        strict=True,
    ):
        if end > start:
            x, width = LEFT + (start - begin_ms) * scale, (end - start) * scale
            y = top + int(row_of[resource]) * height
            strokes[owned.clients[owner]].append(f"M{x:.1f} {y}h{width:.1f}v{height}h{-width:.1f}z")
    return [
        f'<path fill="{COLOURS[number % len(COLOURS)]}" d="{"".join(strokes[name])}"/>'
        for number, name in enumerate(clients)
        if strokes[name]
    ]


def _rows(owned: Ledger, at_ms: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Row of each resource: by its owner at a time, then by number."""
    owner = np.full(len(owned.resources), len(owned.clients))
    then = owned.work.take((owned.work.start_ms <= at_ms) & (owned.work.end_ms > at_ms))
    owner[then.resource] = then.owner
    rows = np.empty(len(owner), np.int64)
    rows[np.lexsort((np.arange(len(owner)), owner))] = np.arange(len(owner))
    return rows


def _process_marks(run: Run, window: tuple[int, int], scale: float, top: int) -> list[str]:
    """Above a panel: a triangle down where a process ends, up where one starts."""
    begin_ms, end_ms = window
    ends, starts = [], []
    for envelope in run.telemetry:
        if begin_ms <= envelope.at_ms < end_ms:
            x = LEFT + (envelope.at_ms - begin_ms) * scale
            if isinstance(envelope.record, ProcessEnded):
                ends.append(f"M{x - 4:.1f} {top - 9}h8l-4 8z")
            elif isinstance(envelope.record, ProcessStarted):
                starts.append(f"M{x - 4:.1f} {top - 1}h8l-4 -8z")
    marks = {"#c0392b": "".join(ends), "#2e8b57": "".join(starts)}
    return [f'<path fill="{colour}" d="{path}"/>' for colour, path in marks.items() if path]


def _axis(begin_ms: int, end_ms: int, scale: float, bottom: int) -> list[str]:
    """Seconds since the begin of the run, and what the colours mean."""
    length_s = (end_ms - begin_ms) / 1000
    step_s = next((one for one in TICK_STEPS_S if length_s / one <= TICKS_MAX), TICK_STEPS_S[-1])
    parts = []
    for second in range(-(-begin_ms // 1000 // step_s) * step_s, end_ms // 1000 + 1, step_s):
        x = LEFT + (second * 1000 - begin_ms) * scale
        if LEFT <= x <= WIDTH - RIGHT:
            parts.append(
                f'<path stroke="#666" d="M{x:.1f} {bottom}v4"/>'
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{second} s</text>'
            )
    text = "a colour for each process; dark: nobody works on the partition"
    parts.append(f'<text x="{LEFT}" y="{bottom + 34}" fill="#444">{text}</text>')
    return parts


# --- when warm-ups pay --------------------------------------------------------------------------


def restore_times(run_all: Runner) -> str:
    """A row for each restore time of the stateful scale-up: with and without warm-ups."""
    scenario = read_scenario(str(SIMULATIONS / "stateful_scale_up.toml"))
    titles = product(("unavailable", "converged"), ("without", "with"))
    lines = [
        "| restore, in s | " + " | ".join(f"{what}, {how}" for what, how in titles) + " |",
        "|" + "---:|" * 5,
    ]
    for restore_s in RESTORE_S:
        changed = _with_restore(scenario, restore_s * 1_000)
        runs = compare(
            changed,
            {name: _choice(changed, name) for name in ("deferred", WITH_WARMUPS)},
            SEEDS,
            run_all=run_all,
        )
        cells = [
            shown(spread_of(measure, of_policy).median)
            for measure, (_, shown) in MEASURES.items()
            if measure in {"unavailable_partition_s", "converge_ms"}
            for of_policy in runs.values()
        ]
        lines.append(f"| {restore_s} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _with_restore(scenario: Scenario, restore_ms: int) -> Scenario:
    """The scenario with another restore time; a warm move costs at most 0.1 s.

    The event comes after the group has started, and the run is long enough to converge. The
    time-out of the warm-ups is the default, which is longer than every restore.
    """
    cost = evolve(scenario.costs[0], restore_ms=Span(restore_ms, restore_ms))
    warm_ms = min(restore_ms, 100)
    cost = evolve(cost, warm_restore_ms=Span(warm_ms, warm_ms))
    policy = scenario.group.policy
    policy = evolve(policy, options={**policy.options, "warmup": {}})
    return evolve(
        scenario,
        costs=(cost,),
        group=evolve(scenario.group, policy=policy),
        events=tuple(evolve(one, at_ms=one.at_ms + restore_ms) for one in scenario.events),
        duration_ms=scenario.duration_ms + 6 * restore_ms,
    )


def _choice(scenario: Scenario, name: str) -> Choice:
    return scenario.group.policy if name == WITH_WARMUPS else scenario.policy_named(name)


# --- all of it ----------------------------------------------------------------------------------


def main() -> None:
    """Play everything, write the page and its pictures."""
    page = PAGE.read_text()
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        for use_case in USE_CASES:
            scenario = read_scenario(str(SIMULATIONS / f"{use_case.name}.toml"))
            choices = {name: _choice(scenario, name) for name in use_case.policies}
            runs = compare(scenario, choices, SEEDS, keeps_first=True, run_all=pool.map)
            page = with_section(page, use_case.name, table(runs))
            firsts = {policy: of_policy[0] for policy, of_policy in runs.items()}
            drawn = picture(firsts, use_case)
            (DOCS / "images" / f"policies-{use_case.name}.svg").write_text(drawn)
            if use_case is README_CASE:
                few = {policy: firsts[policy] for policy in README_POLICIES}
                README_PICTURE.write_text(picture(few, use_case, row=README_ROW))
        page = with_section(page, RESTORE_TIMES, restore_times(pool.map))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
