"""`DrainTimeAssignor`: all members finish their backlog at the same time, on unequal machines.

Members report how many records they process in a second of work. The leader knows the lag of each
partition and how fast it grows. The assignor evens out the time that each member needs to drain its
partitions, so fast members get more. Module `work` defines that time and why.

1. Fresh placement: the longest work first, each partition to the member that finishes it first
   (`levelling.longest_first`).
2. If members own partitions, each keeps what it can, and the free partitions are dealt. Every
   member gets at least one if there are enough.
3. If times are less even than in a fresh placement, by more than a move must gain, partitions move:
   many in one step where shares differ, single ones and exchanges where single partitions matter
   (package `levelling`).

If subscriptions differ, pools are dealt and levelled one after the other. Each pool counts the load
that its subscribers carry from the other pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from coopgroup.core.assignors.drain.work import work_of
from coopgroup.core.assignors.levelling.placing import Placing
from coopgroup.core.assignors.move_budget import GAIN_MIN, MoveBudget
from coopgroup.core.assignors.options import count_or_none
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

__all__ = ["LOOKS_MAX", "DrainTimeAssignor"]

LOOKS_MAX: Final = 1_000  # about a second in the largest groups; the next round continues


@frozen(kw_only=True)
class DrainTimeAssignor:
    """Evens out the time that members need to drain their partitions.

    Attributes:
        moves_max: how many partitions may leave their owner for better times in one round; None
            means any number. Moves that give a member its first partition do not count. Members
            whose times differ by less than `GAIN_MIN` of the mean time are left alone, and each
            single move must gain more.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    name = "drain-time"
    needs_lags = True

    moves_max: int | None = field(default=None, validator=count_or_none)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource that has a subscriber.

        Args:
            group: the group with R resources. Resources stay with `group.owner` where possible; the
                members and `group.arrivals_per_s` give the known rates.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should own each resource, or `NOBODY`.
        """
        placing = Placing(pools=subscriber_pools(group), work=work_of(group, lags))
        fresh = placing.fresh(_budget(None))
        kept = placing.kept(group)
        if not (kept != NOBODY).any():
            return fresh
        goal = placing.work.times(fresh)
        del fresh  # frees four megabytes for a million partitions
        target = kept.copy()
        placing.deal_free(target)
        placing.give_everybody_one(target)
        if not placing.is_as_even(target, goal, GAIN_MIN):
            placing.even_out(target, kept, goal, _budget(self.moves_max))
        return target


def _budget(moves_max: int | None) -> MoveBudget:
    return MoveBudget(gain_min=GAIN_MIN, moves_left=moves_max, looks_left=LOOKS_MAX)
