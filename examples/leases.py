"""Leases on GPUs: a machine has some GPUs of one size, and runs one job on each.

    python examples/leases.py --name m1 --gpus 4 --size large --jobs jobs.json …

The file lists jobs with weights: {"small-1": 1, "large-7": 3}. A job without room waits.
"""

import argparse
import json
import signal
import threading
import time
from pathlib import Path

from coopgroup import CooperativeGroup, DeferredPolicy, Resource
from coopgroup.assignors import GroupMember, PlacementAssignor, ResourceToPlace

parser = argparse.ArgumentParser(description=__doc__)
for key in ("bootstrap", "group", "name", "gpus", "size", "jobs"):
    parser.add_argument(f"--{key}", required=True)
given = parser.parse_args()


class Gpus(PlacementAssignor):
    """One job on each GPU; a running job stays where it is. Large jobs choose large GPUs."""

    name, evens_out = "gpus", False

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:  # noqa: D102
        return member.traits.get("size") == "large" or not resource.name.startswith("large")

    def places(self, member: GroupMember) -> int:  # noqa: D102
        return int(member.traits.get("gpus", 0))

    def score(self, member: GroupMember, resource: ResourceToPlace) -> float:  # noqa: D102
        return float(resource.name.startswith(member.traits.get("size", "small")))


def say(event: str, job: Resource, at_s: float, token: int | None = None) -> None:
    """Write a line in one piece: callbacks run side by side."""
    row = {"event": event, "task": job, "at_s": at_s, "worker": given.name, "token": token}
    print(json.dumps(row) + "\n", end="", flush=True)


jobs, closing = Path(given.jobs), threading.Event()
group = CooperativeGroup(
    {"bootstrap.servers": given.bootstrap, "group.id": given.group, "client.id": given.name},
    catalogue=lambda: {(job, 0): one for job, one in json.loads(jobs.read_text()).items()},
    start=lambda job: say("start", job, time.monotonic()),
    stop=lambda job: say("stop", job, time.monotonic()),
    member={"gpus": int(given.gpus), "size": given.size},
    policy=DeferredPolicy(scheduled_rebalance_timeout_ms=10_000),
    assignor=Gpus(),
)
signal.signal(signal.SIGTERM, lambda *_: closing.set())
with group:
    while not closing.wait(0.02):
        at_s = time.monotonic()  # before it asks: after a freeze the answer may be old
        for job in group.held():
            say("work", job, at_s, group.token(job))
