"""The live page in a browser: it follows the group, and survives the loss of server and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from coopgroup.core.model import ResourceSet
from coopgroup.report.palette import COLOURS
from coopgroup.telemetry import Envelope, RoundDecided
from coopgroup.watch import picture
from coopgroup.watch.serving import LiveServer
from coopgroup.watch.values import GroupView, MemberView
from tests.browser.chromium import Page
from tests.unit.watch.views import MEMBERS, view

HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
MEMBERS_OF_ALL = (*MEMBERS, evolve(MEMBERS[0], member_id="m-x", client_id=HOSTILE))
BEGIN_MS = 1_700_000_000_000


class Reader:
    """A group of six partitions, two seconds older at each look, until the test lets it go on.

    Otherwise the first seconds leave the page before a slow browser looks at them.
    """

    def __init__(self) -> None:
        self.at_s = 0.0
        self.until_s = 20.0
        self.owners: tuple[str, ...] = ("m-a", "m-b", "m-a", "m-b", "m-a", "m-b")
        self.members: tuple[MemberView, ...] = MEMBERS
        self.records: tuple[Envelope, ...] = ()
        self.error: Exception | None = None
        self.telemetry_error = ""

    def read(self) -> GroupView:
        self.at_s = min(self.at_s + 2, self.until_s)
        if self.error is not None:
            raise self.error
        records, self.records = self.records, ()
        committed = tuple((10 + np.arange(6) + int(self.at_s)).tolist())
        found = view(self.at_s, self.owners, committed, end=400, members=self.members)
        return evolve(found, records=records, telemetry_error=self.telemetry_error)


@contextmanager
def _served(reader: Reader, port: int = 0) -> Iterator[str]:
    with LiveServer(reader, 0.2, group="billing", host="127.0.0.1", port=port) as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Return a reader whose changes are drawn at once: the pause that spares a core is left out."""
    monkeypatch.setattr(picture, "_CHANGED_S_MAX", 0)
    return Reader()


def _cells(page: Page, table: str) -> list[list[str]]:
    script = (
        "return Array.from(document.getElementById(arguments[0]).tBodies[0].rows, "
        "(row) => Array.from(row.cells, (cell) => cell.textContent))"
    )
    found: list[list[str]] = page.run(script, table)
    return found


def _notice(page: Page) -> str:
    found: str = page.run(
        "const found = document.getElementById('silence');"
        "return found.hidden ? '' : found.textContent.trim()"
    )
    return found


def test_page_shows_the_group_and_follows_it(page: Page, reader: Reader, tmp_path: Path) -> None:
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: len(_cells(page, "partitions")) == 6, "six partitions")
        assert [row[0] for row in _cells(page, "members")] == ["a", "pod-b (static)"]
        assert [row[2] for row in _cells(page, "partitions")] == ["a", "pod-b"] * 3
        page.wait_for_colour("ownership", 1, 0, COLOURS[0])
        page.run("window.isSamePage = true")
        reader.owners, reader.until_s = ("m-b",) * 6, 60.0
        page.wait_for(lambda: len(set(page.column("by_owner_owned", "who"))) == 2, "both")
        page.wait_for(lambda: len(page.column("by_owner_owned", "who")) >= 2 + 1, "the moves")
        page.wait_for(lambda: {row[2] for row in _cells(page, "partitions")} == {"pod-b"}, "pod-b")
        assert _cells(page, "moves")[0][1] == "orders-0, orders-2, orders-4: a → pod-b"
        shown_s, reader.until_s = page.range()[1], 100.0
        page.wait_for(lambda: page.range()[1] > shown_s + 4, "time that goes on")
        assert page.run("return window.isSamePage")
        assert page.complaints() == []
        assert {one.rpartition("/")[0] + "/" for one in page.requests()} == {url}
        page.screenshot(tmp_path / "live.png")


