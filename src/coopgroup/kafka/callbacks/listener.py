"""Carry out the group's notices on the application's thread.

Rules of this file: a revocation takes three steps, in this order: the callback returns, the offsets
are committed, and fetching ends. The revocation is completed even if the callback raises, because
the group waits for it. Later notices in the queue then wait for the next `poll`.

`Callbacks` are those that an application passes to `subscribe`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import LossHandled, RevocationCompleted, WarmupFailed
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.errors import one_line
from coopgroup.kafka.callbacks.pending_revocations import PendingRevocations, PutOff
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import kafka_exception, refusal
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.partitions import to_partitions
from coopgroup.kafka.records.record_buffer import Partition
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason

if TYPE_CHECKING:
    from coopgroup.kafka.membership.ports import Notice


Callback: TypeAlias = "Callable[[Any, list[TopicPartition]], object]"


@frozen
class Callbacks:
    """The callbacks passed to `subscribe`.

    Raises:
        TypeError: a callback cannot be called, or the one of warm-ups is missing.
    """

    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None
    on_warmup: Callback | None = None
    on_warmup_cancelled: Callback | None = None

    def __attrs_post_init__(self) -> None:
        for one in attrs.fields(type(self)):
            callback = getattr(self, one.name)
            if callback is not None and not callable(callback):
                raise TypeError(f"{one.name} expects a callable")
        if self.on_warmup is None and self.on_warmup_cancelled is not None:
            raise TypeError("on_warmup_cancelled expects on_warmup beside it")

    def warm_set(self, warm: list[TopicPartition] | None) -> ResourceSet | None:
        """Return the warm set to declare; None if the application takes no part in warm-ups.

        Raises:
            TypeError: not a list of partitions, or `on_warmup` is missing.
        """
        if self.on_warmup is not None:
            return EMPTY if warm is None else as_resources(warm)
        if warm is not None:
            raise TypeError("warm expects on_warmup beside it")
        return None


def as_resources(partitions: list[TopicPartition]) -> ResourceSet:
    """Return the partitions of an application as a set.

    Raises:
        TypeError: the argument is not a list of partitions.
    """
    try:
        return ResourceSet.from_pairs((one.topic, one.partition) for one in partitions)
    except (AttributeError, TypeError):
        raise TypeError("requires list of TopicPartition") from None


# Time for all commits of a leaving member. Brokers that do not answer must not keep an application
# from ending: its supervisor would kill it (Kubernetes after 30 s).
_CLOSE_COMMIT_S: Final = 5.0


@define(eq=False)
class GroupListener:
    """Serves the inbox of one consumer.

    Attributes:
        owned: partitions that the application owns, as its callbacks have reported.
        on_failure: called if the group refuses this member; None without an `error_cb`.
        interceptor: `on_revoke` and `on_lost` of `coopgroup.processing` while it runs. They replace
            those of the application, and outlast a new `subscribe`, which replaces `callbacks`.
        is_polled: whether the application serves the inbox by its own polls, so that serving counts
            against `max.poll.interval.ms`. False if another thread serves for it.
        is_overdue: whether `on_lost` is called because of a stop that takes too long. The member
            then stays in the group.
    """

    consumer: Any
    driver: GroupDriver
    fetching: Fetching
    committing: Committing
    write: Callable[[ResourcesStarted | ResourcesStopped], None]
    owned: ResourceSet = field(default=EMPTY, init=False)
    callbacks: Callbacks = field(factory=Callbacks, init=False)
    on_failure: Callable[[KafkaError], None] | None = field(default=None, init=False)
    interceptor: Callbacks | None = field(default=None, init=False)
    is_polled: bool = field(default=True, init=False)
    is_overdue: bool = field(default=False, init=False)
    _assigning: ResourceSet | None = field(default=None, init=False)
    _revoking: ResourceSet | None = field(default=None, init=False)
    _losing: ResourceSet = field(default=EMPTY, init=False)  # the part of `_revoking` that is lost
    _notice: Notice | None = field(default=None, init=False)  # the last one that was carried out
    _later: ResourceSet | None = field(default=None, init=False)  # None if stops cannot be put off
    _pending: PendingRevocations = field(init=False)
    _given_up: int = field(default=0, init=False)  # number of memberships that were left or lost
    _failure: KafkaException | None = field(default=None, init=False)
    _serving: bool = field(default=False, init=False)
    _giving_up: bool = field(default=False, init=False)
    _commit_by_s: float = field(default=0.0, init=False)  # deadline of the last commits; 0 before

    def __attrs_post_init__(self) -> None:
        self._pending = PendingRevocations(self.driver.settings.max_poll_interval_ms / 1000)

    def owned_of(self, partitions: Iterable[Partition]) -> Iterator[Partition]:
        """Yield the owned ones of some partitions, each at the moment when it is read."""
        return (one for one in partitions if one in self.owned)

    @property
    def stopping(self) -> ResourceSet:
        """Return the owned partitions that the application still stops after `on_revoke`."""
        return self._pending.resources

    @property
    def stopping_since_s(self) -> float | None:
        """Return when the longest of these stops began; None without one."""
        return self._pending.since_s

    @property
    def warmups(self) -> ResourceSet:
        """Return the warm-ups that the group wants, also those that `on_warmup` is still to get."""
        warmups = self.driver.member.next_join.warmups
        return EMPTY if warmups is None else warmups.wanted - warmups.failed

    # --- serving ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Carry out all waiting notices and calls.

        Raises:
            KafkaException: the group has permanently refused this member, or a callback polls.
            Exception: raised by a callback.
        """
        if self._serving:
            raise kafka_exception(
                KafkaError._STATE, "a callback cannot poll: it is called from poll itself"
            )
        inbox = self.driver.inbox
        if inbox.waiting:
            self._serving = True
            try:
                while (notice := inbox.first()) is not None:
                    self._obey(notice)
                while (call := inbox.take_call()) is not None:
                    call()
                try:
                    self._end_overdue()
                finally:  # nothing else would wake the application for these offsets
                    self._begin_known()
            finally:
                self._serving = False
        if self._failure is not None:
            raise self._failure

    def _begin_known(self) -> None:
        try:
            self.fetching.begin_known()
        except BaseException:  # such as Ctrl-C at this moment
            self.driver.inbox.wake()
            raise

    def serve_calls(self) -> None:
        """Run finished calls only; a call that raises does not stop the next one.

        Raises:
            Exception: the first exception of a call.
        """
        _run_all(iter(self.driver.inbox.take_call, None))

    def give_up(self) -> None:
        """Stop all owned partitions, as the last step before the group is left.

        Wait for earlier commits, within the time of the last commits: outside the group the
        coordinator would refuse them.

        Raises:
            Exception: raised by a callback; all partitions are stopped nevertheless.
        """
        self._failure = None
        self._giving_up = True
        try:
            self._give_up()
        finally:
            try:
                # the application is not stalled while it waits here
                self._note_poll(math.inf)
                self.driver.wait_for_commits(self._commit_limit_s())
            finally:
                self._note_poll(now_s())
                self._giving_up = False
                self._given_up += 1

    def _note_poll(self, at_s: float) -> None:
        if self.is_polled:
            self.driver.polled_at_s = at_s

    def _commit_limit_s(self) -> float:
        self._commit_by_s = self._commit_by_s or now_s() + _CLOSE_COMMIT_S
        return max(0.0, self._commit_by_s - now_s())

    def _give_up(self) -> None:
        self._commit_by_s = 0.0
        try:
            self.serve_last()
        finally:
            # If a callback closes the consumer, the stop of its partitions has begun already.
            # Partitions that are still being stopped were announced before.
            busy = self.stopping if self._revoking is None else self.stopping | self._revoking
            rest = self.owned - busy
            try:
                if rest:
                    self._stop(rest, StopReason.CLOSED)
            finally:
                self._finish_busy(busy)

    def serve_last(self) -> None:
        """Obey the waiting revocations and losses, before the group is left."""
        notices: Iterator[Notice] = iter(self._last_notice, None)
        _run_all(partial(self._obey, notice) for notice in notices)

    def _last_notice(self) -> Notice | None:
        inbox = self.driver.inbox
        inbox.keep(RevokeResources, LoseResources)  # again: a callback may take long
        return inbox.first()

    def _finish_busy(self, busy: ResourceSet) -> None:
        lost = busy & self._losing & self.owned  # `on_lost` closes the consumer
        self._drop(lost, StopReason.LOST, now_s())
        self._hand_on(busy & self.owned, StopReason.CLOSED, now_s(), self._commit_limit_s())

    def _obey(self, notice: Notice) -> None:
        # A callback counts against max.poll.interval.ms like any work of the application.
        self._note_poll(now_s())
        membership = self._given_up
        self._notice = notice
        match notice:
            case GrantResources():
                self._grant(notice.resources)
            case RevokeResources():
                # A callback that leaves the group obeys notices inside itself. `on_revoke` has been
                # called for the partitions that this callback stops. A close drops grants: the
                # application must not stop a partition that it was never assigned.
                fresh = (notice.resources & self.owned) - (self._revoking or EMPTY)
                try:
                    self._stop(fresh, StopReason.REVOKED)
                finally:
                    self._complete(notice.resources - self.owned, membership)
            case LoseResources():
                try:  # a callback of overdue stops may close the consumer
                    self._lose((notice.resources & self.owned) - self._losing)
                finally:
                    # otherwise the callback left the group, or has not begun
                    if membership == self._given_up and self._has_begun:
                        self._given_up += 1
                        self.driver.post(LossHandled())
            case BeginWarmups():
                self._warm_up(notice.resources)
            case CancelWarmups():
                self._call(self.callbacks.on_warmup_cancelled, notice.resources)
            case FailMember():
                self.driver.inbox.remove(notice)
                member = self.driver.settings.member
                self._failure = refusal(notice.code, notice.message, member)
                if self.on_failure is not None:
                    self.on_failure(self._failure.args[0])

    def _grant(self, resources: ResourceSet) -> None:
        self.committing.store.forget(resources)  # these values are of an earlier assignment
        self.owned |= resources
        self._assigning = resources
        try:
            self._call(self.callbacks.on_assign, resources)
        finally:
            self._assigning = None
            if self._has_begun:
                self._begin(resources & self.owned)  # none if the callback closed the consumer

    def _begin(self, resources: ResourceSet) -> None:
        rest = resources - self.fetching.begun  # the callback began the others by itself
        if rest:
            self.fetching.begin(to_partitions(rest))
        if begun := resources - ResourceSet.from_pairs(self.fetching.held):
            self.write(ResourcesStarted(resources=begun))

    def release(self, held: Iterable[TopicPartition]) -> None:
        """Begin partitions that `Fetching.hold` has held: their `on_assign` has ended."""
        if begun := self.fetching.release(held):
            self.write(ResourcesStarted(resources=begun))

    def _warm_up(self, resources: ResourceSet) -> None:
        """Call back; an error cancels these warm-ups, and the membership goes on."""
        try:
            self._call(self.callbacks.on_warmup, resources)
        except Exception as error:  # noqa: BLE001 -- reported; the group works without warm-ups
            self.fail_warmups(resources, error)

    def fail_warmups(self, resources: ResourceSet, error: BaseException) -> None:
        """Report that `on_warmup` has failed: the member is cold for these; for any thread."""
        self.driver.post(WarmupFailed(resources=resources, error=one_line(error)))
        self.driver.sink.warn("warmup_failed", resources=_said(resources), error=repr(error))

    def _lose(self, lost: ResourceSet, began_s: float | None = None) -> None:
        began_s = now_s() if began_s is None else began_s
        before = self._revoking, self._losing
        self._losing = lost | self._losing
        self._revoking = lost if before[0] is None else before[0] | lost
        try:
            own = self.callbacks if self.interceptor is None else self.interceptor
            self._call(own.on_lost or own.on_revoke, lost)
        finally:
            self._revoking, self._losing = before
            if self._has_begun:
                self._drop(lost & self.owned, StopReason.LOST, began_s)

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        """Call back, commit, end fetching, in this order, even if the callback raises."""
        began_s = now_s()
        before = self._revoking
        self._revoking = resources if before is None else before | resources
        self._later = EMPTY if reason is StopReason.REVOKED and not self._giving_up else None
        try:
            own = self.callbacks if self.interceptor is None else self.interceptor
            self._call(own.on_revoke, resources)
        finally:
            self._revoking = before
            if self._has_begun:
                self._end_stop(resources & self.owned, reason, began_s)

    def _end_stop(self, resources: ResourceSet, reason: StopReason, began_s: float) -> None:
        """Give partitions up; there are none if the callback closed the consumer."""
        rest = resources - self._stop_later(resources, began_s)
        limit_s = self._commit_limit_s() if self._giving_up else None
        self._hand_on(rest, reason, began_s, limit_s)

    def _hand_on(
        self, resources: ResourceSet, reason: StopReason, began_s: float, limit_s: float | None
    ) -> None:
        """Commit the last offsets of partitions, and own them no longer."""
        try:
            self.committing.commit_last(resources, limit_s)
        finally:
            self._drop(resources, reason, began_s)

    def _stop_later(self, resources: ResourceSet, began_s: float) -> ResourceSet:
        """Hand out no more records of partitions whose stop continues; return them."""
        later, self._later = (self._later or EMPTY) & resources, None
        self._pending.begin(later, began_s)
        if later:
            self.fetching.wait_no_longer(later)
            self.fetching.pause(to_partitions(later & self.fetching.fetched), later, "application")
            self.driver.remind(self._pending.due_at_s)
        return later

    def _end_overdue(self) -> None:
        if not self._pending:
            return
        try:
            self._look_at_slow(now_s())
        finally:
            self.driver.remind(self._pending.due_at_s)

    def _look_at_slow(self, now: float) -> None:
        long, overdue = self._pending.take_late(now)
        if long:
            self.driver.sink.warn("stop_takes_long", resources=_said(long))
        if overdue:
            self._note_poll(now)
            membership = self._given_up
            try:
                self.lose_overdue(overdue)
            finally:
                self._complete(overdue, membership)

    def lose_overdue(self, overdue: ResourceSet, began_s: float | None = None) -> None:
        """Lose partitions whose stop takes too long; put-off stops know when they began."""
        self.driver.sink.warn("stop_never_finished", resources=_said(overdue))
        # A stop that has not ended leaves no state that could be kept warm.
        if self.callbacks.on_warmup is not None:
            self.driver.post(WarmupFailed(resources=overdue, error="not stopped in time"))
        self.is_overdue = True
        try:
            self._lose(overdue, began_s)
        finally:
            self.is_overdue = False

    def _finish(self, stopped: ResourceSet | PutOff) -> None:
        """Give up partitions whose stop has ended, as after a return of `on_revoke`."""
        # Partitions that were lost meanwhile are left out.
        if isinstance(stopped, PutOff):
            done = self._pending.still_of(stopped)
        else:
            done = self.stopping & stopped
        try:
            self._hand_on(done, StopReason.REVOKED, now_s(), None)
        finally:
            self._complete(done, self._given_up)

    def _complete(self, resources: ResourceSet, membership: int) -> None:
        if resources and membership == self._given_up:
            self.driver.post(RevocationCompleted(resources=resources))

    def _drop(self, resources: ResourceSet, reason: StopReason, began_s: float) -> None:
        """Own partitions no longer; the stop of those that were put off began earlier."""
        if not resources:
            return
        parts = [(began_s, resources - self.stopping), *self._pending.parts(resources).items()]
        self.owned -= resources
        self._pending.end(resources)
        self.committing.store.forget(resources)
        self.fetching.end(resources)
        for since_s, some in parts:
            if some:
                ms = round((now_s() - since_s) * 1000)
                self.write(ResourcesStopped(resources=some, reason=reason, duration_ms=ms))

    @property
    def _has_begun(self) -> bool:
        """Whether the notice has left the inbox; otherwise the next `serve` carries it out.

        A signal's exception may come before the callback. A lost notice would be an answer for
        which the group waits.
        """
        return self._notice is None or self.driver.inbox.first() is not self._notice

    def _call(self, callback: Callback | None, resources: ResourceSet) -> None:
        if self._notice is not None:
            self.driver.inbox.remove(self._notice)
        if callback is not None and resources:
            callback(self.consumer, to_partitions(resources))

    # --- what callbacks may ask for --------------------------------------------------------------

    def begin_assigned(self, partitions: list[TopicPartition]) -> None:
        """In `on_assign`: fetch gained partitions from the given offsets."""
        wanted = as_resources(partitions)
        if self._assigning is None or not wanted <= self._assigning:
            raise kafka_exception(
                KafkaError._STATE,
                "the group assigns: possible in on_assign only, for the partitions given there",
            )
        fresh = wanted - self.fetching.begun
        self.fetching.begin([one for one in partitions if (one.topic, one.partition) in fresh])

    def accept_revoked(self, partitions: list[TopicPartition]) -> None:
        """In `on_revoke` and `on_lost`: only check; partitions are given up after the callback."""
        wanted = as_resources(partitions)
        if self._revoking is None or not wanted <= self._revoking:
            raise kafka_exception(
                KafkaError._STATE, "the group revokes: possible in on_revoke and on_lost only"
            )

    def revoke_later(self, partitions: list[TopicPartition]) -> PutOff | None:
        """In `on_revoke`: note that the application still stops some of the partitions.

        Returns:
            A token for `finish_revoke`; None if all partitions are given up and stops cannot be put
            off.
        """
        self.accept_revoked(partitions)
        if self._later is None:
            return None
        resources = as_resources(partitions)
        self._later |= resources
        return self._pending.put_off(resources)

    def finish_revoke(self, stopped: list[TopicPartition] | PutOff) -> None:
        """From any thread: note that the application has stopped partitions; `serve` gives them up.

        Args:
            stopped: the result of `revoke_later`. Partitions refer to the stop in progress when
                `serve` handles them.
        """
        done = stopped if isinstance(stopped, PutOff) else as_resources(stopped)
        # The driver owns the inbox: a strong reference would keep a dropped consumer alive.
        own = weakref.ref(self)

        def finish() -> None:
            listener = own()
            if listener is not None:
                listener._finish(done)  # noqa: SLF001  (of this class)

        self.driver.inbox.call_soon(finish)


def _run_all(calls: Iterable[Callable[[], None]]) -> None:
    """Make all calls, then raise the first error; an error that ends the process wins."""
    failure: BaseException | None = None
    for call in calls:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- raised once all have run
            # An exception of an earlier callback must not hide Ctrl-C.
            outranked = isinstance(failure, Exception) and not isinstance(error, Exception)
            if failure is None or outranked:
                failure = error
    if failure is not None:
        raise failure


def _said(resources: ResourceSet) -> dict[str, list[int]]:
    return {topic: list(indices) for topic, indices in resources.to_dict().items()}
