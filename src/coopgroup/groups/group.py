"""`CooperativeGroup`: a member of a group that shares named resources.

Theory of operation. The group lives on the thread that a consumer's lives on (`kafka.driver`); it
speaks a protocol type of its own. What it grants and takes away is work that the application's
callbacks begin and end, each resource by itself (`work`), on a bounded number of threads (`pool`).
What there is to share the leader reads from the application's catalogue (`lookup`), and whoever
sees that change has the group share it anew (`watching`). This file puts the parts together.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from coopgroup.assignors.weighted import WeightedAssignor
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.lookup import CatalogueLookup
from coopgroup.groups.pool import CallbackPool
from coopgroup.groups.settings import GroupSettings
from coopgroup.groups.watching import CatalogueWatcher
from coopgroup.groups.work import Callbacks, ResourceWork
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import GroupDriver, has_left
from coopgroup.kafka.parts import check_plugins, slot_for
from coopgroup.kafka.settings import merge_configuration
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.member import MemberState
from coopgroup.member.events import SubscriptionChanged
from coopgroup.policies.eager import EagerPolicy
from coopgroup.policies.simple import SimplePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from coopgroup.assignors.base import Assignor
    from coopgroup.groups.work import ResourceCallback, WorkFailure
    from coopgroup.model import Resource
    from coopgroup.policies.base import Policy
    from coopgroup.telemetry import Record

__all__ = ["CooperativeGroup"]

_LEAVE_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01


class CooperativeGroup:
    """A process that shares named resources with others, without ever stopping them all.

    It joins with `join`, or on entering a `with` block, and leaves with `close`, or at the end of
    the block. Callbacks run on threads of the group, those of one resource one after the other,
    those of different resources at once. What one raises is reported and it is called again, later
    and later; the group goes on meanwhile. Every method may be called from any thread.

    Args:
        configuration: connection keys of `confluent_kafka`, `group.id` and coopgroup's own.
        catalogue: what there is to share: a `Catalogue`, (name, index) pairs, or a function that
            returns either and is asked again and again. Only the leader's counts in a round; with
            a version, no leader decides on an older one than any member has seen.
        start: called with a `Resource` when this process is to work on it; returns when it does.
        stop: called with a `Resource` that is to go elsewhere; returns when this process has
            stopped working on it, flushed and cleaned up. Only then may another one have it.
        lost: called with a `Resource` that may have gone elsewhere already: whatever works on it
            must end at once, and write nothing. `stop` is called instead if it is not given.
        on_error: called with a `WorkFailure` for whatever a callback raises, and with one about no
            resource if the group refused this member for good.
        policy: when resources move; `SimplePolicy()` if not given.
        assignor: where they go; `WeightedAssignor()` if not given. Give all members the same.
        more: further keys, which win over those in `configuration`.

    Raises:
        ConfigurationError: a key is unknown or has a value that it cannot have; the catalogue,
            the policy or the assignor is none.
        TypeError: a callback cannot be called.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *,
        catalogue: Catalogue
        | Mapping[tuple[str, int], int]
        | Iterable[tuple[str, int]]
        | Callable[[], object],
        start: ResourceCallback,
        stop: ResourceCallback,
        lost: ResourceCallback | None = None,
        on_error: Callable[[WorkFailure], object] | None = None,
        policy: Policy | None = None,
        assignor: Assignor | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        """Read the configuration; nothing is joined yet."""
        policy = SimplePolicy() if policy is None else policy
        assignor = WeightedAssignor() if assignor is None else assignor
        given = {"start": start, "stop": stop, "lost": lost, "on_error": on_error}
        for name, callback in given.items():
            if not callable(callback) and (callback is not None or name in {"start", "stop"}):
                raise TypeError(f"{name} expects a callable")
        is_eager = isinstance(policy, EagerPolicy)  # a baseline, for which members can be eager
        check_plugins(assignor, SimplePolicy() if is_eager else policy)
        settings = GroupSettings.read(merge_configuration(configuration, more), eager=is_eager)
        callbacks = Callbacks(start=start, stop=stop, lost=lost or stop, on_error=on_error)
        self._settings = settings
        self._opened = ExitStack()
        with ExitStack() as opened:
            self._put_together(opened, settings, _source(catalogue), callbacks, assignor, policy)
            self._opened = opened.pop_all()
        self._joined = self._closed = False
        # Of these two; a signal handler may close the group while its thread joins.
        self._lock = threading.RLock()

    def _put_together(
        self,
        opened: ExitStack,
        settings: GroupSettings,
        source: Callable[[], object],
        callbacks: Callbacks,
        assignor: Assignor,
        policy: Policy,
    ) -> None:
        group_id = settings.member.group_id
        sink = TelemetrySink(
            group_id,
            settings.telemetry_file,
            settings.telemetry_listener,
            settings.telemetry_limits,
        )
        opened.callback(sink.close)
        slot = slot_for(settings.member, settings.state_dir, sink)
        if slot is not None:
            opened.callback(slot.release)
        self._pool = CallbackPool(
            name=f"coopgroup-work-{group_id}", threads_max=settings.threads_max
        )
        opened.callback(self._pool.close)
        self._lookup = CatalogueLookup(
            source=source, timeout_ms=settings.lookup_timeout_ms, warn=sink.warn
        )

        def write(record: Record) -> None:
            member = self._driver.member
            sink.write(record, member_id=member.member_id, generation=member.claim_generation)

        self._work = ResourceWork(
            callbacks=callbacks,
            limits=settings.limits,
            pool=self._pool,
            write=write,
            warn=sink.warn,
        )
        self._driver = GroupDriver(
            settings=settings,
            assignor=assignor,
            policy=policy,
            lookup=self._lookup,
            sink=sink,
            slot=slot,
            application=self._work,
            read=self._lookup.read,
        )
        self._work.driver = self._driver
        self._watcher = CatalogueWatcher(
            lookup=self._lookup,
            refresh_ms=settings.refresh_ms,
            member=lambda: self._driver.member,
            leads=lambda: self._driver.leads,
            shared=lambda: self._driver.leader.seen.partitions,
            post=self._driver.post,
        )

    # --- into the group and out of it -------------------------------------------------------------

    def join(self) -> None:
        """Join the group, in the background, once the catalogue has been read or has failed.

        Raises:
            RuntimeError: it has joined before, or is closed.
        """
        # Closing runs the application's log handlers: after the lock is released.
        with ExitStack() as unlocked, self._lock:
            if self._joined or self._closed:
                raise RuntimeError("a group can be joined once")
            try:
                self._driver.start()
                self._watcher.start()
            except BaseException:  # nobody closes what was never entered
                self._closed = True
                unlocked.callback(self._opened.close)
                raise
            self._joined = True

    def hand_over(self, timeout_s: float | None = None) -> bool:
        """Have the group take everything over, each resource as soon as it has stopped.

        For a process that is about to end for good: a light resource goes elsewhere while a heavy
        one is still being stopped. Close afterwards.

        Args:
            timeout_s: how long to wait, in seconds; None for as long as it takes.

        Returns:
            Whether this process works on nothing any more, nor will be given anything.

        Raises:
            RuntimeError: called from a callback, or before `join`.
        """
        self._pool.refuse_own("hand over")
        if not self._joined:
            raise RuntimeError("a group is joined before it is handed over")
        deadline_s = math.inf if timeout_s is None else now_s() + timeout_s
        self._watcher.stop()
        self._driver.post(SubscriptionChanged(topics=()))
        # A round that is on its way may still grant something.
        while not (self._work.wait_idle(0) and self._is_given_nothing()):
            if now_s() >= deadline_s:
                return False
            time.sleep(_STEP_S)
        return True

    def _is_given_nothing(self) -> bool:
        member = self._driver.member
        is_settled = member.state is MemberState.STABLE and member.joined_topics == ()
        return is_settled or has_left(member) or self._closed

    def close(self, timeout_s: float | None = None) -> None:
        """Stop everything, all at once, and leave the group.

        Under the waiting policies the others keep the place of a process that closes for as long
        as a loss may wait; see `hand_over` for one that does not come back.

        Args:
            timeout_s: how long stops may take, in seconds; `coopgroup.stop.timeout.ms` if None.
                What has not stopped then is lost: the group is left all the same.

        Raises:
            RuntimeError: called from a callback.
        """
        self._pool.refuse_own("close")
        with self._lock:
            if self._closed:
                return
            self._closed = True
        limit_s = self._settings.limits.stop_s if timeout_s is None else timeout_s
        with self._opened:
            if not self._joined:
                return
            self._watcher.stop()
            try:
                self._work.close(limit_s)
            finally:
                self._driver.leave("closed", for_good=False)
                deadline_s = now_s() + _LEAVE_TIMEOUT_S
                while not has_left(self._driver.member) and now_s() < deadline_s:
                    time.sleep(_STEP_S)
                self._driver.stop()
                self._work.wait_told()

    def __enter__(self) -> Self:
        """Join."""
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # --- what it has ------------------------------------------------------------------------------

    def holds(self, resource: tuple[str, int]) -> bool:
        """Whether this process is to work on a resource at this very moment.

        Looks at the clock: after a pause of the process it is False before any callback has run.
        It is False, too, from the moment in which `stop` is due; see `owns`.
        """
        return self._work.holds(resource)

    def owns(self, resource: tuple[str, int]) -> bool:
        """Whether nobody else can have a resource: it is held, or being stopped in time.

        For `stop` itself: what it flushes must not be written when the lease has ended meanwhile.
        """
        return self._work.token(resource) is not None

    def token(self, resource: tuple[str, int]) -> int | None:
        """A number that grows from owner to owner of a resource; None while it is not owned.

        It is the generation in which this process got the resource. Whoever is written to can
        refuse a smaller one than it has seen, and so a holder that does not know yet that it was
        overtaken. It begins anew when the group coordinator forgets the group, which it does some
        time after the last member has gone (`offsets.retention.check.interval.ms`). Two lives of
        one `group.instance.id` share a token: the second goes on in the generation of the first.
        """
        return self._work.token(resource)

    def granted_token(self, resource: tuple[str, int]) -> int | None:
        """The token of a resource whatever the clock says; None when this process has ended it.

        For `start` itself, which may run when the lease is over by the clock though nothing is
        lost yet: the next heartbeat may renew it, and then nobody calls `start` again.
        """
        return self._work.granted_token(resource)

    def held(self) -> tuple[Resource, ...]:
        """What this process is to work on at this moment, ascending."""
        return tuple(self._work.held())

    def refresh(self) -> None:
        """Look at the catalogue now: the application knows that it has changed."""
        self._watcher.look_soon()

    @property
    def leads(self) -> bool:
        """Whether this member led the last round: its catalogue counts."""
        return self._driver.leads

    @property
    def member_id(self) -> str:
        """The id that the group coordinator gave this member; "" before."""
        return self._driver.member.member_id

    @property
    def generation(self) -> int:
        """Generation of the last round that this member completed; -1 for none."""
        return self._driver.member.claim_generation

    @property
    def failure(self) -> str | None:
        """Why the group refused this member for good; None while it did not."""
        failure = self._work.failure
        return None if failure is None else failure.message


def _source(catalogue: object) -> Callable[[], object]:
    if callable(catalogue) and not isinstance(catalogue, type):
        return catalogue
    fixed = Catalogue.read(catalogue)
    return lambda: fixed
