"""The verdict of a comparison: the best policy for each price of a move.

The price of a move is the time until a moved partition works again: the restore of its state. A run
plays one price, and its measures tell what another price would cost:

    out of service = seconds of the run + restores x (price - played price)

Restores out of service are the cold moves. Moves to a warm process pay none. A partition that comes
back to its process counts as a move, unless the scenario has a price of its own for it. For each
price the policy with the fewest partition-seconds out of service is best. Over all prices the best
policies form the lower edge of these lines. The verdict leaves out `eager`, because consumers
cannot use it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from attrs import frozen

from coopgroup.report.charts import Chart, Curve, Mark
from coopgroup.report.wording import counted, seconds

_BASELINE: Final = "eager"
_ALIKE: Final = 0.02  # part of the cost below which policies with equal moves count as equal
_MS: Final = 1_000
_PRICES: Final = 1.5  # the chart ends at this multiple of the last interesting price
_PRICE_S_MIN: Final = 1.0
_STEPS: Final = 30


@frozen(kw_only=True)
class PolicyCost:
    """The cost of one policy: medians of its runs.

    Attributes:
        unavailable_s: partition-seconds out of service.
        low_s: lowest of its runs.
        high_s: highest of its runs.
        moved: moves, cold or warm.
        restores: restores out of service, whose length is the price of a move.
        warmups: restores beside the owner.
        is_settled: whether every run converged.
    """

    policy: str
    unavailable_s: float
    low_s: float
    high_s: float
    moved: float
    restores: float
    warmups: float
    is_settled: bool


@frozen(kw_only=True)
class Reach:
    """The prices at which some policies are best; usually one, more if they are equal.

    Attributes:
        from_s: lowest price, in seconds for each move.
        to_s: highest price; None for no limit.
    """

    policies: tuple[str, ...]
    from_s: float
    to_s: float | None


@frozen(kw_only=True)
class Verdict:
    """The verdict.

    Attributes:
        summary: costs of all policies in one line.
        sentences: the verdict in words.
        reaches: best policies by price, ascending; empty without a candidate.
        chart: cost over the price of a move; None for a single policy.
    """

    summary: str
    sentences: tuple[str, ...]
    reaches: tuple[Reach, ...]
    chart: Chart | None


def cost_of(policy: str, measured: Sequence[Any], *, returns_pay: bool = True) -> PolicyCost | None:
    """Return the cost of a policy from the measures of its runs; None if they lack it.

    Args:
        policy: name of the policy.
        measured: measures of its runs.
        returns_pay: whether a partition that comes back to its process costs as much as a move.
    """
    try:
        unavailable = [float(one.unavailable_partition_s) for one in measured]
        return PolicyCost(
            policy=policy,
            unavailable_s=statistics.median(unavailable),
            low_s=min(unavailable),
            high_s=max(unavailable),
            moved=statistics.median(one.moved for one in measured),
            restores=statistics.median(
                one.moved_cold + one.returned * returns_pay for one in measured
            ),
            warmups=statistics.median(one.warmups for one in measured),
            is_settled=all(one.converge_ms is not None for one in measured),
        )
    except AttributeError:
        return None


def verdict_of(
    measured: Mapping[str, Sequence[Any]], played_ms: float, *, returns_pay: bool = True
) -> Verdict | None:
    """Return the verdict of a comparison; None if runs lack a measure that it needs.

    Args:
        measured: measures of the runs of each policy.
        played_ms: price of a move in these runs.
        returns_pay: whether a partition that comes back to its process costs as much as a move.
    """
    costs = []
    for policy, runs in measured.items():
        cost = cost_of(policy, runs, returns_pay=returns_pay)
        if cost is None:
            return None
        costs.append(cost)
    candidates = [one for one in costs if one.is_settled and not _is_baseline(one.policy)]
    reaches = reaches_of(candidates, played_ms / _MS)
    sentences = (
        []
        if len(costs) == 1
        else [
            *best_words(reaches),
            *_played_words(reaches, candidates, played_ms),
            *_left_out_words(costs),
        ]
    )
    return Verdict(
        summary=_summary(costs),
        sentences=tuple(sentences),
        reaches=reaches,
        chart=price_chart(costs, reaches, played_ms / _MS) if len(costs) > 1 else None,
    )


def _is_baseline(policy: str) -> bool:
    return policy.partition(":")[0] == _BASELINE


# --- prices -------------------------------------------------------------------------------------


def _at(cost: PolicyCost, price_s: float, played_s: float) -> float:
    """Return the partition-seconds out of service at another price of a move."""
    return max(0.0, cost.unavailable_s + cost.restores * (price_s - played_s))


def reaches_of(candidates: Sequence[PolicyCost], played_s: float) -> tuple[Reach, ...]:
    """Return the best policies by price, ascending.

    Args:
        candidates: costs of the policies.
        played_s: price of a move in their runs.
    """
    if not candidates:
        return ()
    crossings = {
        played_s + (other.unavailable_s - one.unavailable_s) / (one.restores - other.restores)
        for one in candidates
        for other in candidates
        if one.restores > other.restores
    }
    edges = [0.0, *sorted(price for price in crossings if price > 0)]
    middles = [(low + high) / 2 for low, high in pairwise(edges)] + [edges[-1] + 1.0]
    found: list[Reach] = []
    for edge, middle in zip(edges, middles, strict=True):
        best = _best_at(candidates, middle, played_s)
        if found and found[-1].policies == best:
            continue
        if found:
            found[-1] = Reach(policies=found[-1].policies, from_s=found[-1].from_s, to_s=edge)
        found.append(Reach(policies=best, from_s=edge, to_s=None))
    return tuple(found)


def _best_at(candidates: Sequence[PolicyCost], price_s: float, played_s: float) -> tuple[str, ...]:
    """Return the best policy at a price, and the policies that are equal to it."""
    best = min(candidates, key=lambda one: (_at(one, price_s, played_s), one.restores, one.moved))
    limit = _at(best, price_s, played_s) * (1 + _ALIKE)
    return tuple(
        one.policy
        for one in candidates
        if (one.restores, one.warmups) == (best.restores, best.warmups)
        and _at(one, price_s, played_s) <= limit
    )


def price_chart(costs: Sequence[PolicyCost], reaches: Sequence[Reach], played_s: float) -> Chart:
    """Return the cost of each policy over the price of a move.

    Args:
        costs: costs of the policies.
        reaches: from `reaches_of`; the chart shows all prices at which the best policy changes.
        played_s: price of a move in their runs.
    """
    tips_s = [one.to_s for one in reaches if one.to_s is not None]
    end_s = _PRICES * max([played_s, *tips_s, _PRICE_S_MIN])
    prices = tuple(end_s * step / _STEPS for step in range(_STEPS + 1))
    return Chart(
        name="verdict",
        title="cost, over the price of a move",
        x_label="seconds for a move",
        y_label="partition-seconds",
        curves=tuple(
            Curve(
                label=one.policy,
                x=prices,
                y=tuple(_at(one, price_s, played_s) for price_s in prices),
            )
            for one in costs
            if not _is_baseline(one.policy)
        ),
        marks=(Mark(x=played_s, label="played"),),
    )


# --- words --------------------------------------------------------------------------------------


def _summary(costs: Sequence[PolicyCost]) -> str:
    parts = []
    for place, one in enumerate(costs):
        out, moves = f"{one.unavailable_s:,.0f}", f"{one.moved:,.0f}"
        if not place:
            out += " partition-seconds out of service"
            moves += " moves" if one.moved != 1 else " move"
        joint = ", " if not place else " and "
        extra = f" with {one.warmups:,.0f} warm-ups" if one.warmups else ""
        parts.append(f"{_capital(one.policy)}: {out}{joint}{moves}{extra}.")
    return " ".join(parts)


def best_words(reaches: Sequence[Reach]) -> list[str]:
    """Return the best policy for each price, in a sentence."""
    if not reaches:
        return ["No policy that consumers can use converged in every run."]
    if len(reaches) == 1:
        best = _named(reaches[0])
        return [f"{_capital(best)}: fewest partition-seconds out of service at every price."]
    words = [f"{_named(reaches[0])} if a move costs less than {_price(reaches[0])}"]
    words += [f"{_named(one)} up to {_price(one)}" for one in reaches[1:-1]]
    words.append(f"{_named(reaches[-1])} above")
    return [f"Fewest partition-seconds out of service: {'; '.join(words)}."]


def _played_words(
    reaches: Sequence[Reach], candidates: Sequence[PolicyCost], played_ms: float
) -> list[str]:
    if not reaches:
        return []
    played_s = played_ms / _MS
    words = f"A move costs {seconds(round(played_ms))} in this scenario"
    if not played_ms:
        words = "In this scenario a moved partition works immediately: a move costs 0 s"
    here = next(one for one in reversed(reaches) if one.from_s <= played_s or one is reaches[0])
    best = next(one for one in candidates if one.policy == here.policies[0])
    sentences = [f"{words}, so the choice is {_named(here)}."] if len(reaches) > 1 else []
    if best.warmups:
        restores = counted(round(best.warmups), "restore")
        sentences.append(f"Its price: {restores} beside the owners.")
    others = [
        one.policy
        for one in candidates
        if one.policy not in here.policies and one.low_s <= best.high_s and best.low_s <= one.high_s
    ]
    if others and best.low_s < best.high_s:
        sentences.append(
            f"The seeds of {_listed(others)} overlap with it: the difference may be chance."
        )
    return sentences


def _left_out_words(costs: Sequence[PolicyCost]) -> list[str]:
    unsettled = [one.policy for one in costs if not one.is_settled and not _is_baseline(one.policy)]
    return [f"Left out, because a run did not converge: {_listed(unsettled)}."] if unsettled else []


def _named(reach: Reach) -> str:
    return _listed(reach.policies, "or")


def _price(reach: Reach) -> str:
    price_s = reach.to_s or 0.0
    return seconds(round(price_s * _MS, -2 if price_s < 100 else -3)) if price_s >= 0.1 else "0.1 s"


def _listed(names: Sequence[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
