"""The group's thread: hosts a `Session` on real time, sockets and threads.

Only this thread touches the session; all other threads post events. The thread takes an event,
carries out its effects in order, and sleeps until the next event or deadline. `coopgroup.session`
numbers these duties. Values for the application's thread (`lease_until_s`, the snapshot) are
published after each step and never changed in place.

No exception ends the thread. An error in the member's own step fails the member, and the
application gets the error. Any other error (of a log, of the transport) is logged.
"""

from __future__ import annotations

import atexit
import math
import os
import random
import threading
import weakref
from typing import TYPE_CHECKING, Final

from attrs import define, field

from coopgroup.errors import LocalProtocolError
from coopgroup.kafka.application_inbox import ApplicationInbox
from coopgroup.kafka.clock import now_ms, now_s
from coopgroup.kafka.group_events import GroupEvents, outcome_event
from coopgroup.kafka.group_metadata import Fence
from coopgroup.kafka.lag_watching import LagWatcher
from coopgroup.kafka.late_thread import LateThread
from coopgroup.kafka.leading import RoundLeader
from coopgroup.kafka.pending_commits import PendingCommits
from coopgroup.kafka.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.kafka.work_meter import WorkMeter
from coopgroup.leader import read_members
from coopgroup.member import ErrorCode, Member, MemberState, new_member
from coopgroup.member.effects import (
    CancelJoin,
    FailMember,
    FinishCommit,
    GrantResources,
    KeepIdentity,
    Lane,
    LoseResources,
    Report,
    RevokeResources,
    Send,
)
from coopgroup.member.events import (
    Answered,
    ApplicationStalled,
    CommitRequested,
    CommitsAbandoned,
    LeaveRequested,
    Woken,
)
from coopgroup.member.transitions import AT_WORK, SETTLED
from coopgroup.model.group_api import FindCoordinatorAnswer, JoinGroupAnswer
from coopgroup.session import (
    CheckLags,
    LeadRound,
    OwedRound,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    fail,
    next_round_in_ms,
    one_line,
    session_deadline_ms,
    step,
    with_rate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopgroup.assignors.base import Assignor
    from coopgroup.kafka.identity import IdentitySlot
    from coopgroup.kafka.pending_commits import OnCommitted
    from coopgroup.kafka.ports import Application, DriverSettings, RoundLookup
    from coopgroup.kafka.telemetry_sink import TelemetrySink
    from coopgroup.leader import RoundRequest
    from coopgroup.member import KeptIdentity
    from coopgroup.model.group_api import Answer, JoinedMember
    from coopgroup.policies.base import Policy

__all__ = ["GroupDriver", "has_left"]

# Retries are delayed by a random share of the first back-off, up to this limit. A group that lost
# its coordinator would otherwise return in lockstep.
_JITTER_SHARE: Final = 0.5
_STOP_TIMEOUT_MS: Final = 2_000
# A full disk must not prevent the interpreter from ending.
_FLUSH_TIMEOUT_S: Final = 1.0
# Pause until the next try if the next deadline is unknown.
_ERROR_PAUSE_S: Final = 0.1
_running: Final[weakref.WeakSet[GroupDriver]] = weakref.WeakSet()
# A forked child has no such threads, but perhaps a lock that a thread held during the fork.
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all() -> None:
    """End the threads of consumers that were not closed.

    The interpreter kills threads that still run when it ends. If a thread is inside NumPy then,
    that aborts the process.
    """
    drivers = tuple(_running)
    for driver in drivers:
        driver.stop()
    flushed_by_s = now_s() + _FLUSH_TIMEOUT_S
    for driver in drivers:
        driver.sink.flush(max(0.0, flushed_by_s - now_s()))


@define(eq=False)
class GroupDriver:
    """Runs the membership of one member.

    Attributes:
        settings: settings of the consumer, or of the group.
        assignor: decides where resources go when this member leads.
        policy: decides when resources move.
        lookup: metadata and lags for the leader.
        sink: telemetry.
        slot: storage of the member's identity beyond this process, or None.
        inbox: notices for the application; the driver fills it, the consumer empties it.
        application: gets the notices immediately instead of the inbox; None if the inbox is used.
        read: decodes the members' subscriptions when this member leads.
        meter: measures the application's speed; the delivery of records fills it.
        lease_until_s: until when records may be handed out; infinite without owned resources.
        polled_at_s: when the application last left `poll`; infinite while it is in `poll`.
        fence: fence of the current membership, or of the last membership after a loss.
        member: the member after the last step, for readers on other threads.
        transport: the group's connections.
    """

    settings: DriverSettings
    assignor: Assignor
    policy: Policy
    lookup: RoundLookup
    sink: TelemetrySink
    slot: IdentitySlot | None = None
    inbox: ApplicationInbox = field(factory=ApplicationInbox)
    application: Application | None = None
    read: Callable[[Sequence[JoinedMember]], RoundRequest] = read_members
    meter: WorkMeter = field(factory=WorkMeter)
    lease_until_s: float = field(default=math.inf, init=False)
    polled_at_s: float = field(default=math.inf, init=False)
    fence: Fence = field(factory=Fence, init=False)
    leader: RoundLeader = field(init=False)
    transport: GroupTransport = field(init=False)
    _lag_watcher: LagWatcher = field(init=False)
    _late: LateThread = field(init=False)
    _session: Session = field(init=False)
    _events: GroupEvents = field(factory=GroupEvents, init=False)
    _thread: threading.Thread = field(init=False)
    _commits: PendingCommits = field(init=False)
    # Reentrant, because a signal handler may close the consumer while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _stopped: bool = field(default=False, init=False)
    # The time at which the application wants to be woken, and the last such time that was served.
    _remind_at_s: float = field(default=math.inf, init=False)
    _reminded_s: float = field(default=math.inf, init=False)
    # Member id and generation of a round that this member leads but did not decide.
    _leads_as: tuple[str, int] | None = field(default=None, init=False)
    # Members of a group that this member leads again without a round, until it has its assignment.
    _returned: tuple[JoinedMember, ...] = field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        """Create the parts; no thread runs before `start`."""
        kept = None if self.slot is None else self.slot.kept
        self._session = Session(member=new_member(self.settings.member, kept))
        self.transport = GroupTransport(self.settings.connection, self._warn)
        self._commits = PendingCommits(
            timeout_ms=self.settings.member.request_timeout_ms, warn=self._warn
        )
        self.leader = RoundLeader(
            assignor=self.assignor,
            policy=self.policy,
            lookup=self.lookup,
            timeout_ms=self.settings.leader_timeout_ms,
            post=self.post,
            sink=self.sink,
            read=self.read,
        )
        self._late = LateThread(self.settings.member.session_timeout_ms, self.sink.warn)
        self._lag_watcher = LagWatcher(leader=self.leader, post=self.post, sink=self.sink)
        if kept is not None and self.slot is not None and self.slot.seen is not None:
            self.leader.seen = self.slot.seen
            self._leads_as = (kept.member_id, kept.generation)
            self._owe(kept, self.slot.next_round_in_ms)
        self._thread = threading.Thread(
            target=self._run, name=f"coopgroup-{self.settings.member.group_id}", daemon=True
        )

    def _owe(self, kept: KeptIdentity, in_ms: int | None) -> None:
        """Remember a round that the leader's earlier process owed but could not request."""
        if in_ms is not None:
            owed = OwedRound(
                member_id=kept.member_id, generation=kept.generation, at_ms=now_ms() + in_ms
            )
            self._session = Session(member=self.member, owed=owed)

    @property
    def _told(self) -> Application:
        """Return the receiver of the group's notices."""
        return self.inbox if self.application is None else self.application

    @property
    def member(self) -> Member:
        """Return the member after the last step."""
        return self._session.member

    @property
    def is_quiet(self) -> bool:
        """Return whether no notice of the group is expected within the next moments."""
        return self._session.member.state in {MemberState.STABLE, MemberState.UNSUBSCRIBED}

    @property
    def leads(self) -> bool:
        """Return whether this member leads its group, perhaps since an earlier process."""
        here = (self.member.member_id, self.member.generation)
        return self._session.policy_state is not None or self._leads_as == here

    def start(self) -> None:
        """Start the threads."""
        _running.add(self)
        self.transport.start()
        self._thread.start()

    def post(self, event: SessionEvent) -> None:
        """Post an event to the session, from any thread; after `stop` this has no effect.

        A commit that is posted too late ends immediately with UNKNOWN_MEMBER_ID.
        """
        with self._lock:
            if not self._stopped:
                self._events.put(event)
                return
        if isinstance(event, CommitRequested):
            self._commits.refuse(event, ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(self, reason: str, *, for_good: bool) -> None:
        """Make the member leave its group.

        Args:
            reason: for logs and for the broker.
            for_good: whether no process will return as this member, so that the group is told
                immediately. Otherwise a member with a stored identity (`slot`) keeps its place
                until its session ends.
        """
        self.post(LeaveRequested(reason=reason, for_good=for_good))

    def remind(self, at_s: float) -> None:
        """Wake the application at this time instead of the earlier time; infinite for never."""
        if at_s != self._remind_at_s:
            self._remind_at_s = at_s
            self.post(Woken())

    def new_commit(self, on_committed: OnCommitted) -> int:
        """Register a commit; the callback is called exactly once.

        It runs on the group's thread; after `stop`, on the thread that posts the commit.

        Returns:
            The commit's id, for `CommitRequested`, which must be posted.
        """
        return self._commits.register(on_committed)

    def wait_for_commits(self, limit_s: float) -> bool:
        """Wait until all commits that were requested so far have ended.

        Args:
            limit_s: how long to wait, in seconds.

        Returns:
            Whether all these commits ended in time.
        """
        return self._commits.wait(limit_s)

    def stop(self) -> None:
        """End the threads; unfinished commits end with UNKNOWN_MEMBER_ID."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._events.end()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_MS / 1000)
        _running.discard(self)
        self.leader.stop()
        self._lag_watcher.stop()
        self.transport.close(_STOP_TIMEOUT_MS)
        self._commits.end_all(ErrorCode.UNKNOWN_MEMBER_ID)

    # --- the group's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                if not self._live():
                    return
            except BaseException as error:  # noqa: BLE001 -- a dead thread would be a silent zombie
                self._fail(error)

    def _live(self) -> bool:
        """Wait for one event and handle it; return whether more events may follow."""
        began_s = now_s()
        try:
            pause_s = self._pause_s()
        except Exception as error:  # noqa: BLE001 -- events must be taken all the same
            self._fail(error)
            pause_s = _ERROR_PAUSE_S
        event = self._events.take(pause_s)
        if event is None:
            return False
        self._late.look(math.inf if pause_s is None else began_s + pause_s)
        woke_s = now_s()
        self._handle(event)
        self._late.look(woke_s)
        return True

    def _handle(self, event: SessionEvent) -> None:
        """Take an event, and handle all work that became due meanwhile."""
        self._take(event)
        if self._is_stalled():
            self._take(ApplicationStalled())
        remind_at_s = self._remind_at_s
        if now_s() >= remind_at_s:
            if remind_at_s != self._reminded_s:
                self._told.wake()
            self._reminded_s = remind_at_s
        overdue = self._commits.overdue()
        if overdue:
            # The order matters: for the member, a commit on the wire ends only with its answer.
            for commit_id in overdue:
                self._commits.end(commit_id, ErrorCode.REQUEST_TIMED_OUT)
            self._take(CommitsAbandoned(commit_ids=frozenset(overdue)))

    def _pause_s(self) -> float | None:
        """Return the seconds until the next deadline; None for never."""
        deadline_ms = session_deadline_ms(self._session)
        pause_s = math.inf
        if deadline_ms is not None:
            pause_s = max(0.0, (deadline_ms - now_ms()) / 1000)
            if backing_off(self._session):
                backoff_s = self.settings.member.retry_backoff_ms / 1000
                pause_s += random.random() * _JITTER_SHARE * backoff_s  # noqa: S311
        if self.member.state in AT_WORK:
            stalls_at_s = self.polled_at_s + self.settings.max_poll_interval_ms / 1000
            pause_s = min(pause_s, max(0.0, stalls_at_s - now_s()))
        if self._remind_at_s != self._reminded_s:
            pause_s = min(pause_s, max(0.0, self._remind_at_s - now_s()))
        pause_s = min(pause_s, self.inbox.pause_s())
        if self._commits.are_waited_for:
            pause_s = min(pause_s, self.settings.member.request_timeout_ms / 1000)
        return None if math.isinf(pause_s) else pause_s

    def _is_stalled(self) -> bool:
        limit_s = self.settings.max_poll_interval_ms / 1000
        return self.member.state in AT_WORK and now_s() - self.polled_at_s >= limit_s

    def _take(self, event: SessionEvent) -> None:
        match event:
            case CommitRequested():
                self._commits.take_up(event)
            case Answered() if not isinstance(event.answer, FindCoordinatorAnswer):
                self._commits.hear()
            case _:
                pass
        try:
            session = with_rate(self._session, self.meter.rate_per_s)
            session, effects = step(session, event, now_ms=now_ms())
        except LocalProtocolError as error:
            self.sink.warn("event_refused", error=str(error))
            return
        except Exception as error:  # noqa: BLE001 -- a dead thread would be a silent zombie
            self._fail(error)
            return
        if isinstance(event, Answered) and isinstance(event.answer, JoinGroupAnswer):
            self._hear_of_lead(event.answer)
        if isinstance(event, LeaveRequested):
            # The application has given up everything, so unread notices are void.
            self._told.clear()
        self._go_on(session, effects)
        if self._returned and self.member.state in SETTLED:
            members, self._returned = self._returned, ()
            has_notes = self.member.protocol_chosen == self.member.config.protocol_name
            self.leader.look_over(members, self.member.shared_digest, has_notes=has_notes)

    def _hear_of_lead(self, answer: JoinGroupAnswer) -> None:
        """Let the leader of a round without a decision check its topics (KIP-814).

        It checks them when it has its assignment. If `application` is set, the application watches
        its resources by itself. It has shared nothing yet, and requests a round instead.
        """
        leads = answer.skip_assignment and answer.leader_id == answer.member_id
        self._returned = answer.members if leads and self.application is None else ()
        if leads:
            self._leads_as = (answer.member_id, answer.generation)

    def _go_on(self, session: Session, effects: tuple[SessionEffect, ...]) -> None:
        self._session = session
        self.fence = self.fence.after(session.member)
        # Shorten the lease before the effects: granted resources must not be used without a lease.
        # Extend it after them: a loss must be in the inbox before the lease is cleared. Lost
        # resources have no lease, even if the same step granted them.
        lease_until_s = _lease_until_s(self.member)
        loses = any(isinstance(effect, LoseResources) for effect in effects)
        self.lease_until_s = -math.inf if loses else min(self.lease_until_s, lease_until_s)
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception as error:  # noqa: BLE001 -- the other effects must come about
                self._warn(error)
        self.lease_until_s = lease_until_s

    def _carry_out(self, effect: SessionEffect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case CancelJoin():
                self.transport.close_lane(Lane.JOIN)
            case LeadRound():
                self.leader.start(effect)
            case CheckLags():
                self._lag_watcher.start(effect)
            case GrantResources() | RevokeResources() | LoseResources() | FailMember():
                self._told.put(effect)
            case KeepIdentity():
                self._keep(effect.identity)
            case FinishCommit():
                self._commits.finish(effect)
            case Report():
                self.sink.write(
                    effect.record,
                    member_id=self.member.member_id,
                    generation=self.member.generation,
                )

    def _keep(self, identity: KeptIdentity | None) -> None:
        if self.slot is None:
            return
        try:
            if self.leads:
                in_ms = next_round_in_ms(self._session, now_ms=now_ms())
                self.slot.keep(identity, self.leader.seen, in_ms)
            else:
                self.slot.keep(identity)
        except OSError as error:  # the next process will join as a new member
            self.sink.warn("identity_not_kept", path=str(self.slot.path), error=str(error))

    def _send(self, effect: Send) -> None:
        request_id = effect.request_id

        def on_answer(outcome: Answer | TransportFailure) -> None:
            self.post(outcome_event(request_id, outcome))

        try:
            self.transport.send(
                effect.lane,
                effect.request,
                on_answer,
                node=effect.coordinator,
                timeout_ms=effect.timeout_ms,
            )
        except Exception as error:  # noqa: BLE001 -- every request must have an outcome
            self._warn(error)
            on_answer(TransportFailure(kind=FailureKind.DISCONNECTED, message=repr(error)))

    def _fail(self, error: BaseException) -> None:
        """End the membership, because the member's state no longer matches the events."""
        self._warn(error)
        message = f"internal error: {one_line(error)}"
        try:
            session, effects = fail(self._session, message, now_ms=now_ms())
        except Exception as another:  # noqa: BLE001 -- the application must hear of it all the same
            self._warn(another)
            self._told.put(FailMember(code=ErrorCode.UNKNOWN_SERVER_ERROR, message=message))
            return
        self._go_on(session, effects)
        self._commits.end_taken_up(ErrorCode.UNKNOWN_MEMBER_ID)

    def _warn(self, error: BaseException) -> None:
        """Log an error that does not come from the group; for any thread."""
        self.sink.warn_of(error)


def _lease_until_s(member: Member) -> float:
    """Return the end of the lease; infinite if the member owns no resources."""
    if not member.owned:
        return math.inf
    return member.hold_until_ms / 1000


def has_left(member: Member) -> bool:
    """Return whether a member is outside its group, by its own request or by an error."""
    return member.state in {MemberState.UNSUBSCRIBED, MemberState.FAILED}
