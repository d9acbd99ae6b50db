"""A thread that holds the GIL for longer than a session."""

import ctypes
from pathlib import Path

import pytest

from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

SHORT = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}


def test_member_comes_back_after_a_c_call_that_held_the_gil(
    kafka_cluster: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A known limit: no heartbeat is sent meanwhile. The log says why the membership was lost."""
    topic = unique("gil")
    kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration=SHORT).subscribe([topic])
        crew.until(lambda: crew.counts() == [2], "it works")
        ctypes.PyDLL(None).usleep(3_000_000)
        crew.until(lambda: crew.telemetry("a", MembershipLost) != [], "the loss")
        crew.until(lambda: crew.counts() == [2], "it works again")
        produce(kafka_cluster, topic, [1, 1])
        crew.until(lambda: len(crew.messages["a"]) == 2, "its records")
    said = [one.getMessage() for one in caplog.records if "group_thread_late" in one.getMessage()]
    assert any("may have dropped" in one for one in said)  # a busy machine may add a shorter one
