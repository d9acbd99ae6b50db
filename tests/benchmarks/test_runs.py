"""Benchmarks with small groups: without this, an error in one waits for `make bench`."""

from __future__ import annotations

import numpy as np
import pytest

from coopgroup.testing import KafkaCluster
from tests.benchmarks import bell, leader
from tests.benchmarks.assignors import calls, misplaced
from tests.benchmarks.drawn_groups import CASES, draw
from tests.benchmarks.idle import _ask, _worker
from tests.benchmarks.start import MEMBERS, PROGRAMS, until_consumer, until_record


@pytest.mark.parametrize("name", ["sticky", "lag-aware", "range"])
@pytest.mark.parametrize("case", CASES)
def test_assignors_give_everything_to_subscribers(case: str, name: str) -> None:
    """Owners are those of the snapshot: a sticky assignor keeps them."""
    group = draw(CASES[case], 600)
    for call in calls(group, name):
        holder = call()
        assert misplaced(group, holder) == 0
        if name == "sticky" and case in ("join", "leave", "bounce"):
            owned = group.owner >= 0
            kept = np.count_nonzero(holder[owned] == group.owner[owned])
            assert kept >= (1 - 1 / len(group.members)) * np.count_nonzero(owned) - 1
        holder[0] = -1
        assert misplaced(group, holder) == 1


def test_bounce_with_a_bell_needs_more_requests_and_less_time() -> None:
    found = bell.run(counts=(10,))["10"]
    assert found["without"]["violations"] == found["with"]["violations"] == 0
    assert found["without"]["requests"] < found["with"]["requests"]
    assert found["with"]["unavailable_s"] < found["without"]["unavailable_s"] / 10


def test_idle_worker_measures_itself() -> None:
    with _worker("coopgroup", "127.0.0.1:1", "idle") as worker:
        row = _ask(worker, 0.5)
    assert row["partitions"] == 0
    assert 0 < row["cpu_percent"] < 200
    assert row["threads"] >= 4
    assert sum(row["wakes_by_thread"].values()) > 0


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
