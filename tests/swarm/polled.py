"""The swarm with the true listener of a consumer: callbacks block, put off stops, raise and leave.

    run = draw_polled(seed)
    played = play(run)          # of the module `play`, as any other run

Each process has the true `GroupListener` with its inbox. Its thread and its clock, the fetcher and
the commits are the simulation's. The acts are those of other kinds of runs. Each run draws the
habits of its applications: how often they poll, whether they put off stops, how many stops hang,
and what callbacks do besides. The oracle `checkers.callbacks` judges all calls and reports.
"""

from __future__ import annotations

import math
import random
from collections import deque
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import attrs
from attrs import define, field

from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import GrantResources, LoseResources
from coopgroup.core.member.events import LeaveRequested, SubscriptionChanged, WarmSetDeclared
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.callbacks import application_inbox, listener
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.callbacks.listener import Callbacks, GroupListener, as_resources
from coopgroup.kafka.records.partitions import to_partitions
from coopgroup.simulator.scenario import LEADER, Span
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason
from tests.swarm.checkers.callbacks import CallbackOracle
from tests.swarm.directed import draw_directed
from tests.swarm.places import draw_declining
from tests.swarm.ports import Port, TrueApplication, TrueSimulation
from tests.swarm.returning import draw_returning
from tests.swarm.runs import TOPICS, Act, ActKind, draw
from tests.swarm.warm import draw_warm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from confluent_kafka import TopicPartition

    from coopgroup.core.session import SessionEvent
    from coopgroup.kafka.callbacks.pending_revocations import PutOff
    from coopgroup.kafka.membership.ports import Notice
    from coopgroup.telemetry import Record
    from tests.swarm.runs import SwarmRun

POLLED: Final = "polled"
"""What `SwarmRun.theirs` says of a group of consumers that are polled."""
_APART: Final = 5_000_000  # acts that no other run of a soak has
_LOOK_MS: Final = 2
_AGAIN_MS: Final = 100
_BACK_MS: Final = 200


# --- what happens ---------------------------------------------------------------------------------


def draw_polled(seed: int) -> SwarmRun:
    """Draw a run of a group of polled consumers."""
    return draw_true(seed, POLLED)


def draw_true(seed: int, theirs: str) -> SwarmRun:
    """Draw a run of a group with the code of a consumer."""
    chance = random.Random(f"swarm/{seed}/{theirs}")
    kinds = (draw, draw_returning, draw_warm, draw_directed, draw_declining)
    run = kinds[seed % len(kinds)](seed + _APART)
    return attrs.evolve(with_habits(run, chance), theirs=theirs)


def with_habits(run: SwarmRun, chance: random.Random) -> SwarmRun:
    """Let the applications of a run have habits, and add acts that meet them."""
    faults = attrs.evolve(
        run.faults,
        hang=0.0,
        lie=0.0,
        poll_ms_max=chance.choice((10, 10, 100, 400)),
        puts_off=chance.choice((0.0, 0.5, 1.0, 1.0)),
        stuck=chance.choice((0.0, 0.0, 0.1, 0.5)),
        raises=chance.choice((0.0, 0.0, 0.2)),
        leaves=chance.choice((0.0, 0.0, 0.0, 0.1, 0.3)),
    )
    acts = list(run.acts)
    if chance.random() < 0.5:  # all partitions are revoked
        names = [act.process for act in acts if act.kind is ActKind.START]
        moved = Act(
            after_ms=chance.choice((5, 100, 800)),
            kind=chance.choice((ActKind.SUBSCRIBE, ActKind.SUBSCRIBE, ActKind.HAND_OVER)),
            process=chance.choice((*names, LEADER)),
            topics=(chance.choice(TOPICS),),
        )
        if moved.kind is ActKind.HAND_OVER:
            moved = attrs.evolve(moved, topics=())
        acts.insert(chance.randint(min(len(acts), 4), len(acts)), moved)
    if chance.random() < 0.3:  # a loss meets the notices before it
        for at in range(len(acts), 2, -1):
            if chance.random() < 0.3:
                stall = Act(after_ms=chance.choice((5, 30, 100)), kind=ActKind.STALL)
                acts.insert(at, attrs.evolve(stall, process=chance.choice((LEADER, "p1", "p2"))))
    return attrs.evolve(run, faults=faults, acts=tuple(acts))


