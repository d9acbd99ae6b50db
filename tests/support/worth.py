"""What the swarm is worth: which deliberate bugs it finds, by which checker, after how many seeds.

    python -m tests.support.worth

plays up to 500 seeds for each bug, prints the table, and writes down which seed found which bug
first. The tests begin with those seeds, so that they need not play the hundreds before them.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from coopgroup.simulator.swarm import draw
from coopgroup.simulator.swarm_play import play
from tests.support.mutants import MUTANTS, Mutant, broken

__all__ = ["SEEDS_MAX", "Hunt", "hunt", "known_seeds", "table"]

SEEDS_MAX: Final = 500
_KNOWN: Final = Path(__file__).with_name("worth.json")


@frozen
class Hunt:
    """How a bug fared.

    Attributes:
        mutant: the bug.
        seed: that found it, None where none did.
        checker: which objected first.
    """

    mutant: Mutant
    seed: int | None
    checker: str


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Hunt:
    """Play seeds until one finds the bug.

    Args:
        mutant: to be found.
        seeds: to be played, at most.
    """
    with broken(mutant):
        for seed in seeds:
            try:
                violations = play(draw(seed)).violations
            except Exception as error:  # noqa: BLE001 - an assertion of the core finds bugs, too
                return Hunt(mutant, seed, f"raised {type(error).__name__}")
            if violations:
                return Hunt(mutant, seed, violations[0].checker)
    return Hunt(mutant, None, "")


def known_seeds() -> dict[str, int]:
    """The first seed that found each bug, by the bug's name, when that was last looked for."""
    known: dict[str, int] = json.loads(_KNOWN.read_text(encoding="utf-8"))
    return known


def table(hunts: Sequence[Hunt]) -> str:
    """The hunts for people, those that took longest at the end."""
    order = sorted(hunts, key=lambda one: SEEDS_MAX if one.seed is None else one.seed)
    lines = [f"{'bug':50}  {'in':18}  {'seeds':>5}  found by"]
    for one in order:
        module = one.mutant.place.partition(":")[0]
        played = "-" if one.seed is None else str(one.seed + 1)
        lines.append(
            f"{one.mutant.name:50}  {module:18}  {played:>5}  {one.checker or 'not found'}"
        )
    found = sum(one.seed is not None for one in hunts)
    lines.append(f"{found} of {len(hunts)} found")
    return "\n".join(lines)


def main() -> None:
    """Hunt for every bug with all seeds, and write down which found it."""
    hunts = []
    for mutant in MUTANTS:
        hunts.append(hunt(mutant, range(SEEDS_MAX)))
        print(table(hunts[-1:]).splitlines()[1], flush=True)  # noqa: T201 - progress
    known = {one.mutant.name: one.seed for one in hunts if one.seed is not None}
    _KNOWN.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{table(hunts)}\n")


if __name__ == "__main__":
    main()
