"""`Beat`: what a member of KIP-848 knows of its heartbeats.

`Member` has one of these values, so this file imports no other part of the machine.

A partition belongs to a topic id and not to a name: a topic that was deleted and made again is
another topic. An application knows topics by name, and so does the rest of a member. This part has
the ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen(kw_only=True)
class Told:
    """The content of a heartbeat.

    Attributes:
        topics: subscribed names, ascending.
        owned: owned partitions.
    """

    topics: tuple[str, ...] = ()
    owned: ResourceSet = EMPTY


@frozen(kw_only=True, slots=False)  # for `replaced`
class Beat:
    """The heartbeats of a member.

    Attributes:
        interval_ms: the broker's heartbeat interval, from its last answer.
        timeout_due_ms: when to ask for the session timeout again.
        told: the content that the coordinator knows; None if the last heartbeat got no answer. The
            next heartbeat is full then, and after each change.
        sending: the content of the heartbeat on its way, full or not.
        is_rung: whether the next heartbeat is sent for a ring.
        was_rung: the same, of the heartbeat on its way.
        acknowledges: whether the next heartbeat tells that a whole revocation has been given up.
        acknowledged: the same, of the heartbeat on its way.
        names: names of the topic ids that the member owns or is assigned.
        ids: topic id of each topic with an owned partition.
        looks: times at which it asks for news, ascending.
        is_own: whether the next heartbeat tells or asks something of this member.
        was_own: the same, of the heartbeat on its way; a regular one and a look are not.
        rings_at_ms: when it rings for the news of a regular heartbeat or a look; None for never.
        fruitless: heartbeats for rings that brought no news, in a row.
        memberships: member ids that it has given itself.
        left_behind: earlier member ids that the coordinator may still know, and must forget.
        leaves_for_good: whether a static member that leaves gives up its place.
    """

    interval_ms: int = 5_000
    timeout_due_ms: int = 0
    told: Told | None = None
    sending: Told = attrs.field(factory=Told)
    is_rung: bool = False
    was_rung: bool = False
    acknowledges: bool = False
    acknowledged: bool = False
    names: Mapping[str, str] = attrs.field(factory=dict)
    ids: Mapping[str, str] = attrs.field(factory=dict)
    looks: tuple[int, ...] = ()
    is_own: bool = False
    was_own: bool = False
    rings_at_ms: int | None = None
    fruitless: int = 0
    memberships: int = 0
    left_behind: tuple[str, ...] = ()
    leaves_for_good: bool = False

    def fresh(self) -> Beat:
        """Return the part of a member that joins: it owns nothing, and has told nothing."""
        return Beat(
            interval_ms=self.interval_ms,
            memberships=self.memberships,
            left_behind=self.left_behind,
        )


NO_BEAT: Final = Beat()
