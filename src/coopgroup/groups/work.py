"""The work on each resource: started, stopped and lost independently of other resources.

Theory of operation. The group's thread reports grants, revocations and losses, and never waits
here. For each resource there is one `Work` with a wish (run, stop, end) and a state (running or
not, callbacks in progress). After each change of either, the next step follows from both:

    a callback is in progress   wait for it: two callbacks of a resource never run concurrently
    runs, and should not        `lost` if the grant has ended (the lease, an overdue stop) when a
                                thread is free for the call, else `stop`
    runs, and should            nothing, or `change` if its definition has changed
    does not run, and should    `start`, unless `start` has declined it or has failed permanently
    does not run, nor should    done: tell the group that a revoked resource has stopped

A leader may have read a newer catalogue than this member. The member then reads again before it
starts a resource, because it would start it with an old definition, or without one. It also reads
before it stops one, because `stop` says whether the resource was deleted. Both waits are limited.

A declined resource stays with this member until the leader has given it to another one. Meanwhile
the member tells all leaders that it declined, and for how long it will.

A callback that raises is reported and repeated with growing delays; a changed wish repeats it
immediately. A stop has a time limit: after it, the resource counts as lost and moves to another
member. Its `lost` runs beside the hanging stop, the one exception from the first line. If the
resource returns, it is not started before that stop has returned.

Telemetry and warnings run the application's code, too: its listener and its log handlers. Such code
may wait for another thread that calls this group. If this thread had the lock, both would wait for
ever. So reports are queued under the lock, and made after it is released.

A `Worker` raises if the system has no thread left. A call of a callback then waits for a thread.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
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
from coopgroup.groups.catalogue import UNDEFINED, Catalogue, GroupResource, Mark
from coopgroup.groups.warmth import ResourceWarmth
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.probe import WorkSample
from coopgroup.kafka.health.value import StuckPartition
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.ports import Notice
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.telemetry import (
    Record,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
    WorkFailed,
)
from coopgroup.worker import URGENT, Worker

ResourceCallback: TypeAlias = "Callable[[GroupResource], object]"


@frozen(kw_only=True)
class WorkFailure:
    """A failure, for the application's `on_error`.

    Attributes:
        resource: the resource; None if the membership itself has ended.
        action: the callback that raised: "start", "stop", "lost", "change", "warm" or "cool";
            "membership".
        attempts: number of consecutive failures; the callback is tried again after each, except
            "warm", "cool", and "start" after a `Decline` or a `StartFailed`.
    """

    resource: Resource | None
    action: str
    error: BaseException
    attempts: int


@frozen(kw_only=True)
class Callbacks:
    """The application's callbacks; `lost` is `stop` if the application gave none."""

    start: ResourceCallback
    stop: ResourceCallback
    lost: ResourceCallback
    on_error: Callable[[WorkFailure], object] | None
    change: ResourceCallback | None = None
    warm: ResourceCallback | None = None
    cool: ResourceCallback | None = None

    def check(self) -> None:
        """Refuse what cannot be called.

        Raises:
            TypeError: the message names the callback.
        """
        for one in attrs.fields(type(self)):
            callback = getattr(self, one.name)
            is_optional = one.name not in {"start", "stop"}
            if not callable(callback) and not (callback is None and is_optional):
                name = "on_change" if one.name == "change" else one.name
                raise TypeError(f"{name} expects a callable")


