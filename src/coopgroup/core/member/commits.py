"""The queue of offsets on their way to the coordinator; it keeps their order.

Rules of this file (KAFKA commits in a rebalance, peers: librdkafka#4059, zio-kafka#413):

- Only one OffsetCommit is under way at a time. Waiting commits are merged into the next request;
  the newest offset of a partition wins. The next request is sent after the answer to the last one,
  or after its connection was lost or its time was over. Only in the last two cases could the last
  request still arrive after the next one (docs/member.md says when).
- A commit that meets a round waits for its end, and is sent again in the new generation.
- Only owned partitions are sent, at first or again. A late commit would otherwise overwrite the
  commit of the new owner. The other partitions get ILLEGAL_GENERATION. So do commits that were
  requested before a partition was given up and returned: another member may have committed a later
  offset meanwhile.
- Lost partitions are not committed.
- The cost of a commit does not depend on the length of the queue. The queue is copied when a
  request is sent or answered, or when commits time out together, never when a commit is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member.chain import Chain
from coopgroup.core.member.error_actions import Action, ErrorCode, RequestKind, action_for
from coopgroup.core.member.parts import NO_BACK_OFF, BackOff
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from coopgroup.core.member.events import Offset

Codes = tuple[tuple[str, int, int], ...]
Finished = tuple[int, Codes]


@frozen(kw_only=True, slots=False)  # for `replaced`
class PendingCommit:
    """One caller's commit.

    Attributes:
        commit_id: its number.
        offsets: the offsets that remain to be committed.
        codes: outcomes of the finished partitions.
        failures: number of answers that asked for a retry.
        sent: whether the commit is part of the request under way.
        last_try: whether the commit ends with the answer to the request under way, even if that
            fails.
    """

    commit_id: int
    offsets: tuple[Offset, ...]
    codes: Codes = ()
    failures: int = 0
    sent: bool = False
    last_try: bool = False


@frozen(kw_only=True, slots=False)  # for `replaced`
class Commits:
    """The queue.

    Attributes:
        queue: oldest first.
        back_off: the wait before the next request.
        await_sync: whether a round must complete before the next request.
        awaited: ids of commits that must end before their partitions are given up.
        unanswered: generation of the last request that got no answer, and may still arrive. An
            answer to a later request does not prove the opposite, because each has its connection.
    """

    queue: Chain[PendingCommit] = attrs.field(factory=Chain)
    back_off: BackOff = NO_BACK_OFF
    await_sync: bool = False
    awaited: frozenset[int] = frozenset()
    unanswered: int = NO_GENERATION


NO_COMMITS: Final = Commits()


def enqueue(commits: Commits, commit_id: int, offsets: tuple[Offset, ...]) -> Commits:
    """Add a commit at the end."""
    pending = PendingCommit(commit_id=commit_id, offsets=offsets)
    return replaced(commits, queue=commits.queue.append(pending))


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
    tried_again = _WAITING if exhausted else _WAITING | _RETRYING
    again = {
        code for code, action in action_of.items() if action in tried_again and not pending.last_try
    }
    codes = [(one[0], one[1], code) for one, code in answers if code not in again]
    settled = PendingCommit(
        commit_id=pending.commit_id,
        offsets=tuple(one for one, code in answers if code in again) if again else (),
        codes=tuple(sorted((*pending.codes, *codes))),
        failures=pending.failures + (not actions.isdisjoint(_RETRYING)),
        last_try=pending.last_try,
    )
    return settled, actions


def abandon(commits: Commits, commit_ids: AbstractSet[int]) -> tuple[Commits, tuple[Finished, ...]]:
    """Stop sending commits whose callers were notified of a timeout.

    A commit under way cannot be taken back; it ends with its answer, even if that fails. A commit
    that was sent before may have arrived. A commit that has already ended is ignored.
    """

    def given_up(pending: PendingCommit) -> PendingCommit:
        if pending.commit_id not in commit_ids:
            return pending
        if pending.sent:
            return replaced(pending, last_try=True)
        return _refused(pending, _partitions(pending), ErrorCode.REQUEST_TIMED_OUT)

    return _ended(commits, [given_up(pending) for pending in commits.queue])


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


_RETRYING = frozenset({Action.RETRY, Action.SEEK})
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


def _ended(
    commits: Commits, queue: Iterable[PendingCommit]
) -> tuple[Commits, tuple[Finished, ...]]:
    """Return the queue without finished commits, and these commits."""
    finished, rest = [], []
    for pending in queue:
        if pending.offsets:
            rest.append(pending)
        else:
            finished.append((pending.commit_id, pending.codes))
    awaited = commits.awaited
    if awaited:
        awaited = awaited.difference(commit_id for commit_id, _ in finished)
    return replaced(commits, queue=Chain.of(rest), awaited=awaited), tuple(finished)
