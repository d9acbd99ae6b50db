"""All benchmarks, or some: `python -m tests.benchmarks.run [NAME…]`; `make bench` runs all.

A benchmark is a module in this folder with a function `run() -> dict`. Its result goes into
build/benchmarks.json under the module's name immediately, so an interrupted run keeps its results.
Each benchmark has its own process, so the memory of one does not slow the next.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from typing import Final

from tests.benchmarks.results import merge_results

BENCHMARKS: Final = (
    "start",
    "idle",
    "bell",
    "simulator",
    "leader",
    "assignors",
    "pipeline",
    "increments",
    "throughput",
    "aio",
    "faststream",
    "moves",
    "stateful",
    "headline",
)
"""In the order in which they run: the quick ones first."""


def main() -> int:
    """Run the benchmarks that the command line names; return 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--here", action="store_true", help="in this process, one after the other")
    arguments = parser.parse_args()
    names = tuple(arguments.names) or BENCHMARKS
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if arguments.here:
        for name in names:
            benchmark = importlib.import_module(f"tests.benchmarks.{name}")
            merge_results({name: benchmark.run()})
        return 0
    failed = [name for name in names if _run_apart(name) != 0]
    print("results: build/benchmarks.json")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run_apart(name: str) -> int:
    print(f"--- {name}", flush=True)
    command = [sys.executable, "-m", "tests.benchmarks.run", "--here", name]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
