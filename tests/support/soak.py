"""`make soak`: the swarm over any number of seeds, on all cores.

    python -m tests.support.soak FIRST_SEED SEEDS

Each seed is played once for each kind of draw (`DRAWS`), except that some kinds take turns
(`kinds_of`).

The output is a progress bar, each failing seed when it is found, and one closing line. Failing runs
are minimized and written to `simulations/regressions`, where the tests play them
from then on.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.swarm.consumers import draw_consumer
from tests.swarm.directed import draw_directed
from tests.swarm.hosted import draw_hosted
from tests.swarm.hostile import draw_hostile
from tests.swarm.looped import draw_looped
from tests.swarm.minimise import minimise
from tests.swarm.mixed import draw_kip848, draw_mixed
from tests.swarm.named import draw_named
from tests.swarm.places import draw_declining, draw_placed
from tests.swarm.play import play
from tests.swarm.polled import draw_polled
from tests.swarm.processed import draw_processed
from tests.swarm.returning import draw_returning
from tests.swarm.run_files import run_to_toml
from tests.swarm.runs import SwarmRun, draw
from tests.swarm.tasked import draw_tasked
from tests.swarm.warm import draw_warm

_Found: TypeAlias = tuple[str, int, str]
DRAWS: Final[Mapping[str, Callable[[int], SwarmRun]]] = {
    "seed": draw,
    "mixed": draw_mixed,
    "kip848": draw_kip848,
    "consumer": draw_consumer,
    "directed": draw_directed,
    "returning": draw_returning,
    "warm": draw_warm,
    "hostile": draw_hostile,
    "placed": draw_placed,
    "declining": draw_declining,
    "named": draw_named,
    "polled": draw_polled,
    "looped": draw_looped,
    "processed": draw_processed,
    "tasked": draw_tasked,
    "hosted": draw_hosted,
}
# Dear kinds, and the two whose acts they play again.
_TURNS: Final = ("seed", "directed", "polled", "looped", "processed", "tasked", "hosted")
CHUNK: Final = 20
REGRESSIONS: Final = Path("simulations/regressions")
USAGE: Final = (
    "usage: make soak SEEDS=n FIRST_SEED=k, with whole numbers, n at least 1, k at least 0"
)


def main(arguments: list[str]) -> int:
    """Run; the exit status is 1 if any seed failed, and 2 if the arguments are not numbers."""
    console = Console(soft_wrap=True)
    try:
        first, count = (int(argument) for argument in arguments)
    except ValueError:
        first, count = -1, 0
    if first < 0 or count < 1:
        console.print(USAGE, highlight=False)
        return 2
    failing: list[tuple[str, int]] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("seeds", total=count)
        for done, found in _played(first, count):
            progress.advance(task, done)
            for kind, seed, line in found:
                failing.append((kind, seed))
                console.print(line, highlight=False)
    for kind, seed in sorted(failing):
        path = _write_regression(kind, seed)
        console.print(f"{kind} {seed} is in {path}", highlight=False)
    console.print(f"soak: {count} seeds run, {len(failing)} failed", highlight=False)
    return 1 if failing else 0


def kinds_of(seed: int) -> list[str]:
    """Return the kinds in which a seed is played: one of those that take turns, and all others."""
    played = _TURNS[seed % len(_TURNS)]
    return [kind for kind in DRAWS if kind == played or kind not in _TURNS]


def _played(first: int, count: int) -> Iterator[tuple[int, list[_Found]]]:
    """Yield finished chunks of seeds: their number, and the failed seeds."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        starts = range(first, first + count, CHUNK)
        chunks = [pool.submit(_play_seeds, at, min(CHUNK, first + count - at)) for at in starts]
        for chunk in as_completed(chunks):
            yield chunk.result()


def _play_seeds(first: int, count: int) -> tuple[int, list[_Found]]:
    found = []
    for seed in range(first, first + count):
        for kind in kinds_of(seed):
            what = _wrong(DRAWS[kind](seed))
            if what is not None:
                line = f"{kind.upper()}={seed} failed: {what[0]}: {what[1]}"
                found.append((kind, seed, line))
    return count, found


def _wrong(run: SwarmRun) -> tuple[str, str] | None:
    """Return the first checker that fails and its message; None for a good run."""
    try:
        violations = play(run).violations
    except Exception as error:  # noqa: BLE001 - whatever is raised is a failure like any other
        return type(error).__name__, " ".join(str(error).split())
    return (violations[0].checker, violations[0].message) if violations else None


def _write_regression(kind: str, seed: int) -> Path:
    run = DRAWS[kind](seed)
    found = _wrong(run)
    checker = "" if found is None else found[0]

    def fails(smaller: SwarmRun) -> bool:
        what = _wrong(smaller)
        return what is not None and what[0] == checker

    small = minimise(run, fails)
    what = _wrong(small) or (checker, "")
    path = REGRESSIONS / f"{kind}_{seed}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    comment = f"{kind.capitalize()} {seed} of the swarm, minimised.\n{what[0]}: {what[1]}"
    path.write_text(run_to_toml(small, comment=comment), encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
