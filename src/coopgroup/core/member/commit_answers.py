"""The meaning of the answer to a commit, or of its absence, for a member.

Each partition counts alone. If a commit's answer changes the membership, all callers get their
outcomes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from coopgroup.core.member.commits import settle
from coopgroup.core.member.error_actions import Action, ErrorCode
from coopgroup.core.member.events import RequestFailed
from coopgroup.core.member.parts import NO_BACK_OFF
from coopgroup.core.member.transitions import SETTLED
from coopgroup.core.model.group_api import OffsetCommitAnswer
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.causes import answered_with

if TYPE_CHECKING:
    from coopgroup.core.member.events import Answered
    from coopgroup.core.member.member import Outstanding
    from coopgroup.core.member.turn import Turn


def take_commit_outcome(turn: Turn, sent: Outstanding, event: Answered | RequestFailed) -> None:
    """Handle the answer to a commit, or its absence."""
    if isinstance(event, RequestFailed):
        if event.code == ErrorCode.NO_ANSWER:
            turn.set(commits=replaced(turn.member.commits, unanswered=sent.generation))
        settle_commits(turn, sent, dict.fromkeys(sent_partitions(turn), event.code), event.code)
    elif isinstance(event.answer, OffsetCommitAnswer):
        codes = {(topic, partition): code for topic, partition, code in event.answer.codes}
        settle_commits(turn, sent, codes, ErrorCode.UNKNOWN_SERVER_ERROR)


def sent_partitions(turn: Turn) -> list[tuple[str, int]]:
    """Return the partitions of the commits on the wire, in the order of their commits."""
    return [
        (offset.topic, offset.partition)
        for pending in turn.member.commits.queue
        if pending.sent
        for offset in pending.offsets
    ]


def settle_commits(
    turn: Turn, sent: Outstanding, codes: dict[tuple[str, int], int], missing: int
) -> None:
    """Apply the table's action to each partition of the commits on the wire.

    Args:
        turn: the step.
        sent: the request.
        codes: error code of each partition in the answer.
        missing: the code for all other partitions.
    """
    member = turn.member
    commits, finished, actions = settle(
        member.commits,
        lambda topic, partition: codes.get((topic, partition), missing),
        member.config.commit_attempts_max,
    )
    turn.finish_commits(finished)
    if Action.SEEK in actions:
        turn.set(coordinator=None)
    if not actions.isdisjoint((Action.SEEK, Action.RETRY)):
        wait = commits.back_off.after_failure(member.config, turn.now_ms)
        commits = replaced(commits, back_off=wait)
    elif commits.back_off != NO_BACK_OFF:
        commits = replaced(commits, back_off=NO_BACK_OFF)
    if Action.AFTER_SYNC in actions:
        # Between join and sync the round must end first. A late answer may find that it has ended.
        settled = turn.member.state in SETTLED
        again = turn.now_ms + member.config.retry_backoff_ms
        stale = sent.generation != member.generation
        wait = attrs.evolve(commits.back_off, until_ms=0 if stale or not settled else again)
        commits = replaced(commits, await_sync=not settled, back_off=wait)
    turn.set(commits=commits)
    if Action.FAIL in actions:
        turn.fail(ErrorCode.FENCED_INSTANCE_ID, answered_with("OffsetCommit", "FENCED_INSTANCE_ID"))
    elif Action.LOSE_ID in actions:
        turn.lose(answered_with("OffsetCommit", "UNKNOWN_MEMBER_ID"), keep_id=False)
