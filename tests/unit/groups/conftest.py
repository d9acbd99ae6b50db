"""The hand of each test, which turns waits as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.by_hand import Hand, by_hand


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand(waits=True) as made:
        yield made
