"""The results file of the benchmarks: one key for each benchmark; and tables in the docs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from docs.sections import write_section

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "build" / "benchmarks.json"


def merge_results(found: Mapping[str, object], path: Path = RESULTS) -> None:
    """Write results by name of the benchmark; those of other benchmarks stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, **found}, indent=2, sort_keys=True) + "\n")


def show_table(name: str, table: Callable[[Any], str], page: Path) -> None:
    """Run a command line: print the table of the last result, and write it into a page if told so.

    The markers in the page have the name of the benchmark.
    """
    parser = argparse.ArgumentParser(description="Table of the last result.")
    parser.add_argument("--write", action="store_true", help=f"write it into {page.name}")
    arguments = parser.parse_args()
    drawn = table(json.loads(RESULTS.read_text())[name])
    print(drawn)
    if arguments.write:
        write_section(page, name, drawn)
