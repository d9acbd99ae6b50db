"""A snapshot of a group, as plain values, and as an object for `json.dumps`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, Literal

import attrs
from attrs import field, frozen

from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.traits import Traits
from coopgroup.report.history.names import told_apart
from coopgroup.telemetry import Envelope


@frozen(kw_only=True)
class MemberView:
    """A member.

    Attributes:
        instance_id: static id, "" for a dynamic member.
        is_coopgroup: whether it is a member of this package.
        is_readable: whether its assignment can be read.
        protocol: its group protocol, "classic" or "consumer" (KIP-848).
        generation: generation of the claims in its last join; None in its first round, and if the
            member does not tell. Where the broker assigns, the member's epoch; -2 for a static
            member that is expected back.
        rate_per_s: records that it processes in a second of work; None if it does not tell.
        partitions: number of partitions that it has.
        lag: their lag, in records; None if that of a partition is unknown.
        traits: what it tells about itself; empty if it tells nothing.
        choices: its policy and its assignor; None if it does not tell.
        leads: whether it led the last round, as telemetry tells.
        returns: how often a member of this name came back on its host while it was watched.
        since_poll_s: time since its application was last in `poll`, as of its last report; None if
            it does not poll, or does not tell.
        lease_s: how long it might own its partitions without another heartbeat, as of its last
            report; 0 if its lease had ended, None without partitions, or if it does not tell.
        report_age_s: time since its last report; None without one.
        report_interval_s: time between two of its reports; None without one.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str = ""
    is_coopgroup: bool = False
    is_readable: bool = True
    protocol: str = "classic"
    generation: int | None = None
    rate_per_s: float | None = None
    partitions: int = 0
    lag: int | None = 0
    traits: Traits = field(factory=dict, hash=False)
    choices: MemberChoices | None = None
    leads: bool = False
    returns: int = 0
    since_poll_s: float | None = None
    lease_s: float | None = None
    report_age_s: float | None = None
    report_interval_s: float | None = None

    @property
    def name(self) -> str:
        """Return the name that stays when the process restarts; several members may have it."""
        return self.instance_id or self.client_id or self.member_id


@frozen(kw_only=True)
class WarmupView:
    """The state of a partition at a member that does not own it.

    Attributes:
        member: member id.
        is_warm: whether the state is restored, as of a standby; else it is being restored.
    """

    member: str
    is_warm: bool


@frozen(kw_only=True)
class PartitionView:
    """A partition.

    Attributes:
        owner: member id, "" without an owner.
        state: "owned", "moving" (the group wants another owner), "unowned", "rebalancing" (the
            brokers name no owner during a round), or, from telemetry, "revoking" (without an owner
            until `holder` has stopped it), "waiting" (for a lost owner, or its release),
            "no room" (no member has room for it) or "failed" (its start has failed permanently).
        why: reasons for "no room", or the error of a failed start; "" otherwise.
        since_ms: when its owner began to work on it, as telemetry tells, or the look that first
            showed this owner, in ms since 1970; None if it is unknown.
        target: member id of the owner that the group wants; "" if it is the same, or unknown.
        holder: member id of the former owner, which still stops the partition; "" if there is none.
        waits_for: name of the last owner, if the partition waits for it; "" if it is unknown.
        until_ms: when the wait for a lost owner ends, in ms since 1970; None if it is unknown.
        warmups: members that restore its state, or keep it warm.
        end: log end offset; None if it is unknown.
        committed: committed offset; None without a commit.
        lag: records that a consumer would read from the committed offset; None if it is unknown.
            Without a commit that the log still has, it depends on the consumer's
            `auto.offset.reset`.
        trend_per_s: growth of the lag in records per second; None before a second look.
        commit_age_s: time since the committed offset changed, as far as it was watched; None before
            the first change.
    """

    topic: str
    partition: int
    owner: str = ""
    state: str = "unowned"
    why: str = ""
    since_ms: int | None = None
    target: str = ""
    holder: str = ""
    waits_for: str = ""
    until_ms: int | None = None
    warmups: tuple[WarmupView, ...] = ()
    end: int | None = None
    committed: int | None = None
    lag: int | None = None
    trend_per_s: float | None = None
    commit_age_s: float | None = None


