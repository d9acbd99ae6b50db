"""A browser for the tests of a file, and an empty page for each test."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Page, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    """Start a browser without network for the tests of a file."""
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Page) -> Page:
    """Return the browser without a page and without logs of the previous test."""
    chromium.clear()
    return chromium
