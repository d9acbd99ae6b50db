"""`CooperativeGroup`: a member of a group that shares named resources.

Theory of operation. The membership runs on the same kind of thread as a consumer's
(`kafka.membership.driver`) and has its own protocol type. The application's callbacks begin and end
the work on each granted resource, independently of other resources (`work`). They run on a bounded
number of threads. The leader reads the resources from the application's catalogue
(`lookup`). A member that sees a change of the catalogue causes a new round (`watching`). This file
puts the parts together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.weighted import WeightedAssignor
from coopgroup.core.member import MemberState
from coopgroup.core.member.events import SubscriptionChanged, WarmSetDeclared
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.core.policies.built_in import EagerPolicy, SimplePolicy
from coopgroup.core.policies.policy import Policy
from coopgroup.errors import ConfigurationError
from coopgroup.groups.callbacks import Callbacks, ResourceCallback, WorkFailure
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.health import GroupWork
from coopgroup.groups.lookup import CatalogueLookup, CatalogueWatcher
from coopgroup.groups.peers import Peer, peer_of
from coopgroup.groups.settings import GroupSettings
from coopgroup.groups.topic import CatalogueTopic
from coopgroup.groups.work import ResourceWork
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.settings import merge_configuration
from coopgroup.kafka.forked import is_of_parent, keep_to_process
from coopgroup.kafka.health.probe import MemberProbe
from coopgroup.kafka.health.value import Health
from coopgroup.kafka.membership.driver import GroupDriver, open_sink_and_slot
from coopgroup.kafka.membership.leading import LOOKUP_TIMEOUT_MS
from coopgroup.kafka.plugins import (
    AssignorChoice,
    PolicyChoice,
    check_plugins,
    chosen_assignor,
    chosen_policy,
)
from coopgroup.kafka.rpc.describing import describe_group
from coopgroup.telemetry import Record
from coopgroup.worker import Worker

_PARTS: Final = ("_driver", "_work", "_watcher", "_lookup", "_pool", "_probe", "_lock")
_THREADS_MAX: Final = 32  # of callbacks
# Time between two reads of the catalogue. Each process reads, perhaps from a database.
_REFRESH_MS: Final = 5_000


class CooperativeGroup:
    """A process that shares named resources with others, without ever stopping them all.

    It joins with `join`, or on entering a `with` block, and leaves with `close`, or at the end of
    the block. Callbacks run on threads of the group: sequentially for one resource, concurrently
    for different resources. If a callback raises, the error is reported and the callback is
    repeated with growing delays, while the group continues. Every method may be called from any
    thread.

    Args:
        configuration: connection keys of `confluent_kafka`, `group.id` and coopgroup's own.
        catalogue: the resources to share: a `Catalogue`, (name, index) pairs, or a function that
            returns either and is called repeatedly, or a `CatalogueTopic`. Only the leader's
            catalogue counts in a round.
            With a version, no leader decides on an older catalogue than any member has seen.
        start: called with a `GroupResource` to begin work on it; returns when the work has begun.
            It may raise `Decline`, so that another member gets the resource, or `StartFailed`.
        stop: called with a `GroupResource` to end work on it; returns when this process has
            stopped, flushed and cleaned up. Only then may another process get the resource.
            `reason` of the argument says why.
        on_change: called with a `GroupResource` whose definition has changed, or that was deleted
            and created again; returns when the work follows the new definition. Without it, `stop`
            and then `start` are called.
        lost: called with a `Resource` that another process may own already. The work must end
            immediately, and write nothing. Without it, `stop` is called instead.
        warm: called with a `Resource` of another process to restore its state (a warm-up), or to
            keep the state after `stop`; returns when this process is warm. Without it, the member
            takes no part in warm-ups.
        cool: called with a `Resource` whose state is not needed any longer.
        found: resources whose state this process has already, for example on its disk.
        on_error: called with a `WorkFailure` for each exception of a callback, and with a
            `WorkFailure` without a resource if the group permanently refused this member.
        policy: decides when resources move: a policy, its name, or `{"name": …}` with options.
            The default is `SimplePolicy()`.
        assignor: decides where they go, in the same forms; the default is `WeightedAssignor()`. Use
            the same policy and assignor in all members.
        member: what assignor and policy are told about this process, such as `{"places": 4}`. It
            takes precedence over the key `coopgroup.member`.
        more: further keys, which take precedence over those in `configuration`.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value, or the catalogue, the policy
            or the assignor is invalid.
        TypeError: a callback cannot be called.
    """

    def __init__(  # noqa: PLR0913  (keywords, one for each callback)
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *,
        catalogue: Catalogue
        | Mapping[tuple[str, int], int]
        | Iterable[tuple[str, int]]
        | Callable[[], object]
        | CatalogueTopic,
        start: ResourceCallback,
        stop: ResourceCallback,
        on_change: ResourceCallback | None = None,
        lost: ResourceCallback | None = None,
        warm: ResourceCallback | None = None,
        cool: ResourceCallback | None = None,
        found: Iterable[tuple[str, int]] = (),
        on_error: Callable[[WorkFailure], object] | None = None,
        policy: PolicyChoice | None = None,
        assignor: AssignorChoice | None = None,
        member: Mapping[str, Any] | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        more |= {} if member is None else {"coopgroup.member": member}
        merged = merge_configuration(configuration, more)
        when = chosen_policy(merged.get("coopgroup.policy") if policy is None else policy)
        where = chosen_assignor(merged.get("coopgroup.assignor") if assignor is None else assignor)
        when = SimplePolicy() if when is None else when
        where = WeightedAssignor() if where is None else where
        callbacks = Callbacks(
            start=start,
            stop=stop,
            lost=lost or stop,
            on_error=on_error,
            change=on_change,
            warm=warm,
            cool=cool,
        )
        callbacks.check()
        self._found = _found(found, callbacks, when)
        is_eager = isinstance(when, EagerPolicy)  # a baseline: members can be eager
        check_plugins(where, SimplePolicy() if is_eager else when)
        settings = GroupSettings.read(merged, eager=is_eager)
        self._settings = settings
        self._opened = ExitStack()
        with ExitStack() as opened:
            self._put_together(opened, settings, _source(catalogue), callbacks, where, when)
            self._opened = opened.pop_all()
        self._joined = self._closed = self._handed_over = False
        # Guards both flags. Reentrant: a signal handler may close the group while its thread
        # joins.
        self._lock = threading.RLock()
        shared = settings.shared
        made = (self._driver.slot, shared.telemetry_file, shared.telemetry_topic)
        if any(one is not None for one in made):  # otherwise a forked child may join
            keep_to_process(self, *_PARTS)

    def _put_together(
        self,
        opened: ExitStack,
        settings: GroupSettings,
        source: Callable[[], object] | Catalogue,
        callbacks: Callbacks,
        assignor: Assignor,
        policy: Policy,
    ) -> None:
        shared = settings.shared
        sink, slot = open_sink_and_slot(shared, opened)
        group_id = shared.member.group_id
        self._pool = Worker(f"coopgroup-work-{group_id}", _THREADS_MAX)
        self._lookup = CatalogueLookup(
            source=_reader(source),
            timeout_ms=LOOKUP_TIMEOUT_MS,
            warn=sink.warn,
            known=source if isinstance(source, Catalogue) else None,
        )

        def write(record: Record) -> None:  # the driver is made below
            self._driver.write(record)

        self._work = ResourceWork(
            callbacks=callbacks,
            limits=settings.limits,
            pool=self._pool,
            reports=Worker(f"coopgroup-reports-{group_id}"),
            write=write,
            warn=sink.warn,
            known=lambda: self._lookup.known,
            look_soon=self.refresh,
        )
        self._lookup.on_read = self._work.take_catalogue
        self._driver = GroupDriver(
            settings=shared,
            assignor=assignor,
            policy=policy,
            lookup=self._lookup,
            sink=sink,
            slot=slot,
            application=self._work,
            read=self._lookup.read,
            complete=self._lookup.complete,
        )
        self._work.driver = self._driver
        self._probe = MemberProbe(self._driver, GroupWork(self._work))
        sink.watch(self._probe)
        self._watcher = CatalogueWatcher(
            lookup=self._lookup,
            refresh_ms=_REFRESH_MS,
            member=lambda: self._driver.member,
            leads=lambda: self._driver.leads,
            shared=lambda: self._driver.leader.seen.partitions,
            post=self._driver.post,
        )
        if isinstance(source, CatalogueTopic):
            credentials = shared.connection.credentials
            log_in = None if credentials is None else credentials.give
            source.open(shared.librdkafka, log_in, sink.warn, self._driver.transport)
            opened.callback(source.close)
        opened.callback(self._end_threads)

    def _end_threads(self) -> None:
        """End idle threads, unless a hanging callback may still report that it failed."""
        if not self._work.works():
            self._pool.close(0.0)

    # --- into the group and out of it -------------------------------------------------------------

    def join(self) -> None:
        """Join the group in the background, after the first try to read the catalogue.

        Raises:
            RuntimeError: the group was joined before, or is closed.
        """
        keep_to_process(self, *_PARTS)
        # Close after the lock is released: closing runs the application's log handlers.
        with ExitStack() as unlocked, self._lock:
            if self._joined or self._closed:
                raise RuntimeError("a group can be joined once")
            try:
                self._driver.start()
                self._driver.listen()
                if self._found is not None:
                    self._driver.post(WarmSetDeclared(warm=self._found))
                self._watcher.start()
            except BaseException:  # the caller will not close a group it has not entered
                self._closed = True
                unlocked.callback(self._opened.close)
                unlocked.callback(self._driver.stop)
                unlocked.callback(self._watcher.stop)
                raise
            self._joined = True

    def hand_over(self, timeout_s: float | None = None) -> bool:
        """Give all resources to the group, each as soon as it has stopped.

        Use this in a process that ends permanently: a light resource moves while a heavy one still
        stops. Call `close` afterwards. With the option `warmup` of the policy, a resource stays
        here until its next owner is warm, or until that warm-up has run for `timeout_ms` of the
        option (10 minutes by default).

        Args:
            timeout_s: how long to wait, in seconds; None waits without limit. With `warmup`, allow
                for the restores of all resources.

        Returns:
            Whether this process has no resources left, and will get no more.

        Raises:
            RuntimeError: called from a callback, or before `join`.
        """
        self._refuse_own("hand over")
        if not self._joined:
            raise RuntimeError("a group is joined before it is handed over")
        until_s = None if timeout_s is None else now_s() + timeout_s
        self._handed_over = True
        self._watcher.stop()
        self._driver.post(SubscriptionChanged(topics=(), hands_over=True))
        return self._work.wait_for(
            # A round in progress may still grant resources.
            lambda: not self._work.works() and self._is_given_nothing(),
            None if until_s is None else until_s - now_s(),
        )

    def _refuse_own(self, action: str) -> None:
        if self._pool.is_own_thread:
            raise RuntimeError(f"a callback cannot {action}: that would wait for itself")

    def _is_given_nothing(self) -> bool:
        member = self._driver.member
        is_settled = member.state is MemberState.STABLE and member.last_join.topics == ()
        return is_settled or self._driver.has_left or self._closed

    def close(self, timeout_s: float | None = None) -> None:
        """Stop all resources concurrently, and leave the group.

        Under the waiting policies, the group reserves the resources of a closed process for as long
        as a loss may wait. For a process that does not return, see `hand_over`.

        Args:
            timeout_s: how long stops may take, in seconds; `coopgroup.stop.timeout.ms` if None. A
                resource that has not stopped by then is lost: the group is left nevertheless.

        Raises:
            RuntimeError: called from a callback.
        """
        if is_of_parent(self._driver):
            return
        self._refuse_own("close")
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
                self._driver.leave("closed", for_good=self._handed_over)
                self._driver.wait_left()
                self._work.wait_told()  # before `stop`, which ends the topic of telemetry
                self._driver.stop()

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what it has ------------------------------------------------------------------------------

    def holds(self, resource: tuple[str, int]) -> bool:
        """Return whether this process should work on a resource at this moment.

        This checks the clock: after a pause of the process it is False before any callback has run.
        It is also False from the moment when `stop` is due; see `owns`.
        """
        return self._work.holds(resource)

    def owns(self, resource: tuple[str, int]) -> bool:
        """Return whether no other process can have a resource: it is owned, or stops in time.

        Check this inside `stop`: its output must not be written if the lease has ended meanwhile.
        """
        return self._work.token(resource) is not None

    def token(self, resource: tuple[str, int]) -> int | None:
        """Return a number that grows with each owner of a resource; None if it is not owned.

        The token is the generation in which this process got the resource. A system that receives
        writes can refuse a smaller token than it has seen. So it refuses an earlier owner that does
        not know yet that it was replaced. Tokens begin anew when the group coordinator forgets the
        group, some time after the last member has left (`offsets.retention.check.interval.ms`). Two
        lives of one `group.instance.id` share a token: the second continues in the generation of
        the first.
        """
        return self._work.token(resource)

    def granted_token(self, resource: tuple[str, int]) -> int | None:
        """Return the token of a resource regardless of the clock; None if its work has ended.

        Use this inside `start`, which may run when the lease has run out but the resource is not
        lost yet. The next heartbeat may renew the lease, and then `start` is not called again.
        """
        return self._work.granted_token(resource)

    def held(self) -> tuple[Resource, ...]:
        """Return the resources that this process should work on at this moment, ascending."""
        return tuple(self._work.held())

    def failed(self) -> dict[Resource, str]:
        """Return the resources here whose `start` raised `StartFailed`, with the reason."""
        return self._work.failed()

    def restart(self, resource: tuple[str, int]) -> bool:
        """Start a resource again that `start` refused here; return whether it had."""
        return self._work.restart(resource)

    def warmups(self) -> tuple[Resource, ...]:
        """Return the warm-ups that the group wants of this process, warm or not, ascending.

        Inside `stop` they tell whether to keep the state. A long `warm` may check whether its
        resource is still among them.
        """
        warmups = self._driver.member.next_join.warmups
        return () if warmups is None else tuple(warmups.wanted - warmups.failed)

    def members(self, timeout_s: float = 10.0) -> tuple[Peer, ...]:
        """Ask the group coordinator for the members of this group, ascending by member id.

        Any thread may ask, also before `join` and after `close`.

        Args:
            timeout_s: how long to wait for the answer, in seconds.

        Raises:
            ConfigurationError: no broker answers in time, or the brokers refuse the question.
        """
        shared = self._settings.shared
        timeout_ms = round(1000 * timeout_s)
        found = describe_group(shared.connection, shared.member.group_id, timeout_ms)
        return tuple(sorted(map(peer_of, found.members), key=lambda one: one.member_id))

    def refresh(self) -> None:
        """Read the catalogue now; call this when the application knows of a change."""
        self._watcher.look_soon()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this name and password (PLAIN, SCRAM) from the next authentication on.

        Open connections stay open. Call this while the broker still accepts the old password: after
        a refusal the membership has ended, as `failure` says. With another mechanism the call has
        no effect.

        Raises:
            TypeError: an argument is not a string.
            ValueError: a string contains NUL.
        """
        credentials = self._settings.shared.connection.credentials
        if credentials is not None:
            credentials.replace(username, password)

    def health(self) -> Health:
        """Return the state of this member; see `coopgroup.health`."""
        return self._probe.read()

    @property
    def leads(self) -> bool:
        """Return whether this member led the last round, so that its catalogue counts."""
        return self._driver.leads

    @property
    def member_id(self) -> str:
        """Return the member id that the group coordinator gave this member; "" before."""
        return self._driver.member.member_id

    @property
    def generation(self) -> int:
        """Return the generation of this member's last completed round; -1 before the first."""
        return self._driver.member.claim_generation

    @property
    def failure(self) -> str | None:
        """Return why the group permanently refused this member; None if it did not."""
        failure = self._work.failure
        return None if failure is None else failure.message


def _found(
    found: Iterable[tuple[str, int]], callbacks: Callbacks, policy: Policy
) -> ResourceSet | None:
    """Return the warm set to declare; None if the application takes no part in warm-ups."""
    try:
        resources = ResourceSet.from_pairs(found)
    except (TypeError, ValueError):
        raise ConfigurationError("found", found, "(name, index) pairs") from None
    if callbacks.warm is not None:
        if resources and getattr(policy, "warmup", None) is None:
            # The leader would want none of them, and `cool` would delete the state at once.
            given = [tuple(one) for one in resources]
            raise ConfigurationError("found", given, "a policy with the option warmup beside it")
        return resources
    if resources or callbacks.cool is not None:
        raise TypeError("found and cool expect warm beside them")
    return None


def _reader(source: Callable[[], object] | Catalogue) -> Callable[[int | None], object]:
    """Return the source as the look-up calls it; only a topic can use what others have seen."""
    if isinstance(source, CatalogueTopic):
        return source
    return lambda _: source if isinstance(source, Catalogue) else source()


def _source(catalogue: object) -> Callable[[], object] | Catalogue:
    if callable(catalogue) and not isinstance(catalogue, type):
        return catalogue
    return Catalogue.read(catalogue)
