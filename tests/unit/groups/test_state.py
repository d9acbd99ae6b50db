"""The state of the work on one resource: which facts of `STEPS` it makes."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup.core.model import Resource
from coopgroup.errors import Decline, StartFailed
from coopgroup.groups.state import Step, Wish, Work

RUNS: dict[str, Any] = {"runs": True}


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (RUNS | {"busy": 1, "is_stale": True}, Step.WAIT),
        (RUNS | {"is_stale": True}, Step.LOST),
        (RUNS | {"wish": Wish.STOP}, Step.STOP),
        ({"wish": Wish.STOP, "is_stale": True}, Step.END),
        ({"wish": Wish.END, "refusal": StartFailed("no such table")}, Step.END),
        ({"refusal": Decline("no GPU is free")}, Step.KEEP),
        ({"is_stale": True, "is_changed": True}, Step.START),
        (RUNS | {"is_changed": True}, Step.CHANGE),
        (RUNS | {"is_changed": True, "is_deleted": True}, Step.KEEP),
        (RUNS, Step.KEEP),
    ],
)
def test_next_step_of_a_state(state: dict[str, Any], step: Step) -> None:
    assert Work(resource=Resource("jobs", 0), token=1, **state).next_step() is step


@pytest.mark.parametrize(("besides", "step"), [(1, Step.WAIT), (2, Step.STOP)])
def test_callbacks_that_do_not_count(besides: int, step: Step) -> None:
    work = Work(resource=Resource("jobs", 0), token=1, runs=True, wish=Wish.STOP, busy=2)
    assert work.next_step(besides=besides) is step


@pytest.mark.parametrize("wish", Wish)
def test_end_of_a_grant_makes_its_work_stale_until_it_has_ended(wish: Wish) -> None:
    """A resource that comes back meanwhile is not taken for the work of the new grant."""
    work = Work(resource=Resource("jobs", 0), token=1, runs=True, wish=wish)
    work.want(Wish.END)
    work.want(Wish.RUN)
    assert work.next_step() is Step.LOST
    work.finished(runs=False)
    assert work.next_step() is Step.START
