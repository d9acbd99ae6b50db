"""The costs of a run, computed from its telemetry (docs: simulator).

- The *window* of a run begins with the first event of the scenario, or when all partitions first
  have an owner at the same time, if that is later. It ends with the run. The start of the group
  does not count.
- A partition is **unavailable** while it exists and has no owner. An **outage** is one such
  interval.
- A partition **moves** if its next owner is another process. A resource that is made again does not
  move: its next owner begins anew. A process that returns under its name
  is the same process, as in the measurements on real brokers.
- A partition **comes back** if its process begins to work on it again, and no other process has
  worked on it in between. The end of a pause is none.
- A move is **cold** if the next owner was not warm: the move waits for a whole restore, or for the
  rest of one.
- A **warm-up** is a restore beside the owner, for a move or for a standby. State that a process
  already has is no warm-up.
- The group **converges** with the last start or stop of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve, frozen

from coopgroup.core.model.resource_set import BoolArray, Int64Array, Resource
from coopgroup.core.telemetry.ledger import LagHistory, gaps_between
from coopgroup.simulator.scenario import Scenario
from coopgroup.simulator.scenario.times import Lifetimes, first_event_ms, last_event_ms, lifetimes
from coopgroup.telemetry import (
    Envelope,
    Ledger,
    ProcessResumed,
    RoundDecided,
    Spans,
    WarmEnd,
    read_ledger,
)

_MS_PER_S: Final = 1_000


@frozen(kw_only=True)
class Measures:
    """The costs of a run; the module's docstring defines the terms.

    Attributes:
        unavailable_partition_s: unavailable seconds, summed over partitions.
        unavailable_peak: highest number of partitions that were unavailable at the same time.
        moved_cold: cold moves.
        moved_twice: partitions that moved more than once.
        returned: partitions that came back.
        warmups: warm-ups that began.
        converge_ms: time from the end of the last event until convergence; None if a partition has
            no owner at the end.
        lag_peak: highest lag of all partitions together, in records.
        lag_final: lag of all partitions together at the end, in records.
        worst_resource: partition with that outage, the first one of several; None without an
            outage.
    """

    unavailable_partition_s: float
    unavailable_peak: int
    moved: int
    moved_cold: int
    moved_twice: int
    returned: int
    warmups: int
    rounds: int
    converge_ms: int | None
    lag_peak: int
    lag_final: int
    worst_outage_ms: int
    worst_resource: Resource | None


def measure(scenario: Scenario, telemetry: Sequence[Envelope], lag: LagHistory) -> Measures:
    """Measure a run."""
    end_ms = scenario.end_ms
    lives = lifetimes(scenario)
    ledger = read_ledger(telemetry, until_ms=end_ms)
    begin_ms = _window_begin_ms(scenario, ledger, lives)
    outages = find_outages(ledger, lives, begin_ms, end_ms)
    lengths = outages.end_ms - outages.start_ms
    worst = int(lengths.argmax()) if lengths.size else None
    moved = _moved(ledger, lives, begin_ms)
    moves = np.bincount(ledger.work.resource[moved], minlength=len(ledger.resources))
    sampled = lag.times_ms >= begin_ms
    totals = lag.lags.sum(axis=1, dtype=np.int64)
    return Measures(
        unavailable_partition_s=int(lengths.sum()) / _MS_PER_S,
        unavailable_peak=_most_at_once(outages),
        moved=int(moves.sum()),
        moved_cold=int(moves.sum()) - _warm_moves(ledger, moved),
        moved_twice=int(np.count_nonzero(moves > 1)),
        returned=_returned(ledger, lives, telemetry, begin_ms),
        warmups=sum(one.is_restore and one.begin_ms >= begin_ms for one in ledger.warm_spans),
        rounds=sum(
            isinstance(envelope.record, RoundDecided) and envelope.at_ms >= begin_ms
            for envelope in telemetry
        ),
        converge_ms=_converge_ms(ledger, outages, last_event_ms(scenario)),
        lag_peak=int(totals[sampled].max(initial=0)),
        lag_final=int(totals[-1]) if totals.size else 0,
        worst_outage_ms=0 if worst is None else int(lengths[worst]),
        worst_resource=None if worst is None else _resource(lives, int(outages.resource[worst])),
    )


def window_begin_ms(scenario: Scenario, telemetry: Sequence[Envelope]) -> int:
    """Return the begin of the window of a run."""
    ledger = read_ledger(telemetry, until_ms=scenario.end_ms)
    return _window_begin_ms(scenario, ledger, lifetimes(scenario))


def _window_begin_ms(scenario: Scenario, ledger: Ledger, lives: Lifetimes) -> int:
    end_ms = scenario.end_ms
    started_ms = _all_owned_ms(find_outages(ledger, lives, 0, end_ms), end_ms)
    return max(first_event_ms(scenario) or 0, started_ms if started_ms < end_ms else 0)


def find_outages(ledger: Ledger, lives: Lifetimes, begin_ms: int, end_ms: int) -> Spans:
    """Find the times without an owner of the resources of `lives` that exist."""
    number = lives.resources.positions(ledger.resources)[ledger.work.resource]
    work = evolve(ledger.work, resource=number).take(number >= 0)
    every = np.arange(len(lives.resources), dtype=np.int64)
    ends_ms = np.full(every.size, end_ms)
    before, after = (
        Spans(resource=every, owner=every, start_ms=start_ms, end_ms=stop_ms)
        for start_ms, stop_ms in (
            (np.full(every.size, begin_ms), lives.begin_ms),
            (lives.end_ms, ends_ms),
        )
    )
    return gaps_between(work.and_more(before, after, lives.gaps), every.size, begin_ms, end_ms)


def _most_at_once(outages: Spans) -> int:
    times = np.concatenate([outages.start_ms, outages.end_ms])
    steps = np.repeat(np.array([1, -1]), outages.start_ms.size)
    order = np.lexsort((steps, times))  # at equal times, ends precede begins
    return int(np.cumsum(steps[order]).max(initial=0))


def _all_owned_ms(outages: Spans, end_ms: int) -> int:
    order = np.argsort(outages.start_ms, kind="stable")
    starts = np.append(outages.start_ms[order], end_ms)
    reached = np.maximum.accumulate(np.append(0, outages.end_ms[order]))
    return int(np.append(reached, end_ms)[np.argmax(np.append(starts > reached, True))])


def _continues(ledger: Ledger, lives: Lifetimes) -> BoolArray:
    """Return whether each interval but the first is of the same life as the interval before it."""
    work, gaps = ledger.work, lives.gaps
    number = lives.resources.positions(ledger.resources)[work.resource]
    later_ms = 1 + max(work.start_ms.max(initial=0), gaps.end_ms.max(initial=0))
    births = np.sort(gaps.resource * later_ms + gaps.end_ms)
    life = np.searchsorted(births, number * later_ms + work.start_ms, side="right")
    same: BoolArray = (work.resource[1:] == work.resource[:-1]) & (life[1:] == life[:-1])
    return same


def _moved(ledger: Ledger, lives: Lifetimes, begin_ms: int) -> Int64Array:
    """Return the intervals that begin with a move: int64, their numbers."""
    moved: BoolArray = (
        _continues(ledger, lives)
        & (ledger.work.owner[1:] != ledger.work.owner[:-1])
        & (ledger.work.start_ms[1:] >= begin_ms)
    )
    return np.flatnonzero(moved) + 1


def _returned(
    ledger: Ledger, lives: Lifetimes, telemetry: Sequence[Envelope], begin_ms: int
) -> int:
    """Return how often a partition came back to its process."""
    resumed = {
        (one.client or one.member, one.at_ms)
        for one in telemetry
        if isinstance(one.record, ProcessResumed)
    }
    same: BoolArray = (
        _continues(ledger, lives)
        & (ledger.work.owner[1:] == ledger.work.owner[:-1])
        & (ledger.work.start_ms[1:] >= begin_ms)
        & (ledger.work.start_ms[1:] > ledger.work.end_ms[:-1])
    )
    places = np.flatnonzero(same) + 1
    return sum(
        (ledger.clients[owner], start_ms) not in resumed
        for owner, start_ms in zip(
            ledger.work.owner[places].tolist(), ledger.work.start_ms[places].tolist(), strict=True
        )
    )


def _warm_moves(ledger: Ledger, moved: Int64Array) -> int:
    """Return the number of moves whose new owner was warm until it got the resource."""
    ends_ms: dict[tuple[Resource, str], list[int]] = {}
    for span in ledger.warm_spans:
        if span.end is WarmEnd.MOVED and span.warm_ms is not None:
            ends_ms.setdefault((span.resource, span.client), []).append(span.end_ms)
    if not ends_ms:
        return 0
    resources = tuple(ledger.resources)
    warm = 0
    for place in moved.tolist():
        pair = resources[ledger.work.resource[place]], ledger.clients[ledger.work.owner[place]]
        earlier_ms, now_ms = ledger.work.start_ms[place - 1], ledger.work.start_ms[place]
        warm += any(earlier_ms <= end_ms <= now_ms for end_ms in ends_ms.get(pair, ()))
    return warm


def _converge_ms(ledger: Ledger, outages: Spans, last_event_ms: int) -> int | None:
    if (outages.end_ms == ledger.until_ms).any():
        return None
    changes = np.concatenate([ledger.work.start_ms, ledger.work.end_ms])
    changes = changes[(changes > last_event_ms) & (changes < ledger.until_ms)]
    return int(changes.max()) - last_event_ms if changes.size else 0


def _resource(lives: Lifetimes, number: int) -> Resource:
    name = int(lives.resources.name_numbers[number])
    return Resource(lives.resources.names[name], int(lives.resources.flat_indices[number]))
