"""Play a run of the swarm: execute its acts, end all faults, and report violations.

Every drawn run can be played; impossible acts are skipped. Three kinds of checks follow. The
checkers read the telemetry, and the hosts report objections. At the end the group must come to rest
in time, with every record handled and committed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import attrs
from attrs import define, field, frozen

from coopgroup.core.assignors.registry import create_assignor
from coopgroup.core.member import ErrorCode, GroupProtocol, Member, MemberConfig, MemberState
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.events import RejoinRequested, StartsDeclined, SubscriptionChanged
from coopgroup.core.member.transitions import AT_WORK
from coopgroup.core.model import EMPTY, ResourceSet, group_api
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.policies.built_in import create_policy
from coopgroup.protocol import decode_subscription, encode_subscription
from coopgroup.simulator.hand_overs import HandOvers
from coopgroup.simulator.host.run_settings import RunSettings, WarmupMishaps
from coopgroup.simulator.scenario import LEADER, Bell, Cost, Identity, Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.transcript import Transcript
from coopgroup.simulator.world import Violation
from coopgroup.simulator.world.network import Mishap, Upset
from tests.swarm.checkers.faults import QUICK_MS, Usual, check_faults
from tests.swarm.consumers import (
    CONSUMER,
    Beats,
    broker_of,
    has_leaders,
    is_of_kip848,
    knowable,
    protocol_of,
)
from tests.swarm.faults import without_faults
from tests.swarm.hostile import HOSTILE, prepare
from tests.swarm.leases import Leases
from tests.swarm.looped import LOOPED, LoopedSimulation
from tests.swarm.mixed import Guests
from tests.swarm.named import NAMED, NamedSimulation, check_named, configured
from tests.swarm.places import left_out, misplaced, traits_of
from tests.swarm.polled import POLLED, PolledSimulation
from tests.swarm.ports import TrueSimulation, virtual_time
from tests.swarm.processed import PROCESSED, ProcessedSimulation
from tests.swarm.rest import (
    QUIET_MS,
    RECORDS_MAX,
    needless_losses,
    settle,
    settle_beside,
    settle_with_guests,
)
from tests.swarm.runs import TOPICS, ActKind
from tests.swarm.supervisor import Supervisors
from tests.swarm.tasked import TASKED, TaskedSimulation
from tests.swarm.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopgroup.core.model.traits import Traits
    from coopgroup.simulator.coordinator import GroupCoordinator
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.world import Watcher
    from coopgroup.simulator.world.brokers import Brokers
    from coopgroup.simulator.world.calls import Call, Caller
    from coopgroup.telemetry import Envelope
    from tests.swarm.runs import Act, Faults, SwarmRun

CONFIG: Final = MemberConfig(
    group_id="g",
    session_timeout_ms=600,
    rebalance_timeout_ms=1_500,
    heartbeat_interval_ms=190,
    window_heartbeat_interval_ms=120,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
    request_timeout_ms=300,
    revocation_grace_ms=30,
)
"""Settings with short times; a run may have another rebalance time-out."""

_TRUE: Final[Mapping[str, type[TrueSimulation]]] = {
    NAMED: NamedSimulation,
    POLLED: PolledSimulation,
    PROCESSED: ProcessedSimulation,
    LOOPED: LoopedSimulation,
    TASKED: TaskedSimulation,
}
_READABLE_AFTER_MS: Final = 200
_RESTORE_MS: Final = Span(0, 10)
_RATE_PER_S: Final = 50.0
_STORY_LINES_MAX: Final = 80
_QUICK_DELAY_MS: Final = 2
_LOOK_MS: Final = 20


@frozen(kw_only=True, eq=False)
class Played:
    """The result of a run.

    Attributes:
        run: the run.
        violations: in order of time; empty for a successful run.
        telemetry: all records.
        transcript: the same for people, with the requests; empty unless requested.
    """

    run: SwarmRun
    violations: tuple[Violation, ...]
    telemetry: tuple[Envelope, ...]
    transcript: tuple[str, ...] = ()


def play(
    run: SwarmRun,
    *,
    transcript: bool = False,
    usual: Usual | None = None,
    watcher: Watcher | None = None,
) -> Played:
    """Play a run to its end.

    Args:
        run: the run.
        transcript: whether to write one.
        usual: what happens without the faults that exhaustion added, if they are already known.
        watcher: receives every event; None for none.
    """
    if usual is None and any(act.is_fault for act in run.acts):
        usual = Usual.of(play(without_faults(run)).telemetry)
    faults, is_named = run.faults, run.theirs == NAMED
    kind = _TRUE.get(run.theirs.removeprefix(f"{CONSUMER},"), Simulation)
    config = attrs.evolve(CONFIG, rebalance_timeout_ms=run.rebalance_timeout_ms)
    simulation = small_group(
        seed=run.seed,
        kind=kind,
        config=configured(config) if is_named else config,
        run_settings=_habits(run),
        delay_ms_max=faults.delay_ms_max,
        loss=faults.loss,
        commit_interval_ms=0 if is_named else faults.commit_interval_ms,
        restore_ms=Span(0, faults.restore_ms_max),
        coordinator=broker_of(run, config),
    )
    if isinstance(simulation, TrueSimulation):
        simulation.prepare(run)
    with virtual_time(simulation):
        written = Transcript() if transcript else None
        played = _played(run, simulation, written or watcher, usual)
    lines = () if written is None else tuple(written.lines)
    return attrs.evolve(played, transcript=lines)


def _set_faults(simulation: Simulation, faults: Faults) -> None:
    simulation.costs.slow, simulation.costs.slow_ms = faults.slow, Span(1, faults.slow_ms_max)
    if faults.bell_delay_ms_max:
        times = Bell(
            delay_ms=Span(1, faults.bell_delay_ms_max),
            loss=faults.bell_loss,
            false_every_ms=faults.bell_false_ms,
        )
        simulation.hang_bell(times)


def _played(
    run: SwarmRun, simulation: Simulation, watcher: Watcher | None, usual: Usual | None
) -> Played:
    faults = run.faults
    _set_faults(simulation, faults)
    world = simulation.world
    world.transcript = HandOvers(simulation, Leases(simulation, Beats(simulation, watcher)))
    is_named = isinstance(simulation, NamedSimulation)
    is_ours = run.theirs in _TRUE or is_of_kip848(run)
    guests = Guests(simulation=simulation, theirs="" if is_ours else run.theirs)
    supervisors = Supervisors(
        simulation=simulation, delay_ms_max=faults.leave_ms_max, loss=faults.leave_loss
    )
    player = _Player(
        simulation=simulation,
        guests=guests,
        supervisors=supervisors,
        traits_of=partial(traits_of, run),
        keeps_state=faults.keeps_state,
        protocol_of=partial(protocol_of, run),
        left=_left(run),
    )
    witness = None
    if run.theirs == HOSTILE:
        prepare(simulation)
        witness = Witness(
            simulation, simulation.network.brokers, guests.processes, player.disturbed
        )
        simulation.network.brokers = cast("Brokers", witness)
    if has_leaders(run):
        # Rounds of so short time-outs may follow each other until a join gives up the conversion.
        simulation.fatal_codes.add(ErrorCode.GROUP_ID_NOT_FOUND)
    if faults.loss:
        player.disturbed.add("")
    for act in run.acts:
        simulation.run(act.after_ms)
        player.act(act)
        if len(world.telemetry) > RECORDS_MAX:
            break
    simulation.run(run.healed_after_ms)
    # A declined resource is left out of a round, which no record distinguishes from a deletion.
    plain = not is_named
    plain &= not any(act.kind in {ActKind.SUBSCRIBE, ActKind.FORGE} for act in run.acts)
    if witness is not None:
        violations = settle_beside(witness, guests, player.away)
    elif guests.theirs:
        violations = settle_with_guests(guests, player.away, plain=plain)
    else:
        violations = _settled(run, player, plain=plain, usual=usual)
    return Played(run=run, violations=violations, telemetry=tuple(world.telemetry))


def _left(run: SwarmRun) -> frozenset[str]:
    """Return the topics that a process may leave during a run."""
    changes = [act.topics for act in run.acts if act.kind is ActKind.SUBSCRIBE]
    return frozenset(name for name in TOPICS if any(name not in topics for topics in changes))


def _settled(
    run: SwarmRun, player: _Player, *, plain: bool, usual: Usual | None
) -> tuple[Violation, ...]:
    """Let a group of our members come to rest, and return the violations of the whole run."""
    simulation, world = player.simulation, player.simulation.world
    calm_from_ms = world.now_ms
    leaves = any(act.kind is ActKind.HAND_OVER for act in run.acts)
    quiet_ms = QUIET_MS if usual is None else QUICK_MS
    # Nothing happens between two assignments of the broker (KIP-1263).
    quiet_ms += simulation.brokers.coordinator.settings.assignment_interval_ms
    violations = settle(
        simulation,
        plain=plain,
        with_hand_overs=leaves,
        away=player.away,
        quiet_ms=quiet_ms,
        with_rounds=not has_leaders(run),
    )
    if player.away:
        message = f"not ended: {', '.join(sorted(player.away))}"
        found = Violation(checker="hand-over", at_ms=world.now_ms, message=message)
        violations = (*violations, found)
    violations = knowable(run, simulation, player.guests.vanished, violations)
    violations += tuple(needless_losses(world.telemetry, player.disturbed))
    violations += tuple(misplaced(run, world.telemetry, world.now_ms))
    violations += tuple(left_out(run, simulation))
    if isinstance(simulation, NamedSimulation):
        violations += tuple(check_named(simulation, world.telemetry, calm_from_ms))
    if usual is not None:
        violations += tuple(check_faults(run, world.telemetry, usual))
    return violations


def small_group(
    *,
    seed: int,
    run_settings: RunSettings,
    kind: type[Simulation] = Simulation,
    config: MemberConfig = CONFIG,
    delay_ms_max: int = 2,
    loss: float = 0.0,
    commit_interval_ms: int = 250,
    restore_ms: Span = _RESTORE_MS,
    coordinator: GroupCoordinator | None = None,
) -> Simulation:
    """Return a group with short timeouts, so that much happens in little virtual time."""
    return kind.create(
        config=config,
        run_settings=run_settings,
        seed=seed,
        delay_ms=Span(1, delay_ms_max),
        loss=loss,
        costs=(Cost(stop_ms=Span(1, 10), restore_ms=restore_ms),),
        commit_interval_ms=commit_interval_ms,
        coordinator=coordinator,
    )


def set_topics(simulation: Simulation, counts: dict[str, int]) -> None:
    """Create, delete or resize topics.

    A topic that is created again stays empty. Commits from before the deletion may still be
    pending, and their offsets would look like offsets of the new topic.
    """
    for name in sorted(counts):
        count, before = counts[name], simulation.brokers.topics.get(name, 0)
        if count != before:
            ever = len(simulation.load.resources.restrict_names([name]))
            fresh = range(before if count > before else 0, count)
            is_named = isinstance(simulation, NamedSimulation)
            rates = [0.0 if partition < ever or is_named else _RATE_PER_S for partition in fresh]
            simulation.set_topic(name, count, rates)
    if isinstance(simulation, NamedSimulation):
        simulation.topic.catalogue()


def story(run: SwarmRun) -> str:
    """Play a run again, and return its transcript up to the first violation."""
    played = play(run, transcript=True)
    if not played.violations:
        return f"SEED={run.seed} {run.policy}: nothing is wrong"
    first_s = played.violations[0].at_ms / 1_000
    until = [line for line in played.transcript if float(line.split()[0]) <= first_s]
    wrong = [f"{one.at_ms / 1_000:.3f} {one.checker}: {one.message}" for one in played.violations]
    return "\n".join([f"SEED={run.seed} {run.policy}", *until[-_STORY_LINES_MAX:], *wrong])


def _habits(run: SwarmRun) -> RunSettings:
    counts = run.theirs == HOSTILE or is_of_kip848(run)
    return RunSettings(
        assignor=create_assignor(run.assignor),
        policy=create_policy(run.policy.name, run.policy.options),
        lead_ms=Span(1, run.faults.lead_ms_max),
        count_ms=Span(0, run.faults.delay_ms_max if counts else 0),
        jitter_ms=10,
        no_metadata=run.faults.no_metadata,
        awaits_commits=run.faults.awaits_commits,
        late_commit_ms=run.faults.late_commit_ms,
        mishaps=_mishaps(run.faults),
    )


def _mishaps(faults: Faults) -> WarmupMishaps | None:
    if not (faults.hang or faults.fail or faults.lie):
        return None
    return WarmupMishaps(hang=faults.hang, fail=faults.fail, lie=faults.lie)


@define(kw_only=True, eq=False)
class _Player:
    """Executes acts.

    Attributes:
        simulation: the group.
        guests: processes of other clients.
        supervisors: they crash processes, and leave for them.
        traits_of: returns what a process tells about itself.
        garbled: processes whose next join is changed, with the act that does so.
        left: topics that a process may leave, though it still owns partitions of them.
        doomed: processes that die at their next sync, with the act that does so.
        away: processes that have ended, or are to end, and will come back; and hand-overs that have
            not ended.
        disturbed: processes that may have lost the group coordinator; "" for all processes.
        keeps_state: whether a process that returns finds its state on its disk.
        protocol_of: returns the group protocol of a process that starts.
    """

    simulation: Simulation
    guests: Guests
    supervisors: Supervisors
    traits_of: Callable[[str], Traits]
    protocol_of: Callable[[Act], GroupProtocol]
    keeps_state: bool = False
    left: frozenset[str] = frozenset()
    garbled: dict[str, Act] = field(factory=dict)
    doomed: dict[str, Act] = field(factory=dict)
    away: set[str] = field(factory=set)
    disturbed: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        """Put a `_Garbler` between the network and the brokers."""
        network = self.simulation.network
        garbler = _Garbler(
            self.simulation, network.brokers, self.garbled, self._end_at_sync, self.left
        )
        network.brokers = cast("Brokers", garbler)

    def act(self, act: Act) -> None:
        """Execute one act."""
        simulation = self.simulation
        match act.kind:
            case ActKind.START:
                self._start(act)
            case ActKind.MOVE:
                # A living broker hands the group over. With slow messages, the look-up and the next
                # heartbeats may take the rest of a session.
                if act.for_ms or simulation.network.delay_ms.high > _QUICK_DELAY_MS:
                    self.disturbed.add("")
                simulation.move_coordinator(act.number, act.for_ms)
            case ActKind.RESIZE:
                before = simulation.brokers.existing()
                set_topics(simulation, dict.fromkeys(act.topics, act.number))
                self.guests.vanished |= before - simulation.brokers.existing()
            case ActKind.UPSET:
                self._upset(act)
            case ActKind.DEFINE | ActKind.RESTART if isinstance(simulation, NamedSimulation):
                leads = act.process == LEADER
                simulation.act(act, simulation.leader if leads else simulation.process(act.process))
            case _ if self.guests.end(act):
                pass
            case _:
                leads = act.process == LEADER
                process = simulation.leader if leads else simulation.process(act.process)
                if process is not None and process.alive:
                    self._happen_to(process, act)
                elif process is not None and act.kind is ActKind.SUBSCRIBE:
                    process.topics = act.topics  # takes effect in its next life

    def _start(self, act: Act) -> None:
        before = self.simulation.process(act.process)
        if self.guests.start(act):
            return
        if before is None or not before.alive:
            self.simulation.start(
                act.process,
                act.topics,
                identity=act.identity,
                skew_ppm=act.skew_ppm,
                keeps_state=self.keeps_state,
                traits=self.traits_of(act.process),
                protocol=self.protocol_of(act),
            )

    def _upset(self, act: Act) -> None:
        leader = self.simulation.leader
        client = act.process if act.process != LEADER else "" if leader is None else leader.name
        self.disturbed.add(client)
        mishap = Mishap[act.mishap]
        if act.is_fault and mishap is Mishap.REFUSED:
            self.simulation.fatal_codes.add(act.number)
        upset = Upset(
            request=getattr(group_api, f"{act.request}Request"),
            mishap=mishap,
            client=client,
            code=act.number,
            delay_ms=act.for_ms if mishap in {Mishap.DELAYED, Mishap.ANSWER_DELAYED} else 0,
        )
        for _ in range(act.times):
            self.simulation.network.upset(upset)

    def _happen_to(self, process: Process, act: Act) -> None:
        """Execute one act on one process."""
        world = self.simulation.world
        if act.kind in {ActKind.PAUSE, ActKind.CUT, ActKind.HOLD_UP}:
            self.disturbed.add(process.name)
        match act.kind:
            case ActKind.CLOSE | ActKind.CRASH:
                self._return_later(process, act)
                closes = act.kind is ActKind.CLOSE
                (
                    process.close
                    if closes
                    else partial(self.supervisors.crash, process, act.number)
                )()
            case ActKind.CRASH_AT_SYNC:
                self.doomed[process.name] = act
            case ActKind.STALL:
                process.stall()
            case ActKind.PAUSE:
                process.pause()
                world.later(act.for_ms, process.resume)
            case ActKind.CUT:
                self.simulation.cut(process, act.for_ms)
            case ActKind.HOLD_UP:
                self.simulation.hold_up(process, Lane(act.lane), act.for_ms)
            case ActKind.GARBLE | ActKind.FORGE:
                # A process with an identity returns without a round and gets the group's stored
                # metadata.
                if process.identity is Identity.NONE:
                    self.garbled[process.name] = act
            case _:
                self._subscribe(process, act)

    def _decline(self, process: Process, act: Act) -> None:
        def forget() -> None:
            if process.alive:
                process.give(StartsDeclined(resources=EMPTY))

        declined = {topic: range(act.number) for topic in act.topics}
        process.give(StartsDeclined(resources=ResourceSet(declined)))
        if act.for_ms:
            self.simulation.world.later(act.for_ms, forget)

    def _close_when_free(self, process: Process) -> None:
        """Close a process when its hand-over is complete; a group does not rest before."""
        member = process.session.member
        hands_over = process.alive and member.next_join.hands_over
        if hands_over and (member.owned or member.last_join.topics or not process.is_at_rest):
            self.simulation.world.later(_LOOK_MS, self._close_when_free, process)
            return
        self.away.discard(_leaves(process))
        if hands_over:
            process.close()

    def _return_later(self, process: Process, act: Act) -> None:
        if act.for_ms:
            self.away.add(process.name)
            later = self.simulation.world.later
            process.on_end = partial(later, act.for_ms, self._come_back, process)

    def _end_at_sync(self, call: Call) -> bool:
        """Kill the process of a sync if an act wants it; return whether the sync is lost."""
        act = self.doomed.pop(call.process.name, None)
        process = self.simulation.process(call.process.name)
        if act is None or process is None or not process.alive:
            return False
        if act.times > 1:
            self.doomed[process.name] = attrs.evolve(act, times=act.times - 1)
        self._return_later(process, act)
        self.supervisors.crash(process)
        if not act.number:
            self.simulation.network.fail(call)
        return not act.number

    def _come_back(self, process: Process) -> None:
        self.away.discard(process.name)
        self.simulation.start_again(process)

    def _subscribe(self, process: Process, act: Act) -> None:
        """Change what a process subscribes to or declines, if its consumer accepts calls now."""
        at_work = process.state in AT_WORK or process.state is MemberState.LOSING
        if not at_work or process.paused or process.application.closing:
            return
        if act.kind is ActKind.HAND_OVER:
            self.away.add(_leaves(process))
            process.give(SubscriptionChanged(topics=(), hands_over=True))
            self._close_when_free(process)
        elif act.kind is ActKind.DECLINE:
            self._decline(process, act)
        else:
            process.topics = act.topics
            process.give(SubscriptionChanged(topics=act.topics))


def _leaves(process: Process) -> str:
    """Return the entry of `away` for a hand-over, which may end before or after the process."""
    return f"{process.name} hands over"


def _is_stopping(caller: Caller) -> bool:
    return caller.session.member.revocation.is_under_way


@define(eq=False)
class _Garbler:
    """Brokers behind a wire that changes the subscriptions of some joins.

    The group does not notice when a member becomes readable again, so its process requests a round.

    Attributes:
        simulation: the group.
        brokers: the real brokers.
        garbled: processes whose next join with an id is changed, with the act that does so.
        end_at_sync: told of each sync that arrives; returns whether the sync is lost.
        left: topics without false claims. A true claim loses against each claim of a subscriber
            when its member has left the topic.
        unread: the last round that each member had completed when it could not be read.
    """

    simulation: Simulation
    brokers: Brokers
    garbled: dict[str, Act]
    end_at_sync: Callable[[Call], bool]
    left: frozenset[str]
    unread: dict[str, int] = field(factory=dict)

    def serve(self, call: Call) -> None:
        """Serve a request that has arrived."""
        request, name = call.send.request, call.process.name
        if isinstance(request, group_api.SyncGroupRequest) and self.end_at_sync(call):
            return
        if (
            isinstance(request, group_api.JoinGroupRequest)
            and request.member_id
            and name in self.garbled
            and self._may_change(call.process)
        ):
            act = self.garbled.pop(name)
            protocols = tuple(
                (chosen, self._garble(act, metadata, call.process.session.member))
                for chosen, metadata in request.protocols
            )
            garbled = attrs.evolve(request, protocols=protocols)
            call.send = attrs.evolve(call.send, request=garbled)
            self.simulation.world.later(_READABLE_AFTER_MS, self._ask, name)
        self.brokers.serve(call)

    def _may_change(self, caller: Caller) -> bool:
        """Return whether the next join of a process may be changed now.

        A leader that cannot read a member withholds for one round what it may own, and assigns it
        nothing. A member that missed this assignment, and cannot be read again, still owns it.
        """
        member = caller.session.member
        if self.garbled[caller.name].kind is not ActKind.GARBLE:
            return not _is_stopping(caller)
        has_heard = self.unread.get(member.member_id) != member.claim_generation
        return has_heard or not member.owned

    def _garble(self, act: Act, metadata: bytes, member: Member) -> bytes:
        if act.kind is ActKind.GARBLE:
            self.unread[member.member_id] = member.claim_generation
            return b"\0"
        true = decode_subscription(metadata)
        names = [name for name in true.topics if name not in self.left]
        everything = self.simulation.brokers.existing().restrict_names(names)
        # A false claim may tie with a true claim and never beats it, because a leader must believe
        # the newer claim. After a failed SyncGroup, the claims of a member are several generations
        # old.
        true_ones = [p.session.member for p in self.simulation.alive if p.session.member.owned]
        generations = [one.claim_generation for one in true_ones]
        generation = max(min([member.claim_generation - act.number, *generations]), NO_GENERATION)
        return encode_subscription(
            attrs.evolve(true, owned=true.owned | everything, generation=generation)
        )

    def _ask(self, name: str) -> None:
        process = self.simulation.process(name)
        if process is not None and process.alive and process.state in AT_WORK:
            process.give(RejoinRequested(reason="it can be read again"))
        else:
            self.simulation.world.later(_READABLE_AFTER_MS, self._ask, name)
