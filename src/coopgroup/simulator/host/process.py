"""`Process`: one life of a process, with a session, an application and its own clock.

It fulfils the duties of a host that `coopgroup.core.session` lists. A paused process handles no
events: messages and timers wait until it resumes. After the pause the session is woken first,
and then it receives the events that waited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from attrs import define, field, frozen

from coopgroup.core.leader import RoundRequest, TopicMetadata, read_members
from coopgroup.core.leader.lag_checks import check_lags
from coopgroup.core.leader.rounds import lead_round, needs_round
from coopgroup.core.member import GroupProtocol, KeptIdentity, MemberConfig, MemberState
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
from coopgroup.core.member.events import (
    ApplicationStalled,
    BellRang,
    RejoinRequested,
    SubscriptionChanged,
    WarmSetDeclared,
    Woken,
)
from coopgroup.core.model import EMPTY, NOBODY, GroupSnapshot, ResourceSet, RoundPlan
from coopgroup.core.model.choices import choices_of
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.resource_set import BoolArray
from coopgroup.core.policies.bundles import bundles_of
from coopgroup.core.policies.policy import Policy
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.session import (
    CheckLags,
    DecideRound,
    DecisionMade,
    LookOver,
    RebalanceLags,
    SeenTopics,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    new_session,
    next_round_in_ms,
    session_deadline_ms,
    with_rate,
)
from coopgroup.core.session import step as step_session
from coopgroup.core.telemetry.causes import Cause
from coopgroup.errors import LocalProtocolError
from coopgroup.simulator.host.application import Application
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Identity
from coopgroup.simulator.world import World
from coopgroup.simulator.world.brokers import Brokers
from coopgroup.simulator.world.drawing import between
from coopgroup.simulator.world.network import Network
from coopgroup.telemetry import (
    EndCause,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    Record,
    RoundRefused,
)

_OUTSIDE = frozenset({MemberState.UNSUBSCRIBED, MemberState.FAILED})
_MILLION = 1_000_000
_HAND_OVER_MS = 60_000
_LOOK_MS = 20


@frozen(kw_only=True)
class PastLife:
    """The state directory of a process that ended.

    Attributes:
        seen: topics and partitions that it knew as the leader; None for a follower.
        next_round_in_ms: time until the round that it would have started as leader, in ms, or None.
    """

    identity: KeptIdentity | None = None
    seen: SeenTopics | None = None
    next_round_in_ms: int | None = None


@define(kw_only=True, eq=False)
class Process:
    """A process.

    Attributes:
        skew_ppm: how much its clock runs fast, in millionths.
        seen: knowledge as a leader, initially from its former life, or None.
        withheld: whether it stops working because its resources may have a new owner.
        on_failure: called with an error that no retry can repair.
    """

    world: World
    network: Network
    brokers: Brokers
    run_settings: RunSettings
    name: str
    config: MemberConfig
    topics: tuple[str, ...]
    skew_ppm: int = 0
    past: PastLife = field(factory=PastLife)
    seen: SeenTopics | None = field(init=False)
    application: Application = field(init=False)
    session: Session = field(init=False)
    alive: bool = True
    paused: bool = False
    withheld: bool = False
    failed: str = ""
    on_failure: Callable[[Process, int], None] = field(default=lambda *_: None)
    on_end: Callable[[], None] = field(default=lambda: None)
    on_ring: Callable[[], None] = field(default=lambda: None)
    on_keep: Callable[[PastLife], None] = field(default=lambda _: None)
    _backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(factory=list)
    _deadline_ms: int | None = None
    _wakes_at_ms: int | None = None
    _wake_number: int = 0
    # Lags of the rebalance that it leads, as in the driver's `RoundLeader`.
    _lags: RebalanceLags = field(factory=RebalanceLags)

    def __attrs_post_init__(self) -> None:
        past = self.past
        self.seen = past.seen
        settings = self.run_settings
        self.session = new_session(
            attrs.evolve(self.config, choices=choices_of(settings.policy, settings.assignor)),
            past.identity,
            led=past.seen is not None,
            next_round_in_ms=past.next_round_in_ms,
            now_ms=self._clock_ms(),
        )

    # --- questions -----------------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        """State of its member."""
        return self.session.member.state

    @property
    def owned(self) -> ResourceSet:
        """Resources that its member owns."""
        return self.session.member.owned

    @property
    def leads(self) -> bool:
        """Whether its member knows itself as the leader, possibly since an earlier life."""
        return self.session.leads

    @property
    def is_led(self) -> bool:
        """Whether its member takes part in rounds: the broker assigns to one of KIP-848."""
        return self.config.protocol is GroupProtocol.CLASSIC

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
            and member.wants_a_round_at_ms is None
            and not self.session.refusals
            and not self.paused
            and self.application.working == member.owned
            and not self.application.stopping
            and not self.application.state.is_restoring
        )

    @property
    def warm(self) -> ResourceSet:
        """Resources that its member is warm for, and does not own."""
        warmups = self.session.member.next_join.warmups
        return EMPTY if warmups is None else warmups.warm

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the application, subscribe and join."""
        instance_id = self.config.instance_id or ""
        self.write(ProcessStarted(instance_id=instance_id, topics=self.topics))
        self.application.start()
        if warmup_of(self.run_settings.policy) is not None:
            self.give(WarmSetDeclared(warm=self.application.found_state(self.brokers.existing())))
        self.give(SubscriptionChanged(topics=self.topics))
        if self.session.leads_as is not None:
            self.notice()  # changes during its absence

    def close(self) -> None:
        """Close the consumer: stop, commit, leave, end."""
        if self.alive and not self.application.closing:
            if self.paused:
                self._backlog.append((self.application.close, ()))
            else:
                self.application.close()

    def hand_over(self) -> None:
        """Give all resources to the group; close when none is left, or after a minute."""
        if self.alive and not self.application.closing:
            self.give(SubscriptionChanged(topics=(), hands_over=True))
            self._close_when_free(self.world.now_ms + _HAND_OVER_MS)

    def _close_when_free(self, until_ms: int) -> None:
        member = self.session.member
        is_busy = member.owned or member.last_join.topics or not self.is_at_rest
        if is_busy and self.world.now_ms < until_ms:
            self.later(_LOOK_MS, self._close_when_free, until_ms)
        else:
            self.close()

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

    def _withhold(self, now_ms: int) -> None:
        """Duty 6: pause work if the resources may have a new owner, until an answer arrives."""
        member, before = self.session.member, self.withheld
        self.withheld = bool(member.owned) and now_ms >= member.hold_until_ms
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
        now_ms = self._clock_ms()
        try:
            session = with_rate(self.session, self.application.rate_per_s)
            self.session, effects = step_session(session, event, now_ms=now_ms)
        except LocalProtocolError as error:
            self.world.object_to("host", f"{self.name}: {error}")
            return
        self._withhold(now_ms)
        for effect in effects:
            self._carry_out(effect)
        if not (self.application.closing and self.state in _OUTSIDE):
            self._wake_in_time()
        elif self.alive:
            self._end(EndCause.CLOSED)

    def hear(self) -> None:
        """Hear a ring, unless the process is paused or cut off."""
        if self.alive and not self.paused and not self.network.is_cut(self.name):
            self.give(BellRang())

    def write(self, record: Record, member_id: str | None = None) -> None:
        """Write a telemetry record; of the present member id, if none is given."""
        member = self.session.member
        self.world.write(
            record,
            client=self.name,
            member=member.member_id if member_id is None else member_id,
            generation=member.generation,
        )

    def _carry_out(self, effect: SessionEffect) -> None:
        match effect:
            case Send():
                self.network.send(self, effect)
            case Report():
                self.write(effect.record, effect.member_id)
            case RingBell():
                self.on_ring()
            case CancelJoin():
                self.network.close_lane(self, Lane.JOIN)
            case DecideRound():
                self._lead(effect)
            case CheckLags():
                self._check_lags(effect)
            case LookOver():
                self._look_over(effect)
            case KeepIdentity():
                self._keep(effect.identity)
            case CountPartitions() | NameTopics() | FindSessionTimeout():
                self._look_up(effect)
            case _:
                self._tell_application(effect)

    def _tell_application(
        self,
        effect: GrantResources
        | RevokeResources
        | LoseResources
        | BeginWarmups
        | CancelWarmups
        | FinishCommit
        | FailMember,
    ) -> None:
        match effect:
            case FinishCommit():
                self.application.finish_commit(effect)
            case GrantResources():
                self.application.grant(effect.resources)
            case RevokeResources():
                self.application.revoke(effect.resources)
            case LoseResources():
                self.application.lose()
            case BeginWarmups():
                self.application.warm_up(effect.resources)
            case CancelWarmups():
                self.application.cancel_warmups(effect.resources)
            case FailMember():
                self.failed = effect.message
                self.on_failure(self, effect.code)

    # --- its clock -----------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        now_ms = self.world.now_ms
        return now_ms + now_ms * self.skew_ppm // _MILLION if self.skew_ppm else now_ms

    def world_ms(self, clock_ms: int) -> int:
        """Return the first virtual time at which its clock shows a time."""
        if not self.skew_ppm:
            return clock_ms
        world_ms = clock_ms * _MILLION // (_MILLION + self.skew_ppm) - 1
        while world_ms + world_ms * self.skew_ppm // _MILLION < clock_ms:
            world_ms += 1
        return world_ms

    def _wake_in_time(self) -> None:
        deadline_ms, member = session_deadline_ms(self.session), self.session.member
        if deadline_ms is None:
            self._deadline_ms = None
            return
        due_ms = self.world_ms(deadline_ms)
        if backing_off(self.session):
            due_ms += between(self.world.dice("jitter"), 0, self.run_settings.jitter_ms)
        if member.owned:  # retries never extend the time to hold
            end_ms = member.lost_at_ms if self.withheld else member.hold_until_ms
            deadline_ms, due_ms = min(deadline_ms, end_ms), min(due_ms, self.world_ms(end_ms))
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

    def _look_over(self, duty: LookOver) -> None:
        """Duty 4: watch the topics of a group whose round needed no decision (KIP-814)."""
        request = self._read_members(duty.members)
        found = self.brokers.existing().restrict_names(request.topics)
        self.seen = SeenTopics(topics=request.topics, partitions=found)
        if needs_round(duty, found, request, self.run_settings.policy):
            span = self.run_settings.notice_ms
            delay_ms = self.world.dice("notices").randint(span.low, span.high)
            self.later(delay_ms, self.give, RejoinRequested(reason=Cause.PARTITIONS_CHANGED))

    def _keep(self, identity: KeptIdentity | None) -> None:
        """Duty 7: store data for the next life."""
        if not self.leads:
            self.on_keep(PastLife(identity=identity))
            return
        in_ms = next_round_in_ms(self.session, now_ms=self._clock_ms())
        # Also without metadata: only a process that knows that it led makes the round it owes.
        seen = self.seen or SeenTopics()
        self.on_keep(PastLife(identity=identity, seen=seen, next_round_in_ms=in_ms))

    def _look_up(self, effect: CountPartitions | NameTopics | FindSessionTimeout) -> None:
        """Duty 4: look up topics now, and deliver what is asked a while later."""
        if isinstance(effect, FindSessionTimeout):
            return  # a member here knows the timeout of the coordinator from its scenario
        answered, span = effect.answered, self.run_settings.count_ms
        if isinstance(effect, CountPartitions):
            existing = self.brokers.existing()
            counts = {name: len(existing.indices(name)) for name in effect.topics}
            answered = attrs.evolve(answered, partition_counts=counts)
        else:
            ids = self.brokers.ids
            names = {ids[name]: name for name in effect.topics if name in ids}
            share = self.run_settings.no_metadata
            if share and self.world.dice("names").random() < share:
                names = {}
            answered = attrs.evolve(answered, topic_names=names)
        if not span.high:
            self.give(answered)
            return
        delay_ms = self.world.dice("counts").randint(span.low, span.high)
        self.later(delay_ms, self.give, answered)

    def _lead(self, duty: DecideRound) -> None:
        """Duty 4: look up the partitions now, and deliver the decision a while later."""
        world, run_settings = self.world, self.run_settings
        dice = world.dice("leader")
        request = self._read_members(duty.members)
        known = not run_settings.no_metadata or dice.random() >= run_settings.no_metadata
        metadata = self._metadata(request) if known else None
        lags = None
        if run_settings.assignor.needs_lags and metadata is not None:
            found = metadata.resources
            lags = self._lags.known(duty, found) or self.application.load.lags(found, world.now_ms)
            self._lags = RebalanceLags(lags=lags)
        decided = lead_round(
            duty,
            request,
            metadata,
            lags,
            assignor=run_settings.assignor,
            policy=run_settings.policy,
        )
        self._lags = self._lags.after(decided, self._lags.lags)
        if metadata is not None:
            self.seen = SeenTopics(topics=request.topics, partitions=metadata.resources)
            self._check_round(decided)
        self.later(
            dice.randint(run_settings.lead_ms.low, run_settings.lead_ms.high),
            self._decided,
            self._completed(decided),
        )

    def _read_members(self, members: Sequence[JoinedMember]) -> RoundRequest:
        return read_members(members, index_min=self.config.index_min)

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        found = self.brokers.existing().restrict_names(request.topics) - request.passed_on
        weights = self.application.load.weights_of(found)
        return TopicMetadata(resources=found, weights=weights)

    def _completed(self, decided: DecisionMade) -> DecisionMade:
        return decided

    def _decided(self, decided: DecisionMade) -> None:
        self.give(decided)
        if self._changed() is not None:
            self.notice()  # changes during the decision

    def _check_lags(self, duty: CheckLags) -> None:
        """Duty 4: check the lags now, and deliver the result a while later."""
        world, settings = self.world, self.run_settings
        lags = self.application.load.lags(duty.resources, world.now_ms)
        checked = check_lags(duty, lags, assignor=settings.assignor, policy=settings.policy)
        span = settings.lead_ms
        self.later(world.dice("leader").randint(span.low, span.high), self.give, checked)

    def _check_round(self, decided: DecisionMade) -> None:
        """Report a round that takes a resource from its rightful owner; no record shows this."""
        for record in decided.decision.records:
            if isinstance(record, RoundRefused):
                self.world.object_to("leader", f"{self.name}: {'; '.join(record.violations)}")
        group, plan = decided.decision.group, decided.decision.plan
        taken = _taken_from_owners(group, plan, self.run_settings.policy)
        if taken.any():
            resources = group.resources.take(taken).to_dict()
            self.world.object_to("retained", f"{self.name} takes {resources} from their owners")

    def notice(self) -> None:
        """Handle changed partitions: a leader notices them a little later."""
        span = self.run_settings.notice_ms
        delay_ms = self.world.dice("notices").randint(span.low, span.high)
        self.later(delay_ms, self._compare)

    def _compare(self) -> None:
        changed = self._changed() if self.leads else None
        if changed is not None:
            self.seen = changed
            self.give(RejoinRequested(reason=Cause.PARTITIONS_CHANGED))

    def _changed(self) -> SeenTopics | None:
        if self.seen is None:
            return None
        found = self.brokers.existing().restrict_names(self.seen.topics)
        if found == self.seen.partitions:
            return None
        return SeenTopics(topics=self.seen.topics, partitions=found)


def _taken_from_owners(group: GroupSnapshot, plan: RoundPlan, policy: Policy) -> BoolArray:
    """Return the resources that a round takes from an owner that is also their target: bool (R,).

    Resources of a bundle whose parts have several owners are left out, because such a bundle is
    united, whatever its target is.
    """
    stays: BoolArray = (group.owner == plan.target) & (group.owner != NOBODY) & group.assignable
    if plan.stopping is not None:  # revoked before the current target was chosen
        stays[group.claim_resources[plan.stopping]] = False
    option = warmup_of(policy)
    bundles = None if option is None else bundles_of(group, option.co_partition)
    if bundles is not None:
        stays &= group.owner == bundles.group.owner[bundles.bundle_of]
    taken: BoolArray = stays & (plan.assigned != group.owner)
    return taken
