"""Offsets on their way to the coordinator: a queue in which order is kept.

Rules of this file (KAFKA commits in a rebalance, peers: librdkafka#4059, zio-kafka#413):

- one OffsetCommit is under way at a time, and what waits is merged into the next one, the newest
  offset of a partition wins: a retried commit can never overtake a later one;
- a commit that meets a round waits for its end and is sent again under the new generation, for
  the partitions that are still owned; those that are not get ILLEGAL_GENERATION;
- what is lost is not committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from coopgroup.member.error_actions import Action, ErrorCode, RequestKind, action_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.member.events import Offset
    from coopgroup.model import ResourceSet

__all__ = ["Commits", "Finished", "PendingCommit", "enqueue", "fail_all", "settle", "take_batch"]

Codes = tuple[tuple[str, int, int], ...]
Finished = tuple[int, Codes]


@frozen(kw_only=True)
class PendingCommit:
    """One caller's commit.

    Attributes:
        commit_id: its number.
        offsets: what is still to be committed.
        codes: outcome of the partitions that are through already.
        sent: whether it is part of the request under way.
        resent: whether it was sent before, so that ownership must be checked before it goes out
            again: the partition may have another owner by now.
    """

    commit_id: int
    offsets: tuple[Offset, ...]
    codes: Codes = ()
    sent: bool = False
    resent: bool = False


@frozen(kw_only=True)
class Commits:
    """The queue.

    Attributes:
        queue: oldest first.
        retry_at_ms: nothing is sent before; 0 for at once.
        attempts: failed tries in a row.
        await_sync: a round must complete before anything is sent.
    """

    queue: tuple[PendingCommit, ...] = ()
    retry_at_ms: int = 0
    attempts: int = 0
    await_sync: bool = False


def enqueue(commits: Commits, commit_id: int, offsets: tuple[Offset, ...]) -> Commits:
    """Add a commit at the end."""
    pending = PendingCommit(commit_id=commit_id, offsets=offsets)
    return attrs.evolve(commits, queue=(*commits.queue, pending))


def take_batch(
    commits: Commits, owned: ResourceSet
) -> tuple[Commits, tuple[Offset, ...], tuple[Finished, ...]]:
    """Mark everything as sent and merge it, the newest offset of each partition winning.

    Returns:
        The queue, the offsets to send (ascending by partition), and commits that ended because
        nothing of them is owned any more.
    """
    checked = tuple(_without_disowned(pending, owned) for pending in commits.queue)
    finished, rest = _split_finished(checked)
    newest = {
        (offset.topic, offset.partition): offset for pending in rest for offset in pending.offsets
    }
    sent = tuple(attrs.evolve(pending, sent=True) for pending in rest)
    offsets = tuple(newest[key] for key in sorted(newest))
    return attrs.evolve(commits, queue=sent), offsets, finished


def settle(
    commits: Commits, code_of: Callable[[str, int], int], attempts_max: int
) -> tuple[Commits, tuple[Finished, ...], frozenset[Action]]:
    """Digest the answer to the request under way.

    Args:
        commits: the queue, some of it sent.
        code_of: error code of a (topic, partition).
        attempts_max: tries after which an error that could be retried goes to the caller.

    Returns:
        The queue, what ended, and which actions the codes ask for.
    """
    exhausted = commits.attempts + 1 >= attempts_max
    settled = []
    actions = set()
    for pending in commits.queue:
        if not pending.sent:
            settled.append(pending)
            continue
        kept, codes = [], list(pending.codes)
        for offset in pending.offsets:
            code = code_of(offset.topic, offset.partition)
            action = action_for(RequestKind.OFFSET_COMMIT, code)
            actions.add(action)
            if action in _WAITING or (action in _RETRYING and not exhausted):
                kept.append(offset)
            else:
                codes.append((offset.topic, offset.partition, code))
        settled.append(
            attrs.evolve(
                pending,
                offsets=tuple(kept),
                codes=tuple(sorted(codes)),
                sent=False,
                resent=True,
            )
        )
    finished, rest = _split_finished(tuple(settled))
    return attrs.evolve(commits, queue=rest), finished, frozenset(actions)


def fail_all(commits: Commits, code: int) -> tuple[Commits, tuple[Finished, ...]]:
    """End everything with one code: the membership under which it was asked for is over."""
    ended = tuple(
        attrs.evolve(
            pending,
            offsets=(),
            codes=tuple(
                sorted((*pending.codes, *((o.topic, o.partition, code) for o in pending.offsets)))
            ),
        )
        for pending in commits.queue
    )
    finished, _ = _split_finished(ended)
    return Commits(), finished


_RETRYING = frozenset({Action.RETRY, Action.SEEK})
_WAITING = frozenset({Action.AFTER_SYNC})


def _without_disowned(pending: PendingCommit, owned: ResourceSet) -> PendingCommit:
    if not pending.resent:
        return pending
    kept = tuple(o for o in pending.offsets if (o.topic, o.partition) in owned)
    disowned = tuple(
        (o.topic, o.partition, int(ErrorCode.ILLEGAL_GENERATION))
        for o in pending.offsets
        if (o.topic, o.partition) not in owned
    )
    return attrs.evolve(pending, offsets=kept, codes=tuple(sorted((*pending.codes, *disowned))))


def _split_finished(
    queue: tuple[PendingCommit, ...],
) -> tuple[tuple[Finished, ...], tuple[PendingCommit, ...]]:
    finished = tuple((one.commit_id, one.codes) for one in queue if not one.offsets)
    return finished, tuple(one for one in queue if one.offsets)
