"""`Process`: one life of a process: a session, its application, a clock of its own.

Rules of this file: the duties of a host stand in `coopgroup.session`, and this is one. A process
that is paused takes nothing: what arrives meanwhile waits, and its own timers with it. When it goes
on, the clock comes first: the session is woken before it hears what waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from coopgroup.errors import LocalProtocolError
from coopgroup.leader import TopicMetadata, read_members
from coopgroup.member import MemberState, new_member
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
    RejoinRequested,
    SubscriptionChanged,
    Woken,
)
from coopgroup.member.transitions import SETTLED
from coopgroup.model import EMPTY, NOBODY, ResourceSet
from coopgroup.model.group_api import JoinGroupAnswer
from coopgroup.protocol.notes import resources_digest
from coopgroup.session import (
    CheckLags,
    LeadRound,
    RoundLed,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    check_lags,
    lead_round,
    session_deadline_ms,
    with_rate,
)
from coopgroup.session import step as step_session
from coopgroup.simulator.application import Application
from coopgroup.simulator.drawing import between
from coopgroup.simulator.habits import Habits
from coopgroup.simulator.scenario import Identity
from coopgroup.telemetry import (
    EndCause,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    RoundRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.member import MemberConfig
    from coopgroup.member.kept_identity import KeptIdentity
    from coopgroup.simulator.brokers import Brokers
    from coopgroup.simulator.network import Network
    from coopgroup.simulator.world import World
    from coopgroup.telemetry import Record

__all__ = ["Habits", "Process", "Seen"]

_OUTSIDE = frozenset({MemberState.UNSUBSCRIBED, MemberState.FAILED})
_MILLION = 1_000_000


@frozen(kw_only=True)
class Seen:
    """What a leader saw when it led, or looked over a group that it leads again.

    Attributes:
        topics: names that the group subscribed to.
        partitions: what existed of them.
    """

    topics: tuple[str, ...] = ()
    partitions: ResourceSet = EMPTY


@define(kw_only=True, eq=False)
class Process:
    """A process.

    Attributes:
        world: the world.
        network: its way to the brokers.
        brokers: of which a leader learns what exists.
        habits: of all processes.
        name: which stays the same over its lives.
        config: of its member.
        topics: what it subscribes to.
        skew_ppm: by how much its clock runs fast, in millionths.
        kept: who it was in its life before, None where that is not known.
        seen: what it saw as a leader, in its life before at first, None for nothing.
        application: set right after it is made, for each knows the other.
        session: the session.
        alive: False once it crashed or ended.
        paused: whether it stands still.
        withheld: whether it does no work because what it holds may be another's by now.
        failed: what its member failed with, "" for nothing.
        on_failure: called with the error that no retry mends.
        on_end: called when its life is over.
        on_keep: called with what is to be kept for the next life: who it is, and what it saw if it
            leads, None for nothing.
    """

    world: World
    network: Network
    brokers: Brokers
    habits: Habits
    name: str
    config: MemberConfig
    topics: tuple[str, ...]
    skew_ppm: int = 0
    kept: KeptIdentity | None = None
    seen: Seen | None = None
    application: Application = field(init=False)
    session: Session = field(init=False)
    alive: bool = True
    paused: bool = False
    withheld: bool = False
    failed: str = ""
    on_failure: Callable[[Process, int], None] = field(default=lambda *_: None)
    on_end: Callable[[], None] = field(default=lambda: None)
    on_keep: Callable[[KeptIdentity | None, Seen | None], None] = field(default=lambda *_: None)
    _backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(factory=list)
    _deadline_ms: int | None = None
    _wakes_at_ms: int | None = None
    _wake_number: int = 0
    # What told it that it leads again without a round, until it has its assignment.
    _returned: JoinGroupAnswer | None = None
    # Member id and generation in which it leads though it decided no round of that.
    _leads_as: tuple[str, int] | None = None

    def __attrs_post_init__(self) -> None:
        """Make the session."""
        self.session = Session(member=new_member(self.config, self.kept))
        if self.kept is not None and self.seen is not None:
            self._leads_as = (self.kept.member_id, self.kept.generation)

    # --- questions -----------------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        """State of its member."""
        return self.session.member.state

    @property
    def leads(self) -> bool:
        """Whether its member leads its group as far as it knows, be it since an earlier life."""
        member = self.session.member
        here = (member.member_id, member.generation)
        return self.session.policy_state is not None or self._leads_as == here

    @property
    def is_static(self) -> bool:
        """Whether it has a static id."""
        return self.config.instance_id is not None

    @property
    def identity(self) -> Identity:
        """By what its next life proves who it was."""
        if self.is_static:
            return Identity.STATIC
        return Identity.STATE_DIR if self.config.keeps_identity else Identity.NONE

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be expected of it, as long as nothing happens."""
        member = self.session.member
        return (
            member.state is MemberState.STABLE
            and member.scheduled_rejoin_ms is None
            and not self.paused
            and self.application.working == member.owned
            and not self.application.stopping
        )

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: subscribe and join."""
        instance_id = self.config.instance_id or ""
        self.write(ProcessStarted(instance_id=instance_id, topics=self.topics))
        self.application.start()
        self.give(SubscriptionChanged(topics=self.topics))
        if self._leads_as is not None:
            self.notice()  # what changed while it was away

    def close(self) -> None:
        """Close the consumer: stop, commit, leave, end."""
        if self.alive and not self.application.closing:
            if self.paused:
                self._backlog.append((self.application.close, ()))
            else:
                self.application.close()

    def crash(self) -> None:
        """Die at once."""
        if self.alive:
            self.application.freeze()
            self._end(EndCause.CRASHED)

    def stall(self) -> None:
        """The application does not poll in time."""
        self.give(ApplicationStalled())

    def pause(self) -> None:
        """Stand still."""
        if self.alive and not self.paused:
            self.paused = True
            if not self.withheld:
                self._stand_still()

    def resume(self) -> None:
        """Go on."""
        if not self.alive or not self.paused:
            return
        self.paused = False
        if not self.withheld:
            self._go_on()
        self._wakes_at_ms = None
        backlog, self._backlog = self._backlog, []
        self.give(Woken())
        for action, arguments in backlog:
            self._run(action, arguments)

    def _stand_still(self) -> None:
        self.application.freeze()
        self.write(ProcessPaused())

    def _go_on(self) -> None:
        self.application.thaw()
        self.write(ProcessResumed())

    def _withhold(self) -> None:
        """Duty 6: do no work on what may be another's; an answer may say that it is not."""
        member, before = self.session.member, self.withheld
        self.withheld = bool(member.owned) and self._clock_ms() >= member.hold_until_ms
        if self.withheld is not before:
            (self._stand_still if self.withheld else self._go_on)()

    def _end(self, cause: EndCause) -> None:
        self.alive = False
        self._backlog.clear()
        self.network.forget(self)
        self.write(ProcessEnded(cause=cause))
        self.on_end()

    # --- what happens to it --------------------------------------------------------------------

    def later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - any action
        """Run something of the process itself after a time, if it lives and is not paused then."""
        self.world.later(delay_ms, self._run, action, arguments)

    def _run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.paused:
            self._backlog.append((action, arguments))
        else:
            action(*arguments)

    def give(self, event: SessionEvent) -> None:
        """Give an event to the session and carry out what it asks for."""
        if not self.alive:
            return
        if self.paused:
            self._backlog.append((self.give, (event,)))
            return
        try:
            session = with_rate(self.session, self.application.rate_per_s)
            self.session, effects = step_session(session, event, now_ms=self._clock_ms())
        except LocalProtocolError as error:
            self.world.object_to("host", f"{self.name}: {error}")
            return
        if isinstance(event, Answered) and isinstance(event.answer, JoinGroupAnswer):
            self._hear_of_lead(event.answer)
        self._withhold()
        for effect in effects:
            self._carry_out(effect)
        if self.application.closing and self.state in _OUTSIDE:
            if self.alive:
                self._end(EndCause.CLOSED)
        else:
            self._wake_in_time()
        if self._returned is not None and self.state in SETTLED:
            answer, self._returned = self._returned, None
            self._look_over(answer)

    def write(self, record: Record) -> None:
        """Write a record down."""
        member = self.session.member
        self.world.write(
            record, client=self.name, member=member.member_id, generation=member.generation
        )

    def _carry_out(self, effect: SessionEffect) -> None:
        match effect:
            case Send():
                self.network.send(self, effect)
            case Report():
                self.write(effect.record)
            case FinishCommit():
                self.application.finish_commit(effect)
            case CancelJoin():
                self.network.close_lane(self, Lane.JOIN)
            case LeadRound():
                self._lead(effect)
            case CheckLags():
                self._check_lags(effect)
            case KeepIdentity():
                self.on_keep(effect.identity, self.seen if self.leads else None)
            case _:
                self._tell_application(effect)

    def _tell_application(
        self, effect: GrantResources | RevokeResources | LoseResources | FailMember
    ) -> None:
        match effect:
            case GrantResources():
                self.application.grant(effect.resources)
            case RevokeResources():
                self.application.revoke(effect.resources)
            case LoseResources():
                self.application.lose()
            case FailMember():
                self.failed = effect.message
                self.on_failure(self, effect.code)

    # --- its clock -----------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        now_ms = self.world.now_ms
        return now_ms + now_ms * self.skew_ppm // _MILLION if self.skew_ppm else now_ms

    def _world_ms(self, clock_ms: int) -> int:
        """The first instant in which the process's clock shows that time, or a later one."""
        if not self.skew_ppm:
            return clock_ms
        world_ms = clock_ms * _MILLION // (_MILLION + self.skew_ppm) - 1
        while world_ms + world_ms * self.skew_ppm // _MILLION < clock_ms:
            world_ms += 1
        return world_ms

    def _wake_in_time(self) -> None:
        """Wake the session when it wants to be; one timer is set at most, the earliest."""
        deadline_ms, member = session_deadline_ms(self.session), self.session.member
        if deadline_ms is None:
            self._deadline_ms = None
            return
        due_ms = self._world_ms(deadline_ms)
        if backing_off(self.session):
            due_ms += between(self.world.dice("jitter"), 0, self.habits.jitter_ms)
        if member.owned:  # its time to hold that ends when it ends, whatever is tried again
            end_ms = member.lost_at_ms if self.withheld else member.hold_until_ms
            deadline_ms, due_ms = min(deadline_ms, end_ms), min(due_ms, self._world_ms(end_ms))
        self._deadline_ms = deadline_ms
        if due_ms <= self.world.now_ms:
            self.world.object_to(
                "host", f"{self.name} wants to be woken at {deadline_ms}, now over"
            )
            due_ms = self.world.now_ms + 1
        if self._wakes_at_ms is None or due_ms < self._wakes_at_ms:
            self._wakes_at_ms = due_ms
            self._wake_number += 1
            self.world.at(due_ms, self._wake, self._wake_number)

    def _wake(self, number: int) -> None:
        if number != self._wake_number or not self.alive or self.paused:
            return
        self._wakes_at_ms = None
        deadline_ms = self._deadline_ms
        if deadline_ms is not None and deadline_ms <= self._clock_ms():
            self.give(Woken())
        else:  # it has been put off meanwhile
            self._wake_in_time()

    # --- its duty as a leader ------------------------------------------------------------------

    def _hear_of_lead(self, answer: JoinGroupAnswer) -> None:
        leads = answer.skip_assignment and answer.leader_id == answer.member_id
        self._returned = answer if leads else None
        if leads:
            self._leads_as = (answer.member_id, answer.generation)

    def _look_over(self, answer: JoinGroupAnswer) -> None:
        """Look after the topics of a group whose round needed no decision (KIP-814)."""
        topics = read_members(answer.members, index_min=self.config.index_min).topics
        self.seen = Seen(topics=topics, partitions=self.brokers.existing().restrict_names(topics))
        if resources_digest(self.seen.partitions) != self.session.member.shared_digest:
            self.seen = Seen(topics=topics)  # something changed while it was away
            self.notice()

    def _lead(self, duty: LeadRound) -> None:
        """Duty 4: decide the round, a while later; what exists is looked up now."""
        world, habits = self.world, self.habits
        dice = world.dice("leader")
        request = read_members(duty.members, index_min=self.config.index_min)
        found = self.brokers.existing().restrict_names(request.topics)
        known = not habits.no_metadata or dice.random() >= habits.no_metadata
        lags = None
        if habits.assignor.needs_lags:
            lags = self.application.load.lags(found, world.now_ms)
        led = lead_round(
            duty,
            request,
            TopicMetadata(resources=found) if known else None,
            lags,
            assignor=habits.assignor,
            policy=habits.policy,
        )
        if known:
            self.seen = Seen(topics=request.topics, partitions=found)
            self._check_round(led)
        self.later(dice.randint(habits.lead_ms.low, habits.lead_ms.high), self._decided, led)

    def _decided(self, led: RoundLed) -> None:
        self.give(led)
        if led.led.refused:
            again = RejoinRequested(reason="the last round moved nothing")
            self.later(self.habits.retry_ms, self.give, again)
        if self._changed() is not None:
            self.notice()  # while the round was being decided

    def _check_lags(self, duty: CheckLags) -> None:
        """Duty 4, too: look at the lags; what it comes to is known a while later."""
        world, span = self.world, self.habits.lead_ms
        lags = self.application.load.lags(duty.resources, world.now_ms)
        checked = check_lags(duty, lags, assignor=self.habits.assignor)
        self.later(world.dice("leader").randint(span.low, span.high), self.give, checked)

    def _check_round(self, led: RoundLed) -> None:
        """What no record shows: a sound round takes nothing from an owner that is to keep it."""
        for record in led.led.records:
            if isinstance(record, RoundRefused):
                self.world.object_to("leader", f"{self.name}: {'; '.join(record.violations)}")
        group, plan = led.led.decided.group, led.led.decided.plan
        stays = (group.owner == plan.target) & (group.owner != NOBODY) & group.assignable
        if plan.stopping is not None:  # told to stop before the target was what it is now
            stays[group.claim_resources[plan.stopping]] = False
        taken = stays & (plan.assigned != group.owner)
        if taken.any():
            resources = group.resources.take(taken).to_dict()
            self.world.object_to("retained", f"{self.name} takes {resources} from their owners")

    def notice(self) -> None:
        """Partitions changed; a leader notices it a little later."""
        span = self.habits.notice_ms
        delay_ms = self.world.dice("notices").randint(span.low, span.high)
        self.later(delay_ms, self._compare)

    def _compare(self) -> None:
        changed = self._changed() if self.leads else None
        if changed is not None:
            self.seen = changed
            self.give(RejoinRequested(reason="partitions changed"))

    def _changed(self) -> Seen | None:
        """What there is in place of what it saw, None where that is still so."""
        if self.seen is None:
            return None
        found = self.brokers.existing().restrict_names(self.seen.topics)
        if found == self.seen.partitions:
            return None
        return Seen(topics=self.seen.topics, partitions=found)
