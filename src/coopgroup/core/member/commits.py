"""The queue of offsets on their way to the coordinator; it keeps their order.

Rules of this file (KAFKA commits in a rebalance, peers: librdkafka#4059, zio-kafka#413):

- Only one OffsetCommit is under way at a time. Waiting commits are merged into the next request;
  the newest offset of a partition wins. The next request is sent after the answer to the last one,
  or after its connection was lost or its time was over. Only in the last two cases could the last
  request still arrive after the next one (docs/consumer.md says when).
- A commit that meets a round waits for its end, and is sent again in the new generation.
- Only owned partitions are sent, at first or again. A late commit would otherwise overwrite the
  commit of the new owner. The other partitions get ILLEGAL_GENERATION. So do commits that were
  requested before a partition was given up and returned: another member may have committed a later
  offset meanwhile.
- Lost partitions are not committed.
- A caller waits for a silent coordinator no longer than the request timeout, and never longer than
  its own limit. A coordinator that answers may let a commit wait for the end of a round: that is
  not a failure.
- The cost of a commit does not depend on the length of the queue. The queue is copied when a
  request is sent or answered, or when commits time out together, never when a commit is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member.chain import Chain
from coopgroup.core.member.error_actions import (
    TRIED_AGAIN,
    Action,
    ErrorCode,
    RequestKind,
    action_for,
)
from coopgroup.core.member.parts import NO_BACK_OFF, BackOff
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from coopgroup.core.member.events import CommitRequested, Offset

Codes = tuple[tuple[str, int, int], ...]
"""(topic, partition, error code) of a commit; 0 for committed."""
Finished = tuple[int, Codes]


@frozen(kw_only=True, slots=False)  # for `replaced`
class PendingCommit:
    """One caller's commit.

    Attributes:
        commit_id: its number.
        offsets: the offsets that remain to be committed.
        asked_at_ms: when it was requested.
        until_ms: when its caller stops waiting, None for never.
        codes: outcomes of the finished partitions.
        failures: number of answers that asked for a retry.
        sent: whether the commit is part of the request under way.
        timed_out: whether its caller was told REQUEST_TIMED_OUT while it was under way. Its fate is
            unknown until the answer, and it is not tried again.
    """

    commit_id: int
    offsets: tuple[Offset, ...]
    asked_at_ms: int
    until_ms: int | None = None
    codes: Codes = ()
    failures: int = 0
    sent: bool = False
    timed_out: bool = False


@frozen(kw_only=True, slots=False)  # for `replaced`
class Commits:
    """The queue.

    Attributes:
        queue: oldest first.
        due_at_ms: no caller has waited long enough before this time; None if no caller waits.
        back_off: the wait before the next request.
        await_sync: whether a round must complete before the next request.
        awaited: ids of commits that must end before their partitions are given up.
        unanswered: generation of the last request that got no answer, and may still arrive. A
            request that the coordinator accepts later is the proof that it has served the earlier
            one, or never will: a frozen coordinator accepts nothing (docs/consumer.md has the
            exceptions).
    """

    queue: Chain[PendingCommit] = attrs.field(factory=Chain)
    due_at_ms: int | None = None
    back_off: BackOff = NO_BACK_OFF
    await_sync: bool = False
    awaited: frozenset[int] = frozenset()
    unanswered: int = NO_GENERATION


NO_COMMITS: Final = Commits()


def enqueue(commits: Commits, event: CommitRequested, *, now_ms: int, timeout_ms: int) -> Commits:
    """Add a commit at the end."""
    pending = PendingCommit(
        commit_id=event.commit_id,
        offsets=event.offsets,
        asked_at_ms=now_ms,
        until_ms=event.until_ms,
    )
    times = (commits.due_at_ms, event.until_ms, now_ms + timeout_ms)
    due_at_ms = min(at_ms for at_ms in times if at_ms is not None)
    return replaced(commits, queue=commits.queue.append(pending), due_at_ms=due_at_ms)


def await_commits(commits: Commits, resources: ResourceSet) -> Commits:
    """Remember the queued commits that concern resources about to be given up.

    Later commits are not awaited: after it has stopped, the application has nothing more to commit.
    """
    if not commits.queue:
        return commits
    pairs = {pair for pair in _newest(commits) if pair in resources}
    concerned = {
        pending.commit_id for pending in commits.queue if not pairs.isdisjoint(_partitions(pending))
    }
    return replaced(commits, awaited=commits.awaited | concerned)


def awaited_of(commits: Commits) -> frozenset[tuple[str, int]]:
    """Return the partitions whose commits must end before they are given up."""
    if not commits.awaited:
        return frozenset()
    waiting = [each for each in commits.queue if each.commit_id in commits.awaited]
    return frozenset().union(*map(_partitions, waiting))


def take_batch(
    commits: Commits, owned: ResourceSet
) -> tuple[Commits, tuple[Offset, ...], tuple[Finished, ...]]:
    """Mark all commits as sent and merge them; the newest offset of each partition wins.

    Args:
        commits: the queue, without a request under way.
        owned: the member's owned resources.

    Returns:
        The queue, the offsets to send (ascending by partition), and commits that ended because
        none of their partitions is still owned.
    """
    newest = _newest(commits)
    disowned = _disowned(newest.keys(), owned)
    finished: tuple[Finished, ...] = ()
    if disowned:
        commits, finished = _ended(commits, [_refused(each, disowned) for each in commits.queue])
    sent = Chain.of([replaced(pending, sent=True) for pending in commits.queue])
    owned_ones = [one for pair, one in newest.items() if pair not in disowned]
    return replaced(commits, queue=sent), tuple(sorted(owned_ones)), finished


def settle(
    commits: Commits, code_of: Callable[[str, int], int], attempts_max: int
) -> tuple[Commits, tuple[Finished, ...], frozenset[Action]]:
    """Handle the answer to the request under way.

    Args:
        commits: the queue with the sent commits.
        code_of: error code of a (topic, partition).
        attempts_max: number of tries, after which the caller gets an error that could be retried;
            waiting for a round does not count.

    Returns:
        The queue, the finished commits, and the actions for the codes.
    """
    settled, every = [], set[Action]()
    for pending in commits.queue:
        if pending.sent:
            answered, actions = _answered(pending, code_of, attempts_max)
            every |= actions
            settled.append(answered)
        else:
            settled.append(pending)
    if Action.PROCEED in every:
        commits = replaced(commits, unanswered=NO_GENERATION)
    commits, finished = _ended(commits, settled)
    return commits, finished, frozenset(every)


def _answered(
    pending: PendingCommit, code_of: Callable[[str, int], int], attempts_max: int
) -> tuple[PendingCommit, set[Action]]:
    """Return the commit after an answer, and the actions for its codes."""
    answers = [(one, code_of(one[0], one[1])) for one in pending.offsets]
    action_of = {
        code: action_for(RequestKind.OFFSET_COMMIT, code) for code in {code for _, code in answers}
    }
    actions = set(action_of.values())
    exhausted = pending.failures + 1 >= attempts_max
    tried_again = _WAITING if exhausted else _WAITING | TRIED_AGAIN
    again = {
        code
        for code, action in action_of.items()
        if action in tried_again and not pending.timed_out
    }
    codes = [(one[0], one[1], code) for one, code in answers if code not in again]
    settled = replaced(
        pending,
        offsets=tuple(one for one, code in answers if code in again) if again else (),
        codes=tuple(sorted((*pending.codes, *codes))),
        failures=pending.failures + (not actions.isdisjoint(TRIED_AGAIN)),
        sent=False,
    )
    return settled, actions


def time_out(
    commits: Commits, *, heard_at_ms: int, timeout_ms: int, now_ms: int
) -> tuple[Commits, tuple[Finished, ...]]:
    """Tell the callers that have waited long enough, and send their commits no more.

    A commit under way cannot be taken back. It stays in the queue until its answer, so that its
    partitions are not given up before.
    """
    told: list[Finished] = []
    later: list[int] = []

    def checked(pending: PendingCommit) -> PendingCommit:
        if pending.timed_out:
            return pending
        due_at_ms = max(pending.asked_at_ms, heard_at_ms) + timeout_ms
        if pending.until_ms is not None:
            due_at_ms = min(due_at_ms, pending.until_ms)
        if now_ms < due_at_ms:
            later.append(due_at_ms)
            return pending
        ended = _refused(pending, _partitions(pending), ErrorCode.REQUEST_TIMED_OUT)
        if not pending.sent:
            return ended
        told.append((ended.commit_id, ended.codes))
        return replaced(pending, timed_out=True)

    commits, finished = _ended(commits, [checked(pending) for pending in commits.queue])
    return replaced(commits, due_at_ms=min(later, default=None)), (*told, *finished)


def codes_of(offsets: Iterable[Offset], code: int) -> Codes:
    """Return one code for all offsets of a commit."""
    return tuple(sorted((one.topic, one.partition, int(code)) for one in offsets))


def lapse(commits: Commits, gained: ResourceSet) -> tuple[Commits, tuple[Finished, ...]]:
    """Drop waiting commits of resources that the member gave up or lost, and has now gained again.

    A waiting commit is older than the new ownership, and another member may have committed a later
    offset meanwhile. The partitions of a commit under way were owned when it was sent, and still
    are.
    """
    if not (commits.queue and gained):
        return commits, ()
    pairs = {pair for pair in _newest(commits) if pair in gained}
    return _ended(commits, [each if each.sent else _refused(each, pairs) for each in commits.queue])


def fail_all(commits: Commits, code: int) -> tuple[Commits, tuple[Finished, ...]]:
    """End all commits with one code, because their membership has ended."""
    failed = [_refused(pending, _partitions(pending), code) for pending in commits.queue]
    _, finished = _ended(commits, failed)
    return NO_COMMITS, finished


_WAITING = frozenset({Action.AFTER_SYNC})


def _newest(commits: Commits) -> dict[tuple[str, int], Offset]:
    return {one[:2]: one for each in commits.queue for one in each.offsets}


def _disowned(
    pairs: AbstractSet[tuple[str, int]], owned: ResourceSet
) -> AbstractSet[tuple[str, int]]:
    """Return the partitions that are not owned."""
    return frozenset(ResourceSet.from_pairs(pairs) - owned)


def _partitions(pending: PendingCommit) -> frozenset[tuple[str, int]]:
    return frozenset(one[:2] for one in pending.offsets)


def _refused(
    pending: PendingCommit,
    partitions: AbstractSet[tuple[str, int]],
    code: int = ErrorCode.ILLEGAL_GENERATION,
) -> PendingCommit:
    """Return the commit without some partitions, which end with a code."""
    kept, codes = [], list(pending.codes)
    for one in pending.offsets:
        if one[:2] in partitions:
            codes.append((one.topic, one.partition, int(code)))
        else:
            kept.append(one)
    if len(kept) == len(pending.offsets):
        return pending
    return replaced(pending, offsets=tuple(kept), codes=tuple(sorted(codes)))


def _ended(commits: Commits, queue: list[PendingCommit]) -> tuple[Commits, tuple[Finished, ...]]:
    """Return the queue without finished commits, and those whose callers still wait."""
    rest = Chain.of(pending for pending in queue if pending.offsets)
    ended = [pending for pending in queue if not pending.offsets]
    awaited = commits.awaited
    if awaited:
        awaited = awaited.difference(pending.commit_id for pending in ended)
    finished = tuple((each.commit_id, each.codes) for each in ended if not each.timed_out)
    due_at_ms = commits.due_at_ms if rest else None
    return replaced(commits, queue=rest, awaited=awaited, due_at_ms=due_at_ms), finished
