"""The scenarios, and the facts of their steps."""

from __future__ import annotations

import numpy as np

from coopgroup.testing.trial.analysis import IncarnationLog, Window, merge
from coopgroup.testing.trial.recording import ACKNOWLEDGED, HANDED_OUT
from coopgroup.testing.trial.scenarios import measure_steps

MS = 1_000_000


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
