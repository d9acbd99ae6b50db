"""The lag balance: whether lags are uneven for a long time, and which moves even them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import holds, pair_keys, refusals
from coopgroup.core.policies.tables import LAG_STEPS, LagStep

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array


# --- checks between rounds ------------------------------------------------------------------------
# Lags change every second, so a single check is no reason for a round. A member is overloaded if
# its lag exceeds a multiple of the mean in several consecutive checks. Below a lower multiple the
# count is reset, and between the two it stays. A lag that is too small never counts. While a
# resource waits or moves, the leader does not check.
#
# Members that report their rate (`consumption_rate_per_s`) are compared by the time that they need
# for their backlog: the lag of a member with twice the mean speed counts half.


_SPEED_MAX: Final = 10.0  # in multiples of the mean; bounds the trust in a brief measurement


@frozen(kw_only=True)
class BalanceRule:
    """When lags are uneven, and how far a round may change that.

    Attributes:
        interval_ms: time between two checks of the lags.
        lag_min: a member with less lag than this, in records, is never overloaded.
        cooldown_ms: time from a balancing round to the next check, so that its effect shows.
        moves_max: how many resources one round takes from their owners.
        ratio: a member above this multiple of the mean lag is overloaded.
        calm_ratio: a member at or below this multiple is no longer overloaded.
        looks: number of consecutive checks in which a member must be overloaded before a round.
    """

    interval_ms: int
    lag_min: int
    cooldown_ms: int
    moves_max: int
    ratio: float = 1.5
    calm_ratio: float = 1.25
    looks: int = 3


def speeds(group: GroupSnapshot) -> Float64Array:
    """Return each member's speed as a multiple of the known mean: float64 (M,), 1 if unknown."""
    told = np.nan_to_num(group.rates_per_s())
    known = told > 0
    if not known.any():
        return np.ones(told.size)
    relative = np.where(known, told / told[known].mean(), 1.0)
    return np.clip(relative, 1 / _SPEED_MAX, _SPEED_MAX)


def lag_loads(group: GroupSnapshot, holder: Int32Array, lags: Int64Array) -> Float64Array:
    """Return each member's lag divided by its speed: float64 (M,).

    Args:
        group: with M members and R resources.
        holder: int32 (R,): member numbers, `NOBODY` without a holder.
        lags: int64 (R,): at least 0.
    """
    # `NOBODY` is -1
    sums = np.bincount(holder + 1, weights=lags, minlength=len(group.members) + 1)
    loads: Float64Array = sums[1:] / speeds(group)
    return loads


def overloaded(rule: BalanceRule, loads: Float64Array) -> BoolArray:
    """Return which members have enough lag to give something away: bool (M,).

    Args:
        rule: rule of the policy.
        loads: float64 (M,): lag of each member.
    """
    over: BoolArray = (loads > rule.calm_ratio * _mean(loads)) & (loads >= rule.lag_min)
    return over


def count_looks(
    rule: BalanceRule,
    member_ids: tuple[str, ...],
    loads: Float64Array,
    before: tuple[tuple[str, int], ...],
) -> tuple[tuple[str, int], ...]:
    """Return in how many consecutive checks each member was overloaded.

    Args:
        rule: rule of the policy.
        member_ids: M ids.
        loads: float64 (M,): lag of each member, at least 0.
        before: result of the last check; () at the first one.

    Returns:
        (member id, checks) of the members with a count, in the order of the members.
    """
    facts = {
        "matters": loads >= rule.lag_min,
        "over": loads > rule.ratio * _mean(loads),
        "calm": loads <= rule.calm_ratio * _mean(loads),
    }
    known = dict(before)
    looks = np.array([known.get(member, 0) for member in member_ids], dtype=np.int64)
    steps = LAG_STEPS.decide_each(**facts)
    looks[steps.are(LagStep.COUNT)] += 1
    looks[steps.are(LagStep.RESET)] = 0
    counted = np.flatnonzero(looks).tolist()
    return tuple((member_ids[number], int(looks[number])) for number in counted)


def _mean(loads: Float64Array) -> float:
    return float(loads.mean()) if loads.size else 0.0


