"""The limits of cold warm-ups, in the group and for each member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import Int64Array
    from coopgroup.core.policies.warming.option import Warmup

__all__ = ["Slots"]


@define(eq=False)
class Slots:
    """How many cold warm-ups may still run.

    Attributes:
        left: in the group.
        left_of: int64 (M,): of each member.
    """

    left: int
    left_of: Int64Array

    @classmethod
    def of(cls, option: Warmup, member_count: int) -> Slots:
        """Return the slots of a group without running warm-ups."""
        return cls(option.max_concurrent, np.full(member_count, option.per_member, dtype=np.int64))

    def fill(self, keys: Int64Array) -> Int64Array:
        """Return the first pairs that find a slot, and use these slots.

        Args:
            keys: pairs as in module `pairs`, in order of preference.
        """
        if not keys.size:
            return keys
        members = keys % self.left_of.size
        order = np.argsort(members, kind="stable")
        ordered = members[order]
        rank = np.empty(keys.size, dtype=np.int64)
        rank[order] = np.arange(keys.size) - ordered.searchsorted(ordered)
        chosen = keys[rank < self.left_of[members]][: self.left]
        self.left -= chosen.size
        self.left_of -= np.bincount(chosen % self.left_of.size, minlength=self.left_of.size)
        return chosen

    def open_members(self) -> list[int]:
        """Return the members that may begin a warm-up."""
        return np.flatnonzero(self.left_of > 0).tolist() if self.left > 0 else []

    def use(self, member: int) -> None:
        """Use a slot of a member."""
        self.left -= 1
        self.left_of[member] -= 1
