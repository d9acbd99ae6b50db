"""`Health`: what one member does at one moment, and what is wrong with it.

A process can be alive and stuck: its threads run, its heartbeats are answered, and no record is
processed. `Health.problems` names such states. It names only states that a restart of the process
can end. A broker that does not answer is no such state: all members would restart at once, and
would still have no broker.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Final

import attrs
from attrs import field, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.telemetry import ClaimRefused

# A revocation that exceeds `max.poll.interval.ms` is lost, so its limit comes earlier.
_REVOCATION_SHARE: Final = 0.75
# All members rejoin within one interval. The second one is for a round that begins meanwhile.
_REBALANCE_INTERVALS: Final = 2.0


@frozen(kw_only=True)
class StuckPartition:
    """A partition without progress.

    Attributes:
        topic: its topic, or the name of a named resource.
        partition: its number.
        why: "records wait", "no committed offset", "handler" (of `coopgroup.processing`) or
            "callback" (of a named resource).
        since_s: how long there has been no progress, in seconds.
    """

    topic: str
    partition: int
    why: str
    since_s: float


@frozen(kw_only=True)
class GroupLoad:
    """The work of a whole group, as its leader sees it.

    Attributes:
        members: number of members of the last round.
        partitions: number of partitions.
        lag: records that the group has not committed yet.
        arrivals_per_s: records that arrive in a second; None before the second look-up.
        rates_per_s: records that a member processes in a second of work, for each member with a
            measured rate.
    """

    members: int
    partitions: int
    lag: int
    arrivals_per_s: float | None
    rates_per_s: tuple[float, ...]


@frozen(kw_only=True)
class HealthLimits:
    """How long the application may show no progress before the process counts as stuck, in seconds.

    None stands for `max.poll.interval.ms` of the member. An infinite limit switches a check off.

    Args:
        poll_s: time since the last `poll`.
        partition_s: time without progress of a partition.

    Raises:
        ConfigurationError: a limit is not a number above 0.
    """

    poll_s: float | None = None
    partition_s: float | None = None

    def __attrs_post_init__(self) -> None:
        for one in attrs.fields(HealthLimits):
            value = getattr(self, one.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0):
                raise ConfigurationError(f"limits.{one.name}", value, "seconds above 0, or None")


DEFAULT_LIMITS: Final = HealthLimits()


@frozen(kw_only=True)
class Health:
    """A member at one moment.

    Attributes:
        group_id: `group.id`.
        client_id: `client.id`.
        instance_id: `group.instance.id`, "" for a dynamic member.
        member_id: id from the group coordinator, "" before the first join.
        generation: generation of the last completed round, -1 for none.
        state: state of the member's state machine, such as "stable".
        is_joined: whether the member is in the group: it has completed a round, and has not lost
            its membership since. A rebalance in progress changes nothing.
        leads: whether the member leads the group.
        broker_assigns: whether the broker assigns in place of a leader, because the group has
            members with `group.protocol=consumer` (KIP-848).
        unreadable: why the member could not read its last assignment, "" if it could.
        unreadable_s: how long it has been unable to, in seconds; 0 if it could.
        failure: why the group permanently refused the member, "" if it did not.
        owned: partitions, or named resources, that the application holds.
        revoking: those of them that are being revoked.
        revoking_s: duration of the longest of these revocations, in seconds; 0 without one.
        lease_s: how long the member may own them without another answer from the coordinator, in
            seconds; negative if the lease has ended, infinite without owned partitions.
        since_poll_s: time since the application was last in `poll`, in seconds; 0 inside `poll`.
        max_poll_interval_s: `max.poll.interval.ms` in seconds.
        session_timeout_s: `session.timeout.ms` in seconds.
        rebalancing_s: duration of the rebalance in progress, in seconds; 0 without one.
        coordinator_silent_s: time since the coordinator last answered, in seconds; infinite if it
            never did.
        thread_silent_s: how long the group's thread has not reacted, in seconds; 0 if it reacts.
        lags: records of each owned partition that the application did not get yet, as far as the
            last fetch told.
        stuck: partitions without progress although there is work for them.
        warmups: number of partitions whose state is being restored.
        standbys: number of partitions whose state is kept warm for another owner.
        retried: requests to the group's brokers that have failed for 10 s and are tried again, one
            sentence each.
        overdue_claims: partitions that other members of the group, led by this one, had to give up
            and still claim after `max.poll.interval.ms`.
    """

    group_id: str
    client_id: str = ""
    instance_id: str = ""
    member_id: str = ""
    generation: int = -1
    state: str = "unsubscribed"
    is_joined: bool = False
    leads: bool = False
    broker_assigns: bool = False
    unreadable: str = ""
    unreadable_s: float = 0.0
    failure: str = ""
    owned: ResourceSet = EMPTY
    revoking: ResourceSet = EMPTY
    revoking_s: float = 0.0
    lease_s: float = math.inf
    since_poll_s: float = 0.0
    max_poll_interval_s: float = 300.0
    session_timeout_s: float = 45.0
    rebalancing_s: float = 0.0
    coordinator_silent_s: float = math.inf
    thread_silent_s: float = 0.0
    lags: Mapping[tuple[str, int], int] = field(factory=lambda: types.MappingProxyType({}))
    stuck: tuple[StuckPartition, ...] = ()
    warmups: int = 0
    standbys: int = 0
    retried: tuple[str, ...] = ()
    overdue_claims: tuple[ClaimRefused, ...] = ()

    def problems(self, limits: HealthLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
        """Return why the process counts as stuck, one sentence each; empty if it does not."""
        found = [f"the group refused this member: {self.failure}"] if self.failure else []
        usual_s = self.max_poll_interval_s
        poll_s = usual_s if limits.poll_s is None else limits.poll_s
        for allowed_s, seconds, words in (
            (poll_s, self.since_poll_s, "poll was not called"),
            (_REVOCATION_SHARE * usual_s, self.revoking_s, "a revocation runs"),
            (usual_s, self.thread_silent_s, "the group's thread does not react"),
            (_REBALANCE_INTERVALS * usual_s, self._answered_s, "a rebalance runs"),
        ):
            if seconds > allowed_s:
                found.append(f"{words} for {seconds:.1f} s (limit {allowed_s:.1f} s)")
        if self.unreadable_s > self.session_timeout_s:
            found.append(
                f"no assignment could be read for {self.unreadable_s:.1f} s: {self.unreadable}"
                f" (limit {self.session_timeout_s:.1f} s)"
            )
        allowed_s = usual_s if limits.partition_s is None else limits.partition_s
        found += [
            f"{one.topic}-{one.partition} makes no progress for {one.since_s:.1f} s: {one.why}"
            f" (limit {allowed_s:.1f} s)"
            for one in self.stuck
            if one.since_s > allowed_s
        ]
        return tuple(found)

    def group_problems(self) -> tuple[str, ...]:
        """Return what is wrong with brokers, or with members led by this one, one sentence each.

        A restart of this process does not help, so liveness ignores them.
        """
        return self.retried + tuple(
            f"member {one.member_id} has not given up {one.count} partitions"
            f" for {one.waited_ms / 1000:.1f} s (limit {self.max_poll_interval_s:.1f} s)"
            for one in self.overdue_claims
        )

    @property
    def is_ready(self) -> bool:
        """Return whether the member takes part in its group; it need not own a partition."""
        return self.is_joined and not self.failure

    @property
    def _answered_s(self) -> float:
        """Return the duration of a rebalance whose coordinator answers; 0 if it is silent."""
        return self.rebalancing_s if self.coordinator_silent_s < self.max_poll_interval_s else 0.0
