"""`Turn`: the workspace of one `step`.

A step is pure for its caller: a frozen member goes in, a new member comes out. Inside, a turn holds
the current member and the effects so far, so that the rules read as a list of statements. Every
change of state goes through `move`, which is the only reader of the tables of moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field

from coopgroup.core.member.commits import codes_of, enqueue, fail_all, time_out
from coopgroup.core.member.effects import (
    CancelJoin,
    FailMember,
    FinishCommit,
    KeepIdentity,
    LoseResources,
    Report,
    RevokeResources,
)
from coopgroup.core.member.error_actions import OF_A_ROUND, ErrorCode, RequestKind
from coopgroup.core.member.parts import NO_REVOCATION, NO_ROUND, IdStanding
from coopgroup.core.member.transitions import AT_WORK, MemberState, Trigger
from coopgroup.core.model import EMPTY
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.causes import Cause
from coopgroup.core.telemetry.records import MembershipLost, StateChanged
from coopgroup.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.core.member.commits import Finished
    from coopgroup.core.member.effects import Effect
    from coopgroup.core.member.events import CommitRequested
    from coopgroup.core.member.member import Member

# While one part stops after another, the join is delayed by up to this many grace times.
_GRACES_MAX: Final = 4


@define
class Turn:
    """One step under way.

    Attributes:
        member: the current member.
        now_ms: the host's clock, in ms.
        effects: the effects so far.
    """

    member: Member
    now_ms: int
    effects: list[Effect] = field(factory=list)

    def set(self, **changes: Any) -> None:  # noqa: ANN401  (`replaced` checks the names)
        """Replace fields of the member."""
        self.member = replaced(self.member, **changes)

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def move(self, trigger: Trigger, cause: str) -> None:
        """Move the member as the table says.

        Raises:
            LocalProtocolError: the table has no such move.
        """
        before = self.member.state
        after = self.member.moves[before].get(trigger)
        if after is None:
            message = f"{cause}: a member that is {before.value} cannot be moved by {trigger.value}"
            raise LocalProtocolError(message)
        if after is not before:
            self.set(state=after)
            record = StateChanged(before=before.value, after=after.value, cause=cause)
            self.emit(Report(record=record))

    def request_commit(self, event: CommitRequested) -> None:
        """Queue a commit, or end it if the member is in no group."""
        member = self.member
        if member.state in AT_WORK:
            timeout_ms = member.config.request_timeout_ms
            commits = enqueue(member.commits, event, now_ms=self.now_ms, timeout_ms=timeout_ms)
            self.set(commits=commits)
            return
        codes = codes_of(event.offsets, ErrorCode.UNKNOWN_MEMBER_ID)
        self.finish_commits([(event.commit_id, codes)])

    def time_out_commits(self) -> None:
        """End the commits whose callers have waited long enough."""
        member = self.member
        due_at_ms = member.commits.due_at_ms
        if due_at_ms is None or self.now_ms < due_at_ms:
            return
        commits, finished = time_out(
            member.commits,
            heard_at_ms=member.heard_at_ms,
            timeout_ms=member.config.request_timeout_ms,
            now_ms=self.now_ms,
        )
        self.set(commits=commits)
        self.finish_commits(finished)

    def finish_commits(self, finished: Iterable[Finished]) -> None:
        """Give outcomes of commits to their callers."""
        for commit_id, codes in finished:
            self.emit(FinishCommit(commit_id=commit_id, codes=codes))

    def forget(self, *kinds: RequestKind) -> None:
        """Drop requests on their way; their answers are stale from now on."""
        outstanding = self.member.outstanding
        if outstanding.keys() & OF_A_ROUND & set(kinds):
            self.emit(CancelJoin())
        kept = {kind: request for kind, request in outstanding.items() if kind not in kinds}
        self.set(outstanding=kept)

    def back_off(self) -> None:
        """Count a failed try and wait before the next one, longer each time."""
        member = self.member
        self.set(back_off=member.back_off.after_failure(member.config, self.now_ms))

    def end_back_off(self) -> None:
        """Count no failed tries any more."""
        back_off = self.member.back_off
        if back_off.attempts:
            self.set(back_off=attrs.evolve(back_off, attempts=0))

    def rejoin(self, cause: str) -> None:
        """Request the next round and keep every claim; commits may be tried again before it.

        An eager member keeps no claim: it stops all its resources first.
        """
        commits = self.member.commits
        self.set(
            commits=replaced(commits, await_sync=False),
            rejoin_reason=self.member.rejoin_reason or cause,
        )
        self.wait_for_revocations()
        member = self.member
        if member.config.eager and member.owned and member.state is MemberState.STABLE:
            self.set(revocation=attrs.evolve(member.revocation, pending=member.owned))
            self.move(Trigger.GIVE_UP_ALL, cause)
            self.emit(RevokeResources(resources=member.owned))
        else:
            self.move(Trigger.REJOIN, cause)

    def rejoin_soon(self, *, more_stopped: bool = False) -> None:
        """Request the next round, but first wait a short time for revocations to finish.

        Args:
            more_stopped: another part has just stopped, so the next part may stop soon as well. A
                part that stops right after the join costs the other members one more round,
                announced by heartbeat.
        """
        config, revocation = self.member.config, self.member.revocation
        if config.eager or revocation.yields:
            return
        # The grace must end well before the coordinator's rebalance timeout.
        all_ms = min(_GRACES_MAX * config.revocation_grace_ms, config.rebalance_timeout_ms // 4)
        until_ms = self.now_ms + min(config.revocation_grace_ms, all_ms)
        latest_ms = self.now_ms + all_ms
        if revocation.join_at_ms is None:
            soon = attrs.evolve(revocation, join_at_ms=until_ms, join_latest_ms=latest_ms)
            self.set(revocation=soon)
        elif more_stopped:
            later_ms = min(until_ms, revocation.join_latest_ms)
            self.set(revocation=attrs.evolve(revocation, join_at_ms=later_ms))

    def wait_for_revocations(self) -> None:
        """Join only when all revocations have finished, unless a round is requested again."""
        revocation = self.member.revocation
        if revocation.join_at_ms is not None:
            self.set(revocation=attrs.evolve(revocation, join_at_ms=None))

    def session_until_ms(self, proof_ms: int) -> int:
        """Return until when the session lives; a proof counts from the SENDING of its request."""
        return proof_ms + self.member.config.session_timeout_ms

    def lose(self, cause: str, *, keep_id: bool, stalled: bool = False) -> None:
        """Treat all resources as lost; the application must know before the next join.

        A commit without an answer may still arrive. In the generation of its request the
        coordinator would take it, after newer ones of the next owner or of this member. So the
        member joins without its old id: the coordinator then fences a static id's earlier member,
        and a dynamic member's place ends with its session or with the next round.

        Args:
            cause: the reason, for logs.
            keep_id: whether the coordinator may still know the member under its id.
            stalled: whether the application does not poll. The member then waits for the
                application even without lost resources.
        """
        resources, loss = self.member.owned, self._loss(cause)
        self._drop_membership(keep_id=keep_id and not self._may_commit_late())
        waits = bool(resources) or stalled
        self.move(Trigger.LOST if waits else Trigger.LOST_NOTHING, cause)
        if resources:
            self.emit(loss)
        if waits:
            self.emit(LoseResources(resources=resources, cause=cause))

    def fail(self, code: int, message: str) -> None:
        """End the membership: the application gets the error, and loses its resources."""
        resources, loss = self.member.owned, self._loss(message)
        self._drop_membership(keep_id=False)
        self.set(retries={})
        self.move(Trigger.FAIL, message)
        if resources:
            self.emit(loss)
            self.emit(LoseResources(resources=resources, cause=message))
        self.emit(FailMember(code=code, message=message))

    def give_up_membership(self) -> None:
        """Forget id, generation and claims without a loss, because the member leaves."""
        self._drop_membership(keep_id=True)

    def leave_group_behind(self) -> None:
        """Move the member out of the group; it may subscribe again as a new member."""
        self.set(member_id="", rejoin_reason="", retries={})
        self.note_id(IdStanding.STORED)
        self.move(Trigger.LEFT, Cause.LEFT)

    def note_id(self, standing: IdStanding) -> None:
        """Note whether the group's log has the id of a static member."""
        identity = self.member.identity
        if identity.standing is not standing:
            self.set(identity=attrs.evolve(identity, standing=standing))

    def end_identity(self) -> None:
        """Forget the stored identity, because no process will return as this member."""
        if self.member.identity.kept is not None:
            self.set(identity=attrs.evolve(self.member.identity, kept=None))
            self.emit(KeepIdentity(identity=None))

    def _loss(self, cause: str) -> Report:
        member = self.member
        record = MembershipLost(
            resources=member.owned,
            cause=cause,
            since_lease_ms=max(0, self.now_ms - member.lease.until_ms),
        )
        return Report(record=record, member_id=member.member_id)

    def _may_commit_late(self) -> bool:
        member = self.member
        sent = member.outstanding.get(RequestKind.OFFSET_COMMIT)
        last = member.commits.unanswered if sent is None else sent.generation
        return last == member.generation != NO_GENERATION

    def _drop_membership(self, *, keep_id: bool) -> None:
        commits, finished = fail_all(self.member.commits, ErrorCode.UNKNOWN_MEMBER_ID)
        self.finish_commits(finished)
        self.forget(
            RequestKind.JOIN_GROUP,
            RequestKind.SYNC_GROUP,
            RequestKind.HEARTBEAT,
            RequestKind.CONSUMER_BEAT,
            RequestKind.OFFSET_COMMIT,
        )
        self.set(
            owned=EMPTY,
            generation=NO_GENERATION,
            claim_generation=NO_GENERATION,
            round=NO_ROUND,
            revocation=NO_REVOCATION,
            commits=commits,
            member_id=self.member.member_id if keep_id else "",
        )
        if not keep_id:
            self.note_id(IdStanding.STORED)
            self.end_identity()
