"""One browser for all tests of this folder, and an empty page for each test."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Page, browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Page]:
    """Start a browser without network."""
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Page) -> Page:
    """Return the browser without a page and without logs of the previous test."""
    chromium.clear()
    return chromium
