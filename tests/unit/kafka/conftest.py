"""Fixtures that stop drivers at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.kafka.membership.identity import IdentitySlot, take_slot
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from tests.support.by_hand import Hand, by_hand
from tests.unit.kafka.one_member_group import STATE, DriverAndGroup, running, subscribe


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand(waits=True) as hand:
        yield hand


@pytest.fixture
def driver_and_group(hand: Hand) -> Iterator[DriverAndGroup]:
    """Run a driver whose application polls."""
    with running(hand) as both:
        yield both


@pytest.fixture
def joined(hand: Hand, driver_and_group: DriverAndGroup) -> DriverAndGroup:
    subscribe(hand, driver_and_group[0])
    return driver_and_group


@pytest.fixture
def driver_with_slot(hand: Hand, tmp_path: Path) -> Iterator[tuple[DriverAndGroup, IdentitySlot]]:
    slot = take_slot(str(tmp_path), "g", TelemetrySink("g").warn)
    with running(hand, slot, STATE) as both:
        yield both, slot
    slot.release()
