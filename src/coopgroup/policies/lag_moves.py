"""Which of the moves that an assignor wants even lags out most: a few, which stand by themselves.

An assignor that reads lags has a whole target. A round that is asked for because lags are uneven
takes only a few steps towards it, and what those few leave behind must be better than what was,
though no further ones follow. So two members exchange one resource for another, which leaves their
counts as they are, or one hands a resource over where the target itself wants other counts.

The partner of an exchange may be another one than the target names: where it has three members
pass resources on in a circle, two of them do better by themselves than one of the three steps.

Rules of this file: a choice is a function of group, target and lags alone; only members that carry
too much begin a step; and for each of its moves a step must make the heavier of its two members
lighter by more than a tenth of the mean, and of the least lag that counts. By less than that lags
change by themselves from one look to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.model import NOBODY
from coopgroup.policies.balance import lag_loads, overloaded, speeds

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.balance import BalanceRule

__all__ = ["lag_moves"]

_GAIN_SHARE: Final = 0.1
_GIVEN_MAX: Final = 64  # resources of one heavy member that are looked at, those with most lag
_TAKEN_MAX: Final = 4_096  # what they could be exchanged for, by owners with least lag


def lag_moves(
    group: GroupSnapshot,
    target: Int32Array,
    lags: Int64Array,
    candidates: BoolArray,
    rule: BalanceRule,
) -> Int32Array:
    """Choose what is to go from its owner to whom.

    Args:
        group: the group with R resources.
        target: int32 (R,): where the assignor wants each.
        lags: int64 (R,): none below 0.
        candidates: bool (R,): owned, and to go from the owner to another member.
        rule: of the policy.

    Returns:
        int32 (R,): the new holder of at most `rule.moves_max` candidates, NOBODY elsewhere.
    """
    moves = np.full(len(group.resources), NOBODY, dtype=np.int32)
    places = np.flatnonzero(candidates)
    loads = lag_loads(group, group.owner, lags)
    if not places.size:
        return moves
    search = _Search(
        owner=group.owner[places],
        target=target[places],
        name=group.resources.name_numbers[places],
        lags=lags[places],
        speeds=speeds(group),
        loads=loads,
        gain_min=_gain_min(loads, rule),
    )
    search.run(overloaded(rule, loads), rule.moves_max)
    moves[places] = search.goes_to
    return moves


def _gain_min(loads: Float64Array, rule: BalanceRule) -> float:
    """What each move must gain, in records."""
    return _GAIN_SHARE * max(float(loads.mean()), rule.lag_min)


@frozen(kw_only=True)
class _Step:
    """What is taken in one go: positions among the candidates, and what it gains a move."""

    given: int
    taken: int | None
    gain: float


@define(kw_only=True, eq=False)
class _Search:
    """N candidates in a group with M members.

    Attributes:
        owner: int32 (N,).
        target: int32 (N,).
        name: (N,): number of the topic.
        lags: int64 (N,).
        speeds: float64 (M,): of each member.
        loads: float64 (M,): lag of each member by its speed, chosen moves made.
        gain_min: what each move must gain, in records.
        goes_to: int32 (N,): whom those that are chosen go to, NOBODY for the others.
    """

    owner: Int32Array
    target: Int32Array
    name: Int64Array
    lags: Int64Array
    speeds: Float64Array
    loads: Float64Array
    gain_min: float
    goes_to: Int32Array = field(init=False)
    # How many more a member has than the target gives it: of all, int64 (M,), and of a topic, one
    # for each pair of member and topic, with the pairs of each candidate's owner and target.
    _surplus: Int64Array = field(init=False)
    _surplus_of_pair: Int64Array = field(init=False)
    _pair_of_owner: Int64Array = field(init=False)
    _pair_of_target: Int64Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Count what each member has too many of."""
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
        """Choose, from the heaviest member down, until nothing gains or the ration is used up."""
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
        # Whose owner has more of its topic than the target gives it.
        spares = self._surplus_of_pair[self._pair_of_owner] > 0
        steps = [self._handed_over(given) for given in mine[spares[mine]].tolist()]
        if left > 1:
            others = self._to_exchange(giver)
            steps += [self._exchanged(given, others) for given in mine.tolist()]
        return max((step for step in steps if step), key=lambda step: step.gain, default=None)

    def _handed_over(self, given: int) -> _Step | None:
        """One resource goes where the target wants it, which gives the two other counts."""
        giver, getter = self.owner[given], self.target[given]
        if self._surplus[giver] <= 0 or self._surplus[getter] >= 0:
            return None
        lag = self.lags[given]
        lighter = self.loads[giver] - lag / self.speeds[giver]
        heavier = self.loads[getter] + lag / self.speeds[getter]
        return self._step(given, None, float(self.loads[giver] - max(lighter, heavier)))

    def _to_exchange(self, giver: int) -> Int64Array:
        others = np.flatnonzero((self.owner != giver) & (self.goes_to == NOBODY))
        order = np.lexsort((self.lags[others], self.loads[self.owner[others]]))
        return others[order][:_TAKEN_MAX]

    def _exchanged(self, given: int, others: Int64Array) -> _Step | None:
        """One resource goes and one of another member comes in its place.

        Either they are of one topic, or the target wants just this exchange.
        """
        back = self.target[others] == self.owner[given]
        fits = back & (self.owner[others] == self.target[given])
        others = others[fits | (self.name[others] == self.name[given])]
        if not others.size:
            return None
        giver, getters = self.owner[given], self.owner[others]
        difference = self.lags[given] - self.lags[others]
        lighter = self.loads[giver] - difference / self.speeds[giver]
        after = np.maximum(lighter, self.loads[getters] + difference / self.speeds[getters])
        best = int(np.argmin(after))
        gain = float(self.loads[giver] - after[best]) / 2
        return self._step(given, int(others[best]), gain)

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
        """A candidate goes to its target, as far as counts are concerned."""
        self._surplus[self.owner[candidate]] -= 1
        self._surplus[self.target[candidate]] += 1
        self._surplus_of_pair[self._pair_of_owner[candidate]] -= 1
        self._surplus_of_pair[self._pair_of_target[candidate]] += 1
