"""The data plane: produced, processed and committed records, in closed form between events.

Theory of operation. Every partition has an end that grows at its rate, and a position that moves
while a process works on it. Records are not simulated singly: positions are computed when they are
needed (a commit, a change of rates or of a process's partitions). A process shares its capacity
fairly. Each partition gets an equal share; a partition without a backlog gets at most its
production rate, and the others get the rest.

Lag is the end minus the group's committed offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import define, field

from coopgroup.core.leader import Lags
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Int64Array
from coopgroup.core.telemetry.ledger import LagHistory

Float64Array = npt.NDArray[np.float64]

# Partitions of one process that run dry within an interval are handled one after the other up to
# this number. More of them differ negligibly.
_STEPS_MAX: Final = 64
_NOTHING: Final = 1e-6


@define(eq=False)
class Load:
    """All produced and processed records.

    Attributes:
        rates: float64 (R,): records per ms, 0 for a deleted partition.
        positions: float64 (R,): next record of the owner.
        committed: int64 (R,): offsets that the group coordinator accepted.
        weights: int64 (R,): values that leaders see instead of lags, default 1.
        weighs: whether they do, in groups of named resources.
    """

    resources: ResourceSet = EMPTY
    rates: Float64Array = field(factory=lambda: np.zeros(0))
    positions: Float64Array = field(factory=lambda: np.zeros(0))
    committed: Int64Array = field(factory=lambda: np.zeros(0, dtype=np.int64))
    weights: Int64Array = field(factory=lambda: np.zeros(0, dtype=np.int64))
    weighs: bool = False
    _produced: Float64Array = field(factory=lambda: np.zeros(0))
    # Position of each partition in the arrays, by topic and number; -1 for none.
    _places: dict[str, Int64Array] = field(factory=dict)
    _since_ms: int = 0
    _sampled: list[tuple[int, ResourceSet, Int64Array]] = field(factory=list)

    # --- what exists ---------------------------------------------------------------------------

    def produce(self, name: str, first: int, rates_per_s: Sequence[float], now_ms: int) -> None:
        """Set the rates of a topic's partitions, from number `first` on.

        New partitions start with offset 0.
        """
        self._settle_production(now_ms)
        fresh = ResourceSet({name: range(first, first + len(rates_per_s))})
        self._grow(self.resources | fresh)
        self.rates[self.numbers(fresh)] = np.asarray(rates_per_s, dtype=np.float64) / 1_000

    def set_rate(self, resources: ResourceSet, rate_per_s: float, now_ms: int) -> None:
        """Set the rate of some partitions, in records per second."""
        self._settle_production(now_ms)
        self.rates[self.numbers(resources & self.resources)] = rate_per_s / 1_000

    def weigh(self, resources: ResourceSet, weights: Sequence[int]) -> None:
        """Set the weights of some resources."""
        self.weighs = True
        self.weights[self.numbers(resources)] = weights

    def delete(self, name: str, now_ms: int) -> None:
        """Delete a topic: it gets no records and has no lag."""
        self._settle_production(now_ms)
        gone = self.numbers(self.resources.restrict_names([name]))
        self.rates[gone] = 0
        self._produced[gone] = self.committed[gone]
        self.positions[gone] = self.committed[gone]

    def numbers(self, resources: ResourceSet) -> Int64Array:
        """Return the positions in the arrays of some known resources.

        Processes look up a few of many partitions very often, so a table replaces a search.
        """
        if len(resources.names) == 1:
            return self._places[resources.names[0]][resources.flat_indices]
        found = [self._places[name][indices] for name, indices in resources.items()]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _grow(self, resources: ResourceSet) -> None:
        if resources == self.resources:
            return
        positions = resources.positions(self.resources)
        for name in ("rates", "positions", "committed", "weights", "_produced"):
            before = getattr(self, name)
            new = 1 if name == "weights" else 0
            grown = np.full(len(resources), new, dtype=before.dtype)
            grown[positions] = before
            setattr(self, name, grown)
        self.resources = resources
        self._places = {}
        for (name, indices), first in zip(resources.items(), resources.starts, strict=False):
            # One more entry than partitions, because a connector itself has index -1.
            table = np.full(int(indices[-1]) + 2, -1, dtype=np.int64)
            table[indices] = np.arange(first, first + indices.size)
            self._places[name] = table

    def _settle_production(self, now_ms: int) -> None:
        self._produced += self.rates * (now_ms - self._since_ms)
        self._since_ms = now_ms

    def end_offsets(self, now_ms: int) -> Float64Array:
        """Return the end of every partition: float64 (R,)."""
        return self._produced + self.rates * (now_ms - self._since_ms)

    # --- what is worked off --------------------------------------------------------------------

    def begin(self, numbers: Int64Array) -> None:
        """Start work on partitions from their committed offsets."""
        self.positions[numbers] = self.committed[numbers]

    def work(self, numbers: Int64Array, capacity_per_s: float, since_ms: int, now_ms: int) -> bool:
        """Advance one process's positions; return whether records waited all the time."""
        if not numbers.size or now_ms <= since_ms:
            return False
        rates = self.rates[numbers]
        end_offsets = self._produced[numbers] + rates * (now_ms - self._since_ms)
        if math.isinf(capacity_per_s):
            self.positions[numbers] = end_offsets
            return False
        duration_ms = now_ms - since_ms
        backlog = end_offsets - rates * duration_ms - self.positions[numbers]
        capacity = capacity_per_s / 1_000
        arrived = _sum(rates) * duration_ms
        if _sum(backlog) + arrived <= capacity * duration_ms:
            self.positions[numbers] = end_offsets  # no share is idle while records wait
            return False
        backlog = _worked_off(backlog, rates, capacity, duration_ms)
        self.positions[numbers] = end_offsets - backlog
        return _sum(backlog) > _NOTHING

    def to_commit(self, resources: ResourceSet, numbers: Int64Array) -> list[tuple[str, int, int]]:
        """Return topic, partition and position of partitions ahead of their committed offset."""
        positions = self._whole(numbers)
        ahead = positions > self.committed[numbers]
        count = np.count_nonzero(ahead)
        if not count:
            return []
        if count < ahead.size:
            resources, positions = resources.take(ahead), positions[ahead]
        rows = zip(resources, positions.tolist(), strict=True)
        return [(name, index, position) for (name, index), position in rows]

    def processed(self, resources: ResourceSet, numbers: Int64Array) -> list[tuple[str, int, int]]:
        """Return topic, partition and position of partitions, committed or not."""
        rows = zip(resources, self._whole(numbers).tolist(), strict=True)
        return [(name, index, position) for (name, index), position in rows]

    def _whole(self, numbers: Int64Array) -> Int64Array:
        return (self.positions[numbers] + _NOTHING).astype(np.int64)

    def note_commit(self, numbers: Int64Array, offsets: Sequence[int]) -> None:
        """Store accepted offsets of the partitions at these positions."""
        self.committed[numbers] = offsets

    # --- what is left --------------------------------------------------------------------------

    def weights_of(self, resources: ResourceSet) -> Int64Array | None:
        """Return weights as a catalogue has them; None for partitions."""
        return self.weights[self.numbers(resources)] if self.weighs else None

    def lags(self, resources: ResourceSet, now_ms: int) -> Lags:
        """Return lags and arrival rates of some resources, as a leader looks them up."""
        numbers = self.numbers(resources)
        if self.weighs:
            return Lags(resources=resources, values=self.weights[numbers])
        return Lags(
            resources=resources,
            values=self._lags(now_ms)[numbers],
            arrivals_per_s=self.rates[numbers] * 1_000,
        )

    def sample(self, now_ms: int) -> None:
        """Store the present lags for the history."""
        self._sampled.append((now_ms, self.resources, self._lags(now_ms)))

    def history(self) -> LagHistory:
        """Return all samples."""
        lags = np.zeros((len(self._sampled), len(self.resources)), dtype=np.int64)
        for row, (_, resources, sampled) in zip(lags, self._sampled, strict=True):
            row[self.numbers(resources)] = sampled
        times_ms = np.array([at_ms for at_ms, _, _ in self._sampled], dtype=np.int64)
        return LagHistory(times_ms=times_ms, lags=lags, resources=self.resources)

    def _lags(self, now_ms: int) -> Int64Array:
        end_offsets = np.floor(self.end_offsets(now_ms) + _NOTHING).astype(np.int64)
        lags: Int64Array = np.maximum(end_offsets - self.committed, 0)
        return lags


def _sum(values: Float64Array) -> float:
    return float(np.add.reduce(values))


def _worked_off(
    backlog: Float64Array, rates: Float64Array, capacity: float, duration_ms: float
) -> Float64Array:
    """Return each backlog after `duration_ms` with fair shares; rates are in records per ms."""
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
    """Return the records per ms that each partition gets: float64 (N,)."""
    content = np.zeros(waits.size, dtype=np.bool_)
    while True:
        hungry = ~content
        count = np.count_nonzero(hungry)
        if not count:
            return rates.copy()
        share = max(0.0, capacity - _sum(rates[content])) / count
        more = hungry & ~waits & (rates <= share)
        if not more.any():
            return np.where(content, rates, share)
        content |= more
