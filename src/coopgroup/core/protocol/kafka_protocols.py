"""The protocols of Kafka's own clients, by the names that the group coordinator uses.

These are rebalance protocols as in KIP-429. Under an eager protocol members give up everything
before they join, and the leader assigns all resources anew. Under the cooperative protocol members
keep their resources, and a claimed resource is not assigned to another member.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["KafkaProtocol", "kafka_protocol"]


class KafkaProtocol(enum.Enum):
    """A protocol whose messages and rules are those of Kafka's clients."""

    COOPERATIVE_STICKY = "cooperative-sticky"
    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"

    @property
    def is_eager(self) -> bool:
        """Whether its members must own nothing when they join."""
        return self is not KafkaProtocol.COOPERATIVE_STICKY


_BY_NAME: Final = {protocol.value: protocol for protocol in KafkaProtocol}


def kafka_protocol(name: str) -> KafkaProtocol | None:
    """Return the protocol of Kafka's clients with this name; None for any other, such as ours."""
    return _BY_NAME.get(name)
