"""The built-in policies, and their names.

`SimplePolicy`, `DeferredPolicy` and `IncrementalPolicy` are settings of one round (module `stage`):
how long lost resources wait, how many resources move in a round, whether lags are balanced, and
whether a receiver warms up first. `EagerPolicy` is the baseline without cooperative rebalancing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.model.named_factories import NamedFactories
from coopgroup.core.model.options import check_option
from coopgroup.core.policies.balance import BalanceRule
from coopgroup.core.policies.facts import facts_of, remember_round
from coopgroup.core.policies.policy import Offer, Policy, StagedRound
from coopgroup.core.policies.stage import Delays, Ration, offer_round, stage_round
from coopgroup.core.policies.warmth import Warmup, read_warmup
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array
    from coopgroup.core.policies.policy import RoundContext


# --- simple ---------------------------------------------------------------------------------------
# `SimplePolicy`: resolve every imbalance immediately, in as many rounds as it takes (Design I).
#
# The rule for every resource and the member in its target:
#
#     the target is the rightful owner    the owner keeps it and never stops (retained)
#     the resource is unclaimed           granted now
#     another member claims it            that member stops it; it is granted once it is unclaimed
#
# A claim counts until it is given up, whether rightful or not. So a resource with a stale claim or
# with two tied claims (KIP-792) is not granted yet. A member that leaves takes its claims with it:
# its resources are granted in that same round. A claim that an earlier round revoked, and that
# still exists, is revoked again for its member only.


_NO_DELAYS: Final = Delays(loss_ms=0, initial_ms=0)


@frozen(kw_only=True)
class SimplePolicy:
    """Design I, "Simple Cooperative Rebalancing": move immediately in two steps, revoke and assign.

    It is `DeferredPolicy` with delays of 0: it never schedules a rebalance, and lost resources
    never wait.

    Attributes:
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: `warmup` is not a `Warmup`, nor an object with its options.
    """

    name = "simple"
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources with their rightful owners; resources being stopped are free."""
        return offer_round(group, context, _NO_DELAYS)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Keep, revoke and grant by the rule of this module."""
        return stage_round(group, target, context, offer, _NO_DELAYS)


# --- deferred -------------------------------------------------------------------------------------
# `DeferredPolicy`: resources of a departed member wait for it for some time (Design II).
#
# A restarted process returns soon. Reassigning its resources would cost two rebalances and end
# where the group began. So lost resources wait, each loss with its own deadline. All other
# imbalances are resolved immediately.


def _checked(policy: DeferredPolicy, attribute: Attribute[int], value: int) -> None:
    check_option(policy.name, attribute.name, value)


@frozen(kw_only=True)
class DeferredPolicy:
    """Design II, "Deferred Resolution of Imbalance".

    With a delay of 0 it equals `SimplePolicy`.

    Attributes:
        scheduled_rebalance_timeout_ms: how long lost resources wait for their owner, in ms.
        initial_delay_ms: how long the first members of a group wait for others, in ms; 0 for not at
            all.
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: an option is not an integer from 0 to 2147483647, or `warmup` is not a
            `Warmup`, nor an object with its options.
    """

    name = "deferred"
    scheduled_rebalance_timeout_ms: int = field(default=60_000, validator=_checked)
    initial_delay_ms: int = field(default=0, validator=_checked)
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources that do not wait for their owner."""
        return offer_round(group, context, self._delays)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Stage a round."""
        return stage_round(group, target, context, offer, self._delays)

    @property
    def _delays(self) -> Delays:
        return Delays(loss_ms=self.scheduled_rebalance_timeout_ms, initial_ms=self.initial_delay_ms)


# --- incremental ----------------------------------------------------------------------------------
# `IncrementalPolicy`: like deferred, and resources move a few at a time (Design III).
#
# Moving everything together couples independent resources: a light resource is out of service until
# a heavy one of the same round has stopped. Here a round takes only a few resources from their
# owners, and the next such round follows after an interval. Lost resources are not rationed,
# because they are out of service anyway. Resources that their owner may not keep are not rationed
# either.
#
# The policy can also balance lags while the group is settled (`balance`). No other policy moves
# resources only because of lags.


_DEFAULT_RATION: Final = Ration(moves_max=10, interval_ms=1_000)
_COOLDOWN_INTERVALS: Final = 10
_MOVES_OF_AN_EXCHANGE: Final = 2


def _check_delay(policy: IncrementalPolicy, attribute: Attribute[int], value: int) -> None:
    check_option(policy.name, attribute.name, value)


def _check_ration(
    policy: IncrementalPolicy, attribute: Attribute[int | None], value: int | None
) -> None:
    if value is not None:
        check_option(policy.name, attribute.name, value, least=1)


def _check_move_interval(
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


def _check_lag_interval(
    policy: IncrementalPolicy, attribute: Attribute[int | None], value: int | None
) -> None:
    if value is None:
        return
    check_option(policy.name, attribute.name, value, least=1)
    if policy.ration.moves_max < _MOVES_OF_AN_EXCHANGE:
        raise ConfigurationError(
            f"max_moves_per_round of policy {policy.name}",
            policy.max_moves_per_round,
            f"at least {_MOVES_OF_AN_EXCHANGE} beside {attribute.name}: an exchange takes two",
        )


def _check_delay_or_none(
    policy: IncrementalPolicy, attribute: Attribute[int | None], value: int | None
) -> None:
    if value is not None:
        check_option(policy.name, attribute.name, value)


@frozen(kw_only=True)
class IncrementalPolicy:
    """Design III, "Incremental Resolution of Imbalance".

    Attributes:
        max_moves_per_round: how many resources one round takes from owners that could keep them. If
            neither this nor the interval is given, 10 resources move every 1,000 ms.
        move_interval_ms: time between two such rounds, in ms; 0 if only `max_moves_per_round` is
            given. With 0, one round grants what the round before revoked, and revokes the next.
        scheduled_rebalance_timeout_ms: how long lost resources wait for their owner, in ms.
        initial_delay_ms: how long the first members of a group wait for others, in ms; 0 for not at
            all.
        lag_check_interval_ms: time between two checks of the lags, in ms, for assignors that read
            lags; None for never.
        lag_imbalance_min: a member with less lag than this, in records, is never overloaded.
        lag_cooldown_ms: time from a balancing round to the next check, in ms; None for ten
            intervals.
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: an option is not an integer, is negative or above 2147483647; the ration
            is 0; there is an interval without a ration; lags are to be balanced with a ration of 1;
            or `warmup` is not a `Warmup`, nor an object with its options.
    """

    name = "incremental"
    max_moves_per_round: int | None = field(default=None, validator=_check_ration)
    move_interval_ms: int | None = field(default=None, validator=_check_move_interval)
    scheduled_rebalance_timeout_ms: int = field(default=60_000, validator=_check_delay)
    initial_delay_ms: int = field(default=0, validator=_check_delay)
    lag_check_interval_ms: int | None = field(default=None, validator=_check_lag_interval)
    lag_imbalance_min: int = field(default=10_000, validator=_check_delay)
    lag_cooldown_ms: int | None = field(default=None, validator=_check_delay_or_none)
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources that do not wait for their owner."""
        return offer_round(group, context, self._delays)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Stage a round."""
        return stage_round(group, target, context, offer, self._delays, self.ration, self.balance)

    @property
    def ration(self) -> Ration:
        """The number of moves and their interval, with defaults filled in."""
        if self.max_moves_per_round is None:
            return _DEFAULT_RATION
        return Ration(moves_max=self.max_moves_per_round, interval_ms=self.move_interval_ms or 0)

    @property
    def balance(self) -> BalanceRule | None:
        """The rule of the lag balance, with defaults filled in; None if it is off."""
        interval_ms, cooldown_ms = self.lag_check_interval_ms, self.lag_cooldown_ms
        if interval_ms is None:
            return None
        return BalanceRule(
            interval_ms=interval_ms,
            lag_min=self.lag_imbalance_min,
            cooldown_ms=_COOLDOWN_INTERVALS * interval_ms if cooldown_ms is None else cooldown_ms,
            moves_max=self.ration.moves_max,
        )

    @property
    def _delays(self) -> Delays:
        return Delays(loss_ms=self.scheduled_rebalance_timeout_ms, initial_ms=self.initial_delay_ms)


# --- eager ----------------------------------------------------------------------------------------
# `EagerPolicy`: all members stop, and then the whole target is assigned.
#
# Groups without cooperative rebalancing work like this: members give up everything before they
# join, so no claim stands in the way. The simulator and `coopgroup plan` use it as a baseline. Our
# own members keep their resources when they join, so a consumer never uses this policy.


@frozen(kw_only=True)
class EagerPolicy:
    """Assigns the whole target: nothing is revoked, nothing waits, no round follows."""

    name = "eager"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:  # noqa: ARG002 - the Protocol's
        """Offer all resources with their rightful owners, for sticky assignors."""
        return Offer(
            owner=group.owner, withheld_from_assignor=np.zeros(len(group.resources), dtype=np.bool_)
        )

    def stage(
        self,
        group: GroupSnapshot,
        target: Int32Array,
        context: RoundContext,
        offer: Offer,  # noqa: ARG002 - the Protocol's
    ) -> StagedRound:
        """Assign the target."""
        unclaimed = facts_of(group, context).unclaimed
        nothing = np.zeros(len(group.resources), dtype=np.bool_)
        plan = RoundPlan(
            target=target,
            assigned=target,
            follow_up=False,
            lost=nothing,
            created=unclaimed.created & (target != NOBODY),
            waiting=nothing,
        )
        return StagedRound(plan=plan, state=remember_round(group, context, unclaimed, target))


# --- names ----------------------------------------------------------------------------------------


_POLICIES: Final = NamedFactories[Policy](
    "policy",
    {
        policy.name: policy
        for policy in (DeferredPolicy, EagerPolicy, IncrementalPolicy, SimplePolicy)
    },
    made=Policy,
)

choose_policy = _POLICIES.choose
create_policy = _POLICIES.create
policy_names = _POLICIES.names
register_policy = _POLICIES.register
