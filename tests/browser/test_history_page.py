"""The page of one group, in a browser."""

from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.report import write_history_page
from coopgroup.report.palette import COLOURS, GAP, UNKNOWN
from coopgroup.telemetry import Envelope
from tests.browser.chromium import Page
from tests.unit.report.histories import Story, rolling_bounce, scale_up_with_warmups

LOAD_S = 3  # of processor time, for a thousand partitions


def opened(
    page: Page, folder: Path, envelopes: list[Envelope], lag: LagHistory | None = None
) -> None:
    path = folder / "page.html"
    write_history_page(envelopes, path, title="Rolling bounce", lag=lag)
    page.open(path)


@pytest.fixture
def small(page: Page, tmp_path: Path) -> Page:
    """Return twelve partitions of four members that are killed in turn; a fifth joins at 42 s."""
    lag = LagHistory(
        times_ms=np.arange(0, 47_500, 500),
        lags=np.ones((95, 12), dtype=np.int64),
        resources=ResourceSet({"orders": range(12)}),
    )
    opened(page, tmp_path, rolling_bounce(12, 4), lag)
    return page


def test_page_has_all_marks_and_needs_no_network(small: Page, tmp_path: Path) -> None:
    """Bars, gaps, rounds, faults, processes, unowned partitions and lag."""
    assert small.requests() == []
    assert sorted(set(small.column("by_owner_owned", "who"))) == ["c-1", "c-2", "c-3", "c-4", "c-5"]
    assert len(small.column("by_owner_gaps", "who")) == 1 + 4 + 1
    assert len(small.column("by_name_gaps", "who")) == 1 + 4 * 3 + 2
    assert len(small.column("rounds", "x")) == 12
    assert small.column("faults", "label") == [f"c-{number} is killed" for number in range(1, 5)]
    assert small.column("faults", "x") == [10, 18, 26, 34]
    assert len(small.column("started", "x")) == 6
    assert len(small.column("ended", "x")) == 4
    assert max(small.column("unowned_counts", "top")) == 12
    curves = small.run("return page.model('lag').renderers.filter((one) => one.name).length")
    assert curves == 5 + 1
    rows = small.driver.find_elements(By.CSS_SELECTOR, "#rounds tbody tr")
    assert len(rows) == 12
    small.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
    assert small.complaints() == []


def test_colours_and_tooltips_say_who_works_when(small: Page) -> None:
    """The first row is that of the first member: unknown, work, a gap, work.

    Tooltips of bars name the member, the partitions and the time; marks describe their event.
    """
    seen = [small.colour("ownership", at_s, 0) for at_s in (1, 6, 11.5, 16)]
    assert seen == [UNKNOWN, COLOURS[0], GAP, COLOURS[0]]
    assert small.colour("ownership", 46, 0) == COLOURS[0]
    assert small.colour("ownership", 46, 1) == COLOURS[4]
    tip = small.point_at("ownership", 6, 0)
    assert tip == "c-1 orders 0, 4, 8 (3 partitions) from 3.040 s to 10.000 s 6.960 s"
    assert small.point_at("ownership", 11, 3).startswith("c-2 orders 1, 5, 9 (3 partitions)")
    assert small.point_at("ownership", 11.1, 0).startswith("nobody orders 0, 4, 8 (3 partitions)")
    assert small.point_at("strip", 10, 2) == "c-1 is killed at 10.000 s"
    assert small.point_at("strip", 12, 0).startswith("Round 2, led by c-2 0 granted, 0 revoked, 3")
    assert small.point_at("unowned", 12, 1).startswith("nobody works on 3 partitions")


def test_rows_can_be_put_in_order_and_a_member_shown_alone(small: Page) -> None:
    """Labels and colours change together, and back; a click fades all other members."""
    label = "return page.model('ownership').left[0].major_label_overrides.get(1)"
    assert small.run(label) == "orders 0"
    small.click("[data-order=by_name]")
    assert small.run(label) == "orders 1"
    small.wait_for_colour("ownership", 6, 1, COLOURS[1])
    assert small.point_at("ownership", 6, 1).startswith("c-2 orders 1 from")
    small.click("[data-order=by_owner]")
    assert small.run(label) == "orders 0"
    small.wait_for_colour("ownership", 6, 1, COLOURS[0])
    small.click("[data-owner='1']")
    faded = small.wait_for_change("ownership", 6, 0, COLOURS[0])
    assert small.colour("ownership", 6, 3) == COLOURS[1]
    assert faded not in COLOURS
    small.click("[data-owner='1']")
    small.wait_for_colour("ownership", 6, 0, COLOURS[0])
    assert small.complaints() == []


