"""Costs of a move that are given or missing, and the advice for several groups, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup.cli.app import run
from coopgroup.cli.pipeline import advise
from coopgroup.cli.pipeline.options import Place
from coopgroup.errors import ConfigurationError, PipelineError
from coopgroup.pipeline.advice.cost import MoveCost
from tests.unit.pipeline.advices import made_advice
from tests.unit.pipeline.return_times import history

TABLES: Any = SimpleNamespace()


def costs(monkeypatch: pytest.MonkeyPatch, *, move_ms: int | None, return_ms: int | None) -> Any:  # noqa: ANN401
    """Return the costs of a group with telemetry and of one without."""
    seen = {"told": MoveCost(move_ms=8_000, return_ms=4_000)}
    monkeypatch.setattr("coopgroup.pipeline.advice.from_tables.move_costs_of", lambda *_: seen)
    found = advise._costs(TABLES, ["told", "untold"], move_ms, return_ms)  # noqa: SLF001
    return [cost for cost, _ in found]


def test_a_given_cost_counts_before_that_of_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = MoveCost(move_ms=8_000, return_ms=4_000)
    assert costs(monkeypatch, move_ms=None, return_ms=None) == [seen, MoveCost(is_known=False)]
    given = MoveCost(move_ms=9_000, return_ms=5_000)
    assert costs(monkeypatch, move_ms=9_000, return_ms=5_000) == [given, given]


@pytest.mark.parametrize(
    ("return_ms", "said"),
    [
        (5_000, "got 5000, expected --move-cost-ms beside it: no telemetry tells .* untold costs"),
        (9_000, "got 9000, expected at most 8000, which a move of group told costs by its"),
    ],
)
def test_a_cost_of_a_return_needs_a_cost_of_a_move(
    monkeypatch: pytest.MonkeyPatch, return_ms: int, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"--return-cost-ms: {said}"):
        costs(monkeypatch, move_ms=None, return_ms=return_ms)


def test_a_return_that_costs_more_than_a_move_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["pipeline", "advise", "--tables", "t", "--group", "g"]
    assert run([*command, "--move-cost-ms", "3000", "--return-cost-ms", "4000"]) == 2
    err = capsys.readouterr().err
    assert err == "coopgroup: --return-cost-ms: got 4000, expected at most --move-cost-ms, 3000\n"


def test_a_group_without_history_does_not_hide_the_advice_for_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {
        "a": PipelineError("there is no history of a"),
        "b": made_advice(history=history([12_000] * 30, group="b")),
        "c": PipelineError("there is no history of c"),
    }
    monkeypatch.setattr(Place, "tables", lambda *_, **__: TABLES)
    monkeypatch.setattr(advise, "advice_for", lambda *_, **__: given)
    groups = [part for group in given for part in ("--group", group)]
    assert run(["pipeline", "advise", "--tables", "t", "--json", *groups]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == out.count('"group": "b"') == 1
    assert err.splitlines() == [f"coopgroup: there is no history of {one}" for one in "ac"]
