"""The content of the embedded messages, independent of their wire format.

`version` is the version of the bytes from which a value was read, because a leader answers old
members differently. Encoders take the version to write as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from attrs import field, frozen

from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.resource_set import EMPTY, ResourceSet

SUBSCRIPTION_NEWEST: Final = 3
ASSIGNMENT_NEWEST: Final = 2
KAFKA_ASSIGNMENT_NEWEST: Final = 3


@final
class TopicNames(tuple[str, ...]):
    """Ascending, distinct names: sorted once, however many members send them."""

    __slots__ = ()


def ascending_distinct(names: Iterable[str]) -> TopicNames:
    """Return the names sorted and without repeats; sorted names are returned unchanged."""
    if isinstance(names, TopicNames):
        return names
    # Some clients send a topic twice, which means the same as once. dict keeps the order, and
    # sorting already sorted names is cheap.
    return TopicNames(sorted(dict.fromkeys(names)))


@frozen(kw_only=True)
class Subscription:
    """A member's message to the leader: Kafka's ConsumerProtocolSubscription.

    Attributes:
        topics: subscribed names, ascending and distinct; may be given in any order.
        user_data: data of the member's assignor, or None; see `decode_user_data`.
        owned: claimed resources.
        generation: generation of the claims, `NO_GENERATION` if unknown.
        version: version of the bytes that were read.
    """

    topics: tuple[str, ...] = field(converter=ascending_distinct)
    user_data: bytes | None = None
    owned: ResourceSet = EMPTY
    generation: int = NO_GENERATION
    rack: str | None = None
    version: int = SUBSCRIPTION_NEWEST


@frozen(kw_only=True)
class Assignment:
    """The leader's message to a member.

    Attributes:
        assigned: the complete set that the member owns after this round, never a delta.
        revoked: None for no follow-up round; empty for a follow-up round in which the member gives
            up nothing; otherwise the resources to stop and commit before it rejoins.
        scheduled_rebalance_timeout_ms: ms from now until the next round is due, 0 for none.
        loss_timeout_ms: present if that round is due only for moves: ms from now until the wait for
            a lost owner ends, which is later; `NO_LOSS` without such a wait.
        warmups: the complete set of resources that the member is to warm up, or to keep warm, while
            other members own them (KIP-441). None for no warm-ups: all earlier ones are cancelled.
            Only for members that tell their warm resources.
        version: version of the bytes that were read.
    """

    assigned: ResourceSet
    revoked: ResourceSet | None = None
    scheduled_rebalance_timeout_ms: int = 0
    loss_timeout_ms: int | None = None
    warmups: ResourceSet | None = None
    version: int = ASSIGNMENT_NEWEST


@frozen(kw_only=True)
class KafkaAssignment:
    """The leader's message to a member in a group of Kafka's own clients.

    Attributes:
        assigned: the complete set that the member owns after this round.
        version: version of the bytes that were read.
    """

    assigned: ResourceSet
    user_data: bytes | None = None
    version: int = KAFKA_ASSIGNMENT_NEWEST


@frozen(kw_only=True)
class UserData:
    """Data that our assignors add to a subscription.

    Attributes:
        remaining_delay_ms: remaining scheduled delay that the member knows of, in ms: 0 if it has
            just ended, None for none. A leader that is new to the group honours it.
        remaining_loss_ms: present if that delay is a pause between moves: the remaining wait for a
            lost owner, in ms; `NO_LOSS` if the member knows of no such wait.
        consumption_rate_per_s: records that the member processes in a second of work, None if
            unknown. The wire format carries thousandths.
        catalogue_version: newest version of the group's catalogue that the member has seen; None in
            groups of partitions, or without versions.
        warm: resources that the member is warm for without owning them; None if the member takes no
            part in warm-ups.
        host: name of the machine that runs the member, None if unknown. Standbys are on other hosts
            first. Only for members that take part in warm-ups.
        declined: warm-ups that the application refused. Only for members that take part.
        hands_over: whether the member leaves permanently, and keeps each resource until its next
            owner is warm.
    """

    remaining_delay_ms: int | None = None
    remaining_loss_ms: int | None = None
    consumption_rate_per_s: float | None = None
    catalogue_version: int | None = None
    warm: ResourceSet | None = None
    host: str | None = None
    declined: ResourceSet = EMPTY
    hands_over: bool = False