# --- the moves of a balancing round ---------------------------------------------------------------
# Choose the few moves of an assignor's target that even out lags most.
#
# An assignor that reads lags returns a whole target. A balancing round takes only a few steps
# towards it, and the result must be better than before even if no step follows. So two members
# exchange one resource for another, which keeps their counts, or one gives a resource away if the
# target itself wants other counts.
#
# The partner of an exchange may differ from the target's: if the target passes resources around a
# circle of three members, an exchange between two of them is better than a single step of the
# circle. No partner gets a resource that it declines. If the assignor has limits, only it knows
# what fits, so the target decides.
#
# The choice depends only on group, target and lags. Only overloaded members begin a step. Each move
# of a step must lighten the heavier of its two members by more than a tenth of the mean, and by
# more than a tenth of the minimum lag that counts. Lags change by less than that between two checks
# anyway.


_GAIN_SHARE: Final = 0.1
_GIVEN_MAX: Final = 64  # considered resources of one heavy member, those with the most lag
_TAKEN_MAX: Final = 4_096  # considered resources for the exchange, of owners with the least lag


def lag_moves(
    group: GroupSnapshot,
    target: Int32Array,
    lags: Int64Array,
    candidates: BoolArray,
    rule: BalanceRule,
    *,
    has_limits: bool = False,
) -> Int32Array:
    """Choose the resources to move and their new holders.

    Args:
        group: the group with R resources.
        target: int32 (R,): where the assignor wants each resource.
        lags: int64 (R,): at least 0.
        candidates: bool (R,): owned, with another member as target.
        rule: rule of the policy.
        has_limits: whether only the assignor knows where a resource fits.

    Returns:
        int32 (R,): new holder of at most `rule.moves_max` candidates, `NOBODY` elsewhere.
    """
    moves = np.full(len(group.resources), NOBODY, dtype=np.int32)
    positions = np.flatnonzero(candidates)
    loads = lag_loads(group, group.owner, lags)
    if not positions.size:
        return moves
    search = _Search(
        keys=pair_keys(group, positions, np.zeros_like(positions)),
        refused=refusals(group),
        has_limits=has_limits,
        owner=group.owner[positions],
        target=target[positions],
        name=group.resources.name_numbers[positions],
        lags=lags[positions],
        speeds=speeds(group),
        loads=loads,
        gain_min=_gain_min(loads, rule),
    )
    search.run(overloaded(rule, loads), rule.moves_max)
    moves[positions] = search.goes_to
    return moves


def _gain_min(loads: Float64Array, rule: BalanceRule) -> float:
    """Return what each move must gain, in records."""
    return _GAIN_SHARE * max(float(loads.mean()), rule.lag_min)


@frozen(kw_only=True)
class _Step:
    """A step: positions of its candidates, and its gain per move."""

    given: int
    taken: int | None
    gain: float


