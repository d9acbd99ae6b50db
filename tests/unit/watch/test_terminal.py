"""The terminal view, driven without a terminal."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.widgets import DataTable, Label, RichLog

from coopgroup.watch.terminal import WatchApp
from coopgroup.watch.values import GroupView
from tests.unit.watch.views import MEMBERS, view


class Reader:
    """Gives one snapshot after the other, and then the last one again."""

    def __init__(self, *views: GroupView | Exception) -> None:
        self._views = list(views)

    def read(self) -> GroupView:
        found = self._views.pop(0) if len(self._views) > 1 else self._views[0]
        if isinstance(found, Exception):
            raise found
        return found


def _run(reader: Reader, check: Any, size: tuple[int, int] = (120, 40)) -> None:  # noqa: ANN401
    async def live() -> None:
        app = WatchApp(reader, 0.02)
        async with app.run_test(size=size) as pilot:
            for _ in range(200):
                await pilot.pause(0.02)
                if check(app):
                    return
            raise AssertionError("the screen did not get there")

    asyncio.run(live())


def _cells(app: WatchApp, name: str) -> list[list[str]]:
    table: DataTable[str] = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(y)] for y in range(table.row_count)]


def _headline(app: WatchApp) -> str:
    return str(app.query_one("#headline", Label).content)


def test_screen_shows_members_partitions_and_the_group() -> None:
    def check(app: WatchApp) -> bool:
        return (
            _headline(app).startswith("billing: stable, coopgroup, 2 members")
            and [row[0] for row in _cells(app, "members")] == ["a", "pod-b (static)"]
            and [row[2] for row in _cells(app, "partitions")] == ["a", "a", "pod-b"]
        )

    _run(Reader(view()), check)


def test_screen_follows_the_group() -> None:
    later = view(1.0, owners=("m-b", "m-b", "m-b"))

    def check(app: WatchApp) -> bool:
        log = [line.text for line in app.query_one("#moves", RichLog).lines]
        return (
            [row[2] for row in _cells(app, "partitions")] == ["pod-b"] * 3
            and len(log) == 1
            and log[0].endswith("orders-0, orders-1: a → pod-b")
        )

    _run(Reader(view(), later), check)


def test_broker_that_does_not_answer_leaves_the_last_tables() -> None:
    def check(app: WatchApp) -> bool:
        return _headline(app) == "no answer: no broker" and len(_cells(app, "members")) == 2

    _run(Reader(view(), OSError("no broker")), check)


def test_large_group_in_a_small_terminal_is_drawn() -> None:
    owners = tuple("m-a" if number % 2 else "m-b" for number in range(1_000))
    group = view(owners=owners, committed=(0,) * 1_000, members=MEMBERS)
    _run(Reader(group), lambda app: len(_cells(app, "partitions")) == 1_000, size=(60, 12))
