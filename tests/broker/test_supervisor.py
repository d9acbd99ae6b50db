"""A supervised worker that is killed: its partitions do not wait for the end of its session."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, unique
from tests.support.waiting import WAIT_S_MAX

# Far longer than the tests wait: if the session had to end, they would fail.
SESSION_MS = 600_000
PATIENT: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": SESSION_MS, "max.poll.interval.ms": SESSION_MS},
    "consumer": {"group.protocol": "consumer"},  # 45 s
}
MOVED_S_MAX = 30.0
WORKER = """
import json, os, sys
from coopgroup import CooperativeConsumer
from coopgroup.processing import run
print(os.getpid(), flush=True)
run(CooperativeConsumer(json.loads(sys.argv[1])), [sys.argv[2]], lambda record: None)
"""


@contextmanager
def supervised(crew: Crew, topic: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a worker of the crew's group; yield its supervisor and its number."""
    configuration = (
        PATIENT[crew.protocol] | crew.cluster.client_config() | {"group.id": crew.group_id}
    )
    arguments = [sys.executable, "-c", WORKER, json.dumps(configuration), topic]
    with subprocess.Popen(
        [sys.executable, "-m", "coopgroup.supervisor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        try:
            yield supervisor, int(supervisor.stdout.readline())
        finally:
            supervisor.terminate()


@pytest.fixture(params=["classic", "consumer"])
def shared(
    kafka_cluster: KafkaCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Crew, str]]:
    """A member of this process that owns a topic of four partitions."""
    topic = unique("supervised")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path, protocol=request.param) as crew:
        crew.add("a", configuration=PATIENT[crew.protocol]).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first member works")
        yield crew, topic


def test_partitions_of_a_killed_worker_move_before_its_session_ends(
    shared: tuple[Crew, str],
) -> None:
    crew, topic = shared
    with supervised(crew, topic) as (supervisor, worker):
        crew.until(lambda: crew.counts() == [2], "the worker has its share")
        os.kill(worker, signal.SIGKILL)
        crew.until(lambda: crew.counts() == [4], "all partitions again", MOVED_S_MAX)
        _, errors = supervisor.communicate(timeout=WAIT_S_MAX)
        assert supervisor.returncode == 128 + signal.SIGKILL
        assert f"left group {crew.group_id} for " in errors


def test_worker_that_is_terminated_leaves_by_itself(shared: tuple[Crew, str]) -> None:
    crew, topic = shared
    with supervised(crew, topic) as (supervisor, _):
        crew.until(lambda: crew.counts() == [2], "the worker has its share")
        supervisor.terminate()
        crew.until(lambda: crew.counts() == [4], "all partitions again", MOVED_S_MAX)
        _, errors = supervisor.communicate(timeout=WAIT_S_MAX)
        assert (supervisor.returncode, errors) == (0, "")
