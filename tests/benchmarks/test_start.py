"""The benchmark of starts: each program starts, and each member finds its first record."""

from __future__ import annotations

from coopgroup.testing import KafkaCluster
from tests.benchmarks.start import MEMBERS, PROGRAMS, until_consumer, until_record


def test_each_program_starts() -> None:
    found = until_consumer(runs=1)
    assert list(found) == list(PROGRAMS)
    assert found["numpy"]["cpu_to_numpy"] == 1.0
    assert found["coopgroup"]["wall_ms"] > found["python"]["wall_ms"]


def test_each_member_comes_back_to_its_records(kafka_cluster: KafkaCluster) -> None:
    found = until_record(kafka_cluster, returns=1)
    assert list(found) == list(MEMBERS)
    # Threads of two cores can use more CPU time than wall time: the two are not compared.
    assert all(row["cpu_ms"] > 0 and row["wall_ms"] > 0 for row in found.values())
