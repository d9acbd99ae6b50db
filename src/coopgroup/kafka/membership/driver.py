"""The group's thread: hosts a `Session` on real time, sockets and threads.

Only this thread touches the session; all other threads post events. The thread takes an event,
carries out its effects in order, and sleeps until the next event or deadline.
`coopgroup.core.session` numbers these duties. Values for the application's thread
(`lease_until_s`, the snapshot) are published after each step and never changed in place.

No exception ends the thread. An error in the member's own step fails the member, and the
application gets the error. Any other error (of a log, of the transport) is logged.

`LateThread` warns when the group's thread ran too late to send its heartbeats in time. Python runs
one thread at a time. A C call that keeps the global interpreter lock (GIL) stops the group's
thread. A stopped process or an overloaded machine has the same effect. librdkafka sends its
heartbeats from threads that need no GIL; this package does not. If the delay exceeds
`session.timeout.ms`, the coordinator drops the member. The lease still holds: the member hands out
no record of a partition that another member may own.
"""

from __future__ import annotations

import atexit
import math
import os
import random
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import attrs
from attrs import define, field

from coopgroup.core.member import ErrorCode, KeptIdentity, Member, MemberState
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelJoin,
    CancelWarmups,
    CountPartitions,
    FailMember,
    FindSessionTimeout,
    FinishCommit,
    GrantResources,
    KeepIdentity,
    Lane,
    LoseResources,
    NameTopics,
    Report,
    RevokeResources,
    RingBell,
    Send,
)
from coopgroup.core.member.error_actions import error_name
from coopgroup.core.member.events import (
    ApplicationStalled,
    BellRang,
    CommitRequested,
    LeaveRequested,
    Offset,
    SessionTimeoutFound,
    Woken,
)
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.choices import choices_of
from coopgroup.core.model.group_api import (
    Answer,
    Coordinator,
    GroupRequest,
    JoinGroupRequest,
)
from coopgroup.core.session import (
    CheckLags,
    DecideRound,
    DecisionMade,
    LookOver,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    fail,
    new_session,
    next_round_in_ms,
    overdue_claims,
    session_deadline_ms,
    step,
    with_rate,
)
from coopgroup.errors import LocalProtocolError, one_line
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.clock import now_ms, now_s, pause
from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.membership.group_events import GroupEvents, outcome_event
from coopgroup.kafka.membership.group_metadata import Fence
from coopgroup.kafka.membership.identity import IdentitySlot, take_slot
from coopgroup.kafka.membership.leading import LagWatcher, RoundLeader
from coopgroup.kafka.membership.ports import (
    Application,
    ResourceApplication,
    RoundLookup,
)
from coopgroup.kafka.membership.supervised import Supervision, supervision
from coopgroup.kafka.membership.telemetry_sink import REPORT_MS, TelemetrySink
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.records.pending_commits import OnCommitted, PendingCommits
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindGroupTimeouts, FindTopics, FoundTopic, GroupTimeouts
from coopgroup.kafka.rpc.transport import GroupTransport, load_connections
from coopgroup.kafka.trouble import Trouble
from coopgroup.telemetry import ClaimRefused, MemberReported, Record
from coopgroup.worker import Worker, require_threads

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.policies.policy import Policy
    from coopgroup.kafka.membership.bell import TopicBell
    from coopgroup.kafka.membership.deciding import Read

_SHARE_OF_SESSION: Final = 0.25
_LATE_S_MIN: Final = 0.5
_QUIET_S: Final = 60.0
_CAUSE: Final = "a C call held the GIL, the process was stopped, or the machine is overloaded"
_LATE: Final = f"heartbeats were late, for {_CAUSE}"
_TOO_LATE: Final = f"the coordinator may have dropped the member, for {_CAUSE}"


