"""Display of the demonstration."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from coopgroup.cli.demo_display import Display, describe
from coopgroup.testing.trial import Trial
from coopgroup.testing.trial.recording import Event, EventLog


@pytest.fixture
def trial() -> Iterator[Trial]:
    with Trial(client_config={}, topics=["orders"], partitions_per_topic=4) as idle:
        yield idle


def shown(trial: Trial, *, is_terminal: bool) -> str:
    output = StringIO()
    console = Console(file=output, force_terminal=is_terminal, width=100, color_system=None)
    group = trial.group("eager")
    group.watch.add("m1", trial.folder / "m1.records", trial.folder / "m1.events")
    events = EventLog(trial.folder / "m1.events")
    with Display(console=console, trial=trial, groups=[group]) as display:
        display.phase("a member [joins]")
        events.write("assigned", partitions=[0, 1, 2])
        display.refresh(at_once=True)
        events.write("revoked", partitions=[2])
        display.refresh()  # too soon after the previous refresh
        display.refresh(at_once=True)
    events.close()
    return output.getvalue()


def test_display_when_there_is_no_terminal_prints_plain_lines(trial: Trial) -> None:
    lines = shown(trial, is_terminal=False).splitlines()
    assert [line.partition(" s  ")[2] for line in lines] == [
        "--- a member [joins]",
        "eager: m1 gets 3 partitions",
        "eager: m1 gives up 1 partition",
    ]


@pytest.mark.parametrize(
    ("name", "partitions", "expected"),
    [
        ("started", None, "m1 joins"),
        ("lost", [4], "m1 lost 1 partition"),
        ("revoked", [], None),
        ("ready", None, None),
    ],
)
def test_event_that_matters_is_half_a_sentence(
    name: str, partitions: list[int] | None, expected: str | None
) -> None:
    event = Event(
        at_ns=1, name=name, fields={} if partitions is None else {"partitions": partitions}
    )
    assert describe("m1", event) == expected


@pytest.mark.parametrize(("height", "tables"), [(10, 1), (17, 1), (18, 2), (40, 3)])
def test_display_when_there_is_no_room_shows_groups_as_lines(
    trial: Trial, height: int, tables: int
) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=100, height=height, color_system=None)
    groups = [trial.group(kind) for kind in ("eager", "cooperative-sticky", "kip848")]
    with Display(console=console, trial=trial, groups=groups) as display:
        display.phase("nothing happens")
        drawn = output.getvalue()
    assert drawn.count("partitions") == tables
    assert [kind in drawn for kind in ("eager", "cooperative-sticky", "kip848")] == [True] * 3
