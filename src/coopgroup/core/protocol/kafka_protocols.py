"""The protocols of Kafka's own clients, by the names that the group coordinator uses.

These are rebalance protocols as in KIP-429. Under an eager protocol members give up everything
before they join, and the leader assigns all resources anew. Under the cooperative protocol members
keep their resources, and a claimed resource is not assigned to another member.
"""

from __future__ import annotations

import enum
from typing import Final


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


# --- the signature of our members while the group speaks another client's protocol ----------------
# Empty user data in our format follows the user data of that protocol. Other clients skip bytes
# after their own, and range and roundrobin have none. `coopgroup group migrate` and `coopgroup
# watch` read the signature; no leader decides by it. Fields that are appended to our user data do
# not change it: members of both releases must know it.


_SIGNATURE: Final = bytes.fromhex("637775640001" + 30 * "ff" + 8 * "00" + "ffff")


def with_signature(user_data: bytes) -> bytes:
    """Append our signature to user data of another client's protocol."""
    return user_data + _SIGNATURE


def has_signature(user_data: bytes | None) -> bool:
    """Return whether user data of another client's protocol has our signature."""
    return user_data is not None and user_data.endswith(_SIGNATURE)


def without_signature(user_data: bytes) -> bytes:
    """Remove the signature from user data."""
    return user_data.removesuffix(_SIGNATURE)
