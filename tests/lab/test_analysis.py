"""Facts of a trial, from hand-written logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.lab.analysis import (
    IncarnationLog,
    TrialLog,
    Window,
    measure,
    merge,
)
from tests.lab.recording import ACKNOWLEDGED, HANDED_OUT, Event, Rows
from tests.lab.scenarios import measure_steps

MS = 1_000_000
ALWAYS = Window(begin_ns=1, end_ns=10_000 * MS)


def handed(*records: tuple[float, float, int, int] | tuple[float, float, int, int, int]) -> Rows:
    """Return records given as (handed out at ms, produced at ms, offset, partition[, spell])."""
    rows = [
        (round(record[0] * MS), round(record[1] * MS), *record[2:4], *(record[4:] or (1,)))
        for record in records
    ]
    return np.array(rows, HANDED_OUT)


def acknowledged(*records: tuple[float, int, int]) -> Rows:
    """Return records given as (produced at ms, offset, partition)."""
    rows = [(round(at * MS), round(at * MS), offset, part, 0) for at, offset, part in records]
    return np.array(rows, ACKNOWLEDGED)


def log_of(*members: tuple[str, Rows], acked: Rows | None = None) -> TrialLog:
    """Return the log of a group whose processes handed out these records."""
    incarnations = [IncarnationLog(member=name, rows=rows) for name, rows in members]
    return merge(incarnations, acknowledged() if acked is None else acked)


@pytest.mark.parametrize(
    ("members", "window_ms", "expected"),
    [
        pytest.param(
            {"m1": [(10, 9, 0, 0), (320, 20, 1, 0), (321, 30, 2, 0)]},
            (15, 400),
            {"retained": 1, "retained_pause_ms_max": 300.0, "unavailable_partition_s": 0.3},
            id="stands still: a pause of a retained partition",
        ),
        pytest.param(
            {
                "m1": [(10, 9, 0, 0), (20, 19, 1, 0)],
                "m2": [(500, 499, 2, 0), (510, 509, 3, 0)],
            },
            (15, 600),
            {"moved": 1, "moved_twice": 0, "retained": 0},
            id="moves",
        ),
        pytest.param(
            {
                "m1": [(10, 9, 0, 0, 1), (30, 29, 2, 0, 2), (40, 39, 3, 0, 2)],
                "m2": [(20, 19, 1, 0)],
            },
            (0, 10_000),
            {"moved": 2, "moved_twice": 1, "double_owner_transitions": 0},
            id="goes and returns",
        ),
        pytest.param(
            {
                "m1": [(10, 9, 0, 0), (122, 30, 1, 0)],
                "m2": [(100, 30, 1, 0), (150, 140, 2, 0)],
            },
            (0, 10_000),
            {"double_owner_ms": 22.0, "double_owner_transitions": 1, "duplicated": 1},
            id="a stale owner goes on",
        ),
        pytest.param(
            {"m1": [(10, 9, 0, 0), (20, 9, 0, 0), (30, 9, 0, 0)]},
            (0, 10_000),
            {"consumed": 1, "duplicated": 2},
            id="records come again",
        ),
    ],
)
def test_facts_of_a_partition(
    members: dict[str, list[Any]], window_ms: tuple[int, int], expected: dict[str, float]
) -> None:
    begin_ms, end_ms = window_ms
    log = log_of(*((name, handed(*records)) for name, records in members.items()))
    facts = measure(log, Window(begin_ns=begin_ms * MS + 1, end_ns=end_ms * MS))
    assert {name: getattr(facts, name) for name in expected} == expected


def test_measure_when_a_record_is_skipped_is_lost_but_available() -> None:
    log = log_of(
        ("m1", handed((10, 9, 0, 0), (20, 19, 2, 0))),
        acked=acknowledged((9, 0, 0), (15, 1, 0), (19, 2, 0)),
    )
    facts = measure(log, ALWAYS)
    assert (facts.lost, facts.unavailable_partition_s) == (1, 0.0)


@pytest.mark.parametrize("produced", [(30, 40), (5, 40)])
def test_measure_when_a_partition_never_resumes_is_unavailable_to_the_end(
    produced: tuple[int, int],
) -> None:
    log = log_of(
        ("m1", handed((30, 9, 0, 0))),
        acked=acknowledged((9, 0, 0), (produced[0], 1, 0), (produced[1], 2, 0)),
    )
    facts = measure(log, Window(begin_ns=1, end_ns=1030 * MS))
    assert (facts.lost, facts.unavailable_partition_s) == (2, 1.0)


def test_measure_when_a_partition_never_began_is_unavailable_since_production() -> None:
    log = log_of(acked=acknowledged((30, 0, 5)))
    facts = measure(log, Window(begin_ns=1, end_ns=530 * MS))
    assert (facts.lost, facts.unavailable_partition_s, facts.retained) == (1, 0.5, 0)


def test_measure_when_commits_fail_counts_those_in_the_window() -> None:
    events = [
        Event(at_ns=5 * MS, name="commit_failed", fields={"took_ms": 900.0}),
        Event(at_ns=20 * MS, name="committed", fields={"took_ms": 3.5}),
        Event(at_ns=30 * MS, name="commit_failed", fields={"took_ms": 70.0}),
        Event(at_ns=31 * MS, name="revoked", fields={"partitions": [1]}),
    ]
    log = merge([IncarnationLog(member="m1", rows=handed(), events=events)], acknowledged())
    facts = measure(log, Window(begin_ns=10 * MS, end_ns=40 * MS))
    assert (facts.commits, facts.failed_commits, facts.commit_ms_max) == (1, 1, 70.0)


# --- the scenarios, and the facts of their steps --------------------------------------------------


def test_measure_steps_when_each_moves_another_partition_retains_by_step() -> None:
    def paced(partition: int, first_ms: int, last_ms: int, wait_ms: int) -> list[tuple[int, ...]]:
        return [
            (at * MS, (at - wait_ms) * MS, at, partition, 1) for at in range(first_ms, last_ms, 100)
        ]

    logs = [
        IncarnationLog(member="m1", rows=np.array(paced(0, 100, 1000, 3), HANDED_OUT)),
        IncarnationLog(member="m2", rows=np.array(paced(1, 100, 500, 2), HANDED_OUT)),
        IncarnationLog(member="m3", rows=np.array(paced(1, 500, 1500, 7), HANDED_OUT)),
        IncarnationLog(member="m4", rows=np.array(paced(0, 1000, 1500, 5), HANDED_OUT)),
    ]
    log = merge(logs, np.empty(0, ACKNOWLEDGED))
    steps = [
        Window(begin_ns=450 * MS, end_ns=950 * MS),
        Window(begin_ns=950 * MS, end_ns=1500 * MS),
    ]
    facts = measure_steps(log, steps)
    assert (facts.moved, facts.retained, facts.retained_pause_ms_max) == (2, 1, 7.0)
