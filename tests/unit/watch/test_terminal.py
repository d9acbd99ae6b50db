"""The terminal view, driven without a terminal."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from textual.widgets import Label

from coopgroup.watch.terminal import Rows, WatchApp
from coopgroup.watch.values import GroupView
from tests.support.by_hand import Hand, by_hand
from tests.unit.watch.views import MEMBERS, view

SNAPSHOT = Path(__file__).parent / "screen.txt"


class Reader:
    """Gives one snapshot after the other, and then the last one again."""

    def __init__(self, *views: GroupView | Exception) -> None:
        self._views = list(views)

    def read(self) -> GroupView:
        found = self._views.pop(0) if len(self._views) > 1 else self._views[0]
        if isinstance(found, Exception):
            raise found
        return found


def _run(
    reader: Reader, check: Callable[[WatchApp], bool], size: tuple[int, int] = (120, 40)
) -> None:
    """Look twice, on a thread that this awaits, and check the screen."""

    async def live(hand: Hand) -> bool:
        app = WatchApp(reader, 1.0)
        async with app.run_test(size=size) as pilot:
            for _ in range(2):
                await asyncio.to_thread(hand.advance, 1.0)
                await pilot.pause()
            return check(app)

    with by_hand() as hand:
        assert asyncio.run(live(hand))


def _cells(app: WatchApp, name: str) -> list[tuple[str, ...]]:
    return list(app.query_one(f"#{name}", Rows).rows)


def _screen(app: WatchApp) -> str:
    """Return the text of the screen, without Textual's title and footer."""
    lines: dict[float, dict[float, str]] = defaultdict(dict)
    for x, y, text in re.findall(
        r'<text (?![^>]*-title)[^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>',
        app.export_screenshot(),
    ):
        lines[float(y)][float(x)] = html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
    shown = ("".join(text for _, text in sorted(line.items())) for _, line in sorted(lines.items()))
    return "\n".join(line.rstrip() for line in list(shown)[:-1]) + "\n"


def _headline(app: WatchApp) -> str:
    return str(app.query_one("#headline", Label).content)


@pytest.mark.parametrize(
    ("later", "line"),
    [
        (OSError("no broker"), "no answer: no broker"),
        (evolve(view(), telemetry_error="not allowed"), "telemetry is incomplete: not allowed"),
    ],
)
def test_what_cannot_be_read_is_a_line_above_the_last_tables(
    later: GroupView | Exception, line: str
) -> None:
    def check(app: WatchApp) -> bool:
        return _headline(app).endswith(line) and len(_cells(app, "members")) == 2

    _run(Reader(view(), later), check)


def test_group_of_named_resources_has_its_own_columns() -> None:
    def check(app: WatchApp) -> bool:
        lines = _screen(app).splitlines()
        headers = [line.split() for line in lines if line.startswith(("member ", "resource "))]
        return headers == [
            ["member", "host", "resources", "traits", "lease", "generation", "client"],
            ["resource", "state", "owner", "since"],
        ]

    _run(Reader(evolve(view(), shares_resources=True)), check)


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_utc")
def test_screen_is_that_of_the_snapshot() -> None:
    """After a change that is meant, write the new screen into the file, and look at it."""
    owners = tuple(("m-a", "m-b", "")[number % 3] for number in range(12))
    before = view(owners=("m-a",) * 12, committed=(7,) * 12, members=MEMBERS[:1])
    after = view(2.0, owners=owners, committed=(8,) * 12, end=1_234)
    screens = []

    def check(app: WatchApp) -> bool:
        screens.append(_screen(app))
        return screens[-1] == SNAPSHOT.read_text()

    try:
        _run(Reader(before, after), check, size=(100, 32))
    except AssertionError:
        assert screens[-1] == SNAPSHOT.read_text()


def test_name_of_a_member_is_neither_markup_nor_a_command_of_the_terminal() -> None:
    hostile = evolve(MEMBERS[0], client_id="[/nope][red]\x1b[2Jx")
    group = view(members=(hostile, *MEMBERS[1:]))

    def check(app: WatchApp) -> bool:
        return "[/nope][red]\N{REPLACEMENT CHARACTER}[2Jx" in _screen(app)

    _run(Reader(group), check)
