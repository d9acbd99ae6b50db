"""The work on each resource: started, stopped and lost independently of other resources.

Theory of operation. The group's thread reports grants, revocations and losses, and never waits
here. The callback that each resource needs next follows from its `Work` (`state`). It runs on a
thread of the `Worker` for callbacks (`callbacks`).

A leader may have read a newer catalogue than this member. The member then reads again before it
starts a resource, because it would start it with an old definition, or without one. It also reads
before it stops one, because `stop` says whether the resource was deleted. Both waits are limited.

A callback that raises is reported and repeated with growing delays; a changed wish repeats it
immediately. A stop has a time limit (`PendingRevocations`, as for a consumer): after it, the
resource counts as lost and moves to another member. Its `lost` runs beside the hanging stop, the
one exception from the rule that callbacks of a resource never run concurrently. If the resource
returns, it is not started before that stop has returned.

Telemetry and warnings run the application's code, too: its listener and its log handlers. Such code
may wait for another thread that calls this group. If the caller had the lock, both would wait for
ever. So a thread of their own makes the reports, in order.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from attrs import define, field, frozen

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import (
    LossHandled,
    RevocationCompleted,
    StartsDeclined,
    SubscriptionChanged,
    WarmedUp,
    WarmupFailed,
)
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.errors import Decline, StartFailed, one_line, said_by
from coopgroup.groups.callbacks import Callbacks, Calls, ResourceCallback, WorkFailure, failure_of
from coopgroup.groups.catalogue import UNDEFINED, Catalogue, GroupResource, Mark
from coopgroup.groups.declines import Declines
from coopgroup.groups.state import URGENCY, Step, Wish, Work
from coopgroup.groups.warmth import ResourceWarmth
from coopgroup.kafka.callbacks.pending_revocations import PendingRevocations
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.ports import Notice
from coopgroup.telemetry import (
    Record,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
    WorkFailed,
)
from coopgroup.worker import NORMAL, URGENT, Worker

_DOUBLINGS_MAX: Final = 20
# How long a closing group waits for a listener.
_TOLD_S: Final = 1.0
# Maximum delay until a waiting caller notices, for example, the end of a lease.
_LOOK_S: Final = 0.05
# Time between two reads of a member that needs a newer catalogue.
_READ_AGAIN_S: Final = 0.5
# Time after which such a wait is worth a warning.
_BEHIND_WARN_S: Final = 5.0
# How long a stop waits for the catalogue that says whether the resource was deleted.
_STOP_BEHIND_S: Final = 2.0


@frozen(kw_only=True)
class WorkLimits:
    """Time limits and delays, in seconds, and the limit of waiting reports.

    Attributes:
        stop_s: time limit of a stop; after it, the resource is lost.
        retry_s: the first delay after a callback has raised; it doubles with each try.
        behind_s: how long `start` waits for a newer catalogue; the member then declines.
        reports_max: if a listener hangs, later reports are dropped, to bound the memory.
    """

    stop_s: float
    retry_s: float = 0.5
    retry_max_s: float = 60.0
    behind_s: float = 30.0
    reports_max: int = 10_000


@define(eq=False)
class ResourceWork:
    """All work of one member; takes its notices (`kafka.membership.ports.ResourceApplication`).

    Attributes:
        known: returns the catalogue that this member read last.
        pool: runs the callbacks.
        reports: runs the reports to telemetry and to the log, one at a time.
        look_soon: reads the catalogue again.
    """

    callbacks: Callbacks
    limits: WorkLimits
    pool: Worker
    reports: Worker
    write: Callable[[Record], None]
    warn: Callable[..., None]
    known: Callable[[], Catalogue | None]
    look_soon: Callable[[], None]
    driver: GroupDriver = field(init=False)
    failure: FailMember | None = field(default=None, init=False)
    _calls: Calls = field(init=False)
    _reports: Calls = field(init=False)
    _warmth: ResourceWarmth = field(init=False)
    _works: dict[Resource, Work] = field(factory=dict, init=False)
    _is_closing: bool = field(default=False, init=False)
    _hands_over: bool = field(default=False, init=False)
    _declines: Declines = field(init=False)
    # Revoked resources whose `stop` has not returned, and changes of definitions in progress.
    _pending: PendingRevocations = field(init=False)
    _read_again_s: float = field(default=math.inf, init=False)
    _changed: threading.Condition = field(
        factory=lambda: threading.Condition(threading.RLock()), init=False
    )

    def __attrs_post_init__(self) -> None:
        self._calls = Calls(self.pool)
        self._reports = Calls(self.reports, self.limits.reports_max)
        self._declines = Declines(self._listed)
        self._pending = PendingRevocations(self.limits.stop_s)
        self._warmth = ResourceWarmth(
            warm=self.callbacks.warm,
            cool=self.callbacks.cool,
            is_worked_on=self._works.__contains__,
            submit=self._calls.submit,
            changing=self._changed,
            post=self._post,
            report=self._tell_failure,
            idle=self._start_idle,
            described=self._described,
        )

    # --- what the application asks ----------------------------------------------------------------

    def holds(self, resource: tuple[str, int]) -> bool:
        """Return whether a resource should be worked on at this moment."""
        work = self._owned(resource)
        if work is None or work.wish is not Wish.RUN or work.refusal is not None:
            return False
        return self.callbacks.change is not None or not work.is_changed

    def failed(self) -> dict[Resource, str]:
        """Return the resources whose `start` has failed permanently, with the reason."""
        return {
            one.resource: said_by(refusal)
            for one in self.works()
            if isinstance(refusal := one.refusal, StartFailed)
        }

    def restart(self, resource: tuple[str, int]) -> bool:
        """Withdraw a refusal, and start the resource if it is here; return if there was one."""
        with self._changed:
            key = Resource(*resource)
            work, decline = self._works.get(key), self._declines.refusal_of(key)
            if decline is None and (work is None or work.refusal is None):
                return False
            self._withdraw([] if decline is None else [key])
            if work is not None:
                work.refuse(None)
                self._go_on(work)
            self._remind()
            return True

    def token(self, resource: tuple[str, int]) -> int | None:
        """Return the generation of a resource's grant; None if another member might have it."""
        work = self._owned(resource)
        return None if work is None else work.token

    def granted_token(self, resource: tuple[str, int]) -> int | None:
        """Return the generation of the last grant, lease or not; None if the work has ended."""
        work = self._works.get(Resource(*resource))
        return None if work is None else work.token

    def _owned(self, resource: tuple[str, int]) -> Work | None:
        """Return the work on a resource that no other member can have: to run, or being stopped."""
        # Check the lease first: a loss is noted in `_works` before the lease is cleared.
        if now_s() >= self.driver.lease_until_s:
            return None
        work = self._works.get(Resource(*resource))
        return None if work is None or work.is_stale or work.wish is Wish.END else work

    def held(self) -> ResourceSet:
        """Return all resources that should be worked on at this moment."""
        with self._changed:
            return ResourceSet.from_pairs(one for one in self._works if self.holds(one))

    def works(self) -> tuple[Work, ...]:
        """Return the work on all resources; for readers on other threads."""
        return tuple(self._works.copy().values())

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition, which also the clock may fulfil; return whether it came in time."""
        until_s = math.inf if timeout_s is None else now_s() + timeout_s
        with self._changed:
            while not condition():
                left_s = min(_LOOK_S, until_s - now_s())
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def close(self, timeout_s: float) -> bool:
        """Stop all resources independently; return whether all stopped in time."""
        with self._changed:
            self._is_closing = True
            for work in tuple(self._works.values()):
                if work.wish is Wish.RUN:
                    self._want(work, Wish.STOP, StopReason.CLOSED)
                    self._go_on(work)
            self._remind()
            stopped = self._changed.wait_for(lambda: not self._works, timeout_s)
            # The process leaves now, and this gives later grants to other members. A subscription
            # that changes after the leave would begin a new membership.
            self._hands_over = True
            if stopped:
                return True
            for work in tuple(self._works.values()):
                self._end_overdue(work)
            return False

    def wait_told(self) -> None:
        """Wait until telemetry has all records, with a time limit; later records are dropped."""
        self.reports.close(_TOLD_S)
        if left_out := self._reports.take_left_out():
            self.warn("reports_dropped", reports=left_out)

    # --- what the group says, on its thread -------------------------------------------------------

    def put(self, notice: Notice) -> None:
        """Take a notice: a grant, a revocation, a loss or the end of the membership."""
        with self._changed:
            match notice:
                case GrantResources():
                    self._grant(notice.resources)
                case RevokeResources():
                    self._revoke(notice.resources)
                case LoseResources():
                    self._lose()
                    self.driver.post(LossHandled())
                case BeginWarmups() if self._is_closing:
                    pass  # this process leaves
                case BeginWarmups():
                    self._warmth.begin(notice.resources)
                case CancelWarmups():
                    self._warmth.cancel(notice.resources)
                case FailMember():
                    self.failure = notice
                    error = RuntimeError(notice.message)
                    self._report(
                        WorkFailure(resource=None, action="membership", error=error, attempts=1)
                    )
            self._remind()
            self._changed.notify_all()

    def clear(self) -> None:
        """Do nothing: when the group is left, all work has been stopped before."""

    def take_catalogue(self) -> None:
        """Continue starts that waited for the catalogue, and follow changed definitions."""
        with self._changed:
            known = self.known()
            self._withdraw(self._declines.ended())
            for work in tuple(self._works.values()):
                if known is None or work.resource not in known.resources:
                    work.is_deleted = True
                elif work.is_deleted or known.mark(work.resource) != work.mark:
                    work.is_changed, work.is_deleted = True, False
                    work.attempts, work.retry_at_s = 0, 0.0
                    if isinstance(work.refusal, StartFailed):
                        work.refusal = None  # the new definition may be right
                self._go_on(work)
            self._remind()

    def wake(self) -> None:
        """Repeat failed callbacks, end overdue stops, and warn of waiting calls."""
        now = now_s()
        with self._changed:
            self._read_again(now)
            self._withdraw(self._declines.ended())
            self._end_late(now)
            for work in tuple(self._works.values()):
                self._go_on(work)
            self._calls.try_again()
            self._reports.try_again()
            self._warn_of_dropped()
            if self._calls.take_long(now):
                self._warn_later("callbacks_wait", threads=self.pool.threads_max)
            self._remind()

    def _grant(self, resources: ResourceSet) -> None:
        token = self.driver.member.claim_generation
        if token < 0:  # granted late, and lost in the same step
            return
        for work in map(self._works.get, resources):
            if work is not None and work.is_stale:
                work.is_told = False  # the loss has ended it, though `lost` is in progress
        if self._is_closing:
            self._hand_over()
            return
        version = self.driver.member.last_assignment.catalogue_version
        for resource in resources:
            work = self._works.get(resource)
            if work is None:
                work = self._works[resource] = Work(resource=resource, token=token)
                work.refusal = self._declines.refusal_of(resource)
            self._want(work, Wish.RUN)
            work.token, work.version = token, version
            self._go_on(work)
        self._warmth.leave_to_work(resources)

    def _hand_over(self) -> None:
        """Make the group move all resources of a closing process immediately.

        Otherwise no other member would get them before this process has left, even if its stops
        take long.
        """
        if not self._hands_over:
            self._hands_over = True
            self.driver.post(SubscriptionChanged(topics=()))

    def _revoke(self, resources: ResourceSet) -> None:
        gone = [one for one in resources if one not in self._works]
        if gone:  # closing: they have stopped already
            self.driver.post(RevocationCompleted(resources=ResourceSet.from_pairs(gone)))
        for resource in resources:
            work = self._works.get(resource)
            if work is not None:
                if work.wish is Wish.RUN:
                    self._want(work, Wish.STOP)
                    work.version = self.driver.member.last_assignment.catalogue_version
                if not work.is_revoked:
                    work.is_revoked = True
                    self._pending.begin([resource], work.began_s)
                self._go_on(work)

    def _lose(self) -> None:
        for work in tuple(self._works.values()):
            self._want(work, Wish.END, StopReason.LOST)
            self._go_on(work)

    # --- one resource -----------------------------------------------------------------------------

    def _want(self, work: Work, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        work.want(wish, reason)
        self._pending.end([work.resource])
        if wish is Wish.RUN and work.is_changing:
            self._pending.begin([work.resource], work.began_s)

    def _go_on(self, work: Work) -> None:
        if self._works.get(work.resource) is not work:
            return
        step = work.next_step()
        if step is Step.START and self._warmth.is_busy(work.resource):
            return  # `_start_idle` continues
        if step is Step.END:
            self._end(work)
        elif step in URGENCY and now_s() >= work.retry_at_s and not self._awaits(work, step):
            self._begin(work, step)

    def _begin(self, work: Work, action: Step) -> None:
        work.busy += 1
        if action is Step.CHANGE:
            work.began_s, work.is_changing = now_s(), True
            self._pending.begin([work.resource], work.began_s)
        self._calls.submit(URGENCY[action], partial(self._run, work, action))
        if action is Step.CHANGE:
            self._remind()

    def _awaits(self, work: Work, action: Step) -> bool:
        """Return whether a callback must wait until this member has read a newer catalogue."""
        known = self.known()
        is_behind = known is None or known.is_behind(work.version)
        if action is Step.START:
            waits = is_behind or self._listed(work.resource) is None
        else:
            is_late = now_s() >= work.began_s + _STOP_BEHIND_S
            waits = action is Step.STOP and work.is_revoked and is_behind and not is_late
        if not waits:
            work.waits_since_s, work.is_waiting_told = math.inf, False
        elif math.isinf(work.waits_since_s):
            work.waits_since_s = now_s()
            self._read_again_s = min(self._read_again_s, now_s())
            self._remind()
        return waits

    def _read_again(self, now: float) -> None:
        """Read the catalogue again for work that waits, warn of long waits, and end them."""
        if now < self._read_again_s:
            return
        waiting = [one for one in self._works.values() if not math.isinf(one.waits_since_s)]
        self._read_again_s = now + _READ_AGAIN_S if waiting else math.inf
        for work in waiting:
            if work.wish is not Wish.RUN:
                continue
            if now >= work.waits_since_s + self.limits.behind_s:
                work.waits_since_s = math.inf
                refusal = Decline("the catalogue here does not have it")
                self._refuse(work, refusal)
                self._tell_failure(work.resource, "start", refusal)
            elif not work.is_waiting_told and now >= work.waits_since_s + _BEHIND_WARN_S:
                work.is_waiting_told = True
                known, where = self.known(), _said(work.resource)
                has = None if known is None else known.version
                self._warn_later(
                    "catalogue_behind", resources=where, known=has, wanted=work.version
                )
        if waiting:
            self.look_soon()

    def _withdraw(self, resources: list[Resource]) -> None:
        """End declines; the next step of their work comes from the caller."""
        for resource in resources:
            work = self._works.get(resource)
            if work is not None and isinstance(work.refusal, Decline):
                work.refuse(None)  # no other member could have it
        self._declines.remove(resources)
        if resources:
            self._post_declines()

    def _post_declines(self) -> None:
        self.driver.post(StartsDeclined(resources=ResourceSet.from_pairs(self._declines)))

    def _listed(self, resource: Resource) -> Mark | None:
        """Return the present definition of a resource; None if the catalogue does not have it."""
        known = self.known()
        return known.mark(resource) if known is not None and resource in known.resources else None

    def _described(self, resource: Resource) -> GroupResource:
        """Return a resource with its present definition."""
        return GroupResource.marked(resource, self._listed(resource) or UNDEFINED)

    def _prepared(self, work: Work, action: Step) -> GroupResource:
        """Return the argument of a callback; what begins takes the present definition."""
        listed = self._listed(work.resource)
        follows = action is Step.CHANGE and self.callbacks.change is not None
        if action is Step.START or follows:
            work.is_changed = work.is_deleted = False
            work.mark = listed or work.mark
            return GroupResource.marked(work.resource, work.mark)
        if action is Step.LOST:
            reason = "lost"
        elif action is Step.CHANGE:
            reason = "changed"
        elif work.reason is StopReason.REVOKED:
            reason = "moved" if listed else "deleted"
        else:
            reason = "closing"
        return GroupResource.marked(work.resource, work.mark, reason)

    def _run(self, work: Work, action: Step) -> None:
        with self._changed:
            if not self._is_still_due(work, action):
                self._returned(work, action)
                self._go_on(work)
                return
            if action is Step.START:
                work.is_stale = False  # it begins under the current grant
            before = work.mark
            given = self._prepared(work, action)
        failure = failure_of(self._callback(action), given)
        with self._changed:
            self._returned(work, action)
            if failure is None:
                self._succeed(work, action)
            elif action is Step.START and isinstance(failure, Decline | StartFailed):
                is_over = work.wish is not Wish.RUN or work.is_changed
                if not is_over:  # otherwise it ends, or begins with another definition
                    self._refuse(work, failure)
                permanent = isinstance(failure, StartFailed) and not is_over
                self._tell_failure(work.resource, "start", failure, permanent=permanent)
            else:
                if action is Step.CHANGE:  # it still follows the definition before
                    work.mark, work.is_changed = before, True
                self._back_off(work, action, failure)
            self._go_on(work)
            if failure is not None:
                self._remind()

    def _is_still_due(self, work: Work, action: Step) -> bool:
        """Return whether a callback is still due, now that a thread is free for it."""
        ends = action in {Step.STOP, Step.CHANGE}
        if ends and now_s() >= self.driver.lease_until_s:
            # The process was frozen: a flush in `stop` would run beside the next owner.
            work.is_stale, work.reason = True, StopReason.LOST
        abandons = action is Step.LOST and work.is_stale
        is_due = work.next_step(besides=1) is action and not self._awaits(work, action)
        return abandons or is_due

    def _returned(self, work: Work, action: Step) -> None:
        work.busy -= 1
        if action is Step.CHANGE:
            work.is_changing = False
            if not work.is_revoked:
                self._pending.end([work.resource])

    def _succeed(self, work: Work, action: Step) -> None:
        stops = action is Step.CHANGE and self.callbacks.change is None
        work.finished(runs=action in {Step.START, Step.CHANGE} and not stops)
        if stops:
            self._tell_stopped(work, StopReason.CHANGED)
        self._tell_started(work)

    def _callback(self, action: Step) -> ResourceCallback:
        callbacks = self.callbacks
        match action:
            case Step.LOST:
                return callbacks.lost
            case Step.START:
                return callbacks.start
            case Step.CHANGE if callbacks.change is not None:
                return callbacks.change
            case _:
                return callbacks.stop  # after a change, `start` follows

    def _refuse(self, work: Work, refusal: Decline | StartFailed) -> None:
        """Do not start a resource here; ask the group to give a declined resource to others."""
        work.refuse(refusal)
        if isinstance(refusal, Decline):
            self._declines.add(work.resource, refusal)
            self._post_declines()

    def _back_off(self, work: Work, action: Step, error: BaseException) -> None:
        work.attempts += 1
        if work.next_step(besides=work.busy) is action:  # otherwise another one is due, now
            factor = 1 << min(work.attempts - 1, _DOUBLINGS_MAX)
            work.retry_at_s = now_s() + min(self.limits.retry_s * factor, self.limits.retry_max_s)
        self._tell_failure(work.resource, action.name.lower(), error, work.attempts)

    def _post(self, event: WarmedUp | WarmupFailed) -> None:
        self.driver.post(event)  # it is set after `_warmth`

    def _start_idle(self, resource: Resource) -> None:
        work = self._works.get(resource)
        if work is not None:
            self._go_on(work)

    def _report(self, failure: WorkFailure) -> None:
        on_error = self.callbacks.on_error
        if on_error is None:
            return

        def call() -> None:
            if (error := failure_of(on_error, failure)) is not None:
                self.warn("internal_error", error=one_line(error))

        self._calls.submit(URGENT, call)  # callbacks may block all other threads

    # --- telling ----------------------------------------------------------------------------------

    def _report_later(self, report: Callable[[], None]) -> None:
        if not self._reports.submit(NORMAL, report):
            self._warn_of_dropped()
            self._remind()

    def _warn_of_dropped(self) -> None:
        if dropped := self._reports.take_dropped(now_s()):
            # Not as a report, which would be dropped, too.
            self._calls.submit(URGENT, partial(self.warn, "reports_dropped", reports=dropped))

    def _warn_later(self, event: str, **fields: object) -> None:
        self._report_later(partial(self.warn, event, **fields))

    def _tell(self, record: Record) -> None:
        self._report_later(partial(self._write, record))

    def _write(self, record: Record) -> None:
        try:
            self.write(record)
        except Exception as error:  # noqa: BLE001 -- the work goes on without the record
            self.warn("internal_error", error=one_line(error))

    def _tell_failure(
        self,
        resource: Resource,
        action: str,
        error: BaseException,
        attempts: int = 1,
        *,
        permanent: bool = False,
    ) -> None:
        def write() -> None:  # not here: the text of an exception runs the application's code
            record = WorkFailed(
                resources=ResourceSet.from_pairs([resource]),
                action=action,
                error=one_line(error),
                attempts=attempts,
                permanent=permanent,
            )
            self._write(record)

        self._report_later(write)
        self._report(WorkFailure(resource=resource, action=action, error=error, attempts=attempts))

    def _tell_started(self, work: Work) -> None:
        if work.runs and not work.is_told and not work.is_stale:
            work.is_told = True
            self._tell(ResourcesStarted(resources=ResourceSet.from_pairs([work.resource])))

    def _tell_stopped(self, work: Work, reason: StopReason | None = None) -> None:
        if work.is_told:
            work.is_told = False
            self._tell(
                ResourcesStopped(
                    resources=ResourceSet.from_pairs([work.resource]),
                    reason=work.reason if reason is None else reason,
                    duration_ms=round((now_s() - work.began_s) * 1000),
                )
            )

    def _end(self, work: Work) -> None:
        del self._works[work.resource]
        self._complete(work)
        self._tell_stopped(work)
        if not self._is_closing:
            self._warmth.go_on(work.resource)
        self._changed.notify_all()

    def _complete(self, work: Work) -> None:
        if work.is_revoked:
            work.is_revoked = False
            self._pending.end([work.resource])
            stopped = ResourceSet.from_pairs([work.resource])
            self.driver.post(RevocationCompleted(resources=stopped))

    # --- time -------------------------------------------------------------------------------------

    def _end_late(self, now: float) -> None:
        """Warn of stops that take long, and end overdue stops."""
        long, overdue = self._pending.take_late(now)
        for resource in long:
            self._warn_later("stop_takes_long", resources=_said(resource))
        for resource in overdue:
            self._warn_later("stop_never_finished", resources=_said(resource))
            work = self._works[resource]
            if work.is_revoked:
                self._end_overdue(work)
            else:  # it stays here: no other member waits for it
                self._pending.end([resource])

    def _end_overdue(self, work: Work) -> None:
        """Treat an overdue stop as a loss, and give up the resource."""
        is_revoked, began_s = work.is_revoked, work.began_s
        self._want(work, Wish.END, StopReason.LOST)
        work.is_revoked, work.began_s = is_revoked, began_s
        if is_revoked and self.callbacks.warm is not None:
            # A stop that has not ended leaves no state that could be kept warm.
            stuck = ResourceSet.from_pairs([work.resource])
            self.driver.post(WarmupFailed(resources=stuck, error="not stopped in time"))
        self._complete(work)
        self._tell_stopped(work)
        if work.busy:
            self._begin(work, Step.LOST)
        else:
            self._go_on(work)

    def _remind(self) -> None:
        # The group wakes once for each value: a past one that stays would hide all others.
        due_s = [
            work.retry_at_s
            for work in self._works.values()
            if work.attempts and work.next_step() in URGENCY and math.isinf(work.waits_since_s)
        ]
        due_s += [self._read_again_s, self._pending.due_at_s]
        due_s += [self._declines.due_at_s, self._calls.due_at_s]
        due_s += [self._calls.again_at_s, self._reports.again_at_s]
        due_s.append(self._reports.dropped_due_at_s)
        self.driver.remind(min(due_s))


def _said(resource: Resource) -> dict[str, Any]:
    return {resource.name: [resource.index]}
