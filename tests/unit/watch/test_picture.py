"""A picture is drawn when it is worth its cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coopgroup.watch.chronicle import Chronicle
from coopgroup.watch.picture import Picture
from coopgroup.watch.tracking import GroupTracker
from tests.unit.watch.views import view

LATER = ("m-b", "m-a", "m-b")


class Group:
    """A picture of a group at some seconds."""

    def __init__(self) -> None:
        self._tracker, self._chronicle = GroupTracker(), Chronicle()
        self.picture = Picture(self._chronicle)

    def look(self, at_s: float, owners: tuple[str, ...] = ("m-a", "m-a", "m-b")) -> int:
        self._chronicle.note(self._tracker.note(view(at_s, owners)))
        self.picture.look(at_s)
        return self.picture.version

    def answer(self, shape: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.picture.answer(shape))
        return found


def _begins(picture: dict[str, Any]) -> set[float]:
    """Return the times, in seconds, at which the bars of owners begin."""
    return set(picture["changeable"]["by_owner_owned"]["data"]["left"])


def test_picture_is_new_after_a_change_and_else_when_it_is_old() -> None:
    group = Group()
    assert group.look(0.0) == 1
    assert [group.look(at_s) for at_s in range(1, 11)] == [2] * 10
    assert group.look(11.0) == 3
    assert group.look(11.5, LATER) == 3
    assert group.look(12.0, LATER) == 4


def test_change_is_drawn_again_when_its_bars_have_a_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coopgroup.watch.picture.time.thread_time", lambda: 0.0)
    group = Group()
    assert group.look(0.0) == 1
    assert group.answer()["shape"] == ""  # nothing to draw yet
    assert group.look(1.0) == 2
    shape = group.answer()["shape"]
    assert "figures" in group.answer("another")
    assert "figures" not in group.answer(shape)
    assert group.look(4.0, LATER) == 3
    began_s = _begins(group.answer(shape))
    assert group.look(5.0, LATER) == 4
    assert _begins(group.answer(shape)) == began_s | {4.0}
    assert [group.look(at_s, LATER) for at_s in range(6, 15)] == [4] * 9


def test_costly_picture_is_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = iter(range(0, 100, 1))
    monkeypatch.setattr("coopgroup.watch.picture.time.thread_time", lambda: float(next(clock_s)))
    group = Group()
    for at_s in (0.0, 10.0, 20.0):  # the cost of the first with figures counts as nothing
        group.look(at_s)
        group.answer()
    assert group.look(24.0, LATER) == 3
    assert group.look(25.0, LATER) == 4
    group.answer()
    assert group.look(120.0, LATER) == 4
    assert group.look(125.0, LATER) == 5