@define(eq=False)
class LateThread:
    """Measures the delays of one thread, and warns at most once a minute for each kind of delay.

    Attributes:
        looked_at_s: when the thread ran last.
    """

    session_timeout_ms: int
    warn: Callable[..., None]
    looked_at_s: float = field(default=0.0, init=False)
    # Keyed by whether the session may have ended: end of the quiet time, and warnings left out in
    # it.
    _quiet_until_s: dict[bool, float] = field(factory=dict, init=False)
    _left_out: dict[bool, int] = field(factory=dict, init=False)

    def look(self, due_s: float) -> None:
        """Warn if the thread runs now and was due much earlier."""
        at_s = self.looked_at_s = now_s()
        late_s = at_s - due_s
        session_s = self.session_timeout_ms / 1000
        if late_s < max(_LATE_S_MIN, session_s * _SHARE_OF_SESSION):
            return
        may_have_ended = late_s >= session_s
        if at_s < self._quiet_until_s.get(may_have_ended, at_s):
            self._left_out[may_have_ended] = self._left_out.get(may_have_ended, 0) + 1
            return
        self._quiet_until_s[may_have_ended] = at_s + _QUIET_S
        late_ms, session_ms = round(late_s * 1000), self.session_timeout_ms
        why = _TOO_LATE if may_have_ended else _LATE
        more = self._left_out.pop(may_have_ended, 0)
        self.warn(
            "group_thread_late", late_ms=late_ms, session_ms=session_ms, why=why, left_out=more
        )


# Retries are delayed by a random share of the first back-off, up to this limit. A group that lost
# its coordinator would otherwise return in lockstep.
_JITTER_SHARE: Final = 0.5
_STOP_TIMEOUT_MS: Final = 2_000
_LEAVE_TIMEOUT_S: Final = 5.0
_LEAVE_STEP_S: Final = 0.01
# A broker that does not answer must not delay `close` for long.
_RING_TIMEOUT_S: Final = 0.5
# A full disk must not prevent the interpreter from ending.
_FLUSH_TIMEOUT_S: Final = 1.0
# Pause until the next try if the next deadline is unknown.
_ERROR_PAUSE_S: Final = 0.1
# Other errors of a topic do not tell how many partitions it has.
_COUNTED_CODES: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_QUIET: Final = frozenset({MemberState.STABLE, MemberState.UNSUBSCRIBED})
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
        if driver.slot is not None:
            driver.slot.flush(max(0.0, flushed_by_s - now_s()))
        driver.sink.flush(max(0.0, flushed_by_s - now_s()))


