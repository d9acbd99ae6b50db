"""The data plane: what is produced, worked off and committed, between events in closed form.

Theory of operation. Every partition has an end that grows at its rate and a position that moves
while a process works on it. Nothing happens record by record: when somebody asks (a commit, a
change of rates or of what a process works on), positions are brought up to date from the last
time on. A process shares its capacity fairly: each partition gets the same, those without a backlog
no more than what is produced to them, and what they leave goes to the others.

Lag is what the group's committed offsets leave behind the ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from coopgroup.leader import Lags
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.resource_set import Int64Array

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LagHistory", "Load"]

Float64Array = npt.NDArray[np.float64]

# Partitions of one process that run dry within one interval are taken one after the other up to
# here; more than that differ by less than anybody looks at.
_STEPS_MAX: Final = 64
_NOTHING: Final = 1e-6


@frozen(kw_only=True, eq=False)
class LagHistory:
    """Lag of every partition over time.

    Attributes:
        times_ms: int64 (S,): when it was looked at, ascending.
        lags: int64 (S, R): records that are not committed yet, 0 where a partition did not exist.
        resources: R partitions, all that existed at any time.
    """

    times_ms: Int64Array
    lags: Int64Array
    resources: ResourceSet


@define(eq=False)
class Load:
    """Everything that is produced and worked off.

    Attributes:
        resources: partitions that exist, or existed: R of them.
        rates: float64 (R,): records per ms, 0 for a deleted partition.
        positions: float64 (R,): next record of whoever works on it.
        committed: int64 (R,): offsets that the group coordinator accepted.
        weights: int64 (R,): what leaders see in place of lags, 1 unless it is said.
        weighs: whether they do: in groups of named resources.
    """

    resources: ResourceSet = EMPTY
    rates: Float64Array = field(factory=lambda: np.zeros(0))
    positions: Float64Array = field(factory=lambda: np.zeros(0))
    committed: Int64Array = field(factory=lambda: np.zeros(0, dtype=np.int64))
    weights: Int64Array = field(factory=lambda: np.zeros(0, dtype=np.int64))
    weighs: bool = False
    _produced: Float64Array = field(factory=lambda: np.zeros(0))
    # Place of each partition in the arrays, by topic and number; -1 where there is none.
    _places: dict[str, Int64Array] = field(factory=dict)
    _since_ms: int = 0
    _sampled: list[tuple[int, ResourceSet, Int64Array]] = field(factory=list)

    # --- what exists ---------------------------------------------------------------------------

    def produce(self, name: str, first: int, rates_per_s: Sequence[float], now_ms: int) -> None:
        """Partitions of a topic, from number `first` on, get so many records from now on.

        Partitions that are not known yet begin with offset 0.
        """
        self._settle_production(now_ms)
        fresh = ResourceSet({name: range(first, first + len(rates_per_s))})
        self._grow(self.resources | fresh)
        self.rates[self.numbers(fresh)] = np.asarray(rates_per_s, dtype=np.float64) / 1_000

    def set_rate(self, resources: ResourceSet, rate_per_s: float, now_ms: int) -> None:
        """So many records per second go to each of some partitions from now on."""
        self._settle_production(now_ms)
        self.rates[self.numbers(resources & self.resources)] = rate_per_s / 1_000

    def weigh(self, resources: ResourceSet, weights: Sequence[int]) -> None:
        """So much does each of some resources weigh from now on."""
        self.weighs = True
        self.weights[self.numbers(resources)] = weights

    def delete(self, name: str, now_ms: int) -> None:
        """A topic is gone: nothing is produced to it, nothing of it lags."""
        self._settle_production(now_ms)
        gone = self.numbers(self.resources.restrict_names([name]))
        self.rates[gone] = 0
        self._produced[gone] = self.committed[gone]
        self.positions[gone] = self.committed[gone]

    def numbers(self, resources: ResourceSet) -> Int64Array:
        """Places of some of the resources in the arrays, which must be among them.

        Processes look up a few of many partitions all the time: a table takes no search.
        """
        found = [self._places[name][indices] for name, indices in resources.items()]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _grow(self, resources: ResourceSet) -> None:
        if resources == self.resources:
            return
        places = resources.positions(self.resources)
        for name in ("rates", "positions", "committed", "weights", "_produced"):
            before = getattr(self, name)
            new = 1 if name == "weights" else 0
            grown = np.full(len(resources), new, dtype=before.dtype)
            grown[places] = before
            setattr(self, name, grown)
        self.resources = resources
        self._places = {}
        for (name, indices), first in zip(resources.items(), resources.starts, strict=False):
            # One place more than there are partitions: a connector itself has index -1.
            table = np.full(int(indices[-1]) + 2, -1, dtype=np.int64)
            table[indices] = np.arange(first, first + indices.size)
            self._places[name] = table

    def _settle_production(self, now_ms: int) -> None:
        self._produced += self.rates * (now_ms - self._since_ms)
        self._since_ms = now_ms

    def ends(self, now_ms: int) -> Float64Array:
        """End of every partition: float64 (R,)."""
        return self._produced + self.rates * (now_ms - self._since_ms)

    # --- what is worked off --------------------------------------------------------------------

    def begin(self, numbers: Int64Array) -> None:
        """Somebody begins to work on partitions, from the committed offsets on."""
        self.positions[numbers] = self.committed[numbers]

    def work(self, numbers: Int64Array, capacity_per_s: float, since_ms: int, now_ms: int) -> bool:
        """Bring the positions of what one process works on up to date.

        Args:
            numbers: what it works on, all the time from `since_ms` to `now_ms`.
            capacity_per_s: of the process.
            since_ms: when they were up to date last.
            now_ms: until when.

        Returns:
            Whether something was left to do all the time, so that all of the capacity was used.
        """
        if not numbers.size or now_ms <= since_ms:
            return False
        rates = self.rates[numbers]
        ends = self._produced[numbers] + rates * (now_ms - self._since_ms)
        if math.isinf(capacity_per_s):
            self.positions[numbers] = ends
            return False
        backlog = ends - rates * (now_ms - since_ms) - self.positions[numbers]
        backlog = _worked_off(backlog, rates, capacity_per_s / 1_000, now_ms - since_ms)
        self.positions[numbers] = ends - backlog
        return float(backlog.sum()) > _NOTHING

    def to_commit(self, resources: ResourceSet, numbers: Int64Array) -> list[tuple[str, int, int]]:
        """Topic, partition and position of what is ahead of its committed offset.

        Args:
            resources: which of them to look at.
            numbers: their places, as `numbers` says.
        """
        positions = (self.positions[numbers] + _NOTHING).astype(np.int64)
        ahead = positions > self.committed[numbers]
        count = np.count_nonzero(ahead)
        if not count:
            return []
        if count < ahead.size:
            resources, positions = resources.take(ahead), positions[ahead]
        rows = zip(resources, positions.tolist(), strict=True)
        return [(name, index, position) for (name, index), position in rows]

    def note_commit(self, numbers: Int64Array, offsets: Sequence[int]) -> None:
        """The group coordinator accepted offsets of the partitions in these places."""
        self.committed[numbers] = offsets

    # --- what is left --------------------------------------------------------------------------

    def lags(self, resources: ResourceSet, now_ms: int) -> Lags:
        """Lags of some resources, and what comes in to them, as a leader looks them up."""
        numbers = self.numbers(resources)
        if self.weighs:
            return Lags(resources=resources, values=self.weights[numbers])
        return Lags(
            resources=resources,
            values=self._lags(now_ms)[numbers],
            arrivals_per_s=self.rates[numbers] * 1_000,
        )

    def sample(self, now_ms: int) -> None:
        """Keep the lags of this instant for the history."""
        self._sampled.append((now_ms, self.resources, self._lags(now_ms)))

    def history(self) -> LagHistory:
        """All samples."""
        lags = np.zeros((len(self._sampled), len(self.resources)), dtype=np.int64)
        for row, (_, resources, sampled) in zip(lags, self._sampled, strict=True):
            row[self.numbers(resources)] = sampled
        times_ms = np.array([at_ms for at_ms, _, _ in self._sampled], dtype=np.int64)
        return LagHistory(times_ms=times_ms, lags=lags, resources=self.resources)

    def _lags(self, now_ms: int) -> Int64Array:
        ends = np.floor(self.ends(now_ms) + _NOTHING).astype(np.int64)
        lags: Int64Array = np.maximum(ends - self.committed, 0)
        return lags


def _worked_off(
    backlog: Float64Array, rates: Float64Array, capacity: float, duration_ms: float
) -> Float64Array:
    """What is left of each backlog after a time, under fair shares.

    Args:
        backlog: float64 (N,): records at the begin.
        rates: float64 (N,): records per ms that come in.
        capacity: records per ms of the process.
        duration_ms: how long.

    Returns:
        float64 (N,).
    """
    if float(backlog.sum()) + float(rates.sum()) * duration_ms <= capacity * duration_ms:
        return np.zeros(rates.size)  # the common case: no share is left idle while anything waits
    left_ms = float(duration_ms)
    for _ in range(_STEPS_MAX):
        waits = backlog > _NOTHING
        shares = _fair_shares(waits, rates, capacity)
        shrinks = waits & (shares > rates)
        step_ms = left_ms
        if shrinks.any():
            step_ms = min(left_ms, float((backlog[shrinks] / (shares - rates)[shrinks]).min()))
        backlog = np.maximum(backlog + (rates - shares) * step_ms, 0)
        left_ms -= step_ms
        if left_ms <= 0:
            break
    else:
        shares = _fair_shares(backlog > _NOTHING, rates, capacity)
        backlog = np.maximum(backlog + (rates - shares) * left_ms, 0)
    return backlog


def _fair_shares(
    waits: npt.NDArray[np.bool_], rates: Float64Array, capacity: float
) -> Float64Array:
    """Records per ms that each partition gets: float64 (N,)."""
    content = np.zeros(waits.size, dtype=np.bool_)
    while True:
        hungry = ~content
        count = int(hungry.sum())
        if not count:
            return rates.copy()
        share = max(0.0, capacity - float(rates[content].sum())) / count
        more = hungry & ~waits & (rates <= share)
        if not more.any():
            return np.where(content, rates, share)
        content |= more
