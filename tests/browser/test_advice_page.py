"""The page of an advice, in a browser."""

from pathlib import Path

from coopgroup.pipeline.advice.cost import MoveCost, deferred, with_warmups
from coopgroup.pipeline.advice.view import view_of
from coopgroup.report.advice_page import write_advice_page
from tests.browser.chromium import Page
from tests.unit.pipeline.advices import made_advice, option
from tests.unit.pipeline.return_times import history


def test_page_says_what_to_do_and_shows_why(page: Page, tmp_path: Path) -> None:
    """Without network and without a console message; the snippet can be copied unchanged."""
    advice = made_advice(history=history([12_000] * 29 + [None], notes=("Beware <of> this.",)))
    path = tmp_path / "advice.html"
    write_advice_page(view_of(advice), path)
    page.open(path)
    assert page.complaints() == []
    assert page.requests() == []
    text = page.run("return document.body.innerText")
    assert "Use the deferred policy, which waits 30 s for a lost member." in text
    assert "Beware <of> this." in text
    copied = page.run("return document.getElementById('snippet').innerText")
    compile(copied, "snippet", "exec")
    assert "scheduled_rebalance_timeout_ms=30_000" in copied
    assert page.column("unavailable_over_timeout_0", "y") == [90, 80, 40, 200]
    assert page.is_near("unavailable_over_timeout", 2, 10, "#c2001f")  # the advised timeout
    tip = page.point_at("unavailable_over_timeout", 1, 80)
    assert tip == "out of service 80 (72 to 88) time-out for lost partitions: 5 s"
    rows = page.run("return document.querySelector('#tried tbody').innerText")
    assert rows.splitlines()[0].startswith("deferred, waits 30 s advised")
    assert page.run("return document.querySelector('.lead').innerText").startswith("Use the defer")


def test_page_fits_a_phone(page: Page, tmp_path: Path) -> None:
    """Nothing is wider than the screen, and each figure has its label beside it."""
    costs = {1_000 * place: 40_000.0 + 1_000 * place for place in range(9)}
    options = [option(deferred(waits), one, restores=one / 20) for waits, one in costs.items()]
    (_, doubled) = with_warmups(deferred(35_000), MoveCost(move_ms=20_000), members=4)
    options.append(option(doubled, 900.0, restores=0.1))  # the longest name of a curve
    path = tmp_path / "advice.html"
    write_advice_page(view_of(made_advice(options=tuple(options), best=9)), path)
    page.resize(390)
    try:
        page.open(path)
        assert page.run("return document.documentElement.scrollWidth") == 390
        assert page.run("return document.querySelector('#price') !== null")
        label = "getComputedStyle(document.querySelector('#tried td.number'), '::before').content"
        assert page.run(f"return {label}") == '"partition-seconds out of service a day"'
        wide = "Array.from(document.querySelectorAll('#tried td')).filter((one) =>"
        wide += " one.getBoundingClientRect().right > 390).length"
        assert page.run(f"return {wide}") == 0
        assert page.run("return document.querySelectorAll('#tried tbody tr').length") == 5
        assert page.run("return document.querySelector('summary').innerText") == "5 more settings"
        assert not page.run("return document.querySelector('details').open")
    finally:
        page.resize(0)
