"""`make soak`: the swarm over any number of seeds, on all cores.

    python -m tests.support.soak FIRST_SEED SEEDS

A progress bar while it runs, each failing seed as it is found, and one closing line. What failed is
made as small as it can be and written to `simulations/regressions`, where the tests play it from
then on.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from coopgroup.simulator.minimise import minimise
from coopgroup.simulator.swarm import SwarmRun, draw
from coopgroup.simulator.swarm_file import run_to_toml
from coopgroup.simulator.swarm_play import play

__all__ = ["main"]

CHUNK: Final = 20
REGRESSIONS: Final = Path("simulations/regressions")
USAGE: Final = (
    "usage: make soak SEEDS=n FIRST_SEED=k, with whole numbers, n at least 1, k at least 0"
)


def main(arguments: list[str]) -> int:
    """Run; the exit status is 1 if any seed failed, and 2 if the numbers are none."""
    console = Console(soft_wrap=True)
    try:
        first, count = (int(argument) for argument in arguments)
    except ValueError:
        first, count = -1, 0
    if first < 0 or count < 1:
        console.print(USAGE, highlight=False)
        return 2
    failing: list[int] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("seeds", total=count)
        for done, found in _played(first, count):
            progress.advance(task, done)
            for seed, line in found:
                failing.append(seed)
                console.print(line, highlight=False)
    for seed in sorted(failing):
        console.print(f"seed {seed} is in {_write_regression(seed)}", highlight=False)
    console.print(f"soak: {count} seeds run, {len(failing)} failed", highlight=False)
    return 1 if failing else 0


def _played(first: int, count: int) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Chunks of seeds as they are done: how many, and which failed."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        starts = range(first, first + count, CHUNK)
        chunks = [pool.submit(_play_seeds, at, min(CHUNK, first + count - at)) for at in starts]
        for chunk in as_completed(chunks):
            yield chunk.result()


def _play_seeds(first: int, count: int) -> tuple[int, list[tuple[int, str]]]:
    found = []
    for seed in range(first, first + count):
        what = _wrong(draw(seed))
        if what is not None:
            found.append((seed, f"SEED={seed} failed: {what[0]}: {what[1]}"))
    return count, found


def _wrong(run: SwarmRun) -> tuple[str, str] | None:
    """Which checker objects first, and to what; None if a run goes well."""
    try:
        violations = play(run).violations
    except Exception as error:  # noqa: BLE001 - whatever is raised is a failure like any other
        return type(error).__name__, " ".join(str(error).split())
    return (violations[0].checker, violations[0].message) if violations else None


def _write_regression(seed: int) -> Path:
    run = draw(seed)
    found = _wrong(run)
    checker = "" if found is None else found[0]

    def fails(smaller: SwarmRun) -> bool:
        what = _wrong(smaller)
        return what is not None and what[0] == checker

    small = minimise(run, fails)
    what = _wrong(small) or (checker, "")
    path = REGRESSIONS / f"seed_{seed}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    comment = f"Seed {seed} of the swarm, minimised.\n{what[0]}: {what[1]}"
    path.write_text(run_to_toml(small, comment=comment), encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
