"""The work on each resource: started, stopped and lost independently of other resources.

Theory of operation. The group's thread reports grants, revocations and losses, and never waits
here. For each resource there is one `Work` with a wish (run, stop, end) and a state (running or
not, callbacks in progress). After each change of either, the next step follows from both:

    a callback is in progress   wait for it: two callbacks of a resource never run concurrently
    runs, and should not        `lost` if the grant has ended (the lease, an overdue stop) when a
                                thread is free for the call, else `stop`
    runs, and should            nothing
    does not run, and should    `start`
    does not run, nor should    done: tell the group that a revoked resource has stopped

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
    SubscriptionChanged,
    WarmedUp,
    WarmupFailed,
)
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.core.session import one_line
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

ResourceCallback: TypeAlias = "Callable[[Resource], object]"


@frozen(kw_only=True)
class WorkFailure:
    """A failure, for the application's `on_error`.

    Attributes:
        resource: the resource; None if the membership itself has ended.
        action: the callback that raised: "start", "stop", "lost", "warm" or "cool"; "membership".
        attempts: number of consecutive failures; the callback is tried again after each, except
            "warm" and "cool".
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
                raise TypeError(f"{one.name} expects a callable")


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


@define(eq=False)
class Work:
    """One resource.

    Attributes:
        token: generation in which it was granted.
        is_stale: whether the running work belongs to a grant that has ended.
        is_told: whether telemetry has reported that it runs.
    """

    resource: Resource
    token: int
    wish: Wish = Wish.RUN
    runs: bool = False
    is_stale: bool = False
    busy: int = 0
    is_revoked: bool = False
    is_told: bool = False
    reason: StopReason = StopReason.REVOKED
    began_s: float = 0.0
    is_warned: bool = False
    attempts: int = 0
    retry_at_s: float = 0.0

    @property
    def next_action(self) -> Action | None:
        """Return the callback that is due if none is in progress; None if none is due."""
        if self.runs and (self.is_stale or self.wish is not Wish.RUN):
            is_lost = self.is_stale or self.wish is Wish.END
            return Action.LOST if is_lost else Action.STOP
        return Action.START if self.wish is Wish.RUN and not self.runs else None

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; a callback that failed before is tried again immediately."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_revoked = self.is_warned = False
        self.attempts, self.retry_at_s = 0, 0.0

    def finished(self, action: Action) -> None:
        """Note that a callback has returned; another one may still hang."""
        self.runs = action is Action.START
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


@frozen(kw_only=True)
class WorkLimits:
    """Time limits and delays, in seconds.

    Attributes:
        stop_s: time limit of a stop; after it, the resource is lost.
        retry_s: the first delay after a callback has raised; it doubles with each try.
    """

    stop_s: float
    retry_s: float = 0.5
    retry_max_s: float = 60.0


