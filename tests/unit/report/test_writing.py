"""Whole pages, as files."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.errors import ConfigurationError
from coopgroup.report import (
    Objection,
    write_comparison_page,
    write_history_page,
    write_run_page,
)
from coopgroup.telemetry import RoundRefused
from tests.unit.report.histories import Story, rolling_bounce


@frozen(kw_only=True)
class Measured:
    moved: int
    converge_ms: int | None = None


def run(policy: str = "deferred", *, seed: int = 1, **changed: Any) -> Any:  # noqa: ANN401 - any run
    values: dict[str, Any] = {
        "scenario": SimpleNamespace(
            name="rolling_bounce", description="", move_ms=400.0, returns_pay=True
        ),
        "policy": policy,
        "assignor": "sticky",
        "seed": seed,
        "telemetry": rolling_bounce(6, 2),
        "violations": (),
        "lag": LagHistory(
            times_ms=np.arange(0, 30_000, 500),
            lags=np.ones((60, 6), dtype=np.int64),
            resources=ResourceSet({"orders": range(6)}),
        ),
        "measures": Measured(moved=seed),
        "begin_ms": 10_000,
    }
    return SimpleNamespace(**{**values, **changed})


def seen(text: str) -> str:
    """Return the visible text of a page: without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", bare).split())


def test_page_of_real_consumers_says_when_it_began(tmp_path: Path) -> None:
    story = Story()
    story.work(1_730_000_000_000, "a", ResourceSet({"orders": [0]}))
    story.work(1_730_000_001_000, "a", ResourceSet({"orders": [1]}))
    write_history_page(story.envelopes, tmp_path / "page.html", title="billing")
    assert "1 s · 0 s is 2024-10-27 03:33:20 UTC" in seen((tmp_path / "page.html").read_text())


def test_two_owners_at_once_are_found_where_no_checker_looked(tmp_path: Path) -> None:
    story = Story()
    story.work(1_000, "a", ResourceSet({"orders": [3]}))
    story.work(2_500, "b", ResourceSet({"orders": [3]}))
    story.stop(3_000, "a", ResourceSet({"orders": [3]}))
    story.write(3_100, "a", RoundRefused(violations=("no answer for b",)))
    write_history_page(story.envelopes, tmp_path / "page.html", title="x")
    words = seen((tmp_path / "page.html").read_text())
    assert "2 violations 1.5 s two at once b and a worked on orders 3 for 0.5 s" in words
    assert "2.1 s leader a no answer for b" in words
    objections = [Objection(source="single owner", at_ms=7, message="found")]
    write_history_page(story.envelopes, tmp_path / "page.html", title="x", objections=objections)
    words = seen((tmp_path / "page.html").read_text())
    assert "two at once b" not in words
    assert "0.007 s single owner found" in words


def test_names_that_are_no_text_are_shown_as_what_they_are(tmp_path: Path) -> None:
    """A record may contain half a character."""
    story = Story("\ud800")
    story.work(5, "c\udfff", ResourceSet({"t": [0]}))
    write_history_page(story.envelopes, tmp_path / "page.html", title="Group \ud800")
    assert "Group \\ud800" in (tmp_path / "page.html").read_text()


def test_run_page_shows_measures_and_seed(tmp_path: Path) -> None:
    write_run_page(run(seed=7), tmp_path / "run.html")
    words = seen((tmp_path / "run.html").read_text())
    title = "rolling bounce: deferred"
    assert words.startswith(f"{title} {title} 18.7 partition-seconds out of service, 7 moves. The")
    assert "sticky · seed 7 partitions moved 7 time to converge never violations none" in words
    assert "Lag Records that wait" in words


def test_comparison_page_has_each_policy(tmp_path: Path) -> None:
    broken = SimpleNamespace(checker="c", at_ms=1, message="bad")
    runs = {
        "eager": [run("eager", seed=seed) for seed in (1, 2, 6)],
        "simple": [run("simple", seed=3), run("simple", seed=4, violations=(broken,))],
    }
    write_comparison_page(runs, tmp_path / "page.html")
    words = seen((tmp_path / "page.html").read_text())
    assert "0.001 s simple, seed 4: c bad" in words
    assert "Median of 3 seeds" in words
    assert "partitions moved 2 1 to 6 3.5 3 to 4" in words
    assert "eager seed 1 simple seed 3" in words


@pytest.mark.parametrize("runs", [{}, {"simple": []}])
def test_comparison_of_nothing_is_refused(tmp_path: Path, runs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected a run of each policy"):
        write_comparison_page(runs, tmp_path / "page.html")


def test_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "page.html"
    with pytest.raises(ConfigurationError, match="expected a file that can be written: No such"):
        write_history_page(rolling_bounce(2, 2), path, title="x")
