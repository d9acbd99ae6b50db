"""The work of named resources, as the health of the group reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup.core.model import Resource
from coopgroup.groups import work as work_module
from coopgroup.groups.work import GroupWork, Wish, Work
from coopgroup.kafka.health.probe import WorkSample


def _read(monkeypatch: pytest.MonkeyPatch, *works: Work, failure: str = "") -> WorkSample:
    monkeypatch.setattr(work_module, "now_s", lambda: 100.0)
    work: Any = SimpleNamespace(
        works=lambda: works, failure=SimpleNamespace(message=failure) if failure else None
    )
    return GroupWork(work).read()


def _work(index: int, *, runs: bool = False, wish: Wish = Wish.RUN, busy: int = 0) -> Work:
    resource = Resource("jobs", index)
    return Work(resource=resource, token=1, began_s=60.0, runs=runs, wish=wish, busy=busy)


def test_running_resources_are_owned_until_their_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _work(1, runs=True, wish=Wish.END)
    sample = _read(monkeypatch, _work(0, runs=True), ended)
    assert (sample.owned.to_dict(), sample.stuck) == ({"jobs": [0]}, ())
    assert (sample.revoking_s, sample.failure) == (0.0, "")
    sample = _read(monkeypatch, _work(0, runs=True, wish=Wish.STOP, busy=1))
    assert (sample.revoking.to_dict(), sample.revoking_s) == ({"jobs": [0]}, 40.0)


def test_start_that_has_not_returned_is_told_with_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    (stuck,) = _read(monkeypatch, _work(3, busy=1)).stuck
    assert (stuck.topic, stuck.partition, stuck.why, stuck.since_s) == ("jobs", 3, "callback", 40.0)


def test_refusal_by_the_group_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read(monkeypatch, failure="fenced").failure == "fenced"
    assert GroupWork(SimpleNamespace()).commit_meter() is None  # type: ignore[arg-type]
