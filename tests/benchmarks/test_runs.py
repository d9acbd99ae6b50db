"""Benchmarks with small groups: without this, an error in one waits for `make bench`."""

from __future__ import annotations

from coopgroup.testing import KafkaCluster
from tests.benchmarks import assignors, bell, leader
from tests.benchmarks.idle import _ask, _worker
from tests.benchmarks.start import MEMBERS, PROGRAMS, until_consumer, until_record


def test_assignors_are_measured_in_each_case() -> None:
    limits = assignors.run(partitions=600, members=6)["limits"]
    assert len(limits) == 1 + len(assignors.ASSIGNORS) * len(assignors.EVENTS)
    assert all(one["bytes"] > 0 for name, one in limits.items() if name != "argsort")


def test_idle_worker_measures_itself() -> None:
    with _worker("coopgroup", "127.0.0.1:1", "idle") as worker:
        row = _ask(worker, 0.5)
    assert row["partitions"] == 0
    assert 0 < row["cpu_percent"] < 200
    assert row["threads"] >= 4
    assert sum(row["wakes_by_thread"].values()) > 0


def test_each_listener_hears_each_ring() -> None:
    found = bell.run(listeners=(2,), rings=2, idle_s=0.1)["2"]
    assert 0 < found["half_ms"] <= found["last_ms"]
    assert found["broker_mib"] > 50


def test_leader_decides_every_round_and_the_table_shows_it() -> None:
    """A row for each round, a column for each step, times in ms."""
    found = leader.run(topics=3, partitions=7, members=4, rounds=1)
    steps = {name: sorted(found[name]["steps_s"]) for name in leader.ROUNDS_OF_GROUP}
    assert steps == dict.fromkeys(leader.ROUNDS_OF_GROUP, sorted(leader.STEPS))
    one = {"cpu_s": 1.5, "steps_s": {"decode": 0.25, "encode": 0.125}}
    drawn = leader.table({**dict.fromkeys(leader.ROUNDS_OF_GROUP, one), "peak_mib": 99})
    lines = drawn.splitlines()
    assert lines[0] == "| round | ms in all | decode | encode |"
    assert lines[2] == "| first | 1,500 | 250 | 125 |"
    assert len(lines) == 2 + len(leader.ROUNDS_OF_GROUP) + 2


def test_each_program_starts() -> None:
    found = until_consumer(runs=1)
    assert list(found) == list(PROGRAMS)
    assert found["numpy"]["cpu_to_numpy"] == 1.0
    assert found["coopgroup"]["cpu_ms"] > found["python"]["cpu_ms"]


def test_each_member_comes_back_to_its_records(kafka_cluster: KafkaCluster) -> None:
    found = until_record(kafka_cluster, returns=1)
    assert list(found) == list(MEMBERS)
    # Threads of two cores can use more CPU time than wall time: the two are not compared.
    assert all(row["cpu_ms"] > 0 and row["wall_ms"] > 0 for row in found.values())
