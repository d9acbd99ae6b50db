"""`GroupHarness`: processes with sessions, a network that fails, and the model coordinator.

Everything is one queue of timed events, so a run depends on its seed and on the calls that a test
makes, and on nothing else. A process is a session and an application: the application runs
callbacks one after the other, moves positions on and commits them, and stops at once when it lost
all or its lease is over (duty 6 of `coopgroup.session`).

What is checked after every event stands in `group_checkers`.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count

import attrs

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.leader import Lags, TopicMetadata, read_members
from coopgroup.member import ErrorCode, MemberConfig, MemberState, new_member
from coopgroup.member.effects import (
    CancelJoin,
    FailMember,
    FinishCommit,
    GrantResources,
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
    LeaveRequested,
    LossHandled,
    Offset,
    RejoinRequested,
    RequestFailed,
    RevocationCompleted,
    SubscriptionChanged,
    Woken,
)
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import (
    Answer,
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    JoinGroupRequest,
)
from coopgroup.model.resource_set import Resource
from coopgroup.policies import SimplePolicy
from coopgroup.session import (
    LeadRound,
    RoundLed,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    lead_round,
    session_deadline_ms,
)
from coopgroup.session import step as step_session
from coopgroup.telemetry import RoundRefused
from tests.support.group_coordinator import GroupCoordinator, Token, refusal

NODES = (1, 2, 3)
OUTSIDE = frozenset({MemberState.LEAVING, MemberState.UNSUBSCRIBED})


@attrs.frozen(kw_only=True)
class Faults:
    """How badly things go; all probabilities are per request.

    Attributes:
        lost_request: it never reaches the broker, and the member learns that.
        lost_answer: the broker serves it, and the member learns only that the connection broke.
        delay_ms_max: of a request and of an answer.
        slow_revoke: probability that a revocation takes up to `slow_ms_max`.
        slow_ms_max: for an application and for a leader.
        hasty_revoke: probability that an application reports a revocation as complete when its
            offsets are only asked to be committed.
        late_commit: probability that it commits once more what it has given up.
        no_metadata: probability that a leader gets no metadata in time.
    """

    lost_request: float = 0.0
    lost_answer: float = 0.0
    delay_ms_max: int = 5
    slow_revoke: float = 0.0
    slow_ms_max: int = 400
    hasty_revoke: float = 0.0
    late_commit: float = 0.0
    no_metadata: float = 0.0


CONFIG = MemberConfig(
    group_id="g",
    session_timeout_ms=600,
    rebalance_timeout_ms=1_500,
    heartbeat_interval_ms=150,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
    request_timeout_ms=300,
)


@attrs.define(kw_only=True, eq=False)
class Connection:
    """One connection of a process: the broker serves its requests one at a time.

    Attributes:
        waiting: requests that wait for those before them.
        serving: token of the one that the broker works on.
        free_at_ms: nothing that is sent now arrives before.
    """

    waiting: deque[tuple[Token, GroupRequest]] = attrs.field(factory=deque)
    serving: Token | None = None
    free_at_ms: int = 0


@attrs.define(kw_only=True, eq=False)
class Call:
    """A request on its way.

    Attributes:
        process: whose it is.
        send: the effect.
        connection: that it took.
        answer_lost: whether its answer will not arrive.
    """

    process: "Process"
    send: Send
    connection: Connection
    answer_lost: bool


@attrs.define(kw_only=True, eq=False)
class Process:
    """A session with an application.

    Attributes:
        name: for messages; the static id of a static member.
        topics: what it subscribes to.
        session: the session.
        alive: False once it crashed or closed for good.
        paused: whether it is frozen.
        inbox: what happened while it was frozen.
        working: what the application works on.
        positions: next record of each.
        app_queue: callbacks to run.
        app_busy: whether one is running.
        calls: requests on their way, by request id.
        lanes: its connections.
        commits: what to do when a commit ends.
        committing: what each commit that has not ended commits.
        awaited: commits that must end before the next join is sent.
        failed: what the member failed with, "" for nothing.
        revoked: everything that was revoked, with the generation.
        granted: everything that was granted, oldest first.
        wake_number: of the wake-up that is still wanted.
    """

    name: str
    topics: tuple[str, ...]
    session: Session
    alive: bool = True
    paused: bool = False
    inbox: list[SessionEvent] = attrs.field(factory=list)
    working: set[Resource] = attrs.field(factory=set)
    positions: dict[Resource, int] = attrs.field(factory=dict)
    app_queue: deque[Callable[[], None]] = attrs.field(factory=deque)
    app_busy: bool = False
    calls: dict[int, Token] = attrs.field(factory=dict)
    lanes: dict[Lane, Connection] = attrs.field(
        factory=lambda: {lane: Connection() for lane in Lane}
    )
    commits: dict[int, Callable[[], None]] = attrs.field(factory=dict)
    committing: dict[int, set[Resource]] = attrs.field(factory=dict)
    awaited: set[int] = attrs.field(factory=set)
    failed: str = ""
    revoked: list[tuple[int, ResourceSet]] = attrs.field(factory=list)
    granted: list[ResourceSet] = attrs.field(factory=list)
    wake_number: int = 0

    @property
    def is_static(self) -> bool:
        """Whether it has a static id."""
        return self.session.member.config.instance_id is not None

    def hands_out(self, now_ms: int) -> set[Resource]:
        """What the application may hand out records of at this instant."""
        member = self.session.member
        if not self.alive or self.paused or now_ms >= member.hold_until_ms:
            return set()
        return self.working


@attrs.define(kw_only=True, eq=False)
class GroupHarness:
    """A group in virtual time.

    Attributes:
        seed: of everything that happens by chance.
        config: of every member.
        faults: how badly things go.
        topics: partition count of what exists.
        sticky: whether leaders use the sticky assignor, else the lag-aware one.
        check: called after every event.
    """

    seed: int = 0
    config: MemberConfig = CONFIG
    faults: Faults = attrs.field(factory=Faults)
    topics: dict[str, int] = attrs.field(factory=lambda: {"T": 4})
    sticky: bool = True
    check: Callable[["GroupHarness"], None] = attrs.field(default=lambda _: None)
    now_ms: int = 1_000
    coordinator: GroupCoordinator = attrs.field(factory=GroupCoordinator)
    node: int = 1
    down_until_ms: int = 0
    processes: list[Process] = attrs.field(factory=list)
    calls: dict[Token, Call] = attrs.field(factory=dict)
    keeps: dict[tuple[int, str], dict[str, ResourceSet]] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)
    chance: random.Random = attrs.field(init=False)
    _collects_at_ms: int = 0
    _queue: list[tuple[int, int, Callable[[], None]]] = attrs.field(factory=list)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1))

    def __attrs_post_init__(self) -> None:
        """Seed the dice."""
        self.chance = random.Random(self.seed)

    # --- what a test does ----------------------------------------------------------------------

    def start(
        self, name: str, topics: tuple[str, ...] = ("T",), *, static: bool = False
    ) -> Process:
        """Start a process that subscribes."""
        config = attrs.evolve(self.config, instance_id=name if static else None)
        process = Process(name=name, topics=topics, session=Session(member=new_member(config)))
        self.processes.append(process)
        self.note(process, "starts")
        self.give(process, SubscriptionChanged(topics=topics))
        self._commit_often(process)
        return process

    def crash(self, process: Process) -> None:
        """Kill a process: what it sent and what has not arrived is gone."""
        self.note(process, "crashes")
        process.alive = False
        for token in tuple(process.calls.values()):
            self._drop(token)

    def bounce(self, process: Process, down_ms: int) -> None:
        """Kill a process and start it again later, with the same static id if it has one."""
        if not process.alive:
            return
        self.crash(process)
        self.later(down_ms, lambda: self._start_again(process))

    def leave(self, process: Process) -> None:
        """Close a consumer: it stops, commits what it can, and leaves."""
        if process.paused or process.session.member.state in OUTSIDE:
            return
        self.note(process, "leaves")
        process.working.clear()
        process.app_queue.clear()
        self.give(process, LeaveRequested(reason="closed"))

    def stall(self, process: Process) -> None:
        """Let the application exceed `max.poll.interval.ms`."""
        if process.paused:
            return
        self.note(process, "stalls")
        self.give(process, ApplicationStalled())

    def pause(self, process: Process) -> None:
        """SIGSTOP."""
        self.note(process, "pauses")
        process.paused = True

    def resume(self, process: Process) -> None:
        """SIGCONT: the clock has gone on, and what arrived meanwhile waits in the inbox."""
        if not process.paused:
            return
        self.note(process, "resumes")
        process.paused = False
        self._checked()
        inbox, process.inbox = process.inbox, []
        for event in (Woken(), *inbox):
            self.give(process, event)

    def move_coordinator(self, node: int, down_ms: int = 0) -> None:
        """Another broker takes the group over; after `down_ms`, if the old one died."""
        self.log.append(f"{self.now_ms} coordinator {self.node} -> {node}, down {down_ms}")
        self.down_until_ms = max(self.down_until_ms, self.now_ms + down_ms)
        waiting = self.coordinator.fail_over(self.down_until_ms)
        self.node = node
        for token in waiting:
            call = self.calls.get(token)
            if call is not None and not down_ms:
                self._reply(token, refusal(call.send.request, ErrorCode.NOT_COORDINATOR))
        if down_ms:
            for token in tuple(self.calls):
                self._fail(token)

    def change_metadata(self, topics: dict[str, int]) -> None:
        """Topics and partitions appear or vanish; everybody notices a little later."""
        self.log.append(f"{self.now_ms} metadata {topics}")
        self.topics = topics
        event = RejoinRequested(reason="metadata changed")
        for process in self.processes:
            self.later(self.chance.randint(1, 50), partial(self.give, process, event))

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end:
            at_ms, _, action = heapq.heappop(self._queue)
            self.now_ms = at_ms
            action()
            self._collect()
        self.now_ms = end
        self._collect()

    def heal(self) -> None:
        """No more faults; who is frozen goes on."""
        self.log.append(f"{self.now_ms} heals")
        self.faults = Faults()
        for process in self.processes:
            if process.alive and process.paused:
                self.resume(process)

    @property
    def alive(self) -> list[Process]:
        """Processes that live."""
        return [process for process in self.processes if process.alive]

    def note(self, process: Process, text: str) -> None:
        """Write a line of the run's story."""
        self.log.append(f"{self.now_ms} {process.name}: {text}")

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run something at a later time."""
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), action))

    # --- a process -----------------------------------------------------------------------------

    def give(self, process: Process, event: SessionEvent) -> None:
        """Give an event to a session and carry out what it asks for."""
        if not process.alive:
            return
        if process.paused:
            process.inbox.append(event)
            return
        process.session, effects = step_session(process.session, event, now_ms=self.now_ms)
        for effect in effects:
            self._carry_out(process, effect)
        self._schedule(process)
        self._checked()

    def _carry_out(self, process: Process, effect: SessionEffect) -> None:
        match effect:
            case Send():
                self._send(process, effect)
            case CancelJoin():
                self._close(process, Lane.JOIN)
            case LeadRound():
                self._lead(process, effect)
            case FinishCommit():
                process.awaited.discard(effect.commit_id)
                process.committing.pop(effect.commit_id, None)
                process.commits.pop(effect.commit_id, lambda: None)()
            case FailMember():
                process.failed = effect.message
                if effect.code == ErrorCode.FENCED_INSTANCE_ID and process.is_static:
                    # A failover can forget the newest id of a static member: it starts again.
                    self.later(1, lambda: self.bounce(process, 50))
            case Report():
                self.note(process, f"{process.session.member.generation} {effect.record}")
            case _:
                self._tell_application(process, effect)

    def _start_again(self, process: Process) -> None:
        self.start(process.name, process.topics, static=process.is_static)

    def _schedule(self, process: Process) -> None:
        deadline = session_deadline_ms(process.session)
        if deadline is None:
            return
        assert deadline > self.now_ms, f"{process.name} is woken for nothing"
        jitter = self.chance.randint(0, 10) if backing_off(process.session) else 0
        process.wake_number = number = next(self._numbers)

        def wake() -> None:
            if process.wake_number == number:
                self.give(process, Woken())

        self.later(deadline + jitter - self.now_ms, wake)

    def _lead(self, process: Process, duty: LeadRound) -> None:
        request = read_members(duty.members)
        existing = ResourceSet({name: range(size) for name, size in self.topics.items()})
        known = self.chance.random() >= self.faults.no_metadata
        metadata = TopicMetadata(resources=existing.restrict_names(request.topics))
        lags = Lags.from_mapping(
            {name: {i: 1_000 // (i + 1) for i in range(size)} for name, size in self.topics.items()}
        )
        led = lead_round(
            duty,
            request,
            metadata if known else None,
            lags,
            assignor=StickyAssignor() if self.sticky else LagAwareAssignor(),
            policy=SimplePolicy(),
        )
        for record in led.led.records:
            assert not isinstance(record, RoundRefused) or not known, record
        slow = self.chance.random() < self.faults.slow_revoke
        delay = self.chance.randint(1, self.faults.slow_ms_max if slow else 10)
        self.later(delay, lambda: self._decided(process, led))

    def _decided(self, process: Process, led: RoundLed) -> None:
        decided = led.led.decided
        rightful = decided.group.by_member(decided.group.owner)
        target = decided.group.by_member(decided.plan.target)
        self.keeps[led.generation, process.session.member.member_id] = {
            member: mine & wanted
            for member, mine, wanted in zip(decided.group.member_ids, rightful, target, strict=True)
        }
        self.give(process, led)
        if led.led.refused:
            again = RejoinRequested(reason="the last round moved nothing")
            self.later(200, lambda: self.give(process, again))

    # --- its application -----------------------------------------------------------------------

    def _tell_application(
        self, process: Process, effect: GrantResources | RevokeResources | LoseResources
    ) -> None:
        resources = set(effect.resources)
        self.note(process, f"{type(effect).__name__} {effect.resources.to_dict()}")
        match effect:
            case GrantResources():
                process.granted.append(effect.resources)
                self._call(process, lambda: self._begin_work(process, resources))
            case RevokeResources():
                member = process.session.member
                process.revoked.append((member.generation, effect.resources))
                self._call(process, lambda: self._stop_work(process, effect.resources))
            case LoseResources():
                process.working.clear()
                process.app_queue.clear()
                self._call(process, lambda: self._lost(process))

    def _call(self, process: Process, callback: Callable[[], None]) -> None:
        process.app_queue.append(callback)
        if not process.app_busy:
            process.app_busy = True
            self.later(self.chance.randint(1, 10), lambda: self._next_callback(process))

    def _next_callback(self, process: Process) -> None:
        if process.paused:  # the application is frozen as well
            self.later(10, lambda: self._next_callback(process))
        elif process.app_queue:
            process.app_queue.popleft()()
        else:
            process.app_busy = False

    def _begin_work(self, process: Process, resources: set[Resource]) -> None:
        process.working |= resources
        for resource in resources:
            process.positions[resource] = self.coordinator.committed.get(
                (resource.name, resource.index), 0
            )
        self._checked()
        self._next_callback(process)

    def _stop_work(self, process: Process, resources: ResourceSet) -> None:
        process.working -= set(resources)
        slow = self.chance.random() < self.faults.slow_revoke
        delay = self.chance.randint(1, self.faults.slow_ms_max if slow else 10)

        def stopped() -> None:
            if process.session.member.state is MemberState.REVOKING:
                process.awaited |= {
                    commit_id
                    for commit_id, commits in process.committing.items()
                    if not commits.isdisjoint(resources)
                }
            if process.session.member.state not in OUTSIDE:
                self.give(process, RevocationCompleted(resources=resources))
            self._commit_late(process, resources)
            self._next_callback(process)

        def flush() -> None:
            if process.paused:
                self.later(10, flush)
            elif self.chance.random() < self.faults.hasty_revoke:
                self._commit(process, sorted(resources), lambda: None)
                stopped()
            else:
                self._commit(process, sorted(resources), stopped)

        self.later(delay, flush)

    def _commit_late(self, process: Process, resources: ResourceSet) -> None:
        if self.chance.random() >= self.faults.late_commit:
            return
        offsets = tuple(Offset(r.name, r.index, process.positions[r]) for r in sorted(resources))
        event = CommitRequested(commit_id=next(self._numbers), offsets=offsets)
        grants_before = len(process.granted)

        def give() -> None:
            # Once it has them again, an old offset would be the application's own step back.
            if not any(resources & granted for granted in process.granted[grants_before:]):
                self.give(process, event)

        self.later(self.chance.randint(0, 400), give)

    def _lost(self, process: Process) -> None:
        if process.session.member.state is MemberState.LOSING:
            self.give(process, LossHandled())
        self._next_callback(process)

    def _commit_often(self, process: Process) -> None:
        if not process.alive:
            return
        handed_out = process.hands_out(self.now_ms)
        for resource in handed_out:
            process.positions[resource] += self.chance.randint(0, 9)
        if handed_out:
            self._commit(process, sorted(handed_out), lambda: None)
        self.later(self.chance.randint(50, 150), lambda: self._commit_often(process))

    def _commit(
        self, process: Process, resources: list[Resource], then: Callable[[], None]
    ) -> None:
        commit_id = next(self._numbers)
        process.commits[commit_id] = then
        process.committing[commit_id] = set(resources)
        offsets = tuple(Offset(r.name, r.index, process.positions[r]) for r in resources)
        self.give(process, CommitRequested(commit_id=commit_id, offsets=offsets))

    # --- the network ---------------------------------------------------------------------------

    def _send(self, process: Process, send: Send) -> None:
        if isinstance(send.request, JoinGroupRequest):
            assert not process.awaited, f"{process.name} joins before its last commits have ended"
        token = next(self._numbers)
        connection = process.lanes[send.lane]
        call = Call(
            process=process,
            send=send,
            connection=connection,
            answer_lost=self.chance.random() < self.faults.lost_answer,
        )
        self.calls[token] = call
        process.calls[send.request_id] = token
        arrives = max(self.now_ms + self._delay(), connection.free_at_ms)
        connection.free_at_ms = arrives
        lost = self.chance.random() < self.faults.lost_request
        action = self._fail if lost else self._arrive
        self.later(arrives - self.now_ms, lambda: action(token))
        self.later(send.timeout_ms, lambda: self._fail(token))

    def _delay(self) -> int:
        return self.chance.randint(1, self.faults.delay_ms_max)

    def _arrive(self, token: Token) -> None:
        call = self.calls.get(token)
        if call is None:
            return
        if call.connection.serving in self.calls:
            call.connection.waiting.append((token, call.send.request))
            return
        call.connection.serving = token
        self._serve(token, call)

    def _serve(self, token: Token, call: Call) -> None:
        request, to = call.send.request, call.send.coordinator
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(node_id=self.node, host="localhost", port=9000 + self.node)
            up = self.now_ms >= self.down_until_ms
            answer = FindCoordinatorAnswer(error_code=0, error_message="", coordinator=found)
            not_up = refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._reply(token, answer if up else not_up)
        elif self.now_ms < self.down_until_ms:
            self._fail(token)
        elif to is None or to.node_id != self.node:
            self._reply(token, refusal(request, ErrorCode.NOT_COORDINATOR))
        else:
            self.coordinator.receive(token, request, self.now_ms)

    def _collect(self) -> None:
        """Send the coordinator's answers off, and wake it for what ends by itself."""
        if self.now_ms >= self.down_until_ms:
            self.coordinator.advance(self.now_ms)
        outbox, self.coordinator.outbox = self.coordinator.outbox, []
        for token, answer in outbox:
            self._reply(token, answer)
        deadline = self.coordinator.deadline_ms()
        if deadline is not None and deadline > self.now_ms and deadline != self._collects_at_ms:
            self._collects_at_ms = deadline
            self.later(deadline - self.now_ms, lambda: None)

    def _reply(self, token: Token, answer: Answer) -> None:
        call = self.calls.get(token)
        if call is None:
            return
        if call.answer_lost:
            self.later(self._delay(), lambda: self._fail(token))
        else:
            self.later(self._delay(), lambda: self._deliver(token, answer))

    def _deliver(self, token: Token, answer: Answer) -> None:
        call = self._drop(token)
        if call is not None:
            event = Answered(request_id=call.send.request_id, answer=answer)
            self.give(call.process, event)

    def _fail(self, token: Token) -> None:
        call = self._drop(token)
        if call is not None:
            failed = RequestFailed(
                request_id=call.send.request_id,
                code=ErrorCode.NO_ANSWER,
                message="connection lost",
            )
            self.give(call.process, failed)

    def _close(self, process: Process, lane: Lane) -> None:
        for token, call in tuple(self.calls.items()):
            if call.process is process and call.send.lane is lane:
                self.later(1, partial(self._fail, token))
                call.answer_lost = True
        process.lanes[lane] = Connection()

    def _drop(self, token: Token) -> Call | None:
        """Take a call off the list; the next one of its connection is served."""
        call = self.calls.pop(token, None)
        if call is None:
            return None
        call.process.calls.pop(call.send.request_id, None)
        if call.connection.serving == token and call.connection.waiting:
            following, _ = call.connection.waiting.popleft()
            self.later(0, lambda: self._arrive(following))
        return call

    def _checked(self) -> None:
        self.check(self)