def test_name_of_a_member_is_never_markup(page: Page, reader: Reader) -> None:
    reader.members = MEMBERS_OF_ALL
    reader.owners = ("m-x",) * 6
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: len(_cells(page, "members")) == 3, "three members")
        assert _cells(page, "members")[2][0] == HOSTILE
        page.wait_for(lambda: max(page.column("by_owner_owned", "right")) > 6, "a bar")
        assert "<script>" in page.point_at("ownership", 3, 0)
        reader.until_s = 60.0
        decided = RoundDecided(policy="simple", assignor="sticky", members=("m-x",))
        reader.records = (
            Envelope(
                at_ms=BEGIN_MS + round(1000 * reader.at_s),
                group="billing",
                member="m-x",
                generation=3,
                record=evolve(decided, granted=ResourceSet({"orders": [0]})),
            ),
        )
        page.wait_for(
            lambda: page.run("return document.getElementById('rounds') !== null"), "rounds"
        )
        assert _cells(page, "rounds")[0][2] == HOSTILE
        assert page.driver.title == "billing"
        assert page.complaints() == []


def test_zoom_and_highlight_stay_while_the_page_follows(page: Page, reader: Reader) -> None:
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: page.range()[1] > 8, "eight seconds")
        page.wait_for(lambda: page.run("return live.shape"), "the whole picture")
        page.run("page.look(2, 4)")
        page.click("[data-owner='1']")
        version = page.run("return live.version")
        reader.owners, reader.until_s = ("m-b",) * 6, 60.0
        page.wait_for(lambda: page.run("return live.version") >= version + 1, "another picture")
        assert page.range() == (2, 4)
        assert page.run("return live.shown") == "pod-b"
        columns = (page.column("by_owner_owned", name) for name in ("who", "alpha"))
        alphas = dict(zip(*columns, strict=True))
        assert alphas["pod-b"] > alphas["a"]
        page.click("[data-whole]")
        assert page.range()[1] > 8


def test_page_says_since_when_the_brokers_are_silent(page: Page, reader: Reader) -> None:
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: _cells(page, "members"), "members")
        assert _notice(page) == ""
        reader.error = OSError("no <b>broker</b>")
        page.wait_for(lambda: _notice(page), "the notice")
        assert _notice(page).startswith("No answer about the group since ")
        assert _notice(page).endswith(": no <b>broker</b>")
        assert len(_cells(page, "partitions")) == 6
        reader.error, reader.until_s = None, 60.0
        page.wait_for(lambda: _notice(page) == "", "the end of the notice")
        page.wait_for(lambda: page.column("faults", "label"), "the fault")
        reader.telemetry_error = "not allowed"
        page.wait_for(lambda: _notice(page) == "No telemetry: not allowed", "the error")


def test_page_finds_a_server_that_comes_back(page: Page, reader: Reader) -> None:
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: _cells(page, "members"), "members")
    page.wait_for(lambda: _notice(page).startswith("No connection to coopgroup watch"), "notice")
    reader.members = MEMBERS_OF_ALL
    with _served(reader, port=int(url.rpartition(":")[2].strip("/"))):
        page.wait_for(lambda: len(_cells(page, "members")) == 3, "the new group")
        assert _notice(page) == ""


def test_rows_can_be_filtered_while_they_change(page: Page, reader: Reader) -> None:
    with _served(reader) as url:
        page.open(url)
        page.wait_for(lambda: len(_cells(page, "partitions")) == 6, "six partitions")
        box = "[data-table=partitions]"
        page.driver.find_element("css selector", box).send_keys("orders-3")
        count = "return document.getElementById('partitions-count').textContent"
        page.wait_for(lambda: page.run(count) == "1 of 6", "the count")
        before, reader.until_s = _cells(page, "partitions")[3], 60.0
        page.wait_for(lambda: _cells(page, "partitions")[3] != before, "another event")
        assert page.run(count) == "1 of 6"
