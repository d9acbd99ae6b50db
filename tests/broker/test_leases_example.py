"""The example of leases on GPUs: machines that come, go, die and freeze, and too many jobs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from attrs import define

from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.describing import describe_group
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for
from tests.support.worker_logs import END_S, Crew, Task

pytestmark = pytest.mark.verify

GPUS: Final = {"m1": (2, "large"), "m2": (4, "small"), "m3": (2, "large"), "m4": (2, "small")}


def jobs(large: int, small: int) -> set[Task]:
    large_jobs = {(f"large-{number}", 0) for number in range(large)}
    return large_jobs | {(f"small-{number}", 0) for number in range(small)}


@define(eq=False)
class Machines(Crew):
    """A process for each machine."""

    bootstrap: str
    group_id: str

    def write(self, wanted: set[Task]) -> None:
        fresh = self.folder / "jobs.new"
        fresh.write_text(json.dumps({name: 1 for name, _ in wanted}))
        fresh.replace(self.folder / "jobs.json")

    def join(self, name: str) -> None:
        count, size = GPUS[name]
        self.start(name, f"--gpus={count}", f"--size={size}")

    def wait_for_members(self, count: int) -> None:
        """Wait until the coordinator knows all members, and their round has ended."""
        settings = read_connection_settings({"bootstrap.servers": self.bootstrap})

        def is_complete() -> bool:
            described = describe_group(settings, self.group_id)
            return described.state == "Stable" and len(described.members) == count

        wait_for(is_complete, f"{count} members", END_S)


@pytest.fixture
def crew(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Machines]:
    bootstrap = kafka_cluster.client_config()["bootstrap.servers"]
    group_id = unique("gpus")
    arguments = [
        f"--bootstrap={bootstrap}",
        f"--group={group_id}",
        f"--jobs={tmp_path / 'jobs.json'}",
    ]
    with Machines(tmp_path, "leases.py", arguments, bootstrap, group_id) as made:
        yield made
        made.check_single_workers()
        check_limits(made)


def check_limits(crew: Machines) -> None:
    """Fail if a machine ever ran more jobs than it has GPUs, or a large job on small ones."""
    changes = [*crew.rows("start"), *crew.rows("stop")]
    running: dict[str, set[Task]] = {name: set() for name in GPUS}
    for row in sorted(changes, key=lambda row: row["at_s"]):
        name, task = row["worker"], row["task"]
        count, size = GPUS[name]
        if row["event"] == "stop":
            running[name].discard(task)
            continue
        running[name].add(task)
        assert len(running[name]) <= count, f"{name} runs {running[name]}"
        assert size == "large" or not task[0].startswith("large")


def test_jobs_keep_within_the_gpus_and_wait_without_room(crew: Machines) -> None:
    """A running job never stops for another one, and none is left out while a GPU is free."""
    crew.write(jobs(3, 4))
    crew.join("m2")
    crew.settle(jobs(0, 4), "m2")  # it has no room for large jobs
    crew.join("m1")
    crew.join("m3")
    before = crew.settle(jobs(3, 4), "m1", "m2", "m3")
    since_s = time.monotonic()
    crew.write(jobs(7, 4))  # four more large jobs, and no large GPU is free
    crew.join("m4")
    crew.rest(lambda holders: len(holders) == 8, "the only free large GPU has a job")
    assert crew.stopped(since_s) == set()
    freed = next(task for task in sorted(before) if task[0].startswith("large"))
    crew.write(jobs(7, 4) - {freed})

    def is_passed_on(holders: dict[Task, str]) -> bool:
        return len(holders) == 8 and freed not in holders

    after = crew.rest(is_passed_on, "a job that waited has the GPU")
    assert before.items() - {(freed, before[freed])} <= after.items()
    assert crew.stopped(since_s) == {freed}


@pytest.mark.timeout(300)  # two sessions end by themselves
def test_machines_that_return_freeze_and_die_run_each_job_once(crew: Machines) -> None:
    """A restart moves nothing; what a dead machine ran goes where there is room."""
    wanted = jobs(2, 4)

    def is_shared_without(name: str, holders: dict[Task, str]) -> bool:
        return holders.keys() == wanted and name not in holders.values()

    crew.write(set())
    for name in GPUS:
        crew.join(name)
    # If a large machine came first, small jobs would fill it, and a large job could not move to it.
    crew.wait_for_members(len(GPUS))
    crew.write(wanted)
    before, since_s = crew.settle(wanted), time.monotonic()
    crew.end("m2")
    crew.join("m2")
    assert crew.settle(wanted) == before
    assert crew.stopped(since_s) == {task for task, name in before.items() if name == "m2"}
    victim = before[("large-0", 0)]
    crew.signal(victim, signal.SIGSTOP)
    crew.rest(partial(is_shared_without, victim), "it is lost")
    crew.signal(victim, signal.SIGCONT)
    crew.settle(wanted)
    crew.signal("m4", signal.SIGKILL)
    crew.rest(partial(is_shared_without, "m4"), "it is lost")
