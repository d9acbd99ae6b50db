"""Errors of the pipeline jobs: one line each, before Spark starts."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup.cli.app import run
from coopgroup.cli.pipeline import jobs
from coopgroup.errors import PipelineError
from coopgroup.pipeline.scope import Scope
from coopgroup.pipeline.tables import ConflictError


@pytest.mark.parametrize("job", ["history", "lag", "telemetry", "episodes", "run"])
def test_a_missing_extra_is_one_line(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["pipeline", job, "--tables", "t"]) == 2
    assert "which the pipeline needs: pip install '" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "waited_s", "is_refused"),
    [
        ("Initializing sources", 121, True),
        ("Getting offsets from KafkaV2[Assign[...]]", 121, True),
        ("Getting offsets from KafkaV2[Assign[...]]", 60, False),
        ("Processing new data", 9_999, False),
    ],
)
def test_brokers_that_do_not_tell_the_end_of_the_topic_are_not_waited_for(
    message: str,
    waited_s: float,
    is_refused: bool,
) -> None:
    """Spark itself has no limit. The first batch of a large topic may take long."""
    query: Any = SimpleNamespace(lastProgress=None, status={"message": message})
    refusal = pytest.raises(PipelineError, match="needs the rights to read and describe the topic")
    with refusal if is_refused else nullcontext():
        jobs._check_begun(query, time.monotonic() - waited_s)  # noqa: SLF001 - without Spark


@pytest.mark.parametrize(("end", "as_of_ms"), [("7", [1_795_731_860_500]), ("6", [])])
def test_the_history_ends_with_the_last_batch_that_read_the_topic_to_its_end(
    end: str, as_of_ms: list[int]
) -> None:
    noted: list[int] = []
    tables: Any = SimpleNamespace(read_until=noted.append)
    source = SimpleNamespace(endOffset=end, latestOffset="7")
    progress = SimpleNamespace(sources=[source], timestamp="2026-11-26T22:24:20.500Z")
    query: Any = SimpleNamespace(lastProgress=progress)
    assert jobs._note_end(tables, query) is bool(as_of_ms)  # noqa: SLF001 - without Spark
    assert noted == as_of_ms


def test_a_conflict_with_another_job_does_not_end_a_job_that_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`optimize` may run at the same time. The progress is not noted, so nothing is left out."""

    def compute(error: Exception) -> None:
        with jobs._told_conflicts():  # noqa: SLF001 - a step of `lag --follow`
            raise error

    compute(ConflictError("the table lag"))
    told = capsys.readouterr().err
    assert told == "the table lag was changed by another job; the next round goes on\n"
    with pytest.raises(PipelineError, match="full"):
        compute(PipelineError("full"))


def test_unknown_lags_are_told_with_their_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is gone counts only if a group committed to it in the time of the scope."""
    found = [("orders", 3, 1), *(("paid", number, 7) for number in range(11))]
    monkeypatch.setattr("coopgroup.pipeline.lag.unknown_of", lambda *_: found)
    monkeypatch.setattr("coopgroup.pipeline.lag.used_topics", lambda *_: {"orders", "gone", "new"})
    tables: Any = None
    jobs.tell_unknown(tables, Scope(), ("gone", "long gone", "new"))
    *lines, last = capsys.readouterr().err.splitlines()
    reason = "unknown: the topic does not exist, or the user may not describe it"
    assert lines[:2] == [f"coopgroup: lag of {topic} is {reason}" for topic in ("gone", "new")]
    assert lines[2].startswith("coopgroup: lag of orders[3] is unknown at 1 moment: ")
    assert lines[3].startswith("coopgroup: lag of paid[0] is unknown at 7 moments: ")
    assert len(lines) == 12
    assert last == "coopgroup: lag of 2 more partitions is unknown, likewise"