@define(kw_only=True, eq=False)
class _Search:
    """N candidates in a group with M members.

    Attributes:
        keys: int64 (N,): the pair of each candidate and member 0.
        refused: pairs of a resource and a member that declines it, ascending.
        has_limits: whether only the assignor knows where a resource fits.
        owner: int32 (N,).
        target: int32 (N,).
        name: (N,): number of the topic.
        lags: int64 (N,).
        speeds: float64 (M,): speed of each member.
        loads: float64 (M,): lag of each member by its speed, after the chosen moves.
        gain_min: what each move must gain, in records.
        goes_to: int32 (N,): new holder of the chosen candidates, `NOBODY` for the rest.
    """

    keys: Int64Array
    refused: Int64Array
    has_limits: bool
    owner: Int32Array
    target: Int32Array
    name: Int64Array
    lags: Int64Array
    speeds: Float64Array
    loads: Float64Array
    gain_min: float
    goes_to: Int32Array = field(init=False)
    # How many resources a member has above the target: in total, int64 (M,), and per topic, one
    # entry for each pair of member and topic, with the pairs of each candidate's owner and target.
    _surplus: Int64Array = field(init=False)
    _surplus_of_pair: Int64Array = field(init=False)
    _pair_of_owner: Int64Array = field(init=False)
    _pair_of_target: Int64Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Count each member's surplus."""
        count, members = self.owner.size, self.loads.size
        self.goes_to = np.full(count, NOBODY, dtype=np.int32)
        self._surplus = np.bincount(self.owner, minlength=members)
        self._surplus = self._surplus - np.bincount(self.target, minlength=members)
        holders = np.concatenate([self.owner, self.target]).astype(np.int64)
        keys = np.concatenate([self.name, self.name]).astype(np.int64) * members + holders
        _, pairs = np.unique(keys, return_inverse=True)
        self._pair_of_owner, self._pair_of_target = pairs[:count], pairs[count:]
        self._surplus_of_pair = np.bincount(pairs[:count], minlength=pairs.max() + 1)
        self._surplus_of_pair = self._surplus_of_pair - np.bincount(
            pairs[count:], minlength=pairs.max() + 1
        )

    def run(self, heavy: BoolArray, moves_max: int) -> None:
        """Choose steps, heaviest member first, until no step gains or the ration is used up."""
        left, heavy = moves_max, heavy.copy()
        while left > 0 and heavy.any():
            giver = int(np.argmax(np.where(heavy, self.loads, -1)))
            step = self._best(giver, left)
            if step is None:
                heavy[giver] = False
                continue
            left -= 1 if step.taken is None else 2
            self._take(step)

    def _best(self, giver: int, left: int) -> _Step | None:
        free = self.goes_to == NOBODY
        mine = np.flatnonzero((self.owner == giver) & free & (self.lags > 0))
        mine = mine[np.argsort(-self.lags[mine], kind="stable")][:_GIVEN_MAX]
        # Candidates whose owner has more of their topic than in the target.
        spares = self._surplus_of_pair[self._pair_of_owner] > 0
        steps = [self._handed_over(given) for given in mine[spares[mine]].tolist()]
        if left > 1:
            others = self._to_exchange(giver)
            steps += [self._exchanged(given, others) for given in mine.tolist()]
        return max((step for step in steps if step), key=lambda step: step.gain, default=None)

    def _handed_over(self, given: int) -> _Step | None:
        """Return the step that moves one resource to its target, which changes the two counts."""
        giver, getter = self.owner[given], self.target[given]
        if self._surplus[giver] <= 0 or self._surplus[getter] >= 0:
            return None
        lag = self.lags[given]
        lighter = self.loads[giver] - lag / self.speeds[giver]
        heavier = self.loads[getter] + lag / self.speeds[getter]
        return self._step(given, None, float(self.loads[giver] - max(lighter, heavier)))

    def _to_exchange(self, giver: int) -> Int64Array:
        others = np.flatnonzero((self.owner != giver) & (self.goes_to == NOBODY))
        loads = self.loads[self.owner[others]]
        if others.size > _TAKEN_MAX:  # sorting a few is several times faster than sorting all
            light = loads <= np.partition(loads, _TAKEN_MAX)[_TAKEN_MAX]
            others, loads = others[light], loads[light]
        return others[np.lexsort((self.lags[others], loads))][:_TAKEN_MAX]

    def _exchanged(self, given: int, others: Int64Array) -> _Step | None:
        """Return the best exchange of one resource for a resource of another member.

        Both are of one topic and fit, or the target wants exactly this exchange.
        """
        back = self.target[others] == self.owner[given]
        fits = back & (self.owner[others] == self.target[given])
        others = others[fits | ((self.name[others] == self.name[given]) & self._fit(given, others))]
        if not others.size:
            return None
        giver, getters = self.owner[given], self.owner[others]
        difference = self.lags[given] - self.lags[others]
        lighter = self.loads[giver] - difference / self.speeds[giver]
        after = np.maximum(lighter, self.loads[getters] + difference / self.speeds[getters])
        best = int(np.argmin(after))
        gain = float(self.loads[giver] - after[best]) / 2
        return self._step(given, int(others[best]), gain)

    def _fit(self, given: int, others: Int64Array) -> BoolArray:
        """Return with which others a resource can change places, as far as a policy knows."""
        there = holds(self.refused, self.keys[given] + self.owner[others])
        back = holds(self.refused, self.keys[others] + self.owner[given])
        return ~there & ~back & (not self.has_limits)

    def _step(self, given: int, taken: int | None, gain: float) -> _Step | None:
        return _Step(given=given, taken=taken, gain=gain) if gain > self.gain_min else None

    def _take(self, step: _Step) -> None:
        giver, getter = self.owner[step.given], self.target[step.given]
        difference = self.lags[step.given]
        if step.taken is None:
            self._give_up(step.given)
        else:
            getter = self.owner[step.taken]
            difference = difference - self.lags[step.taken]
            self.goes_to[step.taken] = giver
            if self.name[step.taken] != self.name[step.given]:
                self._give_up(step.given)
                self._give_up(step.taken)
        self.goes_to[step.given] = getter
        self.loads[giver] -= difference / self.speeds[giver]
        self.loads[getter] += difference / self.speeds[getter]

    def _give_up(self, candidate: int) -> None:
        """Count a candidate as moved to its target."""
        self._surplus[self.owner[candidate]] -= 1
        self._surplus[self.target[candidate]] += 1
        self._surplus_of_pair[self._pair_of_owner[candidate]] -= 1
        self._surplus_of_pair[self._pair_of_target[candidate]] += 1
