"""What a bell costs the group coordinator: requests while ten members bounce, without and with it.

The simulator plays a group whose members have four partitions each, at default time-outs. Ten
members close one after the other, and return 2 s later. Every request to the group coordinator
counts, from the first close until the group has been at rest for a while.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from coopgroup.simulator import read_scenario, simulate
from coopgroup.simulator.world.brokers import Brokers
from coopgroup.simulator.world.calls import Call

__all__ = ["run"]

COUNTS: Final = (10, 100, 1_000)
_BEGIN_MS: Final = 60_000
_SPAN_MS: Final = 100
_SCENARIO: Final = """
duration_ms = 180_000
settle_ms = 30_000

[group]
policy = "simple"
assignor = "sticky"
session_timeout_ms = 45_000
rebalance_timeout_ms = 300_000
heartbeat_interval_ms = 3_000

[topics.orders]
partitions = {partitions}
rate_per_s = 1

[[members]]
name = "bouncing"
count = 10
capacity_per_s = 100
{others}
[network]
delay_ms = [1, 3]
{bell}
[[events]]
at_ms = 60_000
kind = "rolling_restart"
members = "bouncing"
down_ms = 2_000
every_ms = 10_000
"""
_OTHERS: Final = """
[[members]]
name = "other"
count = {}
capacity_per_s = 100
"""


def run(*, counts: tuple[int, ...] = COUNTS) -> dict[str, Any]:
    """Play the bounce with each number of members, at least 10.

    Returns:
        By number of members, `without` and `with` a bell: requests, the most requests in 100 ms,
        rounds, unavailable partition-seconds, and broken rules.
    """
    found = {}
    for count in counts:
        found[str(count)] = {
            name: _played(count, bell) for name, bell in (("without", ""), ("with", "[bell]"))
        }
        print(f"{count} members: {found[str(count)]}", flush=True)
    return found


def _played(count: int, bell: str) -> dict[str, float]:
    times: Counter[int] = Counter()
    serve = Brokers.serve

    def counted(brokers: Brokers, call: Call) -> None:
        if brokers.world.now_ms >= _BEGIN_MS:
            times[brokers.world.now_ms // _SPAN_MS] += 1
        serve(brokers, call)

    others = _OTHERS.format(count - 10) if count > 10 else ""
    text = _SCENARIO.format(partitions=4 * count, others=others, bell=bell)
    with tempfile.TemporaryDirectory() as folder, patch.object(Brokers, "serve", counted):
        path = Path(folder) / "bounce.toml"
        path.write_text(text)
        played = simulate(read_scenario(path), seed=0)
    return {
        "requests": times.total(),
        "most_in_100_ms": max(times.values()),
        "rounds": played.measures.rounds,
        "unavailable_s": round(played.measures.unavailable_partition_s, 1),
        "violations": len(played.violations),
    }
