"""The simulator: a large deployment rolled out, and many small groups with faults.

Goals: simulations/thousand_members.toml (1,000 members, 10,000 partitions) in less than 10 s of CPU
time and 1 GiB; 50 runs of the swarm per second on one core. CPU time counts instead of wall time,
so other work on the machine matters less.
"""

from __future__ import annotations

import resource
import statistics
import time
from pathlib import Path
from typing import Any, Final

from coopgroup.simulator import read_scenario, simulate
from tests.swarm.play import play
from tests.swarm.runs import draw

SCENARIO: Final = Path(__file__).resolve().parents[2] / "simulations" / "thousand_members.toml"
SEEDS: Final = 100
ROUNDS: Final = 3

_KIB_PER_MIB: Final = 1_024


def run(*, scenario: Path = SCENARIO, seeds: int = SEEDS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure both.

    Returns:
        `large`: CPU seconds, peak memory of the process so far in MiB, records written, and rules
        broken. `swarm`: runs per second of CPU time, and rules broken.
    """
    # The swarm comes last: the peak of memory is that of the large run.
    found = {"large": _large(scenario), "swarm": _swarm(seeds, rounds)}
    for name, values in found.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    return found


def _large(path: Path) -> dict[str, Any]:
    scenario = read_scenario(path)
    since_s = time.process_time()
    played = simulate(scenario, seed=0)
    cpu_s = time.process_time() - since_s
    return {
        "cpu_s": round(cpu_s, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // _KIB_PER_MIB,
        "records": len(played.telemetry),
        "violations": len(played.violations),
    }


def _swarm(seeds: int, rounds: int) -> dict[str, Any]:
    speeds, violations = [], 0
    for _ in range(rounds):
        since_s = time.process_time()
        violations = sum(len(play(draw(seed)).violations) for seed in range(seeds))
        speeds.append(seeds / (time.process_time() - since_s))
    return {"runs_per_cpu_s": round(statistics.median(speeds), 1), "violations": violations}
