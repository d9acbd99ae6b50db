"""A supervised worker that is killed: its partitions do not wait for the end of its session."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.consumer_groups import ConsumerMember
from coopgroup.kafka.rpc.describing import GroupDescriber
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, polling, unique
from tests.support.waiting import WAIT_S_MAX, wait_for

# Far longer than the tests wait: if the session had to end, they would fail.
SESSION_MS = 600_000
PATIENT: dict[str, Any] = {"session.timeout.ms": SESSION_MS, "max.poll.interval.ms": SESSION_MS}
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
    with _supervised(
        PATIENT | crew.cluster.client_config() | {"group.id": crew.group_id}, topic
    ) as it:
        yield it


@contextmanager
def _supervised(
    configuration: dict[str, Any], topic: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
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


@pytest.fixture
def shared(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[tuple[Crew, str]]:
    """A member of this process that owns a topic of four partitions."""
    topic = unique("supervised")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration=PATIENT).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first member works")
        yield crew, topic


def test_partitions_of_a_killed_worker_move_before_its_session_ends(
    shared: tuple[Crew, str],
) -> None:
    crew, topic = shared
    with supervised(crew, topic) as (supervisor, worker):
        crew.until(lambda: crew.counts() == [2], "the worker has its share")
        os.kill(worker, signal.SIGKILL)
        crew.until(lambda: crew.counts() == [4], "the first member has all again")
        _, errors = supervisor.communicate(timeout=WAIT_S_MAX)
        assert supervisor.returncode == 128 + signal.SIGKILL
        assert f"left group {crew.group_id} for " in errors


def test_worker_that_is_terminated_leaves_by_itself(shared: tuple[Crew, str]) -> None:
    crew, topic = shared
    with supervised(crew, topic) as (supervisor, _):
        crew.until(lambda: crew.counts() == [2], "the worker has its share")
        supervisor.terminate()
        crew.until(lambda: crew.counts() == [4], "the first member has all again")
        _, errors = supervisor.communicate(timeout=WAIT_S_MAX)
        assert (supervisor.returncode, errors) == (0, "")


# --- group.protocol=consumer ------------------------------------------------------------------

# The default session, and the shortest one that brokers allow.
_SESSION_S = 45.0
# The supervisor starts no worker again that dies earlier.
_LIFE_S = 10.0


@pytest.mark.parametrize("seat", [None, pytest.param("seat", marks=pytest.mark.verify)])
def test_killed_worker_of_kip_848_does_not_wait_for_the_end_of_its_session(
    kafka_cluster: KafkaCluster, seat: str | None
) -> None:
    """A dynamic member has left. A static one keeps its partitions, and its next process has them.

    Without the release, the coordinator refuses the static id until the session has ended.
    """
    topic, group = unique("supervised"), unique("group")
    kafka_cluster.create_topic(topic, 4)
    connection = kafka_cluster.client_config()
    settings = {**connection, "group.id": group, "group.protocol": "consumer"}
    own = {} if seat is None else {"group.instance.id": seat}
    first = CooperativeConsumer(settings)
    with (
        first,
        closing(GroupDescriber(read_connection_settings(connection), group)) as describer,
    ):
        first.subscribe([topic])
        with polling(first):
            wait_for(lambda: len(first.assignment()) == 4, "the first member works")

            def worker_of() -> ConsumerMember | None:
                members = describer.describe_consumers(10_000)[1].members
                return next((one for one in members if one.member_id != first.memberid()), None)

            def has_share() -> bool:
                found = worker_of()
                return found is not None and len(found.owned) == 2 and found.epoch > 0

            began_s = time.monotonic()
            with _supervised(settings | own, topic) as (supervisor, worker):
                wait_for(has_share, "the worker has its share")
                former = worker_of()
                assert former is not None
                if seat is not None:
                    time.sleep(max(0.0, began_s + _LIFE_S + 1.0 - time.monotonic()))
                killed_s = time.monotonic()
                os.kill(worker, signal.SIGKILL)
                if seat is None:
                    wait_for(lambda: len(first.assignment()) == 4, "the first member has all")
                else:
                    wait_for(
                        lambda: (
                            (now := worker_of()) is not None
                            and now.member_id != former.member_id
                            and has_share()
                        ),
                        "the next worker has the same partitions",
                    )
                    now = worker_of()
                    assert now is not None
                    assert now.owned == former.owned
                assert time.monotonic() - killed_s < _SESSION_S / 2
                supervisor.terminate()
                _, errors = supervisor.communicate(timeout=WAIT_S_MAX)
                assert f"left group {group} for {former.member_id}" in errors
