"""Present configuration of a coopgroup group, derived from the rounds that its leaders recorded.

Theory of operation. A round records its policy and the announced delay. The delay is the time-out
only if the round has a new loss. Later rounds of the same wait announce the rest of the delay.
Rounds without a loss announce the time of the next ration. So the longest delay of the newest wait
under the newest policy counts. Older waits do not count, since the setting may have changed.
"""

from __future__ import annotations

from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final

from coopgroup.policies.registry import policy_names
from coopgroup.simulator.scenario import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row

__all__ = ["policy_led"]

_WAITING: Final = ("deferred", "incremental")


def policy_led(rounds: Sequence[Row]) -> tuple[Choice, tuple[str, ...]] | None:
    """Return the policy of a group, and notes on the parts that are estimates.

    Args:
        rounds: rows of the table `rounds`, newest first.

    Returns:
        `None` without rounds, or if the policy is not one of coopgroup's own.
    """
    if not rounds or rounds[0].policy not in policy_names():
        return None
    name = rounds[0].policy
    span = takewhile(lambda one: one.policy == name, rounds)
    if name not in _WAITING:
        return Choice(name=name), ()
    wait = takewhile(_is_waiting, dropwhile(lambda one: not _is_waiting(one), span))
    waits_ms = max((one.scheduled_rebalance_timeout_ms for one in wait), default=0)
    options: dict[str, Any] = {}
    guessed = []
    if waits_ms:
        options["scheduled_rebalance_timeout_ms"] = int(waits_ms)
    else:
        guessed.append("time-out")
    if name == "incremental":
        guessed.append("ration")
    if not guessed:
        return Choice(name=name, options=options), ()
    note = (
        f"Today's {' and '.join(guessed)} was not seen in telemetry: taken for what the "
        f"{name} policy has by itself, a guess; --today says better."
    )
    return Choice(name=name, options=options), (note,)


def _is_waiting(one: Row) -> bool:
    return bool(one.lost) and bool(one.scheduled_rebalance_timeout_ms)
