"""The meaning of the answer to a heartbeat of KIP-848, or of its absence, for a member.

The rules of the classic member hold: an answer counts only while its request is on its way, and a
proof about time counts from the SENDING of the request. Two more belong to this protocol:

- One heartbeat is on its way at a time, and none while the names of an answer are looked up. So an
  answer may grant a partition that the member has given up since it sent the heartbeat. The
  coordinator does not know that, and the next heartbeat claims the partition again.
- A topic id whose name is unknown is neither granted nor revoked (KAFKA-16198). The next heartbeat
  is full, so that its answer has the whole assignment again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member import commits as commit_queue
from coopgroup.core.member.commit_answers import take_commit_outcome
from coopgroup.core.member.consumer.bell import ring_after_answer, ring_after_leave
from coopgroup.core.member.consumer.changes import beat_now, set_beat
from coopgroup.core.member.effects import (
    FindSessionTimeout,
    GrantResources,
    KeepIdentity,
    KeptIdentity,
    NameTopics,
    Report,
    RevokeResources,
)
from coopgroup.core.member.error_actions import (
    TRIED_AGAIN,
    Action,
    ErrorCode,
    RequestKind,
    action_for,
    error_name,
)
from coopgroup.core.member.events import Answered, RequestFailed
from coopgroup.core.member.parts import NO_BACK_OFF, LastAssignment, LastJoin
from coopgroup.core.member.retrying import take_outstanding
from coopgroup.core.member.transitions import AT_WORK, MemberState, Trigger
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import (
    ConsumerBeatAnswer,
    FindCoordinatorAnswer,
    OffsetCommitAnswer,
)
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.causes import Cause, answered_with
from coopgroup.core.telemetry.records import AssignmentReceived, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.member.member import Member, Outstanding
    from coopgroup.core.member.turn import Turn
    from coopgroup.core.model.group_api import TopicPartitions

_FENCES: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
# A timeout that is set later counts from the next question. Until then a lease may be too long.
_TIMEOUT_AGE_MS: Final = 300_000
_UNSUPPORTED: Final = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_BY_BROKER})
_NEEDS: Final = "group.protocol=consumer needs Kafka 4.0 or newer with the feature group.version=1"
CONSUMER: Final = "consumer"
"""Stands in a stored identity where a classic member has the protocol of its group."""


def take_outcome(turn: Turn, event: Answered | RequestFailed) -> None:
    """Handle the outcome of a request, if the member still waits for it."""
    found = take_outstanding(turn, event)
    if found is None:
        return
    kind, sent = found
    if kind is RequestKind.OFFSET_COMMIT:
        before = turn.member
        take_commit_outcome(turn, sent, event)
        codes = _codes_of_commit(event)
        if ErrorCode.FENCED_MEMBER_EPOCH in codes and not turn.member.member_id:
            _leave_fenced_id(turn, before)
        _ask_for_epoch(turn, sent, codes)
    elif kind is RequestKind.LEAVE_GROUP:
        _left(turn, event)
    elif isinstance(event, RequestFailed):
        _act_on_error(turn, kind, event.code, event.message)
    else:
        _take_answer(turn, kind, sent, event)


def lose(turn: Turn, cause: str, *, keep_id: bool, stalled: bool = False) -> None:
    """Treat all resources as lost, though the coordinator may still know the member.

    With a new id, the earlier one would hold its partitions until its session ends. So the member
    leaves under it, before it joins again. A static member always does: the coordinator refuses its
    static id to each other join, and to one of the same member id too.
    """
    before = turn.member
    turn.lose(cause, keep_id=keep_id and before.config.instance_id is None, stalled=stalled)
    if before.member_id and not turn.member.member_id:
        set_beat(turn, left_behind=(*before.beat.left_behind, before.member_id))


# --- answers ---------------------------------------------------------------------------------


def _take_answer(turn: Turn, kind: RequestKind, sent: Outstanding, event: Answered) -> None:
    match event.answer:
        case FindCoordinatorAnswer(coordinator=coordinator) if coordinator is not None:
            turn.set(coordinator=coordinator, heartbeat_at_ms=turn.now_ms)
            waiting = turn.member.outstanding.get(RequestKind.CONSUMER_BEAT)
            if waiting is not None and waiting.node_id != coordinator.node_id:
                turn.forget(RequestKind.CONSUMER_BEAT)
                _forget_answer(turn)
        case ConsumerBeatAnswer(error_code=ErrorCode.NONE) as answer:
            _beaten(turn, sent, event, answer)
        case ConsumerBeatAnswer() | FindCoordinatorAnswer() as answer:
            _act_on_error(turn, kind, answer.error_code, answer.error_message)
        case _:  # no request has such an answer
            pass


def _beaten(turn: Turn, sent: Outstanding, event: Answered, answer: ConsumerBeatAnswer) -> None:
    """Handle an accepted heartbeat, or wait until the names of its topic ids are known."""
    member, beat = turn.member, turn.member.beat
    names = {**beat.names, **(event.topic_names or {})}
    unknown = {topic_id for topic_id, _ in answer.assigned or () if topic_id not in names}
    if unknown and event.topic_names is None:
        # No heartbeat follows meanwhile: it could release what this answer grants.
        turn.set(outstanding={**member.outstanding, RequestKind.CONSUMER_BEAT: sent})
        turn.emit(NameTopics(topics=member.next_join.topics, answered=event))
        return
    # A proof that the time to stop does not run must be newer than the rebalance timeout: the lease
    # of a member that polls would end between two heartbeats.
    pace_ms = max(1, member.config.rebalance_timeout_ms // 3)
    answer = attrs.evolve(answer, interval_ms=min(answer.interval_ms, pace_ms))
    is_first, is_new = member.generation == NO_GENERATION, answer.epoch != member.generation
    turn.set(
        generation=answer.epoch,
        claim_generation=answer.epoch,
        last_join=LastJoin(topics=beat.sending.topics, sent_at_ms=sent.sent_at_ms),
    )
    if unknown:  # perhaps for long: the process may not be allowed to see a topic
        turn.back_off()
    else:
        turn.end_back_off()
    _keep_timeout_fresh(turn, answer)
    if is_new:  # commits that were refused for the last epoch need not wait any longer
        turn.set(commits=replaced(member.commits, back_off=NO_BACK_OFF))
    set_beat(
        turn,
        interval_ms=answer.interval_ms,
        told=None if unknown else beat.sending,
    )
    if is_first:
        turn.move(Trigger.ASSIGNED, Cause.JOINED)
        _keep_identity(turn)
    news = _Assigned.of(turn, names, answer.assigned)
    _prove(turn, sent, news)
    _take_assignment(turn, news, is_first=is_first)
    next_ms = turn.now_ms + (0 if unknown else answer.interval_ms)
    turn.set(heartbeat_at_ms=min(turn.member.heartbeat_at_ms, next_ms))
    ring_after_answer(
        turn, is_first=is_first, gains=bool(news.gained), is_news=is_new or news.changes
    )


def _keep_timeout_fresh(turn: Turn, answer: ConsumerBeatAnswer) -> None:
    """Ask for the session timeout at the join, and again when it may have changed."""
    beat = turn.member.beat
    if turn.now_ms >= beat.timeout_due_ms or answer.interval_ms != beat.interval_ms:
        set_beat(turn, timeout_due_ms=turn.now_ms + _TIMEOUT_AGE_MS)
        turn.emit(FindSessionTimeout())


@frozen(kw_only=True)
class _Assigned:
    """The meaning of an assignment for a member.

    Attributes:
        gained: granted now.
        lacks: owned, not assigned, and not being stopped yet.
        claimed: partitions that the heartbeat claimed, and that may be assigned no longer.
        ids: topic ids by name of everything owned and gained.
        names: the names of these ids, and of all assigned ones.
    """

    gained: ResourceSet = EMPTY
    lacks: ResourceSet = EMPTY
    claimed: ResourceSet = EMPTY
    ids: Mapping[str, str]
    names: Mapping[str, str]

    @property
    def changes(self) -> bool:
        """Whether the member must do something."""
        return bool(self.gained or self.lacks)

    @classmethod
    def of(
        cls, turn: Turn, names: Mapping[str, str], assigned: TopicPartitions | None
    ) -> _Assigned:
        """Compare an assignment with what the member owns, and owned when it sent its heartbeat.

        Args:
            turn: the step.
            names: the known names of topic ids.
            assigned: the assignment; None if it has not changed.
        """
        member, beat, told = turn.member, turn.member.beat, turn.member.beat.sending.owned
        owned, ids = member.owned, beat.ids
        stopping = member.revocation.pending | member.revocation.stopped
        if assigned is None:
            return cls(claimed=stopping | (told - owned), ids=ids, names=beat.names)
        # A topic that was made again has another id: the partitions of the old one stop first.
        known = {
            names[one]: (one, indices)
            for one, indices in assigned
            if one in names and ids.get(names[one], one) == one
        }
        found = ResourceSet({name: indices for name, (_, indices) in known.items()})
        kept = {topic_id for topic_id, _ in assigned} | set(ids.values())
        return cls(
            gained=found - owned,
            lacks=owned - found - stopping,
            claimed=told - found,
            ids={**ids, **{name: one for name, (one, _) in known.items()}},
            names={topic_id: name for topic_id, name in names.items() if topic_id in kept},
        )


def _prove(turn: Turn, sent: Outstanding, news: _Assigned) -> None:
    """Extend the lease: the session lives, and perhaps the time to stop had not begun to run.

    The time to stop runs from the first answer that revokes to the heartbeat that acknowledges. So
    a heartbeat proves that it does not run if the answer leaves the member all that it claimed.
    """
    lease = turn.member.lease.proven(
        until_ms=turn.session_until_ms(sent.sent_at_ms),
        settled_at_ms=0 if news.claimed else sent.sent_at_ms,
    )
    turn.set(lease=lease)


def _take_assignment(turn: Turn, news: _Assigned, *, is_first: bool) -> None:
    """Work on granted partitions, and stop revoked partitions.

    A partition that is being stopped continues to stop, even if it is assigned again: the
    application is told once. A later answer grants it anew.
    """
    member = turn.member
    set_beat(turn, names=news.names)
    if not (news.changes or is_first):
        return
    record = AssignmentReceived(
        leader=False,
        gained=news.gained,
        kept=member.owned - news.lacks,
        revoked=news.lacks,
        session_timeout_ms=member.config.session_timeout_ms,
    )
    turn.emit(Report(record=record))
    commits, lapsed = commit_queue.lapse(member.commits, news.gained)
    turn.finish_commits(lapsed)
    owned = member.owned | news.gained
    turn.set(
        commits=commits,
        owned=owned,
        revocation=member.revocation.with_more(news.lacks, yields=False),
        last_assignment=LastAssignment(resources=owned - news.lacks, by_broker=True),
    )
    set_beat(turn, ids=news.ids)
    if news.lacks:
        turn.move(Trigger.ASSIGNED_WITH_REVOCATION, Cause.ASSIGNED)
        turn.emit(RevokeResources(resources=news.lacks))
    if news.gained:
        turn.emit(GrantResources(resources=news.gained))


def _keep_identity(turn: Turn) -> None:
    """Store the member id, if the settings ask for it.

    The next process joins with the id. The coordinator then returns the same partitions at the same
    epoch, without a rebalance.
    """
    member = turn.member
    if not member.config.keeps_identity or member.config.instance_id is not None:
        return
    identity = KeptIdentity(
        member_id=member.member_id,
        generation=member.generation,
        topics=member.last_join.topics,
        protocol=CONSUMER,
    )
    turn.set(identity=attrs.evolve(member.identity, kept=identity))
    turn.emit(KeepIdentity(identity=identity))


def _codes_of_commit(event: Answered | RequestFailed) -> set[int]:
    answer = event.answer if isinstance(event, Answered) else None
    return {code for *_, code in answer.codes} if isinstance(answer, OffsetCommitAnswer) else set()


def _ask_for_epoch(turn: Turn, sent: Outstanding, codes: set[int]) -> None:
    """Send a heartbeat now if a commit was refused for its epoch: the answer has the next one.

    One partition with a newer assignment refuses the whole request. So the code of a partition says
    nothing about it, and all partitions are sent again with the next epoch.
    """
    member = turn.member
    is_stale = ErrorCode.STALE_MEMBER_EPOCH in codes and sent.generation == member.generation
    if is_stale and member.state in AT_WORK:
        beat_now(turn)


def _left(turn: Turn, event: Answered | RequestFailed) -> None:
    """Handle the outcome of a leave: of the member, or of one of its earlier ids."""
    code = int(ErrorCode.NONE)
    if isinstance(event, RequestFailed):
        code = event.code
    elif isinstance(event.answer, ConsumerBeatAnswer):
        code = event.answer.error_code
    action = action_for(RequestKind.CONSUMER_BEAT, code)
    leaves, tries_again = turn.member.state is MemberState.LEAVING, action in TRIED_AGAIN
    if not tries_again:
        set_beat(turn, left_behind=turn.member.beat.left_behind[1:])
    if leaves:
        turn.leave_group_behind()
    elif tries_again:
        _try_again(turn, action)
    if action is Action.PROCEED:
        ring_after_leave(turn)


# --- errors ----------------------------------------------------------------------------------


def _forget_answer(turn: Turn) -> None:
    """Note that nothing is known of the last heartbeat: the next one tells all again."""
    beat = turn.member.beat
    acknowledges = beat.acknowledges or beat.acknowledged
    set_beat(turn, told=None, acknowledges=acknowledges, is_rung=beat.is_rung or beat.was_rung)


def _act_on_error(turn: Turn, kind: RequestKind, code: int, message: str) -> None:
    """Apply the table's action for an error code of a heartbeat or a look-up."""
    member = turn.member
    if member.state not in AT_WORK:
        return  # a look-up of a membership that has ended
    if kind is RequestKind.CONSUMER_BEAT:
        _forget_answer(turn)
    action, cause = action_for(kind, code), answered_with(kind.value, error_name(code))
    record = RequestRefused(request=kind.value, error=error_name(code), action=action.value)
    turn.emit(Report(record=record))
    if action in TRIED_AGAIN or _is_converted_soon(turn, code):
        _try_again(turn, action)
    elif action is Action.LOSE_ID and (member.in_generation or code in _FENCES):
        _be_fenced(turn, code, cause)
    else:
        needs = _NEEDS if code in _UNSUPPORTED else ""
        turn.fail(code, ": ".join(one for one in (cause, message, needs) if one))


