"""No unit test waits for real time, and only `coopgroup.worker` starts threads freely."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.architecture.tree import name_in_tree, python_files

WAITS: Final = re.compile(r"sleep\(|wait_for\(|until\(")
STARTS: Final = re.compile(r"threading\.(Thread|Timer)\(|ThreadPoolExecutor\(|start_new_thread\(")

_ANSWER: Final = "its caller waits for the answer or the exception, which a future carries"
OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "src/coopgroup/pipeline/episodes/job.py": _ANSWER,
        "src/coopgroup/pipeline/sweep/run.py": _ANSWER,
        "src/coopgroup/supervisor.py": "it must stay tiny, and keeps its one thread to the end",
    }
)
"""Files that start threads of the standard library, and why."""


def _matches(pattern: re.Pattern[str], folder: str) -> dict[str, list[str]]:
    """Return the matching lines by the name of their file."""
    found: dict[str, list[str]] = {}
    for path in python_files(folder):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if pattern.search(line):
                found.setdefault(name_in_tree(path), []).append(f"{number}: {line.strip()}")
    return found


def test_unit_tests_wait_for_nothing() -> None:
    """Turn hosts by hand (tests/support/by_hand.py), or wait for an event of the test's own."""
    assert _matches(WAITS, "tests/unit") == {}


def test_only_the_worker_starts_threads() -> None:
    """A `coopgroup.worker.Worker` is bounded, survives a fork, and can be turned by hand."""
    found = _matches(STARTS, "src/coopgroup")
    assert {name: lines for name, lines in found.items() if name not in OTHERS} == {
        "src/coopgroup/worker.py": found["src/coopgroup/worker.py"]
    }


def test_exceptions_are_needed() -> None:
    assert [name for name in OTHERS if name not in _matches(STARTS, "src/coopgroup")] == []
