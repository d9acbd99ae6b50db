"""`Application`: the user of a consumer, with its callbacks, work and commits.

It fulfils the host's duties 5 and 6 of `coopgroup.core.session`:

- callbacks run one after the other, shortly after they are due, as in an application that polls;
- every resource is stopped, committed, given up and restored separately, so that a heavy resource
  delays no other;
- work on a lost resource ends immediately, and all its pending actions are void (`_epoch`
  identifies actions of an earlier time);
- a resource that is not stopped within `max.poll.interval.ms` is lost, and then reported as
  stopped;
- work that never began is not reported as stopped, as in production;
- offsets are committed periodically and before a resource is given up, and never after a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from attrs import define, field

from coopgroup.core.member import MemberConfig, MemberState
from coopgroup.core.member.effects import FinishCommit
from coopgroup.core.member.error_actions import error_name
from coopgroup.core.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    RevocationCompleted,
    WarmedUp,
    WarmupFailed,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Int64Array, Resource
from coopgroup.core.session import SessionEvent, smoothed_rate
from coopgroup.simulator.host.local_state import LocalState
from coopgroup.simulator.host.run_settings import RunSettings, WarmupMishaps
from coopgroup.simulator.scenario import Span
from coopgroup.simulator.world import World
from coopgroup.simulator.world.costs import Costs
from coopgroup.simulator.world.drawing import between
from coopgroup.simulator.world.load import Load
from coopgroup.telemetry import CommitFailed, Record, ResourcesStarted, ResourcesStopped, StopReason

_FOR_EVER_MS: Final = 1 << 62


class Host(Protocol):
    """What an application needs of its process."""

    @property
    def name(self) -> str:
        """Name of the process; it keeps the name when it is restarted."""
        ...

    @property
    def world(self) -> World:
        """Time and random numbers."""
        ...

    @property
    def run_settings(self) -> RunSettings:
        """Settings of all processes."""
        ...

    @property
    def config(self) -> MemberConfig:
        """Settings of the member."""
        ...

    @property
    def state(self) -> MemberState:
        """State of the member."""
        ...

    @property
    def warm(self) -> ResourceSet:
        """Resources that the member is warm for."""
        ...

    def give(self, event: SessionEvent) -> None:
        """Give an event to the session."""
        ...

    def later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - any action
        """Run an action after some time, if the process is then alive and not paused."""
        ...

    def write(self, record: Record) -> None:
        """Write a record."""
        ...


@define(kw_only=True, eq=False)
class Application:
    """The application of one process.

    Attributes:
        callback_ms: time from when a callback is due to its call.
        commit_interval_ms: time between commits, 0 for no periodic commits.
        owned: assigned, and not given up or lost.
        working: resources that it works on; a part of `owned`.
        stopping: revoked, and not given up yet; a part of `owned`.
        rate_per_s: its speed while records always wait; None until that happened.
        state: the state that it keeps locally.
    """

    process: Host
    load: Load
    costs: Costs
    callback_ms: Span
    commit_interval_ms: int
    capacity_per_s: float = math.inf
    owned: ResourceSet = EMPTY
    working: ResourceSet = EMPTY
    stopping: ResourceSet = EMPTY
    closing: bool = False
    rate_per_s: float | None = None
    state: LocalState = field(factory=LocalState)
    # The source of its records, with positions in the load: `working` without `stopping`.
    _fed: ResourceSet = EMPTY
    _fed_numbers: Int64Array = field(factory=lambda: np.zeros(0, dtype=np.int64))
    _fed_since_ms: int = 0
    _epoch: int = 0
    _next_callback_ms: int = 0
    _commits: dict[int, Callable[[], None]] = field(factory=dict)

    def start(self) -> None:
        """Start the periodic commits."""
        if self.commit_interval_ms:
            first_ms = self.process.world.dice("commits").randint(1, self.commit_interval_ms)
            self.process.later(first_ms, self._commit_by_clock)

    def found_state(self, existing: ResourceSet) -> ResourceSet:
        """Return what the process is warm for at its start, with lies if there are any."""
        mishaps = self.process.run_settings.mishaps
        if mishaps is None or not mishaps.lie:
            return self.state.ready
        dice = self.process.world.dice("warmups")
        lies = (one for one in existing if dice.random() < mishaps.lie)
        return self.state.ready | ResourceSet.from_pairs(lies)

    # --- what the session asks for -------------------------------------------------------------

    def grant(self, resources: ResourceSet) -> None:
        """Handle assigned resources: `on_assign`, restore, then work."""
        self.owned |= resources
        if not self.closing:
            self._call(self._restore, resources)

    def revoke(self, resources: ResourceSet) -> None:
        """Handle revoked resources: stop, commit, give up."""
        if not self.closing:  # otherwise everything is already being stopped
            self._call(self._stop, resources, StopReason.REVOKED)

    def lose(self) -> None:
        """Handle the loss of everything: stop immediately, commit nothing."""
        self._drop_all(StopReason.LOST)
        if self.closing:
            self.process.later(0, self._leave)
        else:
            self._call(self._learn_of_loss)

    def warm_up(self, resources: ResourceSet) -> None:
        """Handle warm-ups: `on_warmup`; a loss does not end them."""
        self._call_always(self._warm_up, resources)

    def cancel_warmups(self, resources: ResourceSet) -> None:
        """Handle warm-ups that are not wanted any longer: `on_warmup_cancelled`."""
        self._call_always(self.state.drop, resources)

    def finish_commit(self, effect: FinishCommit) -> None:
        """Handle the end of a commit."""
        refused = [(topic, partition) for topic, partition, code in effect.codes if code]
        if refused:
            code = next(code for _, _, code in effect.codes if code)
            self.process.write(
                CommitFailed(resources=ResourceSet.from_pairs(refused), error=error_name(code))
            )
        self._commits.pop(effect.commit_id, _nothing)()

    # --- what its host does --------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything, commit, leave the group."""
        self.closing = True
        self._epoch += 1
        self.stopping = EMPTY
        if self.owned:
            self._stop(self.owned, StopReason.CLOSED)
        else:
            self.process.later(0, self._leave)

    def settle(self) -> None:
        """Advance the positions of its resources."""
        now_ms = self.process.world.now_ms
        if now_ms > self._fed_since_ms:
            since_ms, capacity_per_s = self._fed_since_ms, self.capacity_per_s
            if self.load.work(self._fed_numbers, capacity_per_s, since_ms, now_ms):
                worked_s = (now_ms - since_ms) / 1_000
                self.rate_per_s = smoothed_rate(self.rate_per_s, capacity_per_s, worked_s)
            self._fed_since_ms = now_ms

    def renumber(self) -> None:
        """Look up the positions of its resources again, after the load has grown."""
        self._fed_numbers = self.load.numbers(self._fed)

    def freeze(self) -> None:
        """Pause all work."""
        self.settle()
        self._fed_since_ms = _FOR_EVER_MS

    def thaw(self) -> None:
        """Continue all work."""
        self._fed_since_ms = self.process.world.now_ms

    def _feed(self) -> None:
        self.settle()
        self._fed = self.working - self.stopping if self.stopping else self.working
        self._fed_numbers = self.load.numbers(self._fed)

    # --- callbacks -----------------------------------------------------------------------------

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run a callback at the application's next poll, after all earlier callbacks."""
        self._call_always(self._if_valid, self._epoch, callback, *arguments)

    def _call_always(self, callback: Callable[..., None], *arguments: object) -> None:
        world = self.process.world
        due_ms = world.now_ms + between(
            world.dice("callbacks"), self.callback_ms.low, self.callback_ms.high
        )
        self._next_callback_ms = max(self._next_callback_ms, due_ms)
        delay_ms = self._next_callback_ms - world.now_ms
        self.process.later(delay_ms, callback, *arguments)

    def _if_valid(self, epoch: int, callback: Callable[..., None], *arguments: object) -> None:
        if epoch == self._epoch:
            callback(*arguments)

    def _after(self, delay_ms: int, callback: Callable[..., None], *arguments: object) -> None:
        if delay_ms:
            self.process.later(delay_ms, self._if_valid, self._epoch, callback, *arguments)
        else:
            callback(*arguments)

    def _restore(self, resources: ResourceSet) -> None:
        ready = resources & self.state.ready
        for restore_ms, some in self.costs.to_restore(ready, is_warm=True):
            self._after(restore_ms, self._begin_work, some)
        cold = resources - ready
        for due_ms, some in self.state.take_restoring(cold).items():
            cold -= some
            self._after(due_ms - self.process.world.now_ms, self._begin_work, some)
        for restore_ms, some in self.costs.to_restore(cold, self.process.name):
            self._after(restore_ms, self._begin_work, some)

    def _warm_up(self, resources: ResourceSet) -> None:
        if self.closing:
            return
        mishaps = self.process.run_settings.mishaps
        if mishaps is None:
            # The member counts state as warm that it found, or that it was told to keep.
            self.state.complete(resources & self.process.warm)
        else:
            resources = self._without_mishaps(resources, mishaps)
        now_ms = self.process.world.now_ms
        cold = resources - self.state.ready
        for restore_ms, some in self.costs.to_restore(cold, self.process.name):
            self.state.begin(some, now_ms + restore_ms)
            self.process.later(restore_ms, self._warmed_up, some, now_ms + restore_ms)
        ready = resources & self.state.ready
        if ready:
            self.process.give(WarmedUp(resources=ready))

    def _without_mishaps(self, resources: ResourceSet, mishaps: WarmupMishaps) -> ResourceSet:
        """Let some warm-ups hang, fail, or be a lie; return the others."""
        dice = self.process.world.dice("warmups")
        parts: dict[str, list[Resource]] = {"hang": [], "fail": [], "lie": [], "": []}
        for resource in resources:
            number, kind = dice.random(), ""
            for name in ("hang", "fail", "lie"):
                share = getattr(mishaps, name)
                if 0 <= number < share:
                    kind = name
                number -= share
            parts[kind].append(resource)
        failed, lied = (ResourceSet.from_pairs(parts[kind]) for kind in ("fail", "lie"))
        if failed:
            self.process.give(WarmupFailed(resources=failed, error="OSError: disk full"))
        if lied:
            self.process.give(WarmedUp(resources=lied))
        return ResourceSet.from_pairs(parts[""])

    def _warmed_up(self, resources: ResourceSet, due_ms: int) -> None:
        restored = self.state.finish(resources, due_ms)
        if restored and not self.closing:
            self.process.give(WarmedUp(resources=restored))

    def _begin_work(self, resources: ResourceSet) -> None:
        # A resource may have been revoked and assigned again since this restore began.
        resources = (resources & self.owned) - self.stopping - self.working
        if not resources:
            return
        self.state.complete(resources)
        self.costs.note_work(resources, self.process.name)
        self.load.begin(self.load.numbers(resources))
        self.working |= resources
        self._feed()
        self.process.write(ResourcesStarted(resources=resources))

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        resources &= self.owned
        resources -= self.stopping
        self.stopping |= resources
        self._feed()
        idle = resources - self.working
        began_ms = self.process.world.now_ms
        if idle:
            self._give_up(idle, reason, began_ms)
        limit_ms = self.process.config.rebalance_timeout_ms  # `max.poll.interval.ms`
        for stop_ms, some in self.costs.to_stop(resources - idle):
            if stop_ms > limit_ms and reason is StopReason.REVOKED:
                self._after(limit_ms, self._give_up, some, StopReason.LOST, began_ms)
            else:
                self._after(stop_ms, self._flush, some, reason, began_ms)

    def _flush(self, resources: ResourceSet, reason: StopReason, began_ms: int) -> None:
        epoch = self._epoch

        def given_up() -> None:
            # The result arrives during a step of the session: continue after the step.
            self.process.later(0, self._committed, epoch, resources, reason, began_ms)

        numbers = self.load.numbers(resources)
        if self.process.run_settings.awaits_commits or reason is not StopReason.REVOKED:
            self._commit(resources, numbers, given_up)
        else:
            self._commit(resources, numbers, _nothing)
            given_up()

    def _committed(
        self, epoch: int, resources: ResourceSet, reason: StopReason, began_ms: int
    ) -> None:
        if epoch == self._epoch:
            self._give_up(resources, reason, began_ms)
        elif reason is StopReason.REVOKED and self.process.state is MemberState.LOSING:
            # The callback ran during a loss; report its end nevertheless.
            self.process.give(RevocationCompleted(resources=resources))

    def _give_up(self, resources: ResourceSet, reason: StopReason, began_ms: int) -> None:
        process = self.process
        self._tell_stopped(resources & self.working, reason, process.world.now_ms - began_ms)
        self.owned -= resources
        self.working -= resources
        self.stopping -= resources
        if reason is not StopReason.CLOSED:
            if process.run_settings.late_commit_ms:
                self._commit_late(resources)
            self.state.drop(resources)  # state to keep is named by a warm-up, which follows
            if self.state.is_kept and reason is StopReason.LOST:
                process.give(WarmupFailed(resources=resources, error="not stopped in time"))
            process.give(RevocationCompleted(resources=resources))
        elif not self.stopping:
            self._leave()

    def _drop_all(self, reason: StopReason) -> None:
        self._epoch += 1
        owned, worked = self.owned, self.working
        self.owned, self.working, self.stopping = EMPTY, EMPTY, EMPTY
        self._feed()
        if not self.state.on_disk:
            self.state.drop(owned)
        self._tell_stopped(worked, reason, 0)

    def _tell_stopped(self, worked: ResourceSet, reason: StopReason, duration_ms: int) -> None:
        if worked:
            self.process.write(
                ResourcesStopped(resources=worked, reason=reason, duration_ms=duration_ms)
            )

    def _learn_of_loss(self) -> None:
        if self.process.state is MemberState.LOSING:
            self.process.give(LossHandled())

    def _leave(self) -> None:
        if self.owned:  # assigned while the rest was being stopped
            self._drop_all(StopReason.CLOSED)
        if self.process.state is not MemberState.LEAVING:
            self.process.give(LeaveRequested(reason="the consumer is being closed"))

    # --- commits -------------------------------------------------------------------------------

    def _commit_by_clock(self) -> None:
        if self.closing:
            return
        if self._fed:
            self.settle()
            self._commit(self._fed, self._fed_numbers, _nothing)
        self.process.later(self.commit_interval_ms, self._commit_by_clock)

    def _commit(
        self, resources: ResourceSet, numbers: Int64Array, then: Callable[[], None]
    ) -> None:
        rows = self.load.to_commit(resources, numbers)
        if not rows:
            then()
            return
        commit_id = self.process.world.number()
        self._commits[commit_id] = then
        offsets = tuple([Offset(*row) for row in rows])
        self.process.give(CommitRequested(commit_id=commit_id, offsets=offsets))

    def _commit_late(self, resources: ResourceSet) -> None:
        """Request another commit later, unless the resources have returned until then."""
        rows = self.load.processed(resources, self.load.numbers(resources))

        def request() -> None:
            offsets = tuple(Offset(*row) for row in rows if row[:2] not in self.owned)
            if offsets and not self.closing:
                commit_id = self.process.world.number()
                self.process.give(CommitRequested(commit_id=commit_id, offsets=offsets))

        self.process.later(self.process.run_settings.late_commit_ms, request)


def _nothing() -> None:
    pass
