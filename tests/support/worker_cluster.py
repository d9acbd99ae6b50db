"""A cluster of worker processes (`examples/workers.py`), and a history of their work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from attrs import define, field, frozen

from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

__all__ = ["HEAVY", "Moment", "WorkerCluster", "longest_gap_s", "two_at_once"]

ROOT: Final = Path(__file__).resolve().parents[2]
SESSION_MS: Final = 3_000
HEARTBEAT_MS: Final = 300
HEAVY: Final = "archive"
WAIT_S: Final = 60.0
_END_S: Final = 30.0
_LINE_BYTES_MAX: Final = 16_384
Resource = tuple[str, int]


@frozen
class Moment:
    """A moment of work on a resource.

    Attributes:
        at_s: its time, on the machine's monotonic clock.
        token: fencing token of the work.
    """

    at_s: float
    worker: str
    token: int


@define(eq=False)
class WorkerCluster:
    """Workers that share one list of connectors.

    Attributes:
        folder: for logs and the list.
        workers: processes by name, ended ones too.
    """

    kafka: KafkaCluster
    folder: Path
    policy: str
    group: str = field(factory=lambda: unique("workers"))
    workers: dict[str, subprocess.Popen[bytes]] = field(factory=dict, init=False)
    _version: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.workers.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.workers.values():
            try:
                process.wait(_END_S)
            finally:
                process.kill()
                process.wait()

    # --- what happens to it -----------------------------------------------------------------------

    def plan(self, **connectors: dict[str, int]) -> None:
        self._version += 1
        whole = {"version": self._version, "connectors": connectors}
        fresh = self.folder / "connectors.new"
        fresh.write_text(json.dumps(whole))
        fresh.replace(self.folder / "connectors.json")

    def start(self, *names: str) -> None:
        settings = {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "coopgroup.catalogue.refresh.ms": 250,
            "coopgroup.telemetry.file": self.folder / "telemetry.jsonl",
        }
        more = [f"--set={key}={value}" for key, value in settings.items()]
        for name in names:
            self.workers[name] = subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "examples" / "workers.py"),
                    str(self.folder / "connectors.json"),
                    f"--bootstrap={self.kafka.bootstrap_servers}",
                    f"--group={self.group}",
                    f"--name={name}",
                    f"--policy={self.policy}",
                    f"--log={self.folder / name}.log",
                    *more,
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.workers[name].send_signal(number)

    def end(self, name: str) -> None:
        self.workers[name].terminate()
        assert self.workers[name].wait(_END_S) == 0

    # --- what it does -----------------------------------------------------------------------------

    def lines(self) -> list[dict[str, Any]]:
        """Return everything that workers wrote, by time; whole lines only."""
        rows = [
            json.loads(line)
            for path in sorted(self.folder.glob("*.log"))
            for line in path.read_text().split("\n")[:-1]
        ]
        return sorted(rows, key=lambda row: float(row["at_s"]))

    def moments(self) -> dict[Resource, list[Moment]]:
        """Return the moments of work on each resource, by time."""
        found: dict[Resource, list[Moment]] = {}
        for row in self.lines():
            for name, index, token in row["works"]:
                moment = Moment(row["at_s"], row["worker"], token)
                found.setdefault((name, index), []).append(moment)
        return found

    def works(self) -> dict[str, set[Resource]]:
        """Return the resources in each worker's last report."""
        last = [_last_line(path) for path in sorted(self.folder.glob("*.log"))]
        return {
            row["worker"]: {(one[0], one[1]) for one in row["works"]}
            for row in last
            if row is not None
        }

    def settle(
        self, wanted: Iterable[Resource], *names: str, fair: Callable[[set[Resource]], bool] = bool
    ) -> None:
        """Wait until exactly these workers work on all wanted resources, each on a share."""
        expected = sorted(wanted)

        def is_settled() -> bool:
            works = self.works()
            shares = [works.get(name, set()) for name in names]
            together = sorted(resource for share in shares for resource in share)
            return together == expected and all(map(fair, shares))

        wait_for(is_settled, f"{', '.join(names)} share the work", WAIT_S)

    def pause(self, duration_s: float) -> None:
        time.sleep(duration_s)


def _last_line(path: Path) -> dict[str, Any] | None:
    """Return the last whole line of a log, or None. Only the end is read: logs are long."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LINE_BYTES_MAX))
        whole = log.read().split(b"\n")[-2:-1]
    row: dict[str, Any] | None = json.loads(whole[0]) if whole else None
    return row


def longest_gap_s(moments: list[Moment], begin_s: float, end_s: float) -> float:
    """Return the longest time in a window in which no worker worked on a resource."""
    inside = [one.at_s for one in moments if begin_s <= one.at_s <= end_s]
    return max(after - before for before, after in pairwise([begin_s, *inside, end_s]))


def two_at_once(moments: list[Moment]) -> list[tuple[Moment, Moment]]:
    """Return pairs of moments in which a worker used an older token, or another worker's token."""
    return [
        (before, after)
        for before, after in pairwise(moments)
        if after.token < before.token
        or (after.token == before.token and after.worker != before.worker)
    ]