# --- a process ------------------------------------------------------------------------------------


@define(eq=False)
class _Inbox(ApplicationInbox):
    woken: Callable[[], None] = lambda: None

    def wake(self) -> None:
        ApplicationInbox.wake(self)
        self.woken()


@define(eq=False, kw_only=True)
class ListenerPort(Port):
    """The group as a listener knows it."""

    oracle: CallbackOracle
    sleep: Callable[[int], None]
    inbox: _Inbox = field(factory=_Inbox)
    polled_at_s: float = 0.0
    settings: Any = field(init=False)
    sink: Any = field(factory=lambda: SimpleNamespace(warn=lambda *_, **__: None))

    def __attrs_post_init__(self) -> None:
        config = self.process.config
        limit_ms = config.rebalance_timeout_ms
        self.settings = SimpleNamespace(max_poll_interval_ms=limit_ms, member=config)
        self.wake = self.inbox.wake

    def post(self, event: SessionEvent) -> None:
        self.oracle.posted(event)
        super().post(event)

    def wait_for_commits(self, limit_s: float) -> None:
        until_ms = self.process.world.now_ms + 1_000 * limit_s
        while self.member.commits.queue and self.process.world.now_ms < until_ms:
            self.sleep(_LOOK_MS)


@define(eq=False)
class Fetching:
    """The fetched partitions, without a record buffer."""

    changed: Callable[[], None]
    begins: Callable[[ResourceSet], None]
    fetched: ResourceSet = EMPTY
    paused: ResourceSet = EMPTY
    held: dict[Any, TopicPartition] = field(factory=dict)

    @property
    def begun(self) -> ResourceSet:
        """Partitions that are fetched, and those whose `on_assign` runs."""
        return self.fetched | ResourceSet.from_pairs(self.held)

    def begin(self, partitions: list[TopicPartition]) -> None:
        """Fetch partitions."""
        self.fetched |= as_resources(partitions)
        self.begins(as_resources(partitions))
        self.changed()

    def hold(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Do not fetch partitions before `release`."""
        self.held |= {(one.topic, one.partition): one for one in partitions}
        return partitions

    def release(self, held: list[TopicPartition]) -> ResourceSet:
        """Fetch held partitions, without those that were given up."""
        free = [one for one in held if self.held.get((one.topic, one.partition)) is one]
        self.wait_no_longer(as_resources(free))
        if free:
            self.begin(free)
        return as_resources(free)

    def end(self, resources: ResourceSet) -> None:
        """End fetching."""
        self.fetched -= resources
        self.paused -= resources
        self.wait_no_longer(resources)
        self.changed()

    def pause(self, _: object, resources: ResourceSet, __: str) -> None:
        """Hand out no more records."""
        self.paused |= resources
        self.changed()

    def wait_no_longer(self, resources: ResourceSet) -> None:
        """Hold partitions no longer."""
        for one in resources:
            self.held.pop(one, None)

    def begin_known(self) -> None:
        """Do nothing: offsets are known."""


@define(kw_only=True, eq=False)
class PolledApplication(TrueApplication):
    """The application of one process, with the true listener."""

    group: PolledSimulation
    listener: GroupListener = field(init=False)
    port: ListenerPort = field(init=False)
    fetching: Fetching = field(init=False)
    oracle: CallbackOracle = field(init=False)
    is_serial: ClassVar[bool] = True
    puts_off: bool = field(init=False)
    hears_losses: bool = field(init=False)
    stuck: ResourceSet = EMPTY  # their stops hang, again and again
    _tokens: list[PutOff] = field(factory=list)
    _jobs: deque[Callable[[], None]] = field(factory=deque)
    _busy: bool = False
    _is_due: bool = False
    _untold: ResourceSet = EMPTY  # granted, and no record says that it has ended
    _begun: ResourceSet = EMPTY  # those of them of which a record says that work has begun

    def __attrs_post_init__(self) -> None:
        process, dice = self.owner, self.process.world.dice("habits")
        self.callback_ms = Span(1, self.group.faults.poll_ms_max)
        self.puts_off = dice.random() < self.group.faults.puts_off
        self.hears_losses = bool(dice.getrandbits(1))
        self.oracle = CallbackOracle(
            limit_ms=process.config.rebalance_timeout_ms,
            now_ms=lambda: process.world.now_ms,
            object_to=self.object_to,
            later=process.later,
            hears_losses=self.hears_losses,
            warms_up=self.state.is_kept,
            is_serial=self.is_serial,
            fetched=lambda: self.fetching.fetched - self.fetching.paused,
            held=lambda: self.listener.owned,
            stopping=lambda: self.listener.stopping,
        )
        self.port = ListenerPort(process=process, oracle=self.oracle, sleep=self.sleep)
        self.port.inbox.woken = self._wake
        self.fetching = self.new_fetching()
        store = SimpleNamespace(forget=lambda _: None)
        self.listener = GroupListener(
            consumer=self,
            driver=cast("Any", self.port),
            fetching=cast("Any", self.fetching),
            committing=cast("Any", SimpleNamespace(store=store, commit_last=self._commit_last)),
            write=self._write,
        )
        self.listener.callbacks = self.new_callbacks()

    def new_fetching(self) -> Fetching:
        """Return the fetcher."""
        return Fetching(self._refresh, self.oracle.begins)

    def new_callbacks(self) -> Callbacks:
        """Return the callbacks for the listener."""
        return Callbacks(**self.callbacks_of(self._called))

    def callbacks_of(self, called: Callable[..., Any]) -> Mapping[str, Any]:
        """Return the application's callbacks; each gets its name before its arguments."""
        names = ["on_assign", "on_revoke"]
        names += ["on_lost"] if self.hears_losses else []
        names += ["on_warmup", "on_warmup_cancelled"] if self.state.is_kept else []
        return {name: partial(called, name) for name in names}

    # --- its host -----------------------------------------------------------------------------

    def grant(self, resources: ResourceSet) -> None:
        self.owned |= resources
        self._untold |= resources
        self.stuck -= resources
        self._put(GrantResources(resources=resources))

    def _look_at(self, resources: ResourceSet) -> None:
        """Object to a stop that is over its time while the application waits for its next wake."""
        if self.oracle.is_late(resources) and not (self._busy or self._is_due or self.closing):
            self.object_to(f"is not reminded of the stop of {resources.to_dict()}")

    def lose(self) -> None:
        # Other members may own them from now on, even while callbacks still end the work here.
        self._put(LoseResources(resources=self.owned, cause="lost"))
        if self._begun:
            self._write(ResourcesStopped(resources=self._begun, reason=StopReason.LOST))
        self.state.drop(self._untold)
        self.owned = self._untold = EMPTY
        self._refresh()
        if self.closing:
            self._leave()

    def close(self) -> None:
        self.closing = True
        self.run_soon(self._close)

    def _put(self, notice: Notice) -> None:
        self.oracle.told(notice)
        self.port.inbox.put(notice)

    def _close(self) -> None:
        self.give_up()
        self._leave()

    def give_up(self) -> None:
        """Give up all partitions, before the group is left."""
        self.oracle.closes()
        with suppress(ValueError):  # raised by a callback
            self.listener.give_up()
        self.owned = self._untold = EMPTY  # also those granted meanwhile, or never served
        self.port.inbox.clear()
        self.oracle.closed()

    def _leave(self) -> None:
        process = self.owner
        if process.alive and process.state is not MemberState.LEAVING:
            process.later(1, self._leave_now)

    def _leave_now(self) -> None:
        if self.owner.state is not MemberState.LEAVING:
            self.process.give(LeaveRequested(reason="the consumer is being closed"))
            # The driver drops notices that came after the application had given up everything.
            self.port.inbox.clear()
            self.oracle.pending.clear()

    def unsubscribe(self) -> None:
        """Leave the group, and subscribe again later."""
        self.group.returning.add(self.process.name)
        self.give_up()
        self._leave()
        self.process.later(_BACK_MS, self._subscribe)

    def _subscribe(self) -> None:
        process = self.owner
        if self.closing:
            return
        if process.state in {MemberState.LEAVING, MemberState.LOSING}:
            process.later(_AGAIN_MS, self._subscribe)
        else:
            self.group.returning.discard(process.name)
            if self.state.is_kept:
                process.give(WarmSetDeclared(warm=self.state.ready))
            process.give(SubscriptionChanged(topics=process.topics))

    # --- its thread ---------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_due and not self.closing:
            self._is_due = True
            self._call_always(self.run_soon, self._poll)

    def _poll(self) -> None:
        self._is_due = False
        if self.closing:
            return
        since_ms = self.process.world.now_ms
        try:
            self.serve()
        except ValueError:
            pass  # raised by a callback
        else:
            self.oracle.served(since_ms)
        if self.port.inbox.waiting:
            self._wake()

    def serve(self) -> None:
        """Serve the inbox, as a poll does."""
        self.listener.serve()

    def run_soon(self, job: Callable[[], None]) -> None:
        """Run a job on the thread of the application, after its earlier jobs."""
        self._jobs.append(job)
        if not self._busy:
            self._next()

    def _next(self) -> None:
        while self._jobs and not self._busy and self.owner.alive:
            self._busy = True
            self.group.strands.begin(partial(self._run, self._jobs.popleft()))

    def _run(self, job: Callable[[], None]) -> None:
        job()
        self._refresh()
        self._busy = False
        self.process.later(0, self._next)

    def _stall(self, polled_at_s: float) -> None:
        if self.port.polled_at_s == polled_at_s:
            self.owner.stall()

    def _commit_last(self, resources: ResourceSet, limit_s: float | None = None) -> None:
        self.oracle.commits(resources)
        until_ms = math.inf if limit_s is None else self.process.world.now_ms + 1_000 * limit_s
        ended: list[bool] = []
        resources &= self.fetching.begun
        self.settle()
        self._commit(resources, self.load.numbers(resources), lambda: ended.append(True))
        while not ended and self.process.world.now_ms < until_ms:
            self.sleep(_LOOK_MS)

    def _refresh(self) -> None:
        self.working = self.fetching.fetched & self.owned
        self.stopping = self.working & (self.fetching.paused | self.oracle.stops)
        self._feed()

    def _write(self, record: Record) -> None:
        if isinstance(record, ResourcesStarted | ResourcesStopped):
            some = record.resources & self._untold
            if isinstance(record, ResourcesStopped):
                self._untold -= some
                self._begun -= some
                if record.reason is not StopReason.LOST or some <= self.owned:
                    self.owned -= some
                if record.reason is not StopReason.CLOSED:
                    self.state.drop(some)
            elif some:
                self._begun |= some
                self.oracle.started(some)
                self.state.complete(some)
                self.costs.note_work(some, self.process.name)
                self.load.begin(self.load.numbers(some))
            self._refresh()
            if not some:
                return  # its membership ended before
            record = attrs.evolve(record, resources=some)
        if self.owner.alive:
            self.process.write(record)

    # --- its callbacks ------------------------------------------------------------------------

    def _called(self, name: str, _: object, partitions: list[TopicPartition]) -> None:
        if not self.owner.alive:
            return
        resources = as_resources(partitions)
        call = self.oracle.called(name, resources)
        self._refresh()
        try:
            self._act(name, resources)
            if self.happens("leaves"):
                self._leave_inside()
            if self.happens("raises"):
                raise ValueError("no")
        finally:
            self.oracle.returned(call)

    def _act(self, name: str, resources: ResourceSet) -> None:
        match name:
            case "on_assign":
                self._take_time(self.restore_ms(resources))
            case "on_revoke" if not resources & self.oracle.lost:
                self._finish_old(resources)
                self._stop_some(resources)
            case "on_warmup":
                self._warm_up(resources)
            case "on_warmup_cancelled":
                self.state.drop(resources)
            case _:
                pass

    def restore_ms(self, resources: ResourceSet) -> int:
        """Return the time until the work on partitions can begin."""
        ready = resources & self.state.ready
        times = self.costs.to_restore(ready, is_warm=True)
        times += self.costs.to_restore(resources - ready, self.process.name)
        return max((restore_ms for restore_ms, _ in times), default=0)

    def hangs(self, resources: ResourceSet) -> bool:
        """Return whether a stop takes longer than its limit."""
        if self.happens("stuck"):
            self.stuck |= resources
        return bool(self.stuck & resources) and not self.group.is_calm

    def _take_time(self, for_ms: int) -> None:
        """Block the thread; after `max.poll.interval.ms` the application is stalled."""
        limit_ms = self.owner.config.rebalance_timeout_ms
        if for_ms > limit_ms and self.owner.session.member.owned:
            self.process.later(limit_ms, self._stall, self.port.polled_at_s)
        self.sleep(max(1, for_ms))

    def _stop_some(self, resources: ResourceSet) -> None:
        if self.hangs(resources) and not self.puts_off:
            self._take_time(self.owner.config.rebalance_timeout_ms + _AGAIN_MS)
        blocked_ms = 1
        for stop_ms, some in self.costs.to_stop(resources):
            token = self.listener.revoke_later(to_partitions(some)) if self.puts_off else None
            if token is None:
                blocked_ms = max(blocked_ms, stop_ms)
                continue
            self._tokens.append(token)
            self.oracle.puts_off(token)
            if self.hangs(some):
                limit_ms = self.owner.config.rebalance_timeout_ms
                self.process.later(limit_ms + _LOOK_MS, self._look_at, some)
            else:
                self.process.later(stop_ms, self._finish, token)
        if blocked_ms > 1:
            self._take_time(min(blocked_ms, self.owner.config.rebalance_timeout_ms - 1))

    def _finish(self, token: PutOff) -> None:
        self.oracle.finishes(token)
        self.listener.finish_revoke(token)

    def _finish_old(self, resources: ResourceSet) -> None:
        """Finish an earlier stop of the same partitions, perhaps again."""
        old = [one for one in self._tokens if one.resources & resources]
        if self.group.faults.stuck and old:
            self._finish(self.process.world.dice("old").choice(old))

    def _leave_inside(self) -> None:
        """Close the consumer, or unsubscribe, in a callback."""
        if self.closing:
            return
        if self.process.world.dice("leaves").getrandbits(1):
            self.unsubscribe()
            return
        self.closing = True
        self.group.come_back(self.owner)
        self._close()


@define(kw_only=True, eq=False)
class PolledSimulation(TrueSimulation):
    """A group of such applications.

    Attributes:
        returning: processes that have closed their consumer in a callback, or unsubscribed.
    """

    application_class: ClassVar[type[TrueApplication]] = PolledApplication
    modules: ClassVar[tuple[ModuleType, ...]] = (listener, application_inbox)
    returning: set[str] = field(factory=set)

    def come_back(self, process: Any) -> None:  # noqa: ANN401 - a process
        """Let a process start again after its end."""
        before = process.on_end

        def end() -> None:
            before()
            self.world.later(_BACK_MS, again)

        def again() -> None:
            self.returning.discard(process.name)
            self.start_again(process)

        self.returning.add(process.name)
        process.on_end = end

    def is_at_rest(self) -> bool:
        """Return whether the group rests, all processes are back, and none closes its consumer."""
        closes = any(process.application.closing for process in self.alive)
        return not (closes or self.returning) and super().is_at_rest()
