"""A browser for the tests of a file, and an empty page of it for each test."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Page, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    """A browser without a network, gone with the last test of the file."""
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Page) -> Page:
    """The browser with nothing opened, and nothing left of the test before."""
    chromium.clear()
    return chromium
