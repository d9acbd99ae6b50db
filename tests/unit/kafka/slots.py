"""Helpers to take a slot of a state directory."""

from __future__ import annotations

from pathlib import Path

from coopgroup.kafka.membership.identity import IdentitySlot, take_slot
from coopgroup.member import KeptIdentity

__all__ = ["ANNA", "take"]

ANNA = KeptIdentity(member_id="anna-1", generation=7, topics=("bills", "orders"))


def no_warning(event: str, **fields: object) -> None:
    raise AssertionError(f"{event} {fields}")


def take(folder: Path, group_id: str = "g") -> IdentitySlot:
    return take_slot(str(folder), group_id, no_warning)
