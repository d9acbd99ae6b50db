"""Warm-ups as settings that `advise` tries, once the price of a move is known.

With warm-ups a partition moves when its new owner has restored its state, so a planned move costs a
hand-over and no restore. With a standby the same holds for losses. Neither is free: an application
needs `on_warmup`, and the members restore beside their work. So warm-ups are advised only if they
save much, and a standby only if it saves much more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve

from coopgroup.policies import Warmup
from coopgroup.policies.warming.option import read_warmup
from coopgroup.simulator.scenario import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.pipeline.advice.cost import MoveCost

__all__ = ["warmed_up", "warmup_code", "warmup_in", "warmup_words", "with_warmups"]

_STANDBYS: Final = (0, 1)
_PER_MEMBER: Final = 2
_RESTORES: Final = 4  # a warm-up that takes several times a restore hangs
_TIMEOUT_MS_MIN: Final = 60_000
_WORTH: Final = 0.75  # part of the cost at which warm-ups are worth their trouble


def warmup_in(policy: Choice) -> Warmup | None:
    """Return the option `warmup` of a policy."""
    return read_warmup(policy.options.get("warmup"))


def with_warmups(policy: Choice, cost: MoveCost, members: int) -> list[Choice]:
    """Return a policy with warm-ups, without and with a standby; none if a move costs nothing.

    Args:
        policy: the best policy without warm-ups.
        cost: cost of a move, which is the time to restore.
        members: number of members of the group; each may restore.
    """
    if not cost.move_ms or policy.name == "eager" or warmup_in(policy) is not None:
        return []
    return [
        evolve(
            policy,
            options={
                **policy.options,
                "warmup": {
                    "max_concurrent": max(Warmup().max_concurrent, _PER_MEMBER * members),
                    "standbys": standbys,
                    "timeout_ms": max(_TIMEOUT_MS_MIN, _RESTORES * cost.move_ms),
                },
            },
        )
        for standbys in _STANDBYS
    ]


def warmed_up(policies: Sequence[Choice], costs: Sequence[float], chosen: int) -> int:
    """Return the setting to advise: with warm-ups if they save much, else the chosen one.

    Args:
        policies: all settings.
        costs: cost of each.
        chosen: number of the best setting without warm-ups.
    """
    warm = [place for place, one in enumerate(policies) if warmup_in(one) is not None]
    for place in sorted(warm, key=lambda one: _standbys(policies[one])):
        if costs[place] <= _WORTH * costs[chosen]:
            chosen = place
    return chosen


def warmup_words(policy: Choice) -> str:
    """Return the part of a setting's name about warm-ups; "" without them."""
    warmup = warmup_in(policy)
    if warmup is None:
        return ""
    return " with warm-ups and a standby" if warmup.standbys else " with warm-ups"


def warmup_code(warmup: Warmup) -> str:
    """Return the option as Python code."""
    values = [f"max_concurrent={warmup.max_concurrent}", f"timeout_ms={warmup.timeout_ms:_}"]
    values += [f"standbys={warmup.standbys}"] if warmup.standbys else []
    return f"Warmup({', '.join(values)})"


def _standbys(policy: Choice) -> int:
    warmup = warmup_in(policy)
    return 0 if warmup is None else warmup.standbys
