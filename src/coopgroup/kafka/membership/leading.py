"""Lead rounds on a separate thread: look up, decide, in bounded time.

Rules of this file: a round is always answered. If lags cannot be looked up, the last known lags
count, else 0. A round moves nothing if its metadata cannot be looked up, if the assignor takes too
long, or if anything raises. The session starts another round a little later. The time limit covers
everything from the first decoded byte on.

All rounds of a rebalance use the lags of its first round, because lags change all the time. With
new lags in each round, a lag-aware assignor would choose a new target, take partitions from their
owners, and so cause one more round. A group that lags by only a few records would rebalance without
end.

`LagWatcher` checks the lags between rounds, on a separate thread. A check must never cost the group
anything. It does not run on the group's thread, it is bounded in time, and only one runs at a time.
It does not call an assignor that is deciding a round. After a failed check, the next one runs at
its regular time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field

from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.model import ResourceSet
from coopgroup.core.session import (
    CheckLags,
    DecideRound,
    DecisionMade,
    LagsChecked,
    LookOver,
    RebalanceLags,
    SeenTopics,
)
from coopgroup.core.telemetry.causes import Cause
from coopgroup.errors import one_line
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.forked import forks_wait
from coopgroup.kafka.membership.ports import RoundLookup
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.trouble import Trouble
from coopgroup.worker import URGENT, Job, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader.request import RoundRequest
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.metadata import TopicMetadata
    from coopgroup.core.policies.policy import Policy
    from coopgroup.kafka.membership.deciding import Decider, Read

# Time for a decision. The group waits for it, and the default session timeout is longer.
LEADER_TIMEOUT_MS: Final = 30_000
# A decision needs several look-ups of topics, partitions or lags.
LOOKUP_TIMEOUT_MS: Final = LEADER_TIMEOUT_MS // 6
_STOP_TIMEOUT_S: Final = 2.0
# A member that returns has its assignment by then. The client of the look-up would delay its first
# record.
_LOOK_AFTER_S: Final = 0.5


@define(eq=False)
class _Round:
    """A round in progress.

    Attributes:
        once: acquired, and never released, by the thread that gives the outcome.
        limit: refuses the round when its time is over.
    """

    duty: DecideRound
    once: threading.Lock = field(factory=threading.Lock, init=False)
    request: RoundRequest | None = field(default=None, init=False)
    limit: Job | None = field(default=None, init=False)


def _unchanged(outcome: DecisionMade) -> DecisionMade:
    return outcome


@define(eq=False)
class RoundLeader:
    """Decides rounds for the driver.

    Attributes:
        assignor: of this member; None for the default.
        policy: of this member; None for the default.
        read: decodes the subscriptions of a round; None for `read_members`.
        seen: topics of the last round led here, with their partitions at the latest look-up.
        request: the subscriptions of the last round led here; None before.
        looks: runs the looks at topics and lags, which may wait for brokers.
        turn: held while the assignor runs, because an assignor need not be thread-safe.
        complete: adds the host's fields to the assignments of a decided round.
    """

    assignor: Assignor | None
    policy: Policy | None
    lookup: RoundLookup
    post: Callable[[DecisionMade | RejoinRequested], None]
    sink: TelemetrySink
    timeout_ms: int = LEADER_TIMEOUT_MS
    read: Read | None = None
    complete: Callable[[DecisionMade], DecisionMade] = _unchanged
    seen: SeenTopics = field(factory=SeenTopics)
    request: RoundRequest | None = field(default=None, init=False)
    turn: threading.Lock = field(factory=threading.Lock, init=False)
    _lags: RebalanceLags = field(factory=RebalanceLags, init=False)
    _rounds: Worker = field(factory=lambda: Worker("coopgroup-leader"), init=False)
    looks: Worker = field(factory=lambda: Worker("coopgroup-leader-looks"), init=False)
    is_stopped: bool = field(default=False, init=False)
    # guards `seen`
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    # A round without its look-up moves nothing or moves blindly, so these are told at once.
    _no_metadata: Trouble = field(init=False)
    _no_lags: Trouble = field(init=False)
    _decider: Decider | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._no_metadata = Trouble(self.warn, "metadata_unavailable", "metadata_available")
        self._no_lags = Trouble(self.warn, "lags_unavailable", "lags_available")

    def prepare(self) -> None:
        """Load the leader's side in the background, before a round needs it."""
        if self._decider is None:
            with suppress(RuntimeError):  # no thread is available: the round loads it
                self._rounds.submit(self._load)

    def _load(self) -> None:
        self.decider()

    def decider(self) -> Decider:
        """Return the leader's side of the core, which the first call loads."""
        if self._decider is None:
            with forks_wait:
                from coopgroup.kafka.membership.deciding import Decider  # noqa: PLC0415 - see there
            self._decider = Decider.of(self.assignor, self.policy, self.read)
        return self._decider

    def start(self, duty: DecideRound) -> None:
        """Decide a round in the background; only the first outcome counts."""
        led = _Round(duty)
        try:
            limit_s = self.timeout_ms / 1000
            led.limit = self._rounds.submit(
                partial(self._give_up, led), after_s=limit_s, urgency=URGENT
            )
            self._rounds.submit(partial(self._lead, led))
        except RuntimeError as error:  # no thread is available
            self._refuse(led, one_line(error))

    def look_over(self, duty: LookOver) -> None:
        """Begin to watch the topics of a group whose leader returned, a moment later.

        If the partitions changed meanwhile, request a round. If the look-up fails, the next check
        of the topics requests it.
        """
        try:
            self.looks.submit(partial(self._look, duty, self.seen), after_s=_LOOK_AFTER_S)
        except RuntimeError as error:  # no thread is available
            self.sink.warn("topics_unavailable", error=str(error))

    def stop(self) -> None:
        """End rounds and look-ups in progress; wait briefly for a running assignor."""
        self.is_stopped = True  # before: a look-up that ends because of the close is no failure
        self.lookup.close()
        deadline = now_s() + _STOP_TIMEOUT_S
        self._rounds.close(_STOP_TIMEOUT_S)
        self.looks.close(max(0.0, deadline - now_s()))

    def warn(self, event: str, *, is_over: bool = False, **fields: object) -> None:
        """Tell about a look-up that failed, unless it failed because the member closes."""
        if not self.is_stopped:
            self.sink.warn(event, is_over=is_over, **fields)

    def replace_seen(self, before: SeenTopics, partitions: ResourceSet) -> bool:
        """Note changed partitions unless a round was led since `before`; return whether it did."""
        with self._lock:
            if self.seen is not before:
                return False
            self.seen = attrs.evolve(before, partitions=partitions)
            return True

    def _look(self, duty: LookOver, before: SeenTopics) -> None:
        try:
            decider = self.decider()
            request = decider.read(duty.members)
            metadata = self._metadata(request)
        except Exception as error:  # noqa: BLE001 -- a member that leads is worth more than a watch
            self.warn("topics_unavailable", error=str(error))
            return
        found = ResourceSet() if metadata is None else metadata.resources
        with self._lock:
            if self.seen is not before:
                return  # a round was led meanwhile
            self.seen = SeenTopics(topics=request.topics, partitions=found)
        if metadata is not None and decider.needs_round(duty, found, request):
            self.post(RejoinRequested(reason=Cause.LEADER_RETURNED))

    def _lead(self, led: _Round) -> None:
        if self.is_stopped or led.once.locked():
            return
        try:
            led.request = self.request = self.decider().read(led.duty.members)
            with self.turn:
                self._decide(led, led.request)
        except BaseException as error:  # noqa: BLE001 -- SystemExit, too, would go unnoticed
            self._refuse(led, one_line(error))

    def _decide(self, led: _Round, request: RoundRequest) -> None:
        if led.once.locked():
            return
        decider, metadata = self.decider(), self._metadata(request)
        lags = None
        if metadata is not None and decider.assignor.needs_lags:
            lags = self._lags_of_rebalance(led.duty, metadata)
        outcome = decider.lead(led.duty, request, metadata, lags)
        self._lags = self._lags.after(outcome, self._lags.lags)
        if metadata is not None:
            with self._lock:
                self.seen = SeenTopics(topics=request.topics, partitions=metadata.resources)
        self._finish(led, outcome)

    def _give_up(self, led: _Round) -> None:
        self._refuse(led, f"no decision within {self.timeout_ms} ms")

    def _refuse(self, led: _Round, failure: str) -> None:
        outcome = self.decider().lead(led.duty, led.request, None, None, failure=failure)
        self._finish(led, outcome)

    def _finish(self, led: _Round, outcome: DecisionMade) -> None:
        if led.once.acquire(blocking=False):
            if led.limit is not None:
                led.limit.cancel()
            self.post(self.complete(outcome))

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        try:
            found = self.lookup.metadata(request.topics)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            self._no_metadata.fail(at_once=True, error=str(error))
            return None
        self._no_metadata.succeed()
        return found

    def _lags_of_rebalance(self, duty: DecideRound, metadata: TopicMetadata) -> Lags | None:
        known = self._lags.known(duty, metadata.resources)
        return known if known is not None else self._look_up_lags(metadata)

    def _look_up_lags(self, metadata: TopicMetadata) -> Lags | None:
        try:
            self._lags = RebalanceLags(lags=self.lookup.lags(metadata.resources))
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            known = self._lags.lags is not None
            self._no_lags.fail(at_once=True, error=str(error), last_known=known)
        else:
            self._no_lags.succeed()
        return self._lags.lags