@define(eq=False)
class Calls:
    """Gives calls to a worker, and knows since when they wait."""

    worker: Worker
    _waiting: int = field(default=0, init=False)
    _refused: deque[tuple[int, Callable[[], None]]] = field(factory=deque, init=False)
    # Time when a thread last took a call, or when the first waiting call arrived.
    _moved_on_s: float = field(default=0.0, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    @property
    def waits_since_s(self) -> float:
        """Return since when calls wait without a free thread; infinite if no call waits."""
        with self._lock:
            return self._moved_on_s if self._waiting else math.inf

    def submit(self, urgency: int, call: Callable[[], None]) -> None:
        """Run a call on a thread; a waiting call with a smaller number goes first."""
        with self._lock:
            if not self._waiting:
                self._moved_on_s = now_s()
            self._waiting += 1
            self._refused.append((urgency, call))
            self.try_again()

    def try_again(self) -> None:
        """Submit the calls for which the system had no thread."""
        with self._lock:
            while self._refused:
                urgency, call = self._refused.popleft()
                try:
                    self.worker.submit(partial(self._take, call), urgency=urgency)
                except RuntimeError:
                    self._refused.appendleft((urgency, call))
                    return

    def _take(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._waiting -= 1
            self._moved_on_s = now_s()
        call()


class Wish(enum.Enum):
    """The state that a resource should reach: running, stopped, or ended as lost."""

    RUN = "run"
    STOP = "stop"
    END = "end"


class Action(enum.Enum):
    """The callbacks, with their urgency: ending work comes before starting work."""

    LOST = 0
    STOP = 1
    START = 2
    CHANGE = 3


@define(eq=False)
class Work:
    """One resource.

    Attributes:
        token: generation in which it was granted.
        is_stale: whether the running work belongs to a grant that has ended.
        is_told: whether telemetry has reported that it runs.
        version: version of the catalogue that the leader read for the grant; None without one.
        mark: definition with which it was started last.
        is_changed: whether the definition has changed since.
        is_deleted: whether the catalogue has not had it at some time since.
        refusal: why `start` refused it; None if it did not.
        waits_since_s: since when it waits for a newer catalogue; infinite if it does not.
        is_waiting_told: whether that wait has been reported.
        is_changing: whether a callback for a changed definition is in progress.
        is_overdue_told: whether a warning has said that this callback is overdue.
    """

    resource: Resource
    token: int
    version: int | None = None
    mark: Mark = UNDEFINED
    is_changed: bool = False
    is_deleted: bool = False
    refusal: Decline | StartFailed | None = None
    waits_since_s: float = math.inf
    is_waiting_told: bool = False
    wish: Wish = Wish.RUN
    runs: bool = False
    is_stale: bool = False
    busy: int = 0
    is_revoked: bool = False
    is_told: bool = False
    reason: StopReason = StopReason.REVOKED
    began_s: float = 0.0
    is_warned: bool = False
    is_changing: bool = False
    is_overdue_told: bool = False
    attempts: int = 0
    retry_at_s: float = 0.0

    @property
    def next_action(self) -> Action | None:
        """Return the callback that is due if none is in progress; None if none is due."""
        if self.runs and (self.is_stale or self.wish is not Wish.RUN):
            is_lost = self.is_stale or self.wish is Wish.END
            return Action.LOST if is_lost else Action.STOP
        if self.runs:
            return Action.CHANGE if self.is_changed else None
        return Action.START if self.wish is Wish.RUN and self.refusal is None else None

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; a callback that failed before is tried again immediately."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_revoked = self.is_warned = False
        self.waits_since_s = math.inf
        self.attempts, self.retry_at_s = 0, 0.0

    def refuse(self, refusal: Decline | StartFailed | None) -> None:
        """Note a refusal, or its end; failures before it are no reason to wake any more."""
        self.refusal = refusal
        self.attempts, self.retry_at_s = 0, 0.0

    def finished(self, *, runs: bool) -> None:
        """Note that a callback has returned; another one may still hang."""
        self.runs = runs
        self.is_stale = self.is_stale if self.runs else self.busy > 0
        self.attempts, self.retry_at_s = 0, 0.0


# Share of the time limit after which a stop is worth a warning.
_WARN_SHARE: Final = 0.5
_DOUBLINGS_MAX: Final = 20
# If a listener hangs, the oldest records are dropped, to bound the memory.
_UNTOLD_MAX: Final = 10_000
# How long a closing group waits for a listener.
_TOLD_S: Final = 1.0
# Time after which calls that wait for a free thread are worth a warning.
_NO_THREAD_WARN_S: Final = 10.0
# Time between two reads of a member that needs a newer catalogue.
_READ_AGAIN_S: Final = 0.5
# Time after which such a wait is worth a warning.
_BEHIND_WARN_S: Final = 5.0
# How long a stop waits for the catalogue that says whether the resource was deleted.
_STOP_BEHIND_S: Final = 2.0


@frozen(kw_only=True)
class WorkLimits:
    """Time limits and delays, in seconds.

    Attributes:
        stop_s: time limit of a stop; after it, the resource is lost.
        retry_s: the first delay after a callback has raised; it doubles with each try.
        behind_s: how long `start` waits for a newer catalogue; the member then declines.
    """

    stop_s: float
    retry_s: float = 0.5
    retry_max_s: float = 60.0
    behind_s: float = 30.0


@define(eq=False)
class ResourceWork:
    """All work of one member; takes its notices (`kafka.membership.ports.ResourceApplication`).

    Attributes:
        known: returns the catalogue that this member read last.
        look_soon: reads the catalogue again.
    """

    callbacks: Callbacks
    limits: WorkLimits
    pool: Worker
    write: Callable[[Record], None]
    warn: Callable[..., None]
    known: Callable[[], Catalogue | None]
    look_soon: Callable[[], None]
    driver: GroupDriver = field(init=False)
    failure: FailMember | None = field(default=None, init=False)
    _calls: Calls = field(init=False)
    _warmth: ResourceWarmth = field(init=False)
    _works: dict[Resource, Work] = field(factory=dict, init=False)
    _is_closing: bool = field(default=False, init=False)
    _hands_over: bool = field(default=False, init=False)
    # Declined resources: until when, the refusal, and the definition then; None if not listed.
    _declines: dict[Resource, tuple[float, Decline, Mark | None]] = field(factory=dict, init=False)
    _read_again_s: float = field(default=math.inf, init=False)
    # Value of `waits_since_s` at the last warning about waiting calls.
    _warned_since_s: float = field(default=math.inf, init=False)
    _changed: threading.Condition = field(
        factory=lambda: threading.Condition(threading.RLock()), init=False
    )
    # How often this thread holds the lock: a signal handler may call while it is held.
    _inside: threading.local = field(factory=threading.local, init=False)
    # Queued reports, in order; one thread at a time makes them.
    _untold: deque[Callable[[], None]] = field(
        factory=lambda: deque(maxlen=_UNTOLD_MAX), init=False
    )
    _is_telling: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._calls = Calls(self.pool)
        self._warmth = ResourceWarmth(
            warm=self.callbacks.warm,
            cool=self.callbacks.cool,
            is_worked_on=self._works.__contains__,
            submit=self._calls.submit,
            changing=self._changing,
            post=self._post,
            report=self._report_warmth,
            idle=self._start_idle,
            described=self._described,
        )

    # --- what the application asks ----------------------------------------------------------------

    def holds(self, resource: tuple[str, int]) -> bool:
        """Return whether a resource should be worked on at this moment."""
        work = self._owned(resource)
        return work is not None and self._should_run(work)

    def _should_run(self, work: Work) -> bool:
        is_ending = work.is_changed and self.callbacks.change is None
        return work.wish is Wish.RUN and work.refusal is None and not is_ending

    def failed(self) -> dict[Resource, str]:
        """Return the resources whose `start` has failed permanently, with the reason."""
        return {
            one.resource: said_by(refusal)
            for one in self.works()
            if isinstance(refusal := one.refusal, StartFailed)
        }

    def restart(self, resource: tuple[str, int]) -> bool:
        """Withdraw a refusal, and start the resource if it is here; return if there was one."""
        with self._changing():
            work = self._works.get(Resource(*resource))
            is_refused = work is not None and work.refusal is not None
            if not is_refused and resource not in self._declines:
                return False
            self._withdraw([one for one in self._declines if one == resource])
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
        with self._changing():
            return ResourceSet.from_pairs(one for one in self._works if self.holds(one))

    def works(self) -> tuple[Work, ...]:
        """Return the work on all resources; for readers on other threads."""
        return tuple(self._works.copy().values())

    def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until all work has ended; return whether this came in time."""
        with self._changing():
            return self._changed.wait_for(lambda: not self._works, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Stop all resources independently; return whether all stopped in time."""
        with self._changing():
            self._is_closing = True
            for work in tuple(self._works.values()):
                if work.wish is Wish.RUN:
                    work.want(Wish.STOP, StopReason.CLOSED)
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
        """Wait until telemetry has all records, with a time limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._untold and not self._is_telling, _TOLD_S)

    # --- what the group says, on its thread -------------------------------------------------------

    def put(self, notice: Notice) -> None:
        """Take a notice: a grant, a revocation, a loss or the end of the membership."""
        with self._changing():
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
        with self._changing():
            known = self.known()
            self._withdraw(
                [one for one, (_, _, mark) in self._declines.items() if mark != self._listed(one)]
            )
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
        with self._changing():
            self._read_again(now)
            self._forget_declines(now)
            for work in tuple(self._works.values()):
                if self._stops_late(work, now, 1.0):
                    self._warn_later("stop_never_finished", resources=_said(work.resource))
                    if work.is_revoked:
                        self._end_overdue(work)
                    else:  # it stays here: no other member waits for it
                        work.is_overdue_told = True
                elif not work.is_warned and self._stops_late(work, now, _WARN_SHARE):
                    work.is_warned = True
                    self._warn_later("stop_takes_long", resources=_said(work.resource))
                self._go_on(work)
            self._calls.try_again()
            since_s = self._calls.waits_since_s
            if since_s != self._warned_since_s and now >= since_s + _NO_THREAD_WARN_S:
                self._warned_since_s = since_s
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
                if resource in self._declines:
                    work.refusal = self._declines[resource][1]
            work.want(Wish.RUN)
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
                    work.want(Wish.STOP)
                    work.version = self.driver.member.last_assignment.catalogue_version
                work.is_revoked = True
                self._go_on(work)

    def _lose(self) -> None:
        for work in tuple(self._works.values()):
            work.want(Wish.END, StopReason.LOST)
            work.is_stale = True
            self._go_on(work)

    # --- one resource -----------------------------------------------------------------------------

    def _go_on(self, work: Work) -> None:
        if work.busy or self._works.get(work.resource) is not work:
            return
        action = work.next_action
        if action is Action.START and self._warmth.is_busy(work.resource):
            return  # `_start_idle` continues
        if action is not None:
            if now_s() >= work.retry_at_s and not self._awaits_catalogue(work, action):
                self._begin(work, action)
        elif work.wish is not Wish.RUN:
            self._end(work)

    def _begin(self, work: Work, action: Action) -> None:
        work.busy += 1
        if action is Action.CHANGE:
            work.began_s = now_s()
            work.is_changing, work.is_warned, work.is_overdue_told = True, False, False
        self._calls.submit(action.value, partial(self._run, work, action))
        if action is Action.CHANGE:
            self._remind()

    def _awaits_catalogue(self, work: Work, action: Action) -> bool:
        """Return whether a callback must wait until this member has read a newer catalogue."""
        known = self.known()
        is_behind = known is None or known.is_behind(work.version)
        if action is Action.START:
            waits = is_behind or known is None or work.resource not in known.resources
        else:
            is_late = now_s() >= work.began_s + _STOP_BEHIND_S
            waits = action is Action.STOP and work.is_revoked and is_behind and not is_late
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
                self._decline(work, Decline("the catalogue here does not have it"))
            elif not work.is_waiting_told and now >= work.waits_since_s + _BEHIND_WARN_S:
                work.is_waiting_told = True
                known, where = self.known(), _said(work.resource)
                has = None if known is None else known.version
                self._warn_later(
                    "catalogue_behind", resources=where, known=has, wanted=work.version
                )
        if waiting:
            self.look_soon()

    def _decline(self, work: Work, refusal: Decline) -> None:
        """Ask the group to give a resource to another member, for some time."""
        work.refuse(refusal)
        self._declines[work.resource] = (
            now_s() + refusal.for_s,
            refusal,
            self._listed(work.resource),
        )
        self._tell_refusal(work, refusal)
        self._post_declines()

    def _post_declines(self) -> None:
        self.driver.post(StartsDeclined(resources=ResourceSet.from_pairs(self._declines)))

    def _forget_declines(self, now: float) -> None:
        """End declines whose time is over; a resource that is still here is started again."""
        self._withdraw([one for one, (until_s, *_) in self._declines.items() if now >= until_s])

    def _withdraw(self, resources: list[Resource]) -> None:
        """End declines; the next step of their work comes from the caller."""
        for resource in resources:
            del self._declines[resource]
            work = self._works.get(resource)
            if work is not None and isinstance(work.refusal, Decline):
                work.refuse(None)  # no other member could have it
        if resources:
            self._post_declines()

    def _listed(self, resource: Resource) -> Mark | None:
        """Return the present definition of a resource; None if the catalogue does not have it."""
        known = self.known()
        return known.mark(resource) if known is not None and resource in known.resources else None

    def _tell_refusal(self, work: Work, refusal: Decline | StartFailed) -> None:
        resources = ResourceSet.from_pairs([work.resource])
        self._tell(
            WorkFailed(
                resources=resources,
                action="start",
                error=one_line(refusal),
                attempts=1,
                permanent=work.refusal is refusal and isinstance(refusal, StartFailed),
            )
        )
        self._report(WorkFailure(resource=work.resource, action="start", error=refusal, attempts=1))

    def _described(self, resource: Resource) -> GroupResource:
        """Return a resource with its present definition."""
        known = self.known()
        mark = UNDEFINED if known is None else known.mark(resource)
        return GroupResource.marked(resource, mark)

    def _prepared(self, work: Work, action: Action) -> GroupResource:
        """Return the argument of a callback; what begins takes the present definition."""
        known = self.known()
        is_listed = known is not None and work.resource in known.resources
        begins = action is Action.START or (
            action is Action.CHANGE and self.callbacks.change is not None
        )
        if begins:
            work.is_changed = work.is_deleted = False
            if known is not None and is_listed:
                work.mark = known.mark(work.resource)
            return GroupResource.marked(work.resource, work.mark)
        if action is Action.LOST:
            reason = "lost"
        elif action is Action.CHANGE:
            reason = "changed"
        elif work.reason is StopReason.REVOKED:
            reason = "moved" if is_listed else "deleted"
        else:
            reason = "closing"
        return GroupResource.marked(work.resource, work.mark, reason)

    def _run(self, work: Work, action: Action) -> None:
        with self._changing():
            ends = action is Action.STOP or (
                action is Action.CHANGE and self.callbacks.change is None
            )
            touches = action in {Action.STOP, Action.CHANGE}
            if touches and now_s() >= self.driver.lease_until_s:
                # The process was frozen: a flush in `stop` would run beside the next owner.
                work.is_stale, work.reason = True, StopReason.LOST
            abandons = action is Action.LOST and work.is_stale
            is_due = work.next_action is action and not self._awaits_catalogue(work, action)
            if not abandons and not is_due:
                work.busy -= 1
                work.is_changing = False
                self._go_on(work)
                return
            if action is Action.START:
                work.is_stale = False  # it begins under the current grant
            before = work.mark
            given = self._prepared(work, action)
        callback = self._callback(action)
        failure: BaseException | None = None
        try:
            callback(given)
        except BaseException as error:  # noqa: BLE001 -- the application's own, reported below
            failure = error
        # this runs the application's code, too
        words = "" if failure is None else one_line(failure)
        with self._changing():
            work.busy -= 1
            work.is_changing = work.is_changing and action is not Action.CHANGE
            if failure is None:
                work.finished(runs=action is Action.START or (action is Action.CHANGE and not ends))
                if action is Action.CHANGE and ends:
                    self._tell_stopped(work, StopReason.CHANGED)
                self._tell_started(work)
            elif action is Action.START and isinstance(failure, Decline | StartFailed):
                self._refuse(work, failure)
            else:
                if action is Action.CHANGE:  # it still follows the definition before
                    work.mark, work.is_changed = before, True
                self._back_off(work, action, failure, words)
            self._go_on(work)
            if failure is not None:
                self._remind()

    def _callback(self, action: Action) -> ResourceCallback:
        callbacks = self.callbacks
        match action:
            case Action.LOST:
                return callbacks.lost
            case Action.START:
                return callbacks.start
            case Action.CHANGE if callbacks.change is not None:
                return callbacks.change
            case _:
                return callbacks.stop  # after a change, `start` follows

    def _refuse(self, work: Work, refusal: Decline | StartFailed) -> None:
        if work.wish is not Wish.RUN or work.is_changed:
            self._tell_refusal(work, refusal)
            return  # it ends, or begins with another definition
        if isinstance(refusal, Decline):
            self._decline(work, refusal)
        else:
            work.refuse(refusal)
            self._tell_refusal(work, refusal)

    def _back_off(self, work: Work, action: Action, error: BaseException, words: str) -> None:
        work.attempts += 1
        if work.next_action is action:  # otherwise another callback is due, immediately
            factor = 1 << min(work.attempts - 1, _DOUBLINGS_MAX)
            work.retry_at_s = now_s() + min(self.limits.retry_s * factor, self.limits.retry_max_s)
        name, attempts = action.name.lower(), work.attempts
        resources = ResourceSet.from_pairs([work.resource])
        self._tell(WorkFailed(resources=resources, action=name, error=words, attempts=attempts))
        self._report(
            WorkFailure(resource=work.resource, action=name, error=error, attempts=attempts)
        )

    def _report_warmth(
        self, resource: Resource, action: str, error: BaseException, words: str
    ) -> None:
        resources = ResourceSet.from_pairs([resource])
        self._tell(WorkFailed(resources=resources, action=action, error=words, attempts=1))
        self._report(WorkFailure(resource=resource, action=action, error=error, attempts=1))

    def _post(self, event: WarmedUp | WarmupFailed) -> None:
        self.driver.post(event)

    def _start_idle(self, resource: Resource) -> None:
        work = self._works.get(resource)
        if work is not None:
            self._go_on(work)

    def _report(self, failure: WorkFailure) -> None:
        on_error = self.callbacks.on_error
        if on_error is None:
            return

        def call() -> None:
            try:
                on_error(failure)
            except BaseException as error:  # noqa: BLE001 -- there is nobody left to tell
                self.warn("internal_error", error=one_line(error))

        self._calls.submit(URGENT, call)  # callbacks may block all other threads

    # --- telling ----------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, and make the queued reports after its release."""
        inside = self._inside
        try:
            with self._changed:
                inside.depth = getattr(inside, "depth", 0) + 1
                try:
                    yield
                finally:
                    inside.depth -= 1
        finally:
            if not inside.depth:
                self._tell_all()

    def _tell_all(self) -> None:
        """Make the queued reports, unless another thread does; the pool makes later ones."""
        with self._changed:
            if self._is_telling or not self._untold:
                return
            self._is_telling = True
            calls, self._untold = self._untold, deque(maxlen=_UNTOLD_MAX)
        try:
            while calls:
                calls.popleft()()
        finally:
            with self._changed:
                self._untold.extendleft(reversed(calls))  # if a signal interrupted
                self._is_telling = False
                has_more = bool(self._untold)
                self._changed.notify_all()
        if has_more:
            self._calls.submit(URGENT, self._tell_all)

    def _warn_later(self, event: str, **fields: object) -> None:
        self._untold.append(partial(self.warn, event, **fields))

    def _tell(self, record: Record) -> None:
        self._untold.append(partial(self._write, record))

    def _write(self, record: Record) -> None:
        try:
            self.write(record)
        except Exception as error:  # noqa: BLE001 -- the work goes on without the record
            self.warn("internal_error", error=one_line(error))

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
        self._complete(work)  # first: the group waits for it, and telemetry may take long
        self._tell_stopped(work)
        if not self._is_closing:
            self._warmth.go_on(work.resource)
        self._changed.notify_all()

    def _complete(self, work: Work) -> None:
        if work.is_revoked:
            work.is_revoked = False
            stopped = ResourceSet.from_pairs([work.resource])
            self.driver.post(RevocationCompleted(resources=stopped))

    def _end_overdue(self, work: Work) -> None:
        """Treat an overdue stop as a loss, and give up the resource."""
        is_revoked, began_s = work.is_revoked, work.began_s
        work.want(Wish.END, StopReason.LOST)
        work.is_revoked, work.began_s = is_revoked, began_s
        work.is_stale = True
        if work.is_revoked and self.callbacks.warm is not None:
            # A stop that has not ended leaves no state that could be kept warm.
            stuck = ResourceSet.from_pairs([work.resource])
            self._post(WarmupFailed(resources=stuck, error="not stopped in time"))
        self._complete(work)  # first: the group waits for it, and telemetry may take long
        self._tell_stopped(work)
        if work.busy:
            self._begin(work, Action.LOST)
        else:
            self._go_on(work)

    # --- time -------------------------------------------------------------------------------------

    def _is_timed(self, work: Work) -> bool:
        is_changing = work.is_changing and work.wish is Wish.RUN and not work.is_overdue_told
        return work.is_revoked or is_changing

    def _stops_late(self, work: Work, now: float, share: float) -> bool:
        return self._is_timed(work) and now >= work.began_s + share * self.limits.stop_s

    def _remind(self) -> None:
        # The group wakes once for each value: a past one that stays would hide all others.
        due_s = [
            work.retry_at_s
            for work in self._works.values()
            if work.attempts
            and not work.busy
            and work.next_action is not None
            and math.isinf(work.waits_since_s)
        ]
        due_s += [
            work.began_s + self.limits.stop_s * (1.0 if work.is_warned else _WARN_SHARE)
            for work in self._works.values()
            if self._is_timed(work)
        ]
        due_s.append(self._read_again_s)
        due_s += [until_s for until_s, *_ in self._declines.values()]
        since_s = self._calls.waits_since_s
        if since_s != self._warned_since_s:
            due_s.append(since_s + _NO_THREAD_WARN_S)
        self.driver.remind(min(due_s, default=math.inf))


def _said(resource: Resource) -> dict[str, Any]:
    return {resource.name: [resource.index]}


@define(eq=False)
class GroupWork:
    """The work of one group."""

    work: ResourceWork

    def read(self) -> WorkSample:
        """Return the work of this moment."""
        now, works, failure = now_s(), self.work.works(), self.work.failure
        stops = [one for one in works if one.wish is Wish.STOP]
        return WorkSample(
            at_s=now,
            owned=ResourceSet.from_pairs(one.resource for one in works if one.wish is not Wish.END),
            revoking=ResourceSet.from_pairs(one.resource for one in stops),
            revoking_s=max((now - one.began_s for one in stops), default=0.0),
            stuck=tuple(
                _stuck(one, now) for one in works if one.busy and (one.is_changing or not one.runs)
            ),
            failure="" if failure is None else failure.message,
        )

    def look_up_ends(self, quiet: list[tuple[str, int]]) -> None:
        """Do nothing: named resources have no log."""

    def commit_meter(self) -> CommitMeter | None:
        """Return None: named resources have no offsets."""
        return None


def _stuck(work: Work, now: float) -> StuckPartition:
    """Return a resource whose `start` or change has not returned; the limit decides if it hangs."""
    return StuckPartition(
        topic=work.resource.name,
        partition=work.resource.index,
        why="callback",
        since_s=now - work.began_s,
    )
