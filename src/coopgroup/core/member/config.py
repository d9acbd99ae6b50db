"""`MemberConfig`: the settings of a member, checked one by one."""

from __future__ import annotations

import enum
from functools import cached_property

import attrs
from attrs import frozen

from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.traits import Traits
from coopgroup.errors import ConfigurationError


def _positive(
    _: object, attribute: attrs.Attribute[int], value: int
) -> None:  # a trust boundary: users set these values
    if value <= 0:
        raise ConfigurationError(attribute.name, value, "a positive number of milliseconds")


def _not_negative(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise ConfigurationError(attribute.name, value, "0 or a positive number of milliseconds")


class GroupProtocol(enum.StrEnum):
    """Kafka's `group.protocol`: who assigns, and with which requests."""

    CLASSIC = "classic"
    """JoinGroup and SyncGroup: a member is the leader, and assigns."""

    CONSUMER = "consumer"
    """ConsumerGroupHeartbeat (KIP-848): the broker assigns."""


@frozen(kw_only=True)
class MemberConfig:
    """Settings of a member, fixed for its life.

    Attributes:
        group_id: the group.
        protocol: how the member takes part in the group.
        own_id: text that no other process has. The ids that a member of KIP-848 gives itself
            begin with it.
        remote_assignor: the broker's assignor (KIP-848), None for its default.
        protocol_type: embedded protocol's family, "consumer" for partitions.
        protocol_name: coopgroup's own embedded protocol; the only one unless `protocols` is set.
        protocols: all protocols that the member can speak, the preferred one first, including
            Kafka's own. The whole group must share one. Empty for `protocol_name` alone.
        instance_id: static id (KIP-345), None for a dynamic member.
        rack: rack of the process (KIP-881), None if unknown.
        host: machine that runs the process, None if unknown; told only with warm-ups.
        traits: what the application tells the leader about this process.
        choices: policy and assignor of this process, which it tells the leader; None for nothing.
        session_timeout_ms: time without a heartbeat after which the coordinator drops the member,
            and the member by itself treats all its resources as lost.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin.
        heartbeat_interval_ms: pace of heartbeats.
        retry_backoff_ms: first wait before a request is tried again; doubles with each try.
        retry_backoff_max_ms: longest wait.
        request_timeout_ms: how long to wait for an answer that does not depend on other members.
        commit_attempts_max: how often a commit is sent before its error goes to the caller;
            waiting for a round does not count.
        revocation_grace_ms: how long a join waits for the rest of the revocations, after some have
            finished or a round is wanted; 0 for no wait.
        window_heartbeat_interval_ms: pace of heartbeats during a scheduled delay or a revocation,
            so that a round of other members begins immediately; never slower than the normal pace.
        eager: whether the member stops all its resources before each join, and claims none.
        keeps_identity: whether the member asks its host to store its identity (`KeepIdentity`).
            Such a member does not tell the coordinator that it leaves, like a static member
            (KIP-345). No effect on a static member.
        has_bell: whether the member's host has a bell, which tells members of a round ahead of
            their heartbeats. Without one, the member neither rings nor heeds rings.
        index_min: smallest index of a resource: 0 for partitions, -1 if a group shares connectors.
    """

    group_id: str
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    own_id: str = ""
    remote_assignor: str | None = None
    protocol_type: str = "consumer"
    protocol_name: str = "coopgroup"
    protocols: tuple[str, ...] = ()
    instance_id: str | None = None
    rack: str | None = None
    host: str | None = None
    traits: Traits = attrs.field(factory=dict, hash=False)
    choices: MemberChoices | None = None
    session_timeout_ms: int = attrs.field(default=45_000, validator=_positive)
    rebalance_timeout_ms: int = attrs.field(default=300_000, validator=_positive)
    heartbeat_interval_ms: int = attrs.field(default=3_000, validator=_positive)
    retry_backoff_ms: int = attrs.field(default=100, validator=_positive)
    retry_backoff_max_ms: int = attrs.field(default=1_000, validator=_positive)
    request_timeout_ms: int = attrs.field(default=30_000, validator=_positive)
    commit_attempts_max: int = 10
    revocation_grace_ms: int = attrs.field(default=200, validator=_not_negative)
    window_heartbeat_interval_ms: int = attrs.field(default=250, validator=_positive)
    eager: bool = False
    keeps_identity: bool = False
    has_bell: bool = False
    index_min: int = 0

    @property
    def has_leader(self) -> bool:
        """Return whether a member assigns, and not the broker."""
        return self.protocol is GroupProtocol.CLASSIC

    def require_leader(self, what: str) -> None:
        """Refuse what only a leader can do, if the broker assigns.

        Raises:
            ConfigurationError: the member speaks KIP-848.
        """
        if not self.has_leader:
            expected = (
                f"{GroupProtocol.CLASSIC.value}: {what} needs a leader, and the broker assigns"
            )
            raise ConfigurationError("group.protocol", self.protocol.value, expected)

    @property
    def shares_partitions(self) -> bool:
        """Return whether the group shares partitions, and not other resources."""
        return self.protocol_type == "consumer"

    @cached_property
    def rejoin_within_ms(self) -> int:
        """Return how long after a round's begin a join may be sent and still count, in ms.

        That is the rebalance timeout minus the time that a request needs to arrive.
        """
        timeout_ms = self.rebalance_timeout_ms
        return timeout_ms - min(self.heartbeat_interval_ms, timeout_ms // 10)
