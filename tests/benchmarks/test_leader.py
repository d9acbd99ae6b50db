"""The benchmark of the leader's round: its rounds, and its table."""

from __future__ import annotations

from tests.benchmarks.leader import ROUNDS_OF_GROUP, STEPS, run, table


def test_run_when_the_group_is_small_leads_every_round() -> None:
    """Each round is decided, and each step has a time."""
    found = run(topics=3, partitions=7, members=4, rounds=1)
    assert list(found) == [*ROUNDS_OF_GROUP, "peak_mib"]
    assert {tuple(sorted(found[name]["steps_s"])) for name in ROUNDS_OF_GROUP} == {
        tuple(sorted(STEPS))
    }


def test_table_when_drawn_has_a_row_a_round_and_a_column_a_step() -> None:
    """Times are in milliseconds; an absent step has time 0."""
    one = {"cpu_s": 1.5, "steps_s": {"decode": 0.25, "encode": 0.125}}
    drawn = table({**dict.fromkeys(ROUNDS_OF_GROUP, one), "peak_mib": 99}).splitlines()
    assert drawn[:3] == [
        "| round | ms in all | decode | encode |",
        "|---|---:|---:|---:|",
        "| first | 1,500 | 250 | 125 |",
    ]
    assert len(drawn) == 2 + len(ROUNDS_OF_GROUP) + 2
    assert drawn[-1].endswith(": 99 MiB.")
