"""Take only existing partitions of subscribed topics, whatever the leader assigns.

Each member of a group can become its leader. A hostile leader could assign topics that the
application did not ask for, and their records would reach it. Kafka's Java client refuses such an
assignment; librdkafka takes it.

A member remembers the largest number of partitions that each topic had. An honest leader may know
newer partitions: topics grow. So the member asks a broker about unknown partitions, and the
assignment waits for the answer. A member that leads trusts its own look-up. Without an answer, the
member takes the partitions: a growing topic must not lose them.

Rule of this file: a refused partition is not owned. The member rejoins, because an honest leader
may have read an earlier subscription. Each refusal in a row doubles the time until that join. A
join begins a round for the whole group, and a hostile leader will do the same again.

Some assignments of other topics are honest. A member that hands over keeps its partitions without a
subscription. A broker that assigns (KIP-848) may be a second behind the subscription. The group of
a static member keeps an assignment for the topics of its earlier process (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.core.member.effects import Report
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.telemetry.records import AssignmentRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn
    from coopgroup.core.protocol.values import Assignment

__all__ = ["acceptable", "note_refusal", "uncounted_topics"]

_TOPICS_TOLD_MAX: Final = 10
_REJOIN_LATEST_MS: Final = 30_000
_COUNTED_MAX: Final = 1_000  # topics of one look-up, whose answer must not delay heartbeats


def uncounted_topics(member: Member, assignment: Assignment) -> tuple[str, ...]:
    """Return subscribed topics of which an assignment has unknown partitions; not all of many."""
    if member.round.leads or not member.config.shares_partitions:
        return ()
    named = _named(assignment)
    if named == member.owned:
        return ()
    return _beyond(named - _foreign(member, named), member, named.names).names[:_COUNTED_MAX]


def acceptable(
    member: Member, assignment: Assignment, counted: Iterable[str]
) -> tuple[Assignment, ResourceSet]:
    """Return the acceptable part of an assignment, and the refused resources.

    Groups of other resources subscribe to all that the leader's catalogue has.

    Args:
        member: the member, with the numbers of partitions.
        assignment: the assignment.
        counted: topics whose number of partitions was looked up for this assignment.
    """
    named = _named(assignment)
    refused = _foreign(member, named) | _beyond(named, member, counted)
    if not refused or member.round.by_broker or not member.config.shares_partitions:
        return assignment, EMPTY
    warmups = assignment.warmups - refused
    assigned = assignment.assigned - refused
    # The leader's own list names none of the refused resources that the member owns. Without
    # anything to stop, a follow-up round begins no sooner than the rejoin of `note_refusal`.
    revoked = (member.owned - assigned) or None
    taken = attrs.evolve(assignment, assigned=assigned, revoked=revoked, warmups=warmups)
    return taken, refused


def _named(assignment: Assignment) -> ResourceSet:
    return assignment.assigned | assignment.warmups


def _foreign(member: Member, resources: ResourceSet) -> ResourceSet:
    last, after = member.last_join, member.next_join
    topics = {*last.topics, *after.topics}
    if topics.issuperset(resources.names):
        return EMPTY
    foreign = resources - resources.restrict_names(topics)
    return foreign - member.owned if last.hands_over or after.hands_over else foreign


def _beyond(resources: ResourceSet, member: Member, topics: Iterable[str]) -> ResourceSet:
    """Return the resources of some topics that are beyond the known number of partitions."""
    counts = {name: member.partition_counts.get(name, 0) for name in topics}
    if not counts:
        return EMPTY
    beyond = {
        name: [one for one in indices if one >= counts[name]]
        for name, indices in resources.to_dict().items()
        if name in counts and indices[-1] >= counts[name]
    }
    return ResourceSet(beyond) if beyond else EMPTY


def note_refusal(turn: Turn, refused: ResourceSet, *, is_first: bool) -> None:
    """Report refused resources, and plan the rejoin.

    Args:
        turn: the step under way; its last assignment counts this refusal.
        refused: the refused resources.
        is_first: whether this is the first assignment of the current membership.
    """
    member, config = turn.member, turn.member.config
    wait_ms = config.retry_backoff_ms << min(member.last_assignment.refusals - 1, 16)
    look_at_ms = turn.now_ms + min(wait_ms, _REJOIN_LATEST_MS)
    turn.set(round=attrs.evolve(member.round, look_at_ms=look_at_ms))
    if is_first and config.instance_id is not None:
        return
    record = AssignmentRefused(
        leader=member.round.leader_id,
        topics=refused.names[:_TOPICS_TOLD_MAX],
        topic_count=len(refused.names),
        resource_count=len(refused),
    )
    turn.emit(Report(record=record))
