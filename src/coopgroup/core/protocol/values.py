"""The content of the embedded messages, independent of their wire format.

Kafka's messages have versions: their `version` is that of the bytes from which the value was read,
and encoders take the version to write as an argument. Our own messages have one version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from attrs import field, frozen

from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.resource_set import EMPTY, ResourceSet
from coopgroup.core.model.traits import Traits

SUBSCRIPTION_NEWEST: Final = 3
ASSIGNMENT_VERSION: Final = 1
USER_DATA_VERSION: Final = 1
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
        rejoin_in_ms: when all members rejoin even if nothing happens, in ms from now; None for
            never.
        loss_ends_in_ms: when the wait for a lost owner ends, in ms from now; None without such a
            wait. If the rejoin comes before that end, or nothing waits, it continues paced moves.
        warmups: the complete set of resources that the member is to warm up, or to keep warm, while
            other members own them (KIP-441). All other warm-ups are cancelled. Only for members
            that tell their warm resources.
        topics_digest: `names_digest` of the member's subscription; see `digests`. None if unknown.
        shared_digest: `resources_digest` of all resources of the group, only for the leader of the
            round; None for other members, and if unknown.
        catalogue_version: version of the catalogue that the leader read, in groups of named
            resources; None without versions.
    """

    assigned: ResourceSet
    revoked: ResourceSet | None = None
    rejoin_in_ms: int | None = None
    loss_ends_in_ms: int | None = None
    warmups: ResourceSet = EMPTY
    topics_digest: int | None = None
    shared_digest: int | None = None
    catalogue_version: int | None = None


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
        rejoin_in_ms: time until the scheduled rejoin that the member knows of, in ms; 0 if it is
            due, None without one. A leader that is new to the group honours it.
        loss_ends_in_ms: remaining wait for a lost owner that the member knows of, in ms; 0 if it
            has just ended, None without one.
        consumption_rate_per_s: records that the member processes in a second of work, None if
            unknown. The wire format carries thousandths.
        catalogue_version: newest version of the group's catalogue that the member has seen; None in
            groups of partitions, or without versions.
        warm: resources that the member is warm for without owning them; None if the member takes no
            part in warm-ups.
        host: name of the machine that runs the member, None if unknown. Standbys are on other hosts
            first. Only for members that take part in warm-ups.
        declined: resources that the application declines to start.
        declined_warmups: resources that the application declines to warm up.
        hands_over: whether the member leaves permanently, and keeps each resource until its next
            owner is warm.
        traits: what the application tells about the member, for assignors and policies; a JSON
            object, empty by default.
        choices: its policy and its assignor; None for a member of a release without this field.
    """

    rejoin_in_ms: int | None = None
    loss_ends_in_ms: int | None = None
    consumption_rate_per_s: float | None = None
    catalogue_version: int | None = None
    warm: ResourceSet | None = None
    host: str | None = None
    declined: ResourceSet = EMPTY
    declined_warmups: ResourceSet = EMPTY
    hands_over: bool = False
    traits: Traits = field(factory=dict, hash=False)
    choices: MemberChoices | None = None
