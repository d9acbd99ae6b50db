"""The demonstration, without a broker; the broker tests run it with one."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest
from attrs import evolve
from click.testing import CliRunner

from coopgroup.cli import demo
from coopgroup.testing.trial import Facts
from tests.support.facts import NOTHING

FACTS = evolve(
    NOTHING,
    consumed=42_000,
    duplicated=3,
    moved=12,
    retained_pause_ms_max=12.5,
    unavailable_partition_s=1.5,
)


def run(monkeypatch: pytest.MonkeyPatch, ours: Facts, *options: str) -> tuple[int, str, str]:
    found = {"coopgroup-simple": ours, "eager": evolve(FACTS, lost=7, double_owner_transitions=1)}
    monkeypatch.setattr(demo, "demonstrate", lambda _broker, _console: found)
    answer = CliRunner().invoke(demo.command, options, standalone_mode=False)
    return answer.return_value, answer.stdout, answer.stderr


def test_demo_when_json_prints_a_line_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys, and their order, are part of the interface."""
    lines = (
        '{"kind": "coopgroup-simple", "consumed": 42000, "lost": 0, "duplicated": 3, "moved": 12, '
        '"retained_pause_ms_max": 12.5, "double_owner_ms": 0.0}\n'
        '{"kind": "eager", "consumed": 42000, "lost": 7, "duplicated": 3, "moved": 12, '
        '"retained_pause_ms_max": 12.5, "double_owner_ms": 0.0}\n'
    )
    assert run(monkeypatch, FACTS, "--json") == (0, lines, "")


@pytest.mark.parametrize(
    "broken", [evolve(FACTS, lost=1), evolve(FACTS, double_owner_transitions=1)]
)
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
        ["records consumed", "42,000", "42,000"],
        ["records lost", "0", "7"],
        ["records handed out again", "3", "3"],
        ["partitions moved", "12", "12"],
        ["worst pause of what stayed", "12 ms", "12 ms"],
        ["time without owner, in all", "1.5 s", "1.5 s"],
        ["time with two owners", "0 ms", "0 ms"],
        ["commits that failed", "0", "0"],
    ]


def test_terminated_as_interrupt_when_terminated_raises_and_restores() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), demo.terminated_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
