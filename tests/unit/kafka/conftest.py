"""Slots that are released, and drivers that are stopped, when their test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.kafka.identity import IdentitySlot, take_slot
from tests.unit.kafka.one_member_group import STATE, DriverAndGroup, fail, running


@pytest.fixture
def slots() -> Iterator[list[IdentitySlot]]:
    """Slots put in here are released at the end."""
    held: list[IdentitySlot] = []
    yield held
    for slot in held:
        slot.release()


@pytest.fixture
def driver_and_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverAndGroup]:
    """A driver that runs, its application polling."""
    with running(monkeypatch) as both:
        yield both


@pytest.fixture
def driver_with_slot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[DriverAndGroup, IdentitySlot]]:
    """A driver with a slot."""
    slot = take_slot(str(tmp_path), "g", fail)
    with running(monkeypatch, slot, STATE) as both:
        yield both, slot
    slot.release()
