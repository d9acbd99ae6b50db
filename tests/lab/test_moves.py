"""The steps of a move, from the telemetry of two members that take in a third."""

from collections.abc import Mapping
from typing import Final

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    Record,
    ResourcesStarted,
    RoundDecided,
    StateChanged,
)
from tests.lab.moves import STEPS, Step, picture, steps_of

MOVED: Final = ResourceSet({"t": [0]})


def wrote(at_ms: int, member: str, generation: int, record: Record) -> Envelope:
    return Envelope(at_ms=at_ms, group="g", member=member, generation=generation, record=record)


def changed(before: str, after: str, cause: str = "") -> StateChanged:
    return StateChanged(before=before, after=after, cause=cause)


def decided() -> RoundDecided:
    return RoundDecided(policy="simple", assignor="sticky", members=("a", "b"))


def test_join_has_two_rounds_and_each_step_ends_with_its_last_member() -> None:
    assigned = AssignmentReceived(leader=False)
    telemetry = [
        wrote(10, "a", 1, changed("stable", "joining")),  # before the move
        wrote(120, "a", 2, changed("stable", "joining")),
        wrote(150, "b", 2, changed("stable", "joining")),
        wrote(160, "a", 3, changed("joining", "leading", "joined")),
        wrote(170, "b", 3, changed("joining", "syncing", "joined")),
        wrote(172, "a", 3, decided()),
        wrote(180, "b", 3, assigned),
        wrote(200, "b", 3, changed("revoking", "joining")),
        wrote(230, "a", 4, changed("joining", "leading", "joined")),
        wrote(235, "a", 4, decided()),
        wrote(240, "c", 4, AssignmentReceived(leader=False, gained=MOVED)),
        wrote(260, "c", 4, ResourcesStarted(resources=MOVED)),
    ]
    steps = steps_of(telemetry, 100, {"c": 300})
    assert [(step.name, step.ms) for step in steps] == [
        ("hear", 50),
        ("join", 20),
        ("decide", 2),
        ("sync", 8),
        ("stop", 20),
        ("2nd join", 30),
        ("2nd decide", 5),
        ("2nd sync", 5),
        ("start", 20),
        ("fetch", 40),
    ]


def test_close_has_one_round() -> None:
    telemetry = [
        wrote(120, "a", 2, changed("stable", "joining")),
        wrote(130, "a", 3, changed("joining", "leading", "joined")),
        wrote(131, "a", 3, decided()),
        wrote(140, "a", 3, AssignmentReceived(leader=True, gained=MOVED)),
        wrote(141, "a", 3, ResourcesStarted(resources=MOVED)),
    ]
    steps = steps_of(telemetry, 100, {"a": 150})
    assert " ".join(step.name for step in steps) == "hear join decide sync start fetch"
    assert sum(step.ms for step in steps) == 50


def test_move_without_a_gain_is_refused() -> None:
    with pytest.raises(ValueError, match="gained"):
        steps_of([], 0, {})


def test_picture_has_a_bar_for_each_step_in_proportion() -> None:
    rows: Mapping[str, list[Step]] = {"join": [Step("hear", 30), Step("2nd join", 10)]}
    drawn = picture(list(rows.items()))
    assert all(f">{name}</text>" in drawn for name in STEPS)
    widths = [
        float(part.split('width="')[1].split('"')[0])
        for part in drawn.split("<rect ")[2:]
        if "<title>" in part
    ]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert ">40 ms</text>" in drawn
