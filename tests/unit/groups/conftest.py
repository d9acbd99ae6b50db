"""The hand of each test, which turns waits as well, and a bench of work on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.by_hand import Hand, by_hand
from tests.unit.groups.bench import Bench


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand(waits=True) as made:
        yield made


@pytest.fixture
def bench(hand: Hand) -> Iterator[Bench]:
    made = Bench(hand)
    yield made
    made.check()
