"""ConsumerGroupHeartbeat, the only request of a member of KIP-848.

Members of coopgroup never send it, so it is not among the requests of `model.group_api`. The
network of the simulator carries it as one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from attrs import frozen

from coopgroup.core.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from coopgroup.core.model.group_api import Answer

JOINS: Final = 0
"""The epoch of a member that joins."""

LEAVES: Final = -1
"""The epoch of a member that leaves."""


@frozen(kw_only=True)
class ConsumerBeatRequest:
    """The request.

    Attributes:
        epoch: the member's epoch, `JOINS` or `LEAVES`.
        topics: subscribed names, ascending.
        owned: owned partitions.
        session_ms: the broker's session timeout of such members, which a test may choose.
    """

    group_id: str
    member_id: str
    epoch: int
    topics: tuple[str, ...]
    owned: ResourceSet
    session_ms: int
    rebalance_ms: int


@frozen(kw_only=True)
class ConsumerBeatAnswer:
    """Its answer, always with the complete assignment."""

    error_code: int
    epoch: int = -1
    assigned: ResourceSet = EMPTY


def beat_answer(error_code: int, epoch: int = -1, assigned: ResourceSet = EMPTY) -> Answer:
    """Return an answer, for a network that carries the answers of classic members."""
    answer = ConsumerBeatAnswer(error_code=error_code, epoch=epoch, assigned=assigned)
    return cast("Answer", answer)
