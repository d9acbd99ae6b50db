"""`Session`: a member and its memory as a leader, as one frozen value.

This file defines values. `stepping` moves a session.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member import Member, new_member
from coopgroup.core.model.replacing import replaced

if TYPE_CHECKING:
    from coopgroup.core.member import KeptIdentity, MemberConfig
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.group_api import JoinGroupAnswer
    from coopgroup.core.model.resource_set import Int64Array
    from coopgroup.core.policies.balance import BalanceRule
    from coopgroup.core.policies.memory import PolicyState


@frozen(kw_only=True)
class OwedRound:
    """A round that an earlier process of this member would have started as leader.

    Attributes:
        member_id: member id of that process.
        generation: the last round that it led; in another generation the policy has decided anew.
        at_ms: when to start it, on the present host's monotonic clock.
    """

    member_id: str
    generation: int
    at_ms: int


@frozen(kw_only=True, eq=False)
class LagWatch:
    """A leader's memory between two checks of the lags.

    Attributes:
        rule: rule of the policy.
        group: the group after the last round: each member claims what it was assigned.
        asked: whether that round was started because lags were uneven.
        moved: whether any resource changed its owner in it.
        looks: (member id, consecutive checks in which it was overloaded) of members with a count.
        lags: lags of the group's resources at the last check, int64 (R,); None before the first.
        due_ms: time of the next check.
        number: number of the last requested check.
    """

    rule: BalanceRule
    group: GroupSnapshot
    asked: bool
    moved: bool
    looks: tuple[tuple[str, int], ...] = ()
    lags: Int64Array | None = None
    due_ms: int = 0
    number: int = 0


@frozen(kw_only=True, slots=False)  # for `replaced`
class Session:
    """A member and its memory as a leader.

    Attributes:
        member: the member.
        policy_state: the policy's state from the last round, None if this member did not lead it.
        led_generation: generation of the round of `policy_state`, or None.
        asked_for_ms: the policy's deadline for which a round was already started, or None.
        refusals: rounds in a row that this leader decided and that moved nothing.
        retry_at_ms: when the leader starts a round again after the last of them, or None.
        leads_as: member id and generation of a round that this member leads but did not decide.
        returned: the answer that made it the leader of that round, until its assignment arrives.
        owed: round left by an earlier process, or None. Its `policy_state` is gone.
        watch: memory of lag checks since that round, None without checks.
        asks_balance: whether it started a round because of uneven lags, and has not led it yet.
        overdue_told_ms: when it last reported claims that members do not give up, or None.
        differences: reported differences of members in policy or assignor, as of its last round.
    """

    member: Member
    policy_state: PolicyState | None = None
    led_generation: int | None = None
    asked_for_ms: int | None = None
    refusals: int = 0
    retry_at_ms: int | None = None
    leads_as: tuple[str, int] | None = None
    returned: JoinGroupAnswer | None = None
    owed: OwedRound | None = None
    watch: LagWatch | None = None
    asks_balance: bool = False
    overdue_told_ms: int | None = None
    differences: frozenset[str] = frozenset()

    @property
    def leads(self) -> bool:
        """Whether this member leads its group, perhaps since an earlier process."""
        here = (self.member.member_id, self.member.generation)
        return self.policy_state is not None or self.leads_as == here


def new_session(
    config: MemberConfig,
    kept: KeptIdentity | None = None,
    *,
    led: bool = False,
    next_round_in_ms: int | None = None,
    now_ms: int = 0,
) -> Session:
    """Return a session whose member has not subscribed yet.

    Args:
        config: settings of the member.
        kept: identity of the earlier process, or None; see `new_member`.
        led: whether that process led its group.
        next_round_in_ms: time from its last round to the round that it owed, in ms, which counts
            from now: the time that it was away is unknown. None without one.
        now_ms: the host's monotonic clock, in ms.

    Raises:
        ConfigurationError: see `new_member`.
    """
    member = new_member(config, kept)
    if kept is None or not led:
        return Session(member=member)
    owed = None
    if next_round_in_ms is not None:
        at_ms = now_ms + next_round_in_ms
        owed = OwedRound(member_id=kept.member_id, generation=kept.generation, at_ms=at_ms)
    return Session(member=member, leads_as=(kept.member_id, kept.generation), owed=owed)


# --- measurements of the application, which the member reports to the leader ----------------------


_SMOOTHED_OVER_S: Final = 10.0


def smoothed_rate(before: float | None, rate_per_s: float, seconds: float) -> float:
    """Return the rate after another interval of work, as a mean with decaying weights.

    Args:
        before: rate before the interval, None if unknown.
        rate_per_s: records per second in the interval.
        seconds: its length; the earlier rate keeps a weight of exp(-seconds / 10).
    """
    if before is None:
        return rate_per_s
    return before - math.expm1(-seconds / _SMOOTHED_OVER_S) * (rate_per_s - before)


def with_rate(session: Session, rate_per_s: float | None) -> Session:
    """Return the session with the rate for its next join.

    Args:
        session: in any state; nothing else changes.
        rate_per_s: records that the application processes in a second of work, None if unknown.
    """
    member = session.member
    if member.next_join.consumption_rate_per_s == rate_per_s:
        return session
    next_join = attrs.evolve(member.next_join, consumption_rate_per_s=rate_per_s)
    return replaced(session, member=replaced(member, next_join=next_join))
