"""The protocols of Kafka's own clients, by the names under which the group coordinator chooses.

Rebalance protocols in the sense of KIP-429: under an eager one the leader gives everything out
anew, whoever has it, so members give up all that they hold before they join. Under the cooperative
one members hold on to it, and nothing is given to a member that another one still claims.
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
        """Whether its members must hold nothing when they join."""
        return self is not KafkaProtocol.COOPERATIVE_STICKY


_BY_NAME: Final = {protocol.value: protocol for protocol in KafkaProtocol}


def kafka_protocol(name: str) -> KafkaProtocol | None:
    """The protocol of Kafka's clients with a name; None for every other, such as ours."""
    return _BY_NAME.get(name)
