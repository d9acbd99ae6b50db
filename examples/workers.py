"""A worker of a small cluster that runs connectors and their tasks, like one of Kafka Connect.

    python examples/workers.py --bootstrap localhost:9092 --name w1 connectors.json

Start as many as you like, each with a name of its own, and change the file while they run: every
worker reads it, and the one that leads decides who runs what. The file lists connectors:

    {"version": 1,
     "connectors": {"orders":  {"tasks": 4, "weight": 1,  "flush_ms": 20},
                    "archive": {"tasks": 2, "weight": 10, "flush_ms": 3000}}}

Raise the version with each change, and replace the file as a whole (write another one, rename it).
A task does nothing but look at the clock; `flush_ms` is how long it takes to stop. Tell a worker to
end with SIGTERM, and that it does not come back with SIGUSR1 before.

With `--log FILE` a worker writes what it works on, many times a second, as lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from coopgroup import (
    Catalogue,
    CooperativeGroup,
    DeferredPolicy,
    IncrementalPolicy,
    Policy,
    Resource,
    SimplePolicy,
    WorkFailure,
)
from coopgroup.policies import EagerPolicy

STEP_S = 0.02
POLICIES: dict[str, Policy] = {
    "simple": SimplePolicy(),
    "deferred": DeferredPolicy(scheduled_rebalance_timeout_ms=3_000),
    "incremental": IncrementalPolicy(
        scheduled_rebalance_timeout_ms=3_000, max_moves_per_round=2, move_interval_ms=250
    ),
    # For comparison only: it stops everything for each round, as groups used to.
    "eager": EagerPolicy(),
}


class Worker:
    """One process: what it runs, and the callbacks of its group.

    Args:
        name: of the process.
        plan: the file that lists connectors.
    """

    def __init__(self, name: str, plan: Path) -> None:
        """Run nothing yet."""
        self.name = name
        self._plan = plan
        self._running: dict[Resource, bool] = {}

    def catalogue(self) -> Catalogue:
        """What there is to run: each connector, and each of its tasks."""
        plan = self._read()
        tasks = {
            name: [one.get("weight", 1)] * one["tasks"] for name, one in plan["connectors"].items()
        }
        return Catalogue.of_connectors(tasks, version=plan["version"])

    def start(self, resource: Resource) -> None:
        """Begin a connector or a task; it runs when this returns."""
        self._running[resource] = True

    def stop(self, resource: Resource) -> None:
        """Flush and end it; another worker may begin it when this returns."""
        self._running[resource] = False
        time.sleep(self._flush_s(resource))
        self._running.pop(resource, None)

    def lost(self, resource: Resource) -> None:
        """End it without a word: another worker may have begun it already."""
        self._running.pop(resource, None)

    def works_on(self, group: CooperativeGroup) -> list[list[object]]:
        """What it does at this moment: it asks before it touches anything."""
        return [
            [resource.name, resource.index, group.token(resource)]
            for resource, works in tuple(self._running.items())
            if works and group.holds(resource)
        ]

    def _flush_s(self, resource: Resource) -> float:
        """How long a task takes to stop; a connector itself, and one that is gone, none."""
        connector: dict[str, Any] = self._read()["connectors"].get(resource.name, {})
        return float(connector.get("flush_ms", 0)) / 1000 if resource.index >= 0 else 0.0

    def _read(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self._plan.read_text())
        return read


def report(failure: WorkFailure) -> None:
    """Say what went wrong; the group tries again."""
    print(f"{failure.action} {failure.resource}: {failure.error!r}", file=sys.stderr)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="runs connectors and tasks of a shared list")
    parser.add_argument("plan", type=Path, help="JSON file that lists connectors")
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of a broker")
    parser.add_argument("--group", default="workers", help="name of the group")
    parser.add_argument("--name", required=True, help="name of this worker")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="incremental")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="more")
    parser.add_argument("--log", type=Path, help="where to write what it works on")
    return parser.parse_args()


def main() -> None:
    """Run until told to end."""
    given = arguments()
    worker = Worker(given.name, given.plan)
    ends, hands_over = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    signal.signal(signal.SIGINT, lambda *_: ends.set())
    signal.signal(signal.SIGUSR1, lambda *_: hands_over.set())
    group = CooperativeGroup(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "client.id": given.name,
            **dict(one.split("=", 1) for one in given.more),
        },
        catalogue=worker.catalogue,
        start=worker.start,
        stop=worker.stop,
        lost=worker.lost,
        on_error=report,
        policy=POLICIES[given.policy],
    )
    with group, (given.log or Path("/dev/null")).open("a", buffering=1) as log:
        while not ends.wait(STEP_S):
            at_s = time.monotonic()  # before it asks what it may do
            works = worker.works_on(group)
            log.write(json.dumps({"at_s": at_s, "worker": given.name, "works": works}) + "\n")
            if hands_over.is_set():
                hands_over.clear()
                threading.Thread(target=group.hand_over, daemon=True).start()


if __name__ == "__main__":
    main()
