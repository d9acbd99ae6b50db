"""Measure the swarm: which deliberate bugs it finds, by which checker, after how many seeds.

    python -m tests.support.worth

plays up to 500 seeds for each bug, each in the kinds of `KINDS`, and then the histories of
exhaustion without a fault. It prints the table, and records the first run that found each bug. The
tests begin with those runs, so they need not play the hundreds before them.

    python -m tests.support.worth 'no lease at all' 'losses wait for ever'

plays for these bugs only.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from attrs import frozen

from tests.support.mutants import MUTANTS, Mutant, broken
from tests.support.soak import DRAWS
from tests.swarm.histories import CELLS
from tests.swarm.play import play
from tests.swarm.runs import SwarmRun

Start: TypeAlias = int | str
"""The seed of a drawn run, or the cell of a history by its name."""

KINDS: Final = ("seed", "mixed", "directed", "returning", "warm", "hostile")

HISTORY: Final = "history"
SEEDS_MAX: Final = 500
_KNOWN: Final = Path(__file__).with_name("worth.json")


@frozen
class Hunt:
    """The result for a bug.

    Attributes:
        start: the run that found it, or None.
        kind: kind of that run, as `make soak` calls it, or `HISTORY`, or "".
        checker: the first checker that failed.
    """

    mutant: Mutant
    start: Start | None
    kind: str
    checker: str


def runs_of(seeds: Iterable[int]) -> Iterable[tuple[str, Start]]:
    """Return runs of all kinds, in the order in which `make soak` plays them."""
    return ((kind, seed) for seed in seeds for kind in KINDS)


def histories() -> Iterable[tuple[str, Start]]:
    """Return all histories of exhaustion."""
    return ((HISTORY, str(cell)) for cell in CELLS)


def hunt(mutant: Mutant, runs: Iterable[tuple[str, Start]]) -> Hunt:
    """Play runs until a run finds the bug."""
    with broken(mutant):
        for kind, start in runs:
            try:
                violations = play(_run(kind, start)).violations
            except Exception as error:  # noqa: BLE001 - an assertion of the core finds bugs, too
                return Hunt(mutant, start, kind, f"raised {type(error).__name__}")
            if violations:
                return Hunt(mutant, start, kind, violations[0].checker)
    return Hunt(mutant, None, "", "")


def _run(kind: str, start: Start) -> SwarmRun:
    if isinstance(start, int):
        return DRAWS[kind](start)
    return next(cell.run() for cell in CELLS if str(cell) == start)


def known_runs() -> dict[str, tuple[str, Start]]:
    """Return the first run that found each bug, by the bug's name."""
    known: dict[str, str] = json.loads(_KNOWN.read_text(encoding="utf-8"))
    runs = {name: run.split(maxsplit=1) for name, run in known.items()}
    return {
        name: (kind, start if kind == HISTORY else int(start))
        for name, (kind, start) in runs.items()
    }


def table(hunts: Sequence[Hunt]) -> str:
    """Return the results as a table, the longest hunts at the end."""
    order = sorted(hunts, key=_length)
    lines = [f"{'bug':50}  {'in':18}  {'seeds':>5}  {'kind':8}  found by"]
    for one in order:
        module = one.mutant.place.partition(":")[0]
        played = str(one.start + 1) if isinstance(one.start, int) else "-"
        lines.append(
            f"{one.mutant.name:50}  {module:18}  {played:>5}  {one.kind or '-':8}  "
            f"{one.checker or 'not found'}"
        )
    found = sum(one.start is not None for one in hunts)
    lines.append(f"{found} of {len(hunts)} found")
    return "\n".join(lines)


def _length(hunt_: Hunt) -> int:
    """Return the number of seeds that were played in vain."""
    return hunt_.start if isinstance(hunt_.start, int) else SEEDS_MAX


def main(names: Sequence[str] = ()) -> None:
    """Hunt for bugs with all seeds, and record the run that found each."""
    hunts = []
    for mutant in (one for one in MUTANTS if not names or one.name in names):
        hunts.append(hunt(mutant, chain(runs_of(range(SEEDS_MAX)), histories())))
        print(table(hunts[-1:]).splitlines()[1], flush=True)  # noqa: T201 - progress
    known = {name: f"{kind} {start}" for name, (kind, start) in known_runs().items() if names}
    for one in hunts:
        known.pop(one.mutant.name, None)
        if one.start is not None:
            known[one.mutant.name] = f"{one.kind} {one.start}"
    _KNOWN.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{table(hunts)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