@define(eq=False)
class ResourceWork:
    """All work of one member; takes the group's notices (`kafka.membership.ports.Application`)."""

    callbacks: Callbacks
    limits: WorkLimits
    pool: Worker
    write: Callable[[Record], None]
    warn: Callable[..., None]
    driver: GroupDriver = field(init=False)
    failure: FailMember | None = field(default=None, init=False)
    _calls: Calls = field(init=False)
    _warmth: ResourceWarmth = field(init=False)
    _works: dict[Resource, Work] = field(factory=dict, init=False)
    _is_closing: bool = field(default=False, init=False)
    _hands_over: bool = field(default=False, init=False)
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
            submit=self._calls.submit,
            changing=self._changing,
            post=self._post,
            report=self._report_warmth,
            idle=self._start_idle,
        )

    # --- what the application asks ----------------------------------------------------------------

    def holds(self, resource: tuple[str, int]) -> bool:
        """Return whether a resource should be worked on at this moment."""
        work = self._owned(resource)
        return work is not None and work.wish is Wish.RUN

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

    def wake(self) -> None:
        """Repeat failed callbacks, end overdue stops, and warn of waiting calls."""
        now = now_s()
        with self._changing():
            for work in tuple(self._works.values()):
                if self._stops_late(work, now, 1.0):
                    self._warn_later("stop_never_finished", resources=_said(work.resource))
                    self._end_overdue(work)
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
        if self._is_closing:
            self._hand_over()
            return
        for resource in resources:
            work = self._works.get(resource)
            if work is None:
                work = self._works[resource] = Work(resource=resource, token=token)
            work.want(Wish.RUN)
            work.token = token
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
            if now_s() >= work.retry_at_s:
                self._begin(work, action)
        elif work.wish is not Wish.RUN:
            self._end(work)

    def _begin(self, work: Work, action: Action) -> None:
        work.busy += 1
        self._calls.submit(action.value, partial(self._run, work, action))

    def _run(self, work: Work, action: Action) -> None:
        with self._changing():
            if action is Action.STOP and now_s() >= self.driver.lease_until_s:
                # The process was frozen: a flush in `stop` would run beside the next owner.
                work.is_stale, work.reason = True, StopReason.LOST
            abandons = action is Action.LOST and work.is_stale
            if not abandons and work.next_action is not action:
                work.busy -= 1
                self._go_on(work)
                return
            if action is Action.START:
                work.is_stale = False  # it begins under the current grant
        callback: ResourceCallback = getattr(self.callbacks, action.name.lower())
        failure: BaseException | None = None
        try:
            callback(work.resource)
        except BaseException as error:  # noqa: BLE001 -- the application's own, reported below
            failure = error
        # this runs the application's code, too
        words = "" if failure is None else one_line(failure)
        with self._changing():
            work.busy -= 1
            if failure is None:
                work.finished(action)
                self._tell_started(work)
            else:
                self._back_off(work, action, failure, words)
            self._go_on(work)
            if failure is not None:
                self._remind()

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
                self.warn("internal_error", error=repr(error))

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
            self.warn("internal_error", error=repr(error))

    def _tell_started(self, work: Work) -> None:
        if work.runs and not work.is_told and not work.is_stale:
            work.is_told = True
            self._tell(ResourcesStarted(resources=ResourceSet.from_pairs([work.resource])))

    def _tell_stopped(self, work: Work) -> None:
        if work.is_told:
            work.is_told = False
            self._tell(
                ResourcesStopped(
                    resources=ResourceSet.from_pairs([work.resource]),
                    reason=work.reason,
                    duration_ms=round((now_s() - work.began_s) * 1000),
                )
            )

    def _end(self, work: Work) -> None:
        del self._works[work.resource]
        self._complete(work)  # first: the group waits for it, and telemetry may take long
        self._tell_stopped(work)
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

    def _stops_late(self, work: Work, now: float, share: float) -> bool:
        return work.is_revoked and now >= work.began_s + share * self.limits.stop_s

    def _remind(self) -> None:
        due_s = [
            work.retry_at_s for work in self._works.values() if work.attempts and not work.busy
        ]
        due_s += [
            work.began_s + self.limits.stop_s * (1.0 if work.is_warned else _WARN_SHARE)
            for work in self._works.values()
            if work.is_revoked
        ]
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
            stuck=tuple(_stuck(one, now) for one in works if one.busy and not one.runs),
            failure="" if failure is None else failure.message,
        )

    def look_up_ends(self, quiet: list[tuple[str, int]]) -> None:
        """Do nothing: named resources have no log."""

    def commit_meter(self) -> CommitMeter | None:
        """Return None: named resources have no offsets."""
        return None


def _stuck(work: Work, now: float) -> StuckPartition:
    """Return a resource whose `start` has not returned; the limit decides whether it is stuck."""
    return StuckPartition(
        topic=work.resource.name,
        partition=work.resource.index,
        why="callback",
        since_s=now - work.began_s,
    )
