"""What the embedded messages say, without a word on how they stand on the wire.

`version` is that of the bytes which a value was read from. It is kept because a leader may answer
an old member differently; encoders take the version to write as an argument of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from attrs import field, frozen

from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.resource_set import EMPTY, ResourceSet

__all__ = [
    "ASSIGNMENT_NEWEST",
    "KAFKA_ASSIGNMENT_NEWEST",
    "SUBSCRIPTION_NEWEST",
    "Assignment",
    "KafkaAssignment",
    "Subscription",
    "TopicNames",
    "UserData",
    "ascending_distinct",
]

SUBSCRIPTION_NEWEST: Final = 3
ASSIGNMENT_NEWEST: Final = 2
KAFKA_ASSIGNMENT_NEWEST: Final = 3


@final
class TopicNames(tuple[str, ...]):
    """Names that are ascending and distinct: sorted once, however many members send them.

    A tuple, but for how long a comparison takes: those of a group are mostly one and the same.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether the names are the same."""
        return self is other or tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        """Whether the names differ."""
        return self is not other and tuple.__ne__(self, other)

    __hash__ = tuple.__hash__


def ascending_distinct(names: Iterable[str]) -> TopicNames:
    """Sort names, each once; what is so already is given back as it is."""
    if isinstance(names, TopicNames):
        return names
    # Subscribing twice to one topic means nothing more than once, and some clients do send it.
    # dict keeps the order, and names mostly come sorted: then sorting them costs next to nothing.
    return TopicNames(sorted(dict.fromkeys(names)))


@frozen(kw_only=True)
class Subscription:
    """What a member tells the leader: Kafka's ConsumerProtocolSubscription.

    Attributes:
        topics: subscribed names, ascending and distinct; given in any order.
        user_data: what the member's assignor adds, None for nothing; see `decode_user_data`.
        owned: what the member claims to hold.
        generation: in which it last held that, NO_GENERATION when unknown.
        rack: rack of its process, None when unknown.
        version: of the bytes that this was read from.
    """

    topics: tuple[str, ...] = field(converter=ascending_distinct)
    user_data: bytes | None = None
    owned: ResourceSet = EMPTY
    generation: int = NO_GENERATION
    rack: str | None = None
    version: int = SUBSCRIPTION_NEWEST


@frozen(kw_only=True)
class Assignment:
    """What the leader tells a member.

    Attributes:
        assigned: the complete set that the member holds after this round, never a delta.
        revoked: None for no follow-up round; empty for a follow-up round in which the member gives
            up nothing; else what it must stop and commit before it rejoins.
        scheduled_rebalance_timeout_ms: ms from now until the next round is due, 0 for none.
        loss_timeout_ms: given where that round is due only because paced moves go on: ms from now
            until the wait for a lost owner ends, which is later; NO_LOSS when nobody is waited for.
        version: of the bytes that this was read from.
    """

    assigned: ResourceSet
    revoked: ResourceSet | None = None
    scheduled_rebalance_timeout_ms: int = 0
    loss_timeout_ms: int | None = None
    version: int = ASSIGNMENT_NEWEST


@frozen(kw_only=True)
class KafkaAssignment:
    """What the leader of a group of Kafka's own clients tells a member.

    Attributes:
        assigned: the complete set that the member holds after this round.
        user_data: what the assignor adds, None for nothing.
        version: of the bytes that this was read from.
    """

    assigned: ResourceSet
    user_data: bytes | None = None
    version: int = KAFKA_ASSIGNMENT_NEWEST


@frozen(kw_only=True)
class UserData:
    """What our assignors add to a subscription.

    Attributes:
        remaining_delay_ms: scheduled delay that the member knows to be running, in ms: 0 when it
            has just run out, None for none. A leader that is new to the group honours it.
        remaining_loss_ms: given where that delay is a pause between paced moves: what is left of
            the wait for a lost owner, in ms; NO_LOSS when the member knows of no such wait.
        consumption_rate_per_s: records that the member gets done in a second of work, None while
            that is not known. The wire carries thousandths.
        catalogue_version: newest version of the group's catalogue that the member has seen, None
            where the group shares partitions, or its catalogue has no versions.
    """

    remaining_delay_ms: int | None = None
    remaining_loss_ms: int | None = None
    consumption_rate_per_s: float | None = None
    catalogue_version: int | None = None
