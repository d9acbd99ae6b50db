"""`IncrementalPolicy`: as deferred, and what moves does so a few at a time (Design III).

Moving everything at once couples what has nothing to do with each other: a light resource stands
idle until a heavy one, that moves in the same round, has stopped. Here a round takes only a few
resources from their owners, and the next such round comes after an interval. What is lost is not
rationed, for it stands idle anyway; nor is what its owner may not keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from attrs import field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.policies.options import check_option
from coopgroup.policies.rounds import Delays, Ration, offer_round, stage_round

if TYPE_CHECKING:
    from attrs import Attribute

    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array
    from coopgroup.policies.base import Offer, RoundContext, StagedRound

__all__ = ["IncrementalPolicy"]

_DEFAULT_RATION: Final = Ration(moves_max=10, interval_ms=1_000)


def _delay(policy: IncrementalPolicy, attribute: Attribute[int], value: int) -> None:
    check_option(policy.name, attribute.name, value)


def _ration(policy: IncrementalPolicy, attribute: Attribute[int | None], value: int | None) -> None:
    if value is not None:
        check_option(policy.name, attribute.name, value, least=1)


def _interval(
    policy: IncrementalPolicy, attribute: Attribute[int | None], value: int | None
) -> None:
    if value is None:
        return
    check_option(policy.name, attribute.name, value)
    if policy.max_moves_per_round is None:
        raise ConfigurationError(
            f"{attribute.name} of policy {policy.name}",
            value,
            "max_moves_per_round beside it: an interval needs a ration",
        )


@frozen(kw_only=True)
class IncrementalPolicy:
    """Design III, "Incremental Resolution of Imbalance".

    Attributes:
        max_moves_per_round: how many resources one round takes from owners that could keep them.
            Where neither this nor the interval is given, 10 resources move every 1,000 ms.
        move_interval_ms: from one round that does so to the next, in ms. With 0, which is meant
            when only the ration is given, the next ones follow in the round that grants the last.
        scheduled_rebalance_timeout_ms: how long lost resources wait for their owner, in ms.
        initial_delay_ms: how long the first members of a group wait for others, in ms; with 0
            they start at once.

    Raises:
        ConfigurationError: an option is no integer, is negative or above 2147483647, the ration is
            0, or there is an interval without a ration.
    """

    name: ClassVar[str] = "incremental"
    max_moves_per_round: int | None = field(default=None, validator=_ration)
    move_interval_ms: int | None = field(default=None, validator=_interval)
    scheduled_rebalance_timeout_ms: int = field(default=60_000, validator=_delay)
    initial_delay_ms: int = field(default=0, validator=_delay)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer everything but what waits for its owner."""
        return offer_round(group, context, self._delays)

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Stage a round.

        Args:
            group: the group with R resources.
            target: int32 (R,): where the assignor wants what it was offered, NOBODY elsewhere.
            context: the same as for `offer`.

        Returns:
            The plan and the state to remember.
        """
        return stage_round(group, target, context, self._delays, self.ration)

    @property
    def ration(self) -> Ration:
        """How many move and how often, defaults filled in."""
        if self.max_moves_per_round is None:
            return _DEFAULT_RATION
        return Ration(moves_max=self.max_moves_per_round, interval_ms=self.move_interval_ms or 0)

    @property
    def _delays(self) -> Delays:
        return Delays(loss_ms=self.scheduled_rebalance_timeout_ms, initial_ms=self.initial_delay_ms)
