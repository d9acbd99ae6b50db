"""The demonstration, without a broker; the broker tests run it with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve, fields
from click.testing import CliRunner

from coopgroup.cli import demo
from coopgroup.cli.demo_facts import Facts, Rows, facts_of
from coopgroup.cli.demo_member import ASSIGNED, ROW

MS = 1_000_000
FACTS = Facts(
    consumed=42_000,
    lost=0,
    duplicated=3,
    moved=12,
    retained_pause_ms_max=12.5,
    double_owner_ms=0.0,
    unavailable_partition_s=1.5,
    unavailable_by_step_s=(0.5, 0.0, 1.0),
)


def run(monkeypatch: pytest.MonkeyPatch, ours: Facts, *options: str) -> tuple[int, str, str]:
    others = evolve(FACTS, lost=7, double_owner_ms=2.0)
    found = {kind: ours if kind.startswith(demo.OURS) else others for kind in demo.KINDS}
    monkeypatch.setattr(demo, "demonstrate", lambda _console: found)
    answer = CliRunner().invoke(demo.command, options, standalone_mode=False)
    return answer.return_value, answer.stdout, answer.stderr


def test_demo_when_json_prints_a_line_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys, and their order, are part of the interface."""
    status, output, errors = run(monkeypatch, FACTS, "--json")
    assert (status, errors, len(output.splitlines())) == (0, "", 4)
    assert output.splitlines()[-1] == (
        '{"kind": "eager", "consumed": 42000, "lost": 7, "duplicated": 3, "moved": 12, '
        '"retained_pause_ms_max": 12.5, "double_owner_ms": 2.0, "unavailable_partition_s": 1.5, '
        '"unavailable_by_step_s": [0.5, 0.0, 1.0]}'
    )


@pytest.mark.parametrize("broken", [evolve(FACTS, lost=1), evolve(FACTS, double_owner_ms=0.1)])
def test_demo_when_our_group_breaks_a_promise_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, broken: Facts
) -> None:
    status, _, errors = run(monkeypatch, broken, "--json")
    assert status == 1
    assert errors == "coopgroup: a record was lost or a partition had two owners\n"


def test_demo_when_not_json_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    status, output, _ = run(monkeypatch, FACTS)
    rows = [line.split("│")[1:-1] for line in output.splitlines() if line.startswith("│")]
    cells: list[Sequence[str]] = [[cell.strip() for cell in row] for row in rows]
    assert status == 0
    assert cells == [
        ["records consumed", *["42,000"] * 4],
        ["records lost", "0", "0", "0", "7"],
        ["records handed out again", *["3"] * 4],
        ["partitions moved", *["12"] * 4],
        ["worst pause of what stayed", *["12 ms"] * 4],
        ["without owner: m3 joins", *["0.5 s"] * 4],
        ["without owner: m1 restarts", *["0.0 s"] * 4],
        ["without owner: m2 is killed", *["1.0 s"] * 4],
        ["time with two owners", "0 ms", "0 ms", "0 ms", "2 ms"],
    ]


# --- facts ----------------------------------------------------------------------------------------


def handed(*records: tuple[int, ...]) -> Rows:
    """Return records given as (handed out at ms, produced at ms, offset, partition[, spell])."""
    rows = [(one[0] * MS, one[1] * MS, *one[2:4], *(one[4:] or (1,))) for one in records]
    return np.array(rows, ROW)


QUIET = handed((10, 9, 0, 0), (20, 19, 1, 0))


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        pytest.param(
            [("m1", QUIET)], {"consumed": 2, "retained_pause_ms_max": 1.0}, id="nothing happens"
        ),
        pytest.param(
            [("m1", np.concatenate([handed((5, 0, ASSIGNED, 0)), QUIET]))],
            {"consumed": 2, "retained_pause_ms_max": 1.0},
            id="a mark is no record",
        ),
        pytest.param([("m1", QUIET[:1])], {"consumed": 1, "lost": 1}, id="a record is lost"),
        pytest.param(
            [("m1", np.concatenate([QUIET, handed((30, 19, 1, 0, 2))]))],
            {"consumed": 2, "duplicated": 1, "retained_pause_ms_max": 10.0},
            id="a record again",
        ),
        pytest.param(
            [("m1", handed((10, 9, 0, 0), (320, 20, 1, 0)))],
            {"consumed": 2, "retained_pause_ms_max": 300.0, "unavailable_partition_s": 0.3},
            id="a pause of a partition that stays",
        ),
        pytest.param(
            [("m1", handed((10, 9, 0, 0))), ("m2", handed((320, 20, 1, 0)))],
            {"consumed": 2, "moved": 1, "unavailable_partition_s": 0.3},
            id="another member",
        ),
        pytest.param(
            [("m1", handed((10, 9, 0, 0))), ("m1", handed((320, 20, 1, 0)))],
            {"consumed": 2, "unavailable_partition_s": 0.3},
            id="another process of the same member",
        ),
        pytest.param(
            [("m1", handed((10, 9, 0, 0), (35, 19, 1, 0))), ("m2", handed((30, 19, 1, 0)))],
            {"consumed": 2, "duplicated": 1, "moved": 1, "double_owner_ms": 5.0},
            id="two owners",
        ),
        pytest.param(
            [("m1", handed((10, 9, 0, 0), (2_000, 19, 1, 0)))],
            {"consumed": 2, "unavailable_partition_s": 0.981},
            id="a wait is cut where the steps end, and without records nothing is retained",
        ),
    ],
)
def test_facts_of_a_group(logs: list[tuple[str, Rows]], expected: dict[str, Any]) -> None:
    nothing = dict.fromkeys((one.name for one in fields(Facts)), 0)
    found = facts_of(logs, 2, [15 * MS, 1_000 * MS])
    by_step = (expected.get("unavailable_partition_s", 0.0),)
    assert found == Facts(**{**nothing, **expected, "unavailable_by_step_s": by_step})


def test_a_long_wait_counts_in_each_of_its_steps() -> None:
    found = facts_of(
        [("m1", handed((10, 9, 0, 0), (320, 20, 1, 0)))], 2, [15 * MS, 280 * MS, 1_000 * MS]
    )
    assert (found.unavailable_partition_s, found.unavailable_by_step_s) == (0.3, (0.26, 0.04))