@define(eq=False)
class GroupDriver:
    """Runs the membership of one member.

    Attributes:
        slot: storage of the member's identity beyond this process, or None.
        complete: adds the host's fields to the assignments of a decided round, or None.
        application: gets the notices immediately instead of the inbox; None if the inbox is used.
        lease_until_s: until when records may be handed out; infinite without owned resources.
        polled_at_s: when the application last left `poll`; infinite while it is in `poll`.
        is_quiet: whether no notice of the group is expected within the next moments.
        fence: fence of the current membership, or of the last membership after a loss.
        is_running: whether the group's thread was started and has not ended.
        member: the member after the last step, for readers on other threads.
    """

    settings: ConsumerSettings
    assignor: Assignor | None
    policy: Policy | None
    lookup: RoundLookup
    sink: TelemetrySink
    slot: IdentitySlot | None = None
    inbox: ApplicationInbox = field(factory=ApplicationInbox)
    application: ResourceApplication | None = None
    read: Read | None = None
    complete: Callable[[DecisionMade], DecisionMade] | None = None
    meter: WorkMeter = field(factory=WorkMeter)
    lease_until_s: float = field(default=math.inf, init=False)
    polled_at_s: float = field(default=math.inf, init=False)
    is_quiet: bool = field(default=True, init=False)
    fence: Fence = field(factory=Fence, init=False)
    is_running: bool = field(default=False, init=False)
    leader: RoundLeader = field(init=False)
    transport: GroupTransport = field(init=False)
    _bell: TopicBell | None = field(default=None, init=False)
    _lag_watcher: LagWatcher = field(init=False)
    late: LateThread = field(init=False)
    _supervision: Supervision | None = field(init=False)
    _session: Session = field(init=False)
    _events: GroupEvents = field(factory=GroupEvents, init=False)
    _worker: Worker = field(init=False)
    commits: PendingCommits = field(init=False)
    _timeout_trouble: Trouble = field(init=False)
    # Reentrant, because a signal handler may close the consumer while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _stopped: bool = field(default=False, init=False)
    _known_id: str = field(default="", init=False)
    # The time at which the application wants to be woken, and the last such time that was served.
    _remind_at_s: float = field(default=math.inf, init=False)
    _reminded_s: float = field(default=math.inf, init=False)
    _due_s: float = field(default=math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        require_threads()
        slot = self.slot
        self._session = new_session(
            attrs.evolve(
                self.settings.member,
                choices=choices_of(self.policy, self.assignor),
                own_id=str(uuid4()),
            ),
            None if slot is None else slot.kept,
            led=slot is not None and slot.seen is not None,
            next_round_in_ms=None if slot is None else slot.next_round_in_ms,
            now_ms=now_ms(),
        )
        self.transport = GroupTransport(self.settings.connection, self.sink.warn_of)
        if self.settings.telemetry_topic is not None:
            load_connections(self.settings.connection)  # it sends records before a subscription
            timeout_ms = self.settings.member.request_timeout_ms
            self.sink.open_topic(self.settings.telemetry_topic, self.transport, timeout_ms)
        self.commits = PendingCommits(self.sink.warn_of)
        self._timeout_trouble = Trouble(
            self.sink.warn, "session_timeout_unknown", "session_timeout_known"
        )
        self.leader = RoundLeader(
            assignor=self.assignor,
            policy=self.policy,
            lookup=self.lookup,
            post=self.post,
            sink=self.sink,
            read=self.read,
        )
        if self.complete is not None:
            self.leader.complete = self.complete
        self.late = LateThread(self.settings.member.session_timeout_ms, self.sink.warn)
        self._lag_watcher = LagWatcher(leader=self.leader, post=self.post)
        self._supervision = supervision(self.settings, self.sink)
        if slot is not None and slot.kept is not None and slot.seen is not None:
            self.leader.seen = slot.seen
        self._worker = Worker(f"coopgroup-{self.settings.member.group_id}")

    def listen(self) -> None:
        """Begin to listen for rings, before the first subscription; repeated calls change nothing.

        Call it on a thread of the application. It imports kafka-python: 95 ms of CPU time, which a
        consumer without a subscription does not need. If a background thread imported it, a child
        that is forked meanwhile would inherit a module's lock that no thread releases.
        """
        load_connections(self.settings.connection)
        topic = self.settings.bell_topic
        if topic is None:
            return
        from coopgroup.kafka.membership.bell import TopicBell  # noqa: PLC0415 - see above

        with self._lock:
            if self._bell is not None:
                return
            self._bell = TopicBell(
                transport=self.transport,
                topic=topic,
                group_id=self.settings.member.group_id,
                heard=lambda: self.post(BellRang()),
                warn=self.sink.warn if self.settings.names_bell else None,
                timeout_ms=self.settings.member.request_timeout_ms,
            )
        self._bell.start()

    @property
    def _told(self) -> Application:
        return self.inbox if self.application is None else self.application

    @property
    def member(self) -> Member:
        """Return the member after the last step."""
        return self._session.member

    @property
    def leads(self) -> bool:
        """Return whether this member leads its group, perhaps since an earlier process."""
        return self._session.leads

    @property
    def overdue_claims(self) -> tuple[ClaimRefused, ...]:
        """Claims that members of a group led by this one do not give up in time."""
        return overdue_claims(self._session, now_ms())

    def start(self) -> None:
        """Start the threads."""
        _running.add(self)
        self.transport.start()
        self.sink.start_reports(lambda: (self.member, report_of(self, now_s())))
        self.is_running = True
        self._worker.submit(self._run)

    def post(self, event: SessionEvent) -> None:
        """Post an event to the session, from any thread; after `stop` this has no effect.

        A commit that is posted too late ends immediately with UNKNOWN_MEMBER_ID.
        """
        with self._lock:
            if not self._stopped:
                self._events.put(event)
                return
        if isinstance(event, CommitRequested):
            self.commits.finish(event.commit_id)

    def leave(self, reason: str, *, for_good: bool) -> None:
        """Make the member leave; `for_good` ends the membership even if a `slot` keeps it."""
        self.post(LeaveRequested(reason=reason, for_good=for_good))

    @property
    def has_left(self) -> bool:
        """Return whether the member is outside its group, by its own request or by an error."""
        return self.member.state in {MemberState.UNSUBSCRIBED, MemberState.FAILED}

    def wait_left(self) -> bool:
        """Wait until the member has left its group, for a bounded time; return whether it has."""
        deadline_s = now_s() + _LEAVE_TIMEOUT_S
        while not self.has_left and now_s() < deadline_s:
            pause(_LEAVE_STEP_S)
        return self.has_left

    def remind(self, at_s: float) -> None:
        """Wake the application at this time instead of the earlier time; infinite for never."""
        if at_s != self._remind_at_s:
            self._remind_at_s = at_s
            self.post(Woken())

    def request_commit(
        self,
        offsets: tuple[Offset, ...],
        on_committed: OnCommitted,
        until_ms: int | None = None,
    ) -> None:
        """Request a commit, from any thread; the callback is called exactly once.

        It runs on the group's thread; after `stop`, on the thread that requests the commit.
        """
        commit_id = self.commits.register(offsets, on_committed)
        self.post(CommitRequested(commit_id=commit_id, offsets=offsets, until_ms=until_ms))

    def wait_for_commits(self, limit_s: float) -> bool:
        """Wait until all commits requested so far have ended; return whether they did in time."""
        return self.commits.wait(limit_s)

    def write(self, record: Record) -> None:
        """Write a record of the application to telemetry; for any thread."""
        member = self.member
        if member.member_id:
            self._known_id = member.member_id
        # What was lost stops after its id is gone: the record belongs to the lost membership.
        self.sink.write(record, member_id=self._known_id, generation=member.claim_generation)

    def stop(self) -> None:
        """End the threads; unfinished commits end with UNKNOWN_MEMBER_ID."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._events.end()
        self._worker.close(_STOP_TIMEOUT_MS / 1000)
        _running.discard(self)
        self.leader.stop()
        if self._bell is not None:
            self._bell.finish(_RING_TIMEOUT_S)
        self.sink.finish_topic()
        self.transport.close(_STOP_TIMEOUT_MS)
        self.commits.end_all()

    # --- the group's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while (event := self.take(self.pause_s())) is not None:
            self.turn(event)
        self.is_running = False

    def take(self, timeout_s: float) -> SessionEvent | None:
        """Wait for the next event; `Woken` after the timeout.

        Returns:
            None after `stop`, when all earlier events were taken.
        """
        return self._events.take(None if math.isinf(timeout_s) else timeout_s)

    def turn(self, event: SessionEvent) -> None:
        """Let the member handle an event, and do what is due; never raises."""
        try:
            self.late.look(self._due_s)
            woke_s = now_s()
            self._handle(event)
            self.late.look(woke_s)
        except BaseException as error:  # noqa: BLE001 -- a dead thread would be a silent zombie
            self._fail(error)

    def pause_s(self) -> float:
        """Return the time until the next deadline, in seconds; infinite without one."""
        began_s = now_s()
        try:
            pause_s = self._pause_s()
        except Exception as error:  # noqa: BLE001 -- events must be taken all the same
            self._fail(error)
            pause_s = _ERROR_PAUSE_S
        self._due_s = began_s + pause_s
        return pause_s

    def _handle(self, event: SessionEvent) -> None:
        self._take(event)
        if self._is_stalled():
            self._take(ApplicationStalled())
        remind_at_s = self._remind_at_s
        if now_s() >= remind_at_s:
            if remind_at_s != self._reminded_s:
                self._told.wake()
            self._reminded_s = remind_at_s

    def _pause_s(self) -> float:
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
        return min(pause_s, self.inbox.pause_s())

    def _is_stalled(self) -> bool:
        limit_s = self.settings.max_poll_interval_ms / 1000
        return self.member.state in AT_WORK and now_s() - self.polled_at_s >= limit_s

    def _take(self, event: SessionEvent) -> None:
        try:
            session = with_rate(self._session, self.meter.rate_per_s)
            session, effects = step(session, event, now_ms=now_ms())
        except LocalProtocolError as error:
            self.sink.warn("event_refused", error=str(error))
            return
        except Exception as error:  # noqa: BLE001 -- a dead thread would be a silent zombie
            self._fail(error)
            return
        if isinstance(event, LeaveRequested):
            # The application has given up everything, so unread notices are void.
            self._told.clear()
        self._go_on(session, effects)

    def _go_on(self, session: Session, effects: tuple[SessionEffect, ...]) -> None:
        self._session = session
        if self._supervision is not None:  # before its join is sent
            self._supervision.tell(session.member.member_id)
        self.is_quiet = session.member.state in _QUIET
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
                self.sink.warn_of(error)
        self.lease_until_s = lease_until_s

    def _carry_out(self, effect: SessionEffect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case CancelJoin():
                self.transport.close_lane(Lane.JOIN)
            case (
                DecideRound()
                | CheckLags()
                | LookOver()
                | CountPartitions()
                | NameTopics()
                | FindSessionTimeout()
            ):
                self._look_up(effect)
            case (
                GrantResources()
                | RevokeResources()
                | LoseResources()
                | BeginWarmups()
                | CancelWarmups()
                | FailMember()
            ):
                self._told.put(effect)
            case KeepIdentity():
                self._keep(effect.identity)
            case FinishCommit():
                self.commits.finish(effect.commit_id, effect.codes)
            case RingBell():
                if self._bell is not None:
                    self._bell.ring()
            case Report():
                own = self.member
                self.sink.write(
                    effect.record,
                    member_id=own.member_id if effect.member_id is None else effect.member_id,
                    generation=own.generation,
                )

    def _send(self, effect: Send) -> None:
        hear = partial(self._hear, effect.request_id)
        node, timeout_ms = effect.coordinator, effect.timeout_ms
        self._ask(effect.lane, effect.request, hear, node, timeout_ms)
        if isinstance(effect.request, JoinGroupRequest):  # its answer may make this member lead
            self.leader.prepare()

    def _look_up(
        self,
        effect: DecideRound
        | CheckLags
        | LookOver
        | CountPartitions
        | NameTopics
        | FindSessionTimeout,
    ) -> None:
        match effect:
            case CountPartitions() | NameTopics():
                self._find_topics(effect)
            case FindSessionTimeout():
                self._find_session_timeout()
            case DecideRound():
                self.leader.start(effect)
            case CheckLags():
                self._lag_watcher.start(effect)
            case LookOver():
                # An application that watches its resources by itself has shared nothing yet. It
                # requests a round instead.
                if self.application is None:
                    self.leader.look_over(effect)

    def _keep(self, identity: KeptIdentity | None) -> None:
        if self.slot is None:
            return
        if self.leads:
            in_ms = next_round_in_ms(self._session, now_ms=now_ms())
            self.slot.keep(identity, self.leader.seen, in_ms)
        else:
            self.slot.keep(identity)

    def _find_topics(self, effect: CountPartitions | NameTopics) -> None:
        def on_answer(outcome: Mapping[str, FoundTopic] | TransportFailure) -> None:
            found = {} if isinstance(outcome, TransportFailure) else outcome
            if isinstance(effect, CountPartitions):
                counts = {
                    name: one.partition_count
                    for name, one in found.items()
                    if one.error_code in _COUNTED_CODES
                }
                answered = attrs.evolve(effect.answered, partition_counts=counts)
            else:
                names = {str(one.topic_id): name for name, one in found.items() if one.topic_id}
                answered = attrs.evolve(effect.answered, topic_names=names)
            self.post(answered)

        lane, request, node = Lane.COMMIT, FindTopics(names=effect.topics), self.member.coordinator
        self._ask(lane, request, on_answer, node, self.settings.member.request_timeout_ms)

    def _find_session_timeout(self) -> None:
        def on_answer(outcome: GroupTimeouts | TransportFailure) -> None:
            known_ms = self.member.config.session_timeout_ms
            if isinstance(outcome, TransportFailure):
                self._timeout_trouble.fail(error=outcome.message, assumed_ms=known_ms)
            elif outcome.session_ms is None:
                error = error_name(outcome.error_code)
                self._timeout_trouble.fail(at_once=True, error=error, assumed_ms=known_ms)
            else:
                self._timeout_trouble.succeed(session_ms=outcome.session_ms)
                if outcome.session_ms != known_ms:
                    self.late.session_timeout_ms = outcome.session_ms
                    self.post(SessionTimeoutFound(session_timeout_ms=outcome.session_ms))

        request = FindGroupTimeouts(group_id=self.settings.member.group_id)
        timeout_ms = self.settings.member.request_timeout_ms
        self._ask(Lane.COMMIT, request, on_answer, self.member.coordinator, timeout_ms)

    def _hear(self, request_id: int, outcome: Answer | TransportFailure) -> None:
        self.post(outcome_event(request_id, outcome))

    def _ask(
        self,
        lane: Lane,
        request: GroupRequest | FindTopics | FindGroupTimeouts,
        on_answer: Callable[[Any], None],
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        try:
            self.transport.send(lane, request, on_answer, node=node, timeout_ms=timeout_ms)
        except Exception as error:  # noqa: BLE001 -- every request must have an outcome
            self.sink.warn_of(error)
            on_answer(TransportFailure(kind=FailureKind.DISCONNECTED, message=repr(error)))

    def _fail(self, error: BaseException) -> None:
        """End the membership, because the member's state no longer matches the events."""
        self.sink.warn_of(error)
        message = f"internal error: {one_line(error)}"
        try:
            session, effects = fail(self._session, message, now_ms=now_ms())
        except Exception as another:  # noqa: BLE001 -- the application must hear of it all the same
            self.sink.warn_of(another)
            self._told.put(FailMember(code=ErrorCode.UNKNOWN_SERVER_ERROR, message=message))
            return
        self._go_on(session, effects)
        self.commits.end_all()


def _lease_until_s(member: Member) -> float:
    if not member.owned:
        return math.inf
    return member.hold_until_ms / 1000


def report_of(driver: GroupDriver, now: float) -> MemberReported:
    """Return the report of this moment.

    Args:
        driver: of the member.
        now: a reading of the monotonic clock, in seconds.
    """
    member, rate_per_s = driver.member, driver.meter.rate_per_s
    lease_s, warmups = driver.lease_until_s - now, member.next_join.warmups
    since_poll_ms, failed = -1, EMPTY
    if driver.application is not None:
        failed = ResourceSet.from_pairs(driver.application.failed())
    else:
        since_poll_ms = round(1000 * max(0.0, now - driver.polled_at_s))
    return MemberReported(
        state=member.state.value,
        interval_ms=REPORT_MS,
        since_poll_ms=since_poll_ms,
        lease_ms=-1 if math.isinf(lease_s) else round(1000 * max(0.0, lease_s)),
        rate_per_s=-1.0 if rate_per_s is None else round(rate_per_s, 3),
        revoking=member.revocation.pending,
        warming=EMPTY if warmups is None else warmups.begun - warmups.warm,
        warm=EMPTY if warmups is None else warmups.warm & warmups.wanted,
        failed=failed,
    )


def open_sink_and_slot(
    settings: ConsumerSettings, opened: ExitStack
) -> tuple[TelemetrySink, IdentitySlot | None]:
    """Open the telemetry and an identity slot, if configured; a static member needs no slot.

    Raises:
        ConfigurationError: the telemetry file or the state directory cannot be written.
    """
    member = settings.member
    sink = TelemetrySink(
        member.group_id,
        settings.telemetry_file,
        settings.telemetry_listener,
        client_id=settings.connection.client_id,
    )
    opened.callback(sink.close)
    if settings.state_dir is None or member.instance_id is not None:
        return sink, None
    slot = take_slot(settings.state_dir, member.group_id, sink.warn)
    opened.callback(slot.release)
    return sink, slot