@frozen(kw_only=True)
class Move:
    """A change between two looks.

    Attributes:
        at_ms: time of the later look, in ms since 1970.
        text: the change, in a few words.
        kind: what changed.
        why: the member that joined or left before, or the words of a leader; "" if unknown.
    """

    at_ms: int
    text: str
    kind: Literal["state", "joined", "left", "moved", "round"] = "moved"
    why: str = ""


@frozen(kw_only=True)
class GroupView:
    """A group at one moment.

    Attributes:
        at_ms: time of day, in ms since 1970.
        state: state of the group at the coordinator, such as "stable".
        kind: "classic", or "consumer" if the broker assigns (KIP-848).
        assignor: the group's protocol, or the assignor on the broker's side.
        coordinator: host and port.
        shares_resources: whether the group shares named resources. They have neither offsets nor
            lags; `topic` and `partition` are then name and index.
        members: by name.
        partitions: by topic and number.
        moves: changes while the group was watched, newest first.
        records: telemetry of members since the last look, without reports; () from brokers alone.
        telemetry_error: why the telemetry of this look is incomplete, in one line; "" without an
            error.
    """

    group: str
    at_ms: int
    state: str
    kind: str
    assignor: str
    coordinator: str
    shares_resources: bool = False
    members: tuple[MemberView, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    moves: tuple[Move, ...] = ()
    records: tuple[Envelope, ...] = ()
    telemetry_error: str = ""

    @property
    def lag(self) -> int | None:
        """Return the lag of the group, in records; None if that of a partition is unknown."""
        return total_lag(self.partitions)

    @cached_property
    def names(self) -> dict[str, str]:
        """Return a name for each member id that no other member of the group has."""
        return told_apart(
            {
                one.member_id: (one.name, one.member_id.removeprefix(f"{one.name}-"))
                for one in self.members
            }
        )

    @property
    def flapping(self) -> tuple[str, ...]:
        """Return the names of members that came back at least three times while watched."""
        return tuple(self.names[one.member_id] for one in self.members if one.returns >= FLAPS)

    def moves_since(self, before: GroupView | None) -> tuple[Move, ...]:
        """Return the moves that an earlier snapshot of the same tracker does not have.

        Their times do not tell: the record of a round comes after the look that it precedes.
        """
        last = before.moves[0] if before is not None and before.moves else None
        return tuple(takewhile(lambda one: one != last, self.moves))


def called(name: str, index: int) -> str:
    """Return a partition or a resource in one word; a connector itself has no number."""
    return name if index < 0 else f"{name}-{index}"


FLAPS = 3
_NOT_IN_JSON: Final = ("records", "shares_resources")
_OF_PARTITIONS: Final = {
    *("topic", "partition", "partitions", "end", "committed", "lag", "trend_per_s", "commit_age_s"),
    *("target", "rate_per_s", "since_poll_s"),
}


def total_lag(partitions: Iterable[PartitionView]) -> int | None:
    """Return the lag of partitions, in records; None if one of them is unknown."""
    lags = [one.lag for one in partitions]
    return None if None in lags else sum(one for one in lags if one is not None)


def to_json(view: GroupView) -> dict[str, Any]:
    """Return a snapshot as an object for `json.dumps`; new fields may be added in any version."""
    found = attrs.asdict(view, filter=lambda field, _: field.name not in _NOT_IN_JSON)
    found["flapping"] = list(view.flapping)
    if view.shares_resources:
        return _of_resources(found)
    return {**found, "lag": view.lag}


def _of_resources(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same without words of topics."""
    for member in found["members"]:
        member["resources"] = member["partitions"]
        for name in _OF_PARTITIONS & member.keys():
            del member[name]
    found["resources"] = found.pop("partitions")
    for row in found["resources"]:
        row["name"], row["index"] = row["topic"], row["partition"]
        for name in _OF_PARTITIONS & row.keys():
            del row[name]
    return found
