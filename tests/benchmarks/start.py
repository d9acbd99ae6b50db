"""How long a process takes until it has a consumer: imports and construction.

The measure is a ratio to `import numpy`, so it means the same on every machine. Each program runs
in a process of its own, in turn, and its fastest run counts. CPU time is less disturbed by other
processes than wall-clock time; both are reported.

Goal: import and construction take at most 0.25 s, and 2.5 times as long as `import numpy`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["PROGRAMS", "run"]

RUNS: Final = 20
_CONFIGURATION: Final = "{'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g', 'log_level': 0}"
# A process that ends with `_exit` does not wait for threads: only the start is measured.
_END: Final = "import os; os._exit(0)"
PROGRAMS: Final = {
    "python": _END,
    "numpy": f"import numpy; {_END}",
    "confluent_kafka": f"import confluent_kafka as c; c.Consumer({_CONFIGURATION}); {_END}",
    "coopgroup_import": f"from coopgroup import CooperativeConsumer; {_END}",
    "coopgroup": f"import coopgroup as c; c.CooperativeConsumer({_CONFIGURATION}); {_END}",
    "help": "import sys; sys.argv = ['coopgroup', '--help']\n"
    "from coopgroup.cli.app import main; main()",
}


def run(*, runs: int = RUNS) -> dict[str, Any]:
    """Start each program several times.

    Args:
        runs: how often each program starts.

    Returns:
        By program: the least CPU time and wall-clock time in ms, and both as multiples of those of
        `import numpy`, the start of Python excluded.
    """
    found = {name: _start(program) for name, program in PROGRAMS.items()}
    for _ in range(runs - 1):
        for name, program in PROGRAMS.items():
            found[name] = tuple(map(min, found[name], _start(program)))
    return {name: _row(found, name) for name in PROGRAMS}


def _start(program: str) -> tuple[float, ...]:
    """Return the CPU time and the wall-clock time of a process, in ms."""
    began = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=nowhere, stderr=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, program
    wall_s = time.perf_counter() - began
    return 1_000 * (usage.ru_utime + usage.ru_stime), 1_000 * wall_s


def _row(found: dict[str, tuple[float, ...]], name: str) -> dict[str, float]:
    row = {"cpu_ms": round(found[name][0], 1), "wall_ms": round(found[name][1], 1)}
    if name == "python":
        return row
    for place, kind in enumerate(("cpu", "wall")):
        ours, numpy, python = (found[one][place] for one in (name, "numpy", "python"))
        row[f"{kind}_to_numpy"] = round((ours - python) / (numpy - python), 2)
    return row
