"""Processes of an example that share work, and what their own logs say about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from attrs import define, field

from tests.architecture.tree import ROOT
from tests.support.growing_file import GrowingFile
from tests.support.waiting import wait_for

END_S = 30.0
FRESH_S = 1.5
QUIET_S = 5.0  # longer than the pause between two moves of a policy
Task = tuple[str, int]
Row = dict[str, Any]


@define(eq=False)
class Crew:
    """Processes with a name each; the JSON lines of each process are a file in `folder`.

    Attributes:
        arguments: of all processes.
    """

    folder: Path
    example: str
    arguments: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(factory=dict, init=False)
    _rows: list[Row] = field(factory=list, init=False)
    _logs: list[GrowingFile] = field(factory=list, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(END_S)
            process.kill()
            process.wait()

    def start(self, name: str, *more: str) -> None:
        command = [sys.executable, str(ROOT / "examples" / self.example), f"--name={name}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        path = self.folder / f"{name}-{len(self._logs)}.jsonl"
        with path.open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, *self.arguments, *more], env=environment, stdout=log
            )
        self._logs.append(GrowingFile(path))

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)
        if number is signal.SIGKILL:
            self.processes[name].wait()

    def end(self, name: str) -> None:
        self.processes[name].terminate()
        assert self.processes[name].wait(END_S) == 0

    def read(self) -> None:
        """Read the new lines of all logs; the files first, because they grow while it parses."""
        for line in [line for log in self._logs for line in log.read_new()]:
            row = json.loads(line)
            self._rows.append({**row, "task": tuple(row["task"])})
        self._rows.sort(key=lambda row: row["at_s"])

    def rows(self, event: str) -> list[Row]:
        """Return the lines of an event so far, by time; `task` is a pair."""
        self.read()
        return self._of(event)

    def _of(self, event: str) -> list[Row]:
        return [row for row in self._rows if row["event"] == event]

    def holders(self) -> dict[Task, str]:
        """Return who worked last on each task, if that was a moment ago."""
        self.read()
        rows = self._of("work")
        newest_s = rows[-1]["at_s"] if rows else 0.0
        recent = [row for row in rows if row["at_s"] > newest_s - FRESH_S]
        ended = {(row["task"], row["worker"]): row["at_s"] for row in self._of("stop")}
        return {
            row["task"]: row["worker"]
            for row in recent
            if ended.get((row["task"], row["worker"]), 0.0) < row["at_s"]
        }

    def settle(self, wanted: set[Task], *names: str) -> dict[Task, str]:
        """Wait until exactly these tasks run, and nothing moves; return who works on each.

        Args:
            wanted: the tasks.
            names: those who work, each on some of them; any processes without names.
        """

        def is_shared(holders: dict[Task, str]) -> bool:
            return set(holders) == wanted and (not names or set(holders.values()) == set(names))

        return self.rest(is_shared, f"{', '.join(names) or 'some'} share {len(wanted)} tasks")

    def rest(self, condition: Callable[[dict[Task, str]], bool], what: str) -> dict[Task, str]:
        """Wait until a condition holds, and nothing moves; return who works on each task."""
        found: dict[Task, str] = {}

        def is_at_rest() -> bool:
            holders = self.holders()
            if not condition(holders):
                return False
            changes = [row["at_s"] for row in [*self._of("start"), *self._of("stop")]]
            if not changes:  # a process may tell of its work before its first start has returned
                return False
            newest_s = max(changes)
            found.clear()
            found.update(holders)
            return bool(self._of("work")[-1]["at_s"] > newest_s + QUIET_S)

        wait_for(is_at_rest, what, 90.0)
        return found

    def check_single_workers(self) -> None:
        """Fail if two processes worked on one task, or one process with an older token."""
        moments: dict[Task, list[Row]] = {}
        for row in self.rows("work"):
            if row["token"] is None:  # the lease ended between the questions, so it did not work
                continue
            moments.setdefault(row["task"], []).append(row)
        for rows in moments.values():
            for before, after in pairwise(rows):
                is_same = (before["token"], before["worker"]) == (after["token"], after["worker"])
                assert is_same or after["token"] > before["token"], (before, after)

    def stopped(self, since_s: float) -> set[Task]:
        """Return the tasks that were stopped since a time."""
        return {row["task"] for row in self.rows("stop") if row["at_s"] > since_s}