@define(eq=False)
class LagWatcher:
    """Checks lags for the driver."""

    leader: RoundLeader
    post: Callable[[LagsChecked], None]
    _is_checking: bool = field(default=False, init=False)
    _trouble: Trouble = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = Trouble(self.leader.warn, "lag_check_failed", "lag_check_succeeded")

    def start(self, duty: CheckLags) -> None:
        """Check in the background, unless the last check is still running."""
        if self._is_checking:
            return
        self._is_checking = True
        try:
            self.leader.looks.submit(partial(self._run, duty))
        except RuntimeError as error:  # no thread is available
            self._is_checking = False
            self._trouble.fail(at_once=True, error=one_line(error))

    def _run(self, duty: CheckLags) -> None:
        try:
            self._check(duty)
        finally:
            self._is_checking = False

    def _check(self, duty: CheckLags) -> None:
        until_s = now_s() + self.leader.timeout_ms / 1000
        try:
            lags = self.leader.lookup.lags(duty.resources)
            if now_s() > until_s or not self.leader.turn.acquire(blocking=False):
                return
            try:
                checked = self.leader.decider().check(duty, lags)
            finally:
                self.leader.turn.release()
        except BaseException as error:  # noqa: BLE001 -- SystemExit, too, would go unnoticed
            self._trouble.fail(at_once=True, error=one_line(error))
            return
        self._trouble.succeed()
        if now_s() <= until_s and not self.leader.is_stopped:
            self.post(checked)