def test_times_can_be_chosen_and_rounds_searched(small: Page) -> None:
    """A click on a round shows its time in all figures; the wheel zooms only with shift."""
    whole = small.range()
    assert whole[0] < 0
    assert whole[1] > 47
    turn = (
        "const view = Array.from(Bokeh.index.roots).find((one) => one.model.name === 'ownership');"
        "const box = view.canvas_view.events_el.getBoundingClientRect();"
        "view.canvas_view.events_el.dispatchEvent(new WheelEvent('wheel', {deltaY: -300,"
        " shiftKey: arguments[0] === 'shift', clientX: box.x + box.width / 2, clientY: box.y + 50,"
        " bubbles: true, cancelable: true}))"
    )
    small.run(turn, "no key")
    assert small.range() == whole
    small.run(turn, "shift")
    low, high = small.range()
    assert whole[0] < low < high < whole[1]
    small.click("[data-whole]")
    assert small.range() == whole
    small.click("#rounds [data-at='12.0']")
    low, high = small.range()
    assert whole[0] < low < 12 < high < 20
    ends = (
        "return Array.from(Bokeh.index.roots).filter((one) => one.frame)"
        ".map((one) => one.frame.x_range.end)"
    )
    assert small.run(ends) == [high] * 4
    small.click("[data-whole]")
    assert small.range() == whole
    small.driver.find_element(By.ID, "search").send_keys("Gone: c-3")
    rows = small.driver.find_elements(By.CSS_SELECTOR, "#rounds tbody tr")
    assert [row.text.split(" ")[0] for row in rows if row.is_displayed()] == ["28"]


def test_page_changes_with_dark_mode_and_with_the_width_of_the_window(
    small: Page, tmp_path: Path
) -> None:
    """Figures and page change together, and back; a narrow page never scrolls sideways."""
    ink = "return page.model('ownership').left[0].major_label_text_color"
    paper = "return getComputedStyle(document.querySelector('section')).backgroundColor"
    light = small.run(ink), small.run(paper)
    try:
        small.prefer("dark")
        small.wait_for_change("unowned", 12, 0.5, GAP)
        dark = small.run(ink), small.run(paper)
        assert all(one != other for one, other in zip(light, dark, strict=True))
        small.wait_for_colour("ownership", 11.5, 0, "#000000")
        assert small.colour("ownership", 6, 0) == COLOURS[0]
        small.prefer("light")
        small.wait_for_colour("ownership", 11.5, 0, GAP)
        small.wait_for_colour("unowned", 12, 0.5, GAP)
        assert (small.run(ink), small.run(paper)) == light
        small.prefer("dark")
        small.open(tmp_path / "page.html")  # a page that opens in the dark
        small.wait_for_colour("ownership", 11.5, 0, "#000000")
        small.prefer("light")
        small.wait_for_colour("ownership", 11.5, 0, GAP)
        small.resize(380)
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        small.wait_for(lambda: small.run(wide) <= 0, "no overflow")
        width = "return document.querySelector('#ownership').getBoundingClientRect().width"
        assert 300 < small.run(width) <= 380
    finally:
        small.prefer("light")
        small.resize(0)
    assert small.complaints() == []


@pytest.mark.verify
def test_thousand_partitions_open_within_seconds_and_stay_readable(
    page: Page, tmp_path: Path
) -> None:
    """Partitions start one after the other, and fifty members are killed in turn."""
    opened(page, tmp_path, rolling_bounce(1_000, 50, jitter_ms=2))
    assert page.cpu_s() < LOAD_S
    assert page.complaints() == []
    assert len(page.column("by_owner_owned", "who")) <= 20_000
    assert page.is_near("ownership", 100, 10, COLOURS[0])  # one of fifty members has 20 rows
    assert page.is_near("ownership", 11.5, 10, GAP)
    assert page.is_near("ownership", 19.5, 30, GAP)
    assert page.is_near("ownership", 100, 30, COLOURS[1])
    labels = "const shown = page.model('ownership').left[0].major_label_overrides;"
    labels += "return [shown.size, shown.get(0), shown.get(999)]"
    assert page.run(labels) == [1_000, "orders 50", "orders 999"]


def test_warm_ups_have_rows_of_their_own(page: Page, tmp_path: Path) -> None:
    """They follow the order of the rows, and a member that is shown alone."""
    opened(page, tmp_path, scale_up_with_warmups(6))
    assert page.complaints() == []
    assert page.column("by_name_restoring", "left") == [10.2] * 6
    assert page.column("by_name_warm", "right") == [21.3] * 3
    assert (len(page.column("by_name_moved", "x")), page.column("by_name_cancelled", "x")) == (
        3,
        [15] * 3,
    )
    assert page.is_near("warmups", 20.6, 4, COLOURS[1])
    tip = page.point_at("warmups", 18, 4)
    assert tip.startswith("c-2 restores orders 1, 3, 5 (3 partitions) begun at 10.2 s warm at 20 s")
    assert tip.endswith("moved to it at 21.3 s")
    page.click("[data-order=by_name]")
    assert page.point_at("warmups", 12, 4).startswith("c-2 restores orders 4 begun at 10.2 s never")
    full = page.colour("warmups", 20.6, 1)
    page.click("[data-owner='0']")
    page.wait_for_change("warmups", 20.6, 1, full)
    assert page.complaints() == []


def test_names_cannot_run_scripts(page: Page, tmp_path: Path) -> None:
    """Names of topics and members are shown as text."""
    evil = (
        "</script><img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    )
    story = Story(evil)
    story.start(0, evil)
    story.lead(500, [evil], granted=ResourceSet({evil: [0]}))
    story.work(1_000, evil, ResourceSet({evil: [0]}))
    story.crash(9_000, evil)
    story.work(10_000, "b", ResourceSet({evil: [0]}))
    opened(page, tmp_path, story.envelopes)
    assert evil in page.point_at("ownership", 5, 0)
    assert "is killed" in page.point_at("strip", 9, 2)
    assert page.driver.title == "Rolling bounce"
    assert page.complaints() == []
    assert page.requests() == []
