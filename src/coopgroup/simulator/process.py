"""`Process`: one life of a process, with a session, an application and its own clock.

It fulfils the duties of a host that `coopgroup.session` lists. A paused process handles no events:
messages and timers wait until it resumes. After the pause the session is woken first, and then it
receives the events that waited.
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
    """The topics and partitions that a leader knew when it last led or checked the group.

    Attributes:
        topics: names that the group subscribed to.
        partitions: existing partitions of these topics.
    """

    topics: tuple[str, ...] = ()
    partitions: ResourceSet = EMPTY


@define(kw_only=True, eq=False)
class Process:
    """A process.

    Attributes:
        world: the world.
        network: its connections to the brokers.
        brokers: tell a leader which partitions exist.
        habits: of all processes.
        name: the same in all lives.
        config: of its member.
        topics: subscribed topics.
        skew_ppm: how much its clock runs fast, in millionths.
        kept: identity from its former life, or None.
        seen: knowledge as a leader, initially from its former life, or None.
        application: set right after creation, because both objects refer to each other.
        session: the session.
        alive: False once it crashed or ended.
        paused: whether the process is paused.
        withheld: whether it stops working because its resources may have a new owner.
        failed: error message of a failed member, "" otherwise.
        on_failure: called with an error that no retry can repair.
        on_end: called when this life ends.
        on_keep: called with data for the next life: the identity, and the knowledge of a leader
            (None for a follower).
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
    # The answer that made it leader again without a round, until its assignment arrives.
    _returned: JoinGroupAnswer | None = None
    # Member id and generation, if it leads a generation whose round it did not decide.
    _leads_as: tuple[str, int] | None = None

    def __attrs_post_init__(self) -> None:
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
        """Whether its member knows itself as the leader, possibly since an earlier life."""
        member = self.session.member
        here = (member.member_id, member.generation)
        return self.session.policy_state is not None or self._leads_as == here

    @property
    def is_static(self) -> bool:
        """Whether it has a static id."""
        return self.config.instance_id is not None

    @property
    def identity(self) -> Identity:
        """How its next life proves its identity."""
        if self.is_static:
            return Identity.STATIC
        return Identity.STATE_DIR if self.config.keeps_identity else Identity.NONE

    @property
    def is_at_rest(self) -> bool:
        """Whether the process does nothing until an outside event."""
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
        """Start the application, subscribe and join."""
        instance_id = self.config.instance_id or ""
        self.write(ProcessStarted(instance_id=instance_id, topics=self.topics))
        self.application.start()
        self.give(SubscriptionChanged(topics=self.topics))
        if self._leads_as is not None:
            self.notice()  # changes during its absence

    def close(self) -> None:
        """Close the consumer: stop, commit, leave, end."""
        if self.alive and not self.application.closing:
            if self.paused:
                self._backlog.append((self.application.close, ()))
            else:
                self.application.close()

    def crash(self) -> None:
        """End without stopping or committing."""
        if self.alive:
            self.application.freeze()
            self._end(EndCause.CRASHED)

    def stall(self) -> None:
        """Report that the application does not poll in time."""
        self.give(ApplicationStalled())

    def pause(self) -> None:
        """Pause the process."""
        if self.alive and not self.paused:
            self.paused = True
            if not self.withheld:
                self._stand_still()

    def resume(self) -> None:
        """Resume the process and handle the events that waited."""
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
        """Duty 6: pause work if the resources may have a new owner, until an answer arrives."""
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
        """Schedule an action; it waits during a pause and is dropped after the end."""
        self.world.later(delay_ms, self._run, action, arguments)

    def _run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.paused:
            self._backlog.append((action, arguments))
        else:
            action(*arguments)

    def give(self, event: SessionEvent) -> None:
        """Pass an event to the session and execute its effects."""
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
        """Write a telemetry record."""
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
        """Return the first world time at which the process's clock shows `clock_ms` or more."""
        if not self.skew_ppm:
            return clock_ms
        world_ms = clock_ms * _MILLION // (_MILLION + self.skew_ppm) - 1
        while world_ms + world_ms * self.skew_ppm // _MILLION < clock_ms:
            world_ms += 1
        return world_ms

    def _wake_in_time(self) -> None:
        """Schedule the wake-up of the session; only the earliest timer is kept."""
        deadline_ms, member = session_deadline_ms(self.session), self.session.member
        if deadline_ms is None:
            self._deadline_ms = None
            return
        due_ms = self._world_ms(deadline_ms)
        if backing_off(self.session):
            due_ms += between(self.world.dice("jitter"), 0, self.habits.jitter_ms)
        if member.owned:  # retries never extend the time to hold
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
        else:  # postponed in the meantime
            self._wake_in_time()

    # --- its duty as a leader ------------------------------------------------------------------

    def _hear_of_lead(self, answer: JoinGroupAnswer) -> None:
        leads = answer.skip_assignment and answer.leader_id == answer.member_id
        self._returned = answer if leads else None
        if leads:
            self._leads_as = (answer.member_id, answer.generation)

    def _look_over(self, answer: JoinGroupAnswer) -> None:
        """Watch the topics of a group whose round needed no decision (KIP-814)."""
        topics = read_members(answer.members, index_min=self.config.index_min).topics
        self.seen = Seen(topics=topics, partitions=self.brokers.existing().restrict_names(topics))
        if resources_digest(self.seen.partitions) != self.session.member.shared_digest:
            self.seen = Seen(topics=topics)  # changes during its absence
            self.notice()

    def _lead(self, duty: LeadRound) -> None:
        """Duty 4: look up the partitions now, and deliver the decision a while later."""
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
            self.notice()  # changes during the decision

    def _check_lags(self, duty: CheckLags) -> None:
        """Duty 4: check the lags now, and deliver the result a while later."""
        world, span = self.world, self.habits.lead_ms
        lags = self.application.load.lags(duty.resources, world.now_ms)
        checked = check_lags(duty, lags, assignor=self.habits.assignor)
        self.later(world.dice("leader").randint(span.low, span.high), self.give, checked)

    def _check_round(self, led: RoundLed) -> None:
        """Report a round that takes a resource from its rightful owner; no record shows this."""
        for record in led.led.records:
            if isinstance(record, RoundRefused):
                self.world.object_to("leader", f"{self.name}: {'; '.join(record.violations)}")
        group, plan = led.led.decided.group, led.led.decided.plan
        stays = (group.owner == plan.target) & (group.owner != NOBODY) & group.assignable
        if plan.stopping is not None:  # revoked before the current target was chosen
            stays[group.claim_resources[plan.stopping]] = False
        taken = stays & (plan.assigned != group.owner)
        if taken.any():
            resources = group.resources.take(taken).to_dict()
            self.world.object_to("retained", f"{self.name} takes {resources} from their owners")

    def notice(self) -> None:
        """Handle changed partitions: a leader notices them a little later."""
        span = self.habits.notice_ms
        delay_ms = self.world.dice("notices").randint(span.low, span.high)
        self.later(delay_ms, self._compare)

    def _compare(self) -> None:
        changed = self._changed() if self.leads else None
        if changed is not None:
            self.seen = changed
            self.give(RejoinRequested(reason="partitions changed"))

    def _changed(self) -> Seen | None:
        """Return the current partitions, or None if they have not changed."""
        if self.seen is None:
            return None
        found = self.brokers.existing().restrict_names(self.seen.topics)
        if found == self.seen.partitions:
            return None
        return Seen(topics=self.seen.topics, partitions=found)
