"""Facts of a trial, from hand-written logs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from coopgroup.testing.trial.analysis import (
    IncarnationLog,
    TrialLog,
    Window,
    measure,
    merge,
)
from coopgroup.testing.trial.recording import ACKNOWLEDGED, HANDED_OUT, Event, Rows
from coopgroup.testing.trial.scenarios import measure_steps
from tests.support.facts import NOTHING

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


def paced(partition: int, times_ms: Iterable[float], *, first_offset: int = 0) -> Rows:
    """Return records at the given times, each handed out 1 ms after it was produced."""
    records = [(at, at - 1, first_offset + index, partition) for index, at in enumerate(times_ms)]
    return handed(*records)


def test_measure_when_nothing_happened_is_all_zero() -> None:
    assert measure(log_of(), ALWAYS) == NOTHING


def test_merge_when_processes_interleave_orders_by_partition_and_moment() -> None:
    log = log_of(
        ("m2", handed((30, 29, 1, 0), (20, 19, 5, 1))),
        ("m1", handed((10, 9, 0, 0))),
    )
    assert log.rows[["partition", "at_ns", "member", "incarnation"]].tolist() == [
        (0, 10 * MS, 0, 1),
        (0, 30 * MS, 1, 0),
        (1, 20 * MS, 1, 0),
    ]


def test_merge_when_records_wait_counts_from_production_or_the_record_before() -> None:
    log = log_of(("m1", handed((10, 9, 0, 0), (40, 12, 1, 0), (45, 13, 2, 0), (60, 0, 3, 0))))
    assert (log.rows["waiting_since_ns"] // MS).tolist() == [9, 12, 40, 45]


def test_measure_when_a_partition_stands_still_counts_pause_and_unavailability() -> None:
    """A stall of 300 ms is a pause of a retained partition, and 0.3 partition-seconds."""
    stalled = handed((10, 9, 0, 0), (320, 20, 1, 0), (321, 30, 2, 0))
    facts = measure(log_of(("m1", stalled)), Window(begin_ns=15 * MS, end_ns=400 * MS))
    assert (facts.retained, facts.retained_pause_ms_max) == (1, 300.0)
    assert facts.unavailable_partition_s == 0.3


def test_measure_when_a_stall_spans_the_window_counts_what_lies_within() -> None:
    """The part of a wait outside the window belongs to another window."""
    stalled = handed((10, 9, 0, 0), (1000, 20, 1, 0))
    facts = measure(log_of(("m1", stalled)), Window(begin_ns=200 * MS, end_ns=500 * MS))
    assert (facts.pause_ms_max, facts.unavailable_partition_s, facts.consumed) == (300.0, 0.3, 0)


def test_measure_when_a_partition_moves_does_not_retain_it() -> None:
    log = log_of(("m1", paced(0, [10, 20])), ("m2", paced(0, [500, 510], first_offset=2)))
    facts = measure(log, Window(begin_ns=15 * MS, end_ns=600 * MS))
    assert (facts.moved, facts.moved_twice, facts.retained) == (1, 0, 0)


def test_measure_when_a_partition_goes_and_returns_moved_twice() -> None:
    there_and_back = handed((10, 9, 0, 0, 1), (30, 29, 2, 0, 2), (40, 39, 3, 0, 2))
    log = log_of(("m1", there_and_back), ("m2", handed((20, 19, 1, 0))))
    facts = measure(log, ALWAYS)
    assert (facts.moved, facts.moved_twice, facts.double_owner_transitions) == (2, 1, 0)


def test_measure_when_a_stale_owner_goes_on_counts_the_overlap() -> None:
    log = log_of(
        ("m1", handed((10, 9, 0, 0), (122, 30, 1, 0))),
        ("m2", handed((100, 30, 1, 0), (150, 140, 2, 0))),
    )
    facts = measure(log, ALWAYS)
    assert (facts.double_owner_ms, facts.double_owner_transitions) == (22.0, 1)
    assert facts.duplicated == 1


def test_measure_when_one_record_falls_into_another_spell_counts_the_transition() -> None:
    log = log_of(("m1", paced(0, [10, 20, 30])), ("m2", handed((20, 19, 7, 0))))
    facts = measure(log, ALWAYS)
    assert (facts.double_owner_ms, facts.double_owner_transitions) == (0.0, 1)


def test_measure_when_records_come_again_counts_each_repetition() -> None:
    log = log_of(("m1", handed((10, 9, 0, 0), (20, 9, 0, 0), (30, 9, 0, 0))))
    facts = measure(log, ALWAYS)
    assert (facts.consumed, facts.duplicated) == (1, 2)


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