def _is_converted_soon(turn: Turn, code: int) -> bool:
    """Return whether a join may find that a classic group is converted after all.

    A group is not converted in a round that revokes. Such a round and its follow-up may last for a
    rebalance time-out each. Later, the broker's migration policy forbids the conversion.
    """
    member = turn.member
    failing = member.retries.get(RequestKind.CONSUMER_BEAT)
    return (
        code == ErrorCode.GROUP_ID_NOT_FOUND
        and not member.in_generation
        and failing is not None
        and turn.now_ms < failing.since_ms + 2 * member.config.rebalance_timeout_ms
    )


def _try_again(turn: Turn, action: Action) -> None:
    turn.back_off()
    turn.set(heartbeat_at_ms=turn.now_ms)
    if action is Action.SEEK:
        turn.set(coordinator=None)
        if turn.member.back_off.attempts == 1:  # the coordinator moved: look it up immediately
            turn.set(back_off=attrs.evolve(turn.member.back_off, until_ms=turn.now_ms))


def _be_fenced(turn: Turn, code: int, cause: str) -> None:
    """Lose all, and join under a new id."""
    before = turn.member
    turn.lose(cause, keep_id=False)
    if code == ErrorCode.FENCED_MEMBER_EPOCH:
        _leave_fenced_id(turn, before)


def _leave_fenced_id(turn: Turn, before: Member) -> None:
    """Leave under an id that the coordinator knows with another epoch.

    It is left behind unless identities are stored: then another process may have the id by now.
    """
    if before.member_id and not before.config.keeps_identity:
        set_beat(turn, left_behind=(*turn.member.beat.left_behind, before.member_id))
