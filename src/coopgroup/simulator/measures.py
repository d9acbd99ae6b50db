"""What a run cost, in a few numbers computed from its telemetry (docs: scenarios).

- The *window* of a run begins with the first event of the scenario, or later: when every partition
  has had an owner at one moment for the first time, if that ever happens. It ends with the run.
  What the group did to get going is no part of it.
- A partition is **unavailable** while there is the partition and nobody works on it. An **outage**
  is one stretch of that.
- A partition **moves** when the next process that works on it is another one than before. A process
  that comes back under its name is the same one, as in the measurements on real brokers.
- The group **converges** when for the last time somebody starts or stops to work on something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from attrs import frozen

from coopgroup.model.resource_set import Resource
from coopgroup.simulator.scenario_times import first_event_ms, last_event_ms, lifetimes
from coopgroup.telemetry import RoundLed, read_ownership

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.model.resource_set import BoolArray, Int64Array
    from coopgroup.simulator.scenario import Scenario
    from coopgroup.simulator.scenario_times import Lifetimes
    from coopgroup.telemetry import Envelope, Ownership

__all__ = ["LagSamples", "Measures", "Outages", "find_outages", "measure"]

_MS_PER_S: Final = 1_000


class LagSamples(Protocol):
    """Lags of all resources at some moments."""

    @property
    def times_ms(self) -> Int64Array:
        """When: int64 (S,), ascending."""
        ...

    @property
    def lags(self) -> Int64Array:
        """Lag in records of each resource at each time: int64 (S, R)."""
        ...


@frozen(kw_only=True)
class Measures:
    """What a run cost; the module's docstring defines the words.

    Attributes:
        unavailable_partition_s: seconds in which a partition was unavailable, summed over
            partitions.
        unavailable_peak: most partitions that were unavailable at one moment.
        moved: how often a partition moved.
        moved_twice: partitions that moved more than once.
        rounds: rounds that a leader decided.
        converge_ms: time from the end of the last event until the group converged; None where a
            partition has no owner at the end.
        lag_peak: highest lag of all partitions together, in records.
        lag_final: lag of all partitions together at the end, in records.
        worst_outage_ms: longest outage of any partition.
        worst_resource: the partition that had it, the first one of several; None for none.
    """

    unavailable_partition_s: float
    unavailable_peak: int
    moved: int
    moved_twice: int
    rounds: int
    converge_ms: int | None
    lag_peak: int
    lag_final: int
    worst_outage_ms: int
    worst_resource: Resource | None


@frozen(kw_only=True, eq=False)
class Outages:
    """Times in which there was a resource and nobody worked on it, by resource, then by begin.

    Attributes:
        resource: int64 (O,): number of the resource in the lifetimes.
        start_ms: int64 (O,): begin.
        end_ms: int64 (O,): end.
    """

    resource: Int64Array
    start_ms: Int64Array
    end_ms: Int64Array


def measure(scenario: Scenario, telemetry: Sequence[Envelope], lag: LagSamples) -> Measures:
    """Measure a run.

    Args:
        scenario: what was played; its events stand in order of time.
        telemetry: of the whole run.
        lag: of the whole run.
    """
    end_ms = scenario.end_ms
    lives = lifetimes(scenario)
    ownership = read_ownership(telemetry, until_ms=end_ms)
    started_ms = _all_owned_ms(find_outages(ownership, lives, 0, end_ms), end_ms)
    begin_ms = max(first_event_ms(scenario) or 0, started_ms if started_ms < end_ms else 0)
    outages = find_outages(ownership, lives, begin_ms, end_ms)
    lengths = outages.end_ms - outages.start_ms
    worst = int(lengths.argmax()) if lengths.size else None
    moves = _moves_by_resource(ownership, begin_ms)
    sampled = lag.times_ms >= begin_ms
    totals = lag.lags.sum(axis=1, dtype=np.int64)
    return Measures(
        unavailable_partition_s=int(lengths.sum()) / _MS_PER_S,
        unavailable_peak=_most_at_once(outages),
        moved=int(moves.sum()),
        moved_twice=int(np.count_nonzero(moves > 1)),
        rounds=sum(
            isinstance(envelope.record, RoundLed) and envelope.at_ms >= begin_ms
            for envelope in telemetry
        ),
        converge_ms=_converge_ms(ownership, outages, last_event_ms(scenario)),
        lag_peak=int(totals[sampled].max(initial=0)),
        lag_final=int(totals[-1]) if totals.size else 0,
        worst_outage_ms=0 if worst is None else int(lengths[worst]),
        worst_resource=None if worst is None else _resource(lives, int(outages.resource[worst])),
    )


def find_outages(ownership: Ownership, lives: Lifetimes, begin_ms: int, end_ms: int) -> Outages:
    """Find what nobody worked on, and when.

    Args:
        ownership: who worked on what.
        lives: since when and until when there is each of R resources.
        begin_ms: outages before do not count.
        end_ms: nor do those after.
    """
    opens = np.clip(lives.begin_ms, begin_ms, end_ms)
    closes = np.clip(lives.end_ms, opens, end_ms)
    number = lives.resources.positions(ownership.resources)[ownership.resource]
    known = number >= 0
    number = number[known]
    starts = np.clip(ownership.start_ms[known], opens[number], closes[number])
    ends = np.clip(ownership.end_ms[known], opens[number], closes[number])
    # Between two bounds without length every gap lies between two neighbours.
    bounds = np.arange(opens.size)
    number = np.concatenate([bounds, number, bounds])
    starts = np.concatenate([opens, starts, closes])
    ends = np.concatenate([opens, ends, closes])
    order = np.lexsort((ends, starts, number))
    number, starts, ends = number[order], starts[order], ends[order]
    # The highest end so far of each resource: as numbers ascend, no resource reaches into the next.
    base = number * (end_ms - begin_ms + 1)
    reached = np.maximum.accumulate(base + ends) - base
    gaps = np.flatnonzero((number[1:] == number[:-1]) & (starts[1:] > reached[:-1]))
    return Outages(resource=number[gaps], start_ms=reached[gaps], end_ms=starts[gaps + 1])


def _most_at_once(outages: Outages) -> int:
    times = np.concatenate([outages.start_ms, outages.end_ms])
    steps = np.repeat(np.array([1, -1]), outages.start_ms.size)
    order = np.lexsort((steps, times))  # at one moment, ends come before begins
    return int(np.cumsum(steps[order]).max(initial=0))


def _all_owned_ms(outages: Outages, end_ms: int) -> int:
    """The first moment in which everything had an owner; `end_ms` for never."""
    order = np.argsort(outages.start_ms, kind="stable")
    starts = np.append(outages.start_ms[order], end_ms)
    reached = np.maximum.accumulate(np.append(0, outages.end_ms[order]))
    return int(np.append(reached, end_ms)[np.argmax(np.append(starts > reached, True))])


def _moves_by_resource(ownership: Ownership, begin_ms: int) -> Int64Array:
    """How often each resource moved: int64 (R,)."""
    after, before = ownership.resource[1:], ownership.resource[:-1]
    moved: BoolArray = (
        (after == before)
        & (ownership.owner[1:] != ownership.owner[:-1])
        & (ownership.start_ms[1:] >= begin_ms)
    )
    return np.bincount(after[moved], minlength=len(ownership.resources)).astype(np.int64)


def _converge_ms(ownership: Ownership, outages: Outages, last_event_ms: int) -> int | None:
    """Time from the last event to the last change; None if something has no owner at the end."""
    if (outages.end_ms == ownership.until_ms).any():
        return None
    changes = np.concatenate([ownership.start_ms, ownership.end_ms])
    changes = changes[(changes > last_event_ms) & (changes < ownership.until_ms)]
    return int(changes.max()) - last_event_ms if changes.size else 0


def _resource(lives: Lifetimes, number: int) -> Resource:
    name = int(lives.resources.name_numbers[number])
    return Resource(lives.resources.names[name], int(lives.resources.flat_indices[number]))
