"""The results file of the benchmarks: one key for each benchmark; and tables in the docs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "build" / "benchmarks.json"
DOCS: Final = ROOT / "docs"


def merge_results(found: Mapping[str, object], path: Path = RESULTS) -> None:
    """Write results by name of the benchmark; those of other benchmarks stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, **found}, indent=2, sort_keys=True) + "\n")


def write_between(page: Path, name: str, text: str) -> None:
    """Replace the text of a page between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.

    Raises:
        ValueError: the page does not have both markers, in order.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    content = page.read_text()
    before, first, rest = content.partition(begin)
    _, second, after = rest.partition(end)
    if not (first and second):
        raise ValueError(f"{page.name} has no markers {begin} and {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


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
        write_between(page, name, drawn)
