"""Measure the swarm: which deliberate bugs it finds, by which checker, after how many seeds.

    python -m tests.support.worth

plays up to 500 seeds for each bug, each in the kinds of `KINDS`. It prints the table, and records
the first run that found each bug. The tests begin with those runs, so they need not play the
hundreds before them.

    python -m tests.support.worth 'no lease at all' 'losses wait for ever'

plays for these bugs only.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.support.mutants import MUTANTS, Mutant, broken
from tests.support.soak import DRAWS
from tests.swarm.play import play

KINDS: Final = ("seed", "mixed", "directed", "returning", "warm", "hostile")

SEEDS_MAX: Final = 500
_KNOWN: Final = Path(__file__).with_name("worth.json")


@frozen
class Hunt:
    """The result for a bug.

    Attributes:
        seed: seed of the run that found it, or None.
        kind: kind of that run, as `make soak` calls it, or "".
        checker: the first checker that failed.
    """

    mutant: Mutant
    seed: int | None
    kind: str
    checker: str


def runs_of(seeds: Iterable[int]) -> Iterable[tuple[str, int]]:
    """Return runs of all kinds, in the order in which `make soak` plays them."""
    return ((kind, seed) for seed in seeds for kind in KINDS)


def hunt(mutant: Mutant, runs: Iterable[tuple[str, int]]) -> Hunt:
    """Play runs until a run finds the bug."""
    with broken(mutant):
        for kind, seed in runs:
            try:
                violations = play(DRAWS[kind](seed)).violations
            except Exception as error:  # noqa: BLE001 - an assertion of the core finds bugs, too
                return Hunt(mutant, seed, kind, f"raised {type(error).__name__}")
            if violations:
                return Hunt(mutant, seed, kind, violations[0].checker)
    return Hunt(mutant, None, "", "")


def known_runs() -> dict[str, tuple[str, int]]:
    """Return kind and seed of the first run that found each bug, by the bug's name."""
    known: dict[str, str] = json.loads(_KNOWN.read_text(encoding="utf-8"))
    return {
        name: (kind, int(seed)) for name, (kind, seed) in ((n, r.split()) for n, r in known.items())
    }


def table(hunts: Sequence[Hunt]) -> str:
    """Return the results as a table, the longest hunts at the end."""
    order = sorted(hunts, key=lambda one: SEEDS_MAX if one.seed is None else one.seed)
    lines = [f"{'bug':50}  {'in':18}  {'seeds':>5}  {'kind':8}  found by"]
    for one in order:
        module = one.mutant.place.partition(":")[0]
        played = "-" if one.seed is None else str(one.seed + 1)
        lines.append(
            f"{one.mutant.name:50}  {module:18}  {played:>5}  {one.kind or '-':8}  "
            f"{one.checker or 'not found'}"
        )
    found = sum(one.seed is not None for one in hunts)
    lines.append(f"{found} of {len(hunts)} found")
    return "\n".join(lines)


def main(names: Sequence[str] = ()) -> None:
    """Hunt for bugs with all seeds, and record the run that found each."""
    hunts = []
    for mutant in (one for one in MUTANTS if not names or one.name in names):
        hunts.append(hunt(mutant, runs_of(range(SEEDS_MAX))))
        print(table(hunts[-1:]).splitlines()[1], flush=True)  # noqa: T201 - progress
    known = {name: f"{kind} {seed}" for name, (kind, seed) in known_runs().items() if names}
    for one in hunts:
        known.pop(one.mutant.name, None)
        if one.seed is not None:
            known[one.mutant.name] = f"{one.kind} {one.seed}"
    _KNOWN.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{table(hunts)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
