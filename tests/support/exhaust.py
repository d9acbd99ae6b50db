"""`make exhaust`: every fault at every message of small histories.

    python -m tests.support.exhaust [--pairs] [--every-code] [--part K/N] [--minutes M] [NAME...]
    python -m tests.support.exhaust --bugs [NAME...]

It plays the cells of `tests.swarm.histories` that this revision has not played yet, on all cores. A
cell that is done has a line in build/exhaust, so the next call goes on there. A change of the core,
the simulator or the swarm makes a new revision, which begins again.

The output is each failing run, what was never reached, and one closing line. A cell that raises
fails, and is not done: the next call plays it again. Failing runs are minimised and written to
`simulations/regressions`, one for each history and checker. If all cells are done, or a part of the
pairs, or the pairs of some cells, the tally in simulations/tally.md gets a row.

A name is that of a history, or of a cell: "topic grows, none, simple".

With `--bugs` it prints which deliberate bugs (`mutants`) exhaustion finds: for each, it plays some
single faults of each cell, in a random order, until one fails. Of named cells it plays all.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import frozen

from tests.support.mutants import MUTANTS, broken
from tests.swarm.checkers.faults import Usual
from tests.swarm.coverage import covering, impossible_pairs, possible
from tests.swarm.exhaust import Failure, Wanted, exhaust, failure_of, single_faults
from tests.swarm.histories import CELLS, HISTORIES, Cell
from tests.swarm.minimise import minimise
from tests.swarm.run_files import run_to_toml
from tests.swarm.runs import SwarmRun

_Done: TypeAlias = dict[str, Any]
BUILD: Final = Path("build/exhaust")
REGRESSIONS: Final = Path("simulations/regressions")
TALLY: Final = Path("simulations/tally.md")
_SOURCES: Final = ("src/coopgroup/core", "src/coopgroup/simulator", "tests/swarm")
_SHOWN_MAX: Final = 10  # failures of a cell
_MINIMISED_MAX: Final = 10  # a broken core fails in each history
_TRIES_MAX: Final = 300
_BUG_RUNS_OF_A_CELL: Final = 20
# In pairs, both faults are of these kinds, one of each that differs for a member or for the group.
_IN_PAIRS: Final = frozenset(
    {"REQUEST_LOST", "ANSWER_LOST", "REFUSED", "crash", "pause", "move coordinator"}
)


def main(arguments: Sequence[str]) -> int:
    """Run; the exit status is 1 if any run failed."""
    options = _options(arguments)
    kind = "pairs" if options.pairs else "every code" if options.every_code else "singles"
    named = set(options.named)
    cells = ordered(one for one in CELLS if not named or named & {one.history, str(one)})
    if options.bugs:
        return _hunt_bugs(cells, of_each=None if named else _BUG_RUNS_OF_A_CELL)
    number, parts = options.part
    cells = cells[number - 1 :: parts]
    path = BUILD / f"{revision()}-{kind.replace(' ', '-')}.jsonl"
    done = {one["cell"]: one for one in _read(path)}
    deadline_s = time.monotonic() + 60 * options.minutes if options.minutes else None
    todo = [cell for cell in cells if str(cell) not in done]
    raised = 0
    for found in played(todo, partial(_play, kind=kind, deadline_s=deadline_s)):
        if isinstance(found, Raised):
            raised += 1
            print(f"{found.cell}: {found.line}", flush=True)  # noqa: T201 - progress
            continue
        done[found["cell"]] = found
        _note(path, found)
        for line in found["failures"][:_SHOWN_MAX]:
            print(f"{found['cell']}: {line}", flush=True)  # noqa: T201 - progress
    mine = [done[str(cell)] for cell in cells if str(cell) in done]
    label = f"pairs, part {number}/{parts}" if kind == "pairs" and parts > 1 else kind
    label = f"{label} of {'; '.join(sorted(named))}" if named else label
    status = _report(cells, mine, label, has_row=kind == "pairs" or len(cells) == len(CELLS))
    return 1 if raised else status


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make exhaust", description="every fault, every message")
    parser.add_argument("named", nargs="*", type=_name, help="only these histories or cells")
    parser.add_argument("--pairs", action="store_true", help="pairs of faults")
    parser.add_argument("--bugs", action="store_true", help="which deliberate bugs are found")
    parser.add_argument("--every-code", action="store_true", help="refuse with all codes")
    parser.add_argument("--part", type=_part, default=(1, 1), help="the k-th of n parts, as k/n")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no cell after this time")
    return parser.parse_args(arguments)


def _name(text: str) -> str:
    if text not in {*HISTORIES, *map(str, CELLS)}:
        raise argparse.ArgumentTypeError(f"{text!r} is no history, and no cell")
    return text


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not k/n with 1 <= k <= n")
    return int(number), int(parts)


def ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells so that each third of them has all histories, identities and policies."""
    names: dict[str, int] = {}
    keyed = []
    for cell in cells:
        turn = names[cell.history] = names.get(cell.history, -1) + 1
        keyed.append((((turn // 3 + turn) % 3, cell.history, cell.identity, cell.policy), cell))
    return [cell for _, cell in sorted(keyed)]


def revision() -> str:
    """Return a digest of all code that decides what a run does."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in _SOURCES for path in Path(folder).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def _read(path: Path) -> list[_Done]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _note(path: Path, found: _Done) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


@frozen
class Raised:
    """A cell that raised an exception, and the last line of its traceback."""

    cell: Cell
    line: str


def played(
    cells: Sequence[Cell], play_cell: Callable[[Cell], _Done | None]
) -> Iterator[_Done | Raised]:
    """Yield the outcome of each cell when it is there.

    An exception ends its own cell only: the results of all other cells would be lost with it.
    """
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        chunks = {pool.submit(_outcome, play_cell, cell): cell for cell in cells}
        for chunk in as_completed(chunks):
            try:
                found = chunk.result()
            except Exception as error:  # noqa: BLE001 - a worker was killed, and the pool with it
                found = Raised(chunks[chunk], _last_line(error))
            if found is not None:
                yield found


def _outcome(play_cell: Callable[[Cell], _Done | None], cell: Cell) -> _Done | Raised | None:
    """Play a cell in a worker; not each exception can be sent to another process."""
    try:
        return play_cell(cell)
    except Exception as error:  # noqa: BLE001 - whatever is raised is a failure of the cell
        return Raised(cell, _last_line(error))


def _last_line(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _play(cell: Cell, kind: str, deadline_s: float | None) -> _Done | None:
    if deadline_s is not None and time.monotonic() > deadline_s:
        return None
    begun_s = time.process_time()
    wanted = Wanted(every_code=kind == "every code")
    if kind == "pairs":
        wanted = Wanted(names=_IN_PAIRS)
    with covering() as reached:
        tally = exhaust(cell, pairs=kind == "pairs", wanted=wanted)
    return {
        "cell": str(cell),
        "runs": tally.runs,
        "failures": [f"{one.checker}: {one.message}" for one in tally.failures],
        "regressions": [_regression(cell, one) for one in _one_of_each(tally.failures)],
        "reached": sorted(reached),
        "seconds": round(time.process_time() - begun_s, 1),
    }


def _one_of_each(failures: Iterable[Failure]) -> list[Failure]:
    first: dict[str, Failure] = {}
    for one in failures:
        first.setdefault(one.checker, one)
    return list(first.values())


def _regression(cell: Cell, failure: Failure) -> str:
    """Minimise a failing run, write it, and return its path."""
    name = f"{cell.history} {failure.checker}".replace(" ", "_").replace("-", "_")
    path = REGRESSIONS / f"exhaust_{name}.toml"
    if path.exists() or len(list(REGRESSIONS.glob("exhaust_*"))) >= _MINIMISED_MAX:
        return str(path)

    def fails(smaller: SwarmRun) -> bool:
        found = failure_of(smaller)
        return found is not None and found.checker == failure.checker

    small = minimise(failure.run, fails, tries_max=_TRIES_MAX)
    found = failure_of(small) or failure
    comment = f"Exhaustion of {cell}, minimised.\n{found.checker}: {found.message}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(run_to_toml(small, comment=comment), encoding="utf-8")
    return str(path)


def _report(cells: Sequence[Cell], done: Sequence[_Done], kind: str, *, has_row: bool) -> int:
    reached = {name for one in done for name in one["reached"]}
    runs, failed = sum(one["runs"] for one in done), sum(len(one["failures"]) for one in done)
    is_whole = len(done) == len(cells)
    lines = [f"never reached: {name}" for name in sorted(possible() - reached)]
    lines += [f"reached, and called impossible: {one}" for one in reached & impossible_pairs()]
    if not is_whole or len(cells) < len(CELLS):
        lines = []  # what is missing may be reached by the other cells
    lines += sorted({f"minimised: {path}" for one in done for path in one["regressions"]})
    seconds = sum(one["seconds"] for one in done)
    lines.append(
        f"exhaust: {kind}, {len(done)} of {len(cells)} cells, {runs} runs, {failed} failed; "
        f"{seconds:.0f} s of one core"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    if is_whole and has_row:
        _tally(kind, len(cells), runs, failed, len(possible() & reached))
    return 1 if failed or reached & impossible_pairs() else 0


def _tally(kind: str, cells: int, runs: int, failed: int, reached: int) -> None:
    """Write the row of this revision, in place of an earlier one of the same kind and size."""
    start = f"| {revision()} | {kind} | {cells} |"
    rows = TALLY.read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if not row.startswith(start)]
    rows.append(f"{start} {runs:,} | {failed} | {reached} of {len(possible())} |")
    TALLY.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _hunt_bugs(cells: Iterable[Cell], of_each: int | None) -> int:
    """Print the outcome for each deliberate bug, and their number."""
    chance, trials = random.Random("exhaust/bugs"), []
    for cell in cells:
        faults = list(single_faults(cell))
        trials += faults if of_each is None else chance.sample(faults, of_each)
    chance.shuffle(trials)
    find, alive = partial(_find, trials), []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for mutant, found in zip(MUTANTS, pool.map(find, range(len(MUTANTS))), strict=True):
            print(f"{mutant.name:60} {found or 'not found'}", flush=True)  # noqa: T201 - progress
            alive += [] if found else [mutant.name]
    dead = len(MUTANTS) - len(alive)
    print(f"exhaust: {dead} of {len(MUTANTS)} bugs die within {len(trials)} runs")  # noqa: T201
    return 0


def _find(trials: Sequence[tuple[SwarmRun, Usual]], number: int) -> str:
    for place, (run, usual) in enumerate(trials):
        with broken(MUTANTS[number]):
            failure = failure_of(run, usual)
        if failure is not None and failure_of(run, usual) is None:
            return f"{place + 1:5} {failure.checker}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
