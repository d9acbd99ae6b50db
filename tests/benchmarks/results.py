"""The results file of the benchmarks: one key for each benchmark."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["RESULTS", "merge_results", "show_table", "write_between"]

RESULTS: Final = Path(__file__).resolve().parents[2] / "build" / "benchmarks.json"


def merge_results(found: Mapping[str, object], path: Path = RESULTS) -> None:
    """Write the results in `found` into the file; those of other benchmarks stay.

    Args:
        found: result by name of the benchmark.
        path: the file; it need not exist.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, **found}, indent=2, sort_keys=True) + "\n")


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two markers of a page.

    Args:
        page: the page.
        begin: the first marker.
        end: the second marker.
        text: the new text between them.

    Raises:
        ValueError: the page does not have both markers, in order.
    """
    content = page.read_text()
    before, first, rest = content.partition(begin)
    _, second, after = rest.partition(end)
    if not (first and second):
        raise ValueError(f"{page.name} has no markers {begin} and {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def show_table(name: str, table: Callable[[Any], str], page: Path, begin: str, end: str) -> None:
    """Run a command line: print the table of the last result, and write it into a page if told so.

    Args:
        name: name of the benchmark.
        table: turns its result into the rows of the table.
        page: the page.
        begin: the first marker of the table in the page.
        end: the second marker.
    """
    parser = argparse.ArgumentParser(description="Table of the last result.")
    parser.add_argument("--write", action="store_true", help=f"write it into {page.name}")
    arguments = parser.parse_args()
    drawn = table(json.loads(RESULTS.read_text())[name])
    print(drawn)
    if arguments.write:
        write_between(page, begin, end, drawn)
