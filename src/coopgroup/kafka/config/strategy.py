"""`partition.assignment.strategy`, as configurations for other clients have it.

A configuration with this key may belong to a group that is at work. So its protocols are offered
beside ours: the first member that is replaced joins the group as it is. The key also names the
assignor, unless the application passes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coopgroup.kafka.config.shown_values import refused
from coopgroup.protocol import KafkaProtocol

STRATEGY: Final = "partition.assignment.strategy"
# The sticky assignor of Kafka's Java client is eager. Ours has its aim.
_ASSIGNORS: Final = {
    KafkaProtocol.RANGE: "range",
    KafkaProtocol.ROUND_ROBIN: "round-robin",
    KafkaProtocol.STICKY: "sticky",
    KafkaProtocol.COOPERATIVE_STICKY: "cooperative-sticky",
}


def read_strategy(given: Mapping[str, Any]) -> tuple[KafkaProtocol, ...]:
    """Return the strategies in order of preference; empty without the key.

    Raises:
        ConfigurationError: a name is unknown, or occurs twice.
    """
    text = given.get(STRATEGY)
    if text is None:
        return ()
    names = [name.strip() for name in str(text).split(",")]
    known = {protocol.value: protocol for protocol in KafkaProtocol}
    if not {*names} <= {*known} or len({*names}) < len(names):
        expected = f"any of {', '.join(sorted(known))}, each once; for others pass assignor=…"
        raise refused(STRATEGY, text, expected)
    return tuple(known[name] for name in names)


def protocols_of(strategies: tuple[KafkaProtocol, ...], own: str) -> tuple[str, ...]:
    """Return the protocols to offer, ours first.

    A member whose list has a cooperative protocol need not offer the eager ones of the list. The
    others then keep their partitions too.
    """
    if KafkaProtocol.COOPERATIVE_STICKY in strategies:
        return own, KafkaProtocol.COOPERATIVE_STICKY.value
    return own, *(one.value for one in strategies)


def assignor_of(strategies: tuple[KafkaProtocol, ...]) -> str | None:
    """Return the name of our assignor for the preferred strategy; None without a strategy."""
    return _ASSIGNORS[strategies[0]] if strategies else None
