"""What the group tells the application, carried out on the application's thread.

Rules of this file: a revocation is complete when its callback has returned, its offsets are
committed and its partitions are not fetched any more, in this order; and it is completed whatever
the callback raises, for the group waits for it. What follows in the queue then waits for the next
`poll`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.partitions import to_partitions, to_resources
from coopgroup.member.effects import FailMember, GrantResources, LoseResources, RevokeResources
from coopgroup.member.events import LossHandled, RevocationCompleted
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import TopicPartition

    from coopgroup.kafka.application_inbox import Notice
    from coopgroup.kafka.committing import Committing
    from coopgroup.kafka.driver import GroupDriver
    from coopgroup.kafka.fetching import Fetching

__all__ = ["Callback", "Callbacks", "GroupNotices"]

# Brokers that do not answer must not keep an application from ending: whoever stops it is about
# to lose patience (30 s in Kubernetes).
_CLOSE_COMMIT_S: Final = 5.0

Callback: TypeAlias = "Callable[[Any, list[TopicPartition]], object]"


@frozen
class Callbacks:
    """What `subscribe` was given."""

    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None


@define(eq=False)
class GroupNotices:
    """Serves the inbox of one consumer.

    Attributes:
        consumer: the first argument of callbacks.
        driver: the group; its inbox is served.
        fetching: what is fetched.
        committing: commits what is given up.
        write: writes a telemetry record.
        held: what the application was told to have.
        stopping: part of it that the application goes on stopping after `on_revoke`.
        callbacks: of the last `subscribe`.
    """

    consumer: Any
    driver: GroupDriver
    fetching: Fetching
    committing: Committing
    write: Callable[[ResourcesStarted | ResourcesStopped], None]
    held: ResourceSet = field(default=EMPTY, init=False)
    stopping: ResourceSet = field(default=EMPTY, init=False)
    callbacks: Callbacks = field(factory=Callbacks, init=False)
    _assigning: ResourceSet | None = field(default=None, init=False)
    _revoking: ResourceSet | None = field(default=None, init=False)
    _later: ResourceSet | None = field(default=None, init=False)  # None where there is no later
    _stopping_since: list[tuple[float, ResourceSet]] = field(factory=list, init=False)
    _failure: KafkaException | None = field(default=None, init=False)
    _serving: bool = field(default=False, init=False)
    _giving_up: bool = field(default=False, init=False)

    # --- serving ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Carry out everything that waits.

        Raises:
            KafkaException: the group has refused this member for good, or a callback polls.
            Exception: what a callback raised.
        """
        if self._serving:
            raise kafka_exception(
                KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                "a callback cannot poll: it is called from poll itself",
            )
        inbox = self.driver.inbox
        if inbox.waiting:
            self._serving = True
            try:
                while (notice := inbox.take()) is not None:
                    self._obey(notice)
                while (call := inbox.take_call()) is not None:
                    call()
            finally:
                self._serving = False
        if self._failure is not None:
            raise self._failure

    def serve_calls(self) -> None:
        """Run finished calls only, each of them whatever the one before raises.

        Raises:
            Exception: the first that a call raised.
        """
        _run_all(iter(self.driver.inbox.take_call, None))

    def give_up(self) -> None:
        """Stop everything that is held, as the last thing before the group is left.

        Raises:
            Exception: what a callback raised; everything is stopped all the same.
        """
        self._failure = None
        self._giving_up = True
        try:
            self._give_up()
        finally:
            self._giving_up = False

    def _give_up(self) -> None:
        try:
            self._serve_last()
        finally:
            # A callback that closes the consumer has its own part under way already, and what
            # goes on being stopped was told before.
            busy = self.stopping if self._revoking is None else self.stopping | self._revoking
            rest = self.held - busy
            try:
                if rest:
                    self._stop(rest, StopReason.CLOSED)
            finally:
                self._finish_busy(busy)

    def _serve_last(self) -> None:
        """Hear what the group said last; partitions granted now are not begun any more."""
        _run_all(
            partial(self._obey, notice)
            for notice in iter(self.driver.inbox.take, None)
            if isinstance(notice, (RevokeResources, LoseResources))
        )

    def _finish_busy(self, busy: ResourceSet) -> None:
        rest = busy & self.held
        if rest:
            self.committing.commit_last(rest, _CLOSE_COMMIT_S)
            self._drop(rest, StopReason.CLOSED, now_s())

    def _obey(self, notice: Notice) -> None:
        # A callback counts against max.poll.interval.ms like any work of the application.
        self.driver.polled_at_s = now_s()
        match notice:
            case GrantResources():
                self._grant(notice.resources)
            case RevokeResources():
                try:
                    self._stop(notice.resources, StopReason.REVOKED)
                finally:
                    self._complete(notice.resources - self.stopping)
            case LoseResources():
                try:
                    self._lose(notice.resources & self.held)
                finally:
                    self.driver.post(LossHandled())
            case FailMember():
                self._failure = kafka_exception(notice.code, notice.message, fatal=True)

    def _grant(self, resources: ResourceSet) -> None:
        self.committing.store.forget(resources)  # what is known of them is of another time
        self.held |= resources
        self._assigning = resources
        try:
            self._call(self.callbacks.on_assign, resources)
        finally:
            self._assigning = None
            # Not what the callback began by itself; nothing, if it closed the consumer.
            rest = (resources & self.held) - self.fetching.fetched
            if rest:
                self.fetching.begin(to_partitions(rest))
            if resources & self.held:
                self.write(ResourcesStarted(resources=resources & self.held))

    def _lose(self, lost: ResourceSet) -> None:
        began_s = now_s()
        before, self._revoking = self._revoking, lost
        try:
            self._call(self.callbacks.on_lost or self.callbacks.on_revoke, lost)
        finally:
            self._revoking = before
            self._drop(lost & self.held, StopReason.LOST, began_s)

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        """Callback, commit, stop fetching: in this order, whatever the callback raises."""
        began_s = now_s()
        before, self._revoking = self._revoking, resources
        self._later = EMPTY if reason is StopReason.REVOKED and not self._giving_up else None
        try:
            self._call(self.callbacks.on_revoke, resources)
        finally:
            self._revoking = before
            rest = resources & self.held  # nothing, if the callback closed the consumer
            rest -= self._stop_later(rest, began_s)
            try:
                limit_s = _CLOSE_COMMIT_S if reason is StopReason.CLOSED else None
                self.committing.commit_last(rest, limit_s)
            finally:
                self._drop(rest, reason, began_s)

    def _stop_later(self, resources: ResourceSet, began_s: float) -> ResourceSet:
        """Hand nothing more out of what goes on being stopped; returns what that is."""
        later, self._later = (self._later or EMPTY) & resources, None
        if later:
            self.stopping |= later
            self._stopping_since.append((began_s, later))
            self.fetching.pause(to_partitions(later & self.fetching.fetched), later)
        return later

    def _finish(self, resources: ResourceSet) -> None:
        """Give up what the application has stopped by now, as if `on_revoke` returned."""
        done = resources & self.stopping  # what was lost meanwhile is not in it any more
        try:
            self.committing.commit_last(done)
        finally:
            for began_s, batch in tuple(self._stopping_since):
                self._drop(batch & done, StopReason.REVOKED, began_s)
            self._complete(done)

    def _complete(self, resources: ResourceSet) -> None:
        if resources:
            self.driver.post(RevocationCompleted(resources=resources))

    def _drop(self, resources: ResourceSet, reason: StopReason, began_s: float) -> None:
        if not resources:
            return
        self.held -= resources
        self.stopping -= resources
        since = [(at_s, batch - resources) for at_s, batch in self._stopping_since]
        self._stopping_since = [one for one in since if one[1]]
        self.committing.store.forget(resources)
        self.fetching.end(resources)
        duration_ms = round((now_s() - began_s) * 1000)
        self.write(ResourcesStopped(resources=resources, reason=reason, duration_ms=duration_ms))

    def _call(self, callback: Callback | None, resources: ResourceSet) -> None:
        if callback is not None and resources:
            callback(self.consumer, to_partitions(resources))

    # --- what callbacks may ask for --------------------------------------------------------------

    def begin_assigned(self, partitions: list[TopicPartition]) -> None:
        """In `on_assign`: fetch partitions that were gained, from the offsets given with them.

        Raises:
            KafkaException: called elsewhere, or with partitions that were not gained.
            TypeError: no list of partitions.
        """
        wanted = _resources(partitions)
        if self._assigning is None or not wanted <= self._assigning:
            raise kafka_exception(
                KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                "the group assigns: possible in on_assign only, for the partitions given there",
            )
        fresh = wanted - self.fetching.fetched
        self.fetching.begin([one for one in partitions if (one.topic, one.partition) in fresh])

    def accept_revoked(self, partitions: list[TopicPartition]) -> None:
        """In `on_revoke` and `on_lost`: nothing, for what is asked happens after the callback.

        Raises:
            KafkaException: called elsewhere, or with partitions that are not given up.
            TypeError: no list of partitions.
        """
        wanted = _resources(partitions)
        if self._revoking is None or not wanted <= self._revoking:
            raise kafka_exception(
                KafkaError._STATE,  # noqa: SLF001  (public constant of confluent_kafka)
                "the group revokes: possible in on_revoke and on_lost only",
            )

    def revoke_later(self, partitions: list[TopicPartition]) -> bool:
        """In `on_revoke`: the application goes on stopping some of the partitions.

        Returns:
            False when everything is given up and there is no later.

        Raises:
            KafkaException: called elsewhere, or with partitions that are not revoked.
            TypeError: no list of partitions.
        """
        self.accept_revoked(partitions)
        if self._later is None:
            return False
        self._later |= _resources(partitions)
        return True

    def finish_revoke(self, partitions: list[TopicPartition]) -> None:
        """From any thread: the application has stopped partitions; `serve` gives them up.

        Raises:
            TypeError: no list of partitions.
        """
        self.driver.inbox.call_soon(partial(self._finish, _resources(partitions)))


def _run_all(calls: Iterable[Callable[[], None]]) -> None:
    """Make calls until there are no more, then raise the first error, or that it is to end."""
    failure: BaseException | None = None
    for call in calls:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- raised once all have run
            # Ctrl-C must not be lost behind what a callback raised before it.
            outranked = isinstance(failure, Exception) and not isinstance(error, Exception)
            if failure is None or outranked:
                failure = error
    if failure is not None:
        raise failure


def _resources(partitions: list[TopicPartition]) -> ResourceSet:
    try:
        return to_resources(partitions)
    except (AttributeError, TypeError):
        raise TypeError("requires list of TopicPartition") from None
