"""Lead rounds on a separate thread: look up, decide, in bounded time.

Rules of this file: a round is always answered. If lags cannot be looked up, the last known lags
count, else 0. A round moves nothing if its metadata cannot be looked up, if the assignor takes too
long, or if anything raises. Then the leader requests another round a little later. The time limit
covers everything from the first decoded byte on.

All rounds of a rebalance use the lags of its first round, because lags change all the time. With
new lags in each round, a lag-aware assignor would choose a new target, take partitions from their
owners, and so cause one more round. A group that lags by only a few records would rebalance without
end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field, frozen

from coopgroup.kafka.clock import now_s
from coopgroup.leader import Lags, TopicMetadata, read_members
from coopgroup.member.events import RejoinRequested
from coopgroup.model import ResourceSet
from coopgroup.protocol.notes import resources_digest
from coopgroup.session import RoundLed, lead_round, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopgroup.assignors.base import Assignor
    from coopgroup.kafka.ports import RoundLookup
    from coopgroup.kafka.telemetry_sink import TelemetrySink
    from coopgroup.leader import RoundRequest
    from coopgroup.model.group_api import JoinedMember
    from coopgroup.policies.base import Policy
    from coopgroup.session import LeadRound

__all__ = ["RoundLeader", "SeenTopics"]

# Delay after a round that moved nothing: long enough not to spin, short enough not to be an outage.
# The delay doubles with each failure, because each try is a rebalance of the whole group.
_RETRY_AFTER_S: Final = 1.0
_RETRY_AFTER_S_MAX: Final = 30.0
_STOP_TIMEOUT_S: Final = 2.0


@frozen(kw_only=True)
class SeenTopics:
    """Topics and partitions that a leader saw; one value, because both are of one look-up.

    Attributes:
        topics: names that the group subscribed to, ascending.
        partitions: the existing partitions of these topics.
    """

    topics: tuple[str, ...] = ()
    partitions: ResourceSet = field(factory=ResourceSet)


@define(eq=False)
class _Round:
    """A round in progress.

    Attributes:
        duty: the round to decide.
        once: acquired, and never released, by the thread that gives the outcome.
        request: the decoded members; None before.
    """

    duty: LeadRound
    once: threading.Lock = field(factory=threading.Lock, init=False)
    request: RoundRequest | None = field(default=None, init=False)


@define(eq=False)
class RoundLeader:
    """Decides rounds for the driver.

    Attributes:
        assignor: decides WHERE resources go.
        policy: decides WHEN they move.
        lookup: looks up metadata and lags.
        timeout_ms: time limit of a round, look-ups included.
        post: gives events to the driver, from any thread.
        sink: logs failures.
        read: decodes the members' subscriptions.
        seen: topics of the last round led here, with their partitions at the latest look-up.
        turn: held while the assignor runs. An assignor need not be thread-safe, and an assignor
            that hangs must not accumulate threads.
    """

    assignor: Assignor
    policy: Policy
    lookup: RoundLookup
    timeout_ms: int
    post: Callable[[RoundLed | RejoinRequested], None]
    sink: TelemetrySink
    read: Callable[[Sequence[JoinedMember]], RoundRequest] = read_members
    seen: SeenTopics = field(factory=SeenTopics)
    turn: threading.Lock = field(factory=threading.Lock, init=False)
    _lags: Lags | None = field(default=None, init=False)
    _goes_on_in: int | None = field(default=None, init=False)  # generation that reuses `_lags`
    _refusals: int = field(default=0, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _stopped: bool = field(default=False, init=False)
    # guards `_threads`, `_stopped` and `seen`
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def start(self, duty: LeadRound) -> None:
        """Decide a round in the background; only the first outcome counts."""
        led = _Round(duty)
        try:
            self._launch(threading.Thread(target=self._lead, args=(led,)))
        except RuntimeError as error:  # no thread is available
            self._refuse(led, one_line(error))

    def look_over(
        self, members: tuple[JoinedMember, ...], shared_digest: int | None, *, has_notes: bool
    ) -> None:
        """Begin to watch the topics of a group whose leader returned, in the background.

        If the partitions changed meanwhile, request a round. If the look-up fails or the digest is
        not known, the round is requested as soon as possible. Protocols of other clients have no
        digest, and a round may stop all members: then no round is requested.

        Args:
            members: of the group.
            shared_digest: `resources_digest` of the resources in the group's last round; None if
                unknown.
            has_notes: whether leaders of the group's protocol note that digest.
        """
        arguments = (members, shared_digest, self.seen)
        kinds = {"has_notes": has_notes}
        try:
            self._launch(threading.Thread(target=self._look, args=arguments, kwargs=kinds))
        except RuntimeError as error:  # no thread is available
            self.sink.warn("topics_unavailable", error=str(error))

    def stop(self) -> None:
        """End rounds and look-ups in progress; wait briefly for a running assignor."""
        self.lookup.close()
        deadline = now_s() + _STOP_TIMEOUT_S
        with self._lock:
            self._stopped = True
            threads = tuple(self._threads)
        for thread in threads:
            if isinstance(thread, threading.Timer):
                thread.cancel()
        for thread in threads:
            thread.join(max(0.0, deadline - now_s()))

    def replace_seen(self, before: SeenTopics, partitions: ResourceSet) -> bool:
        """Note partitions that appeared or vanished, unless a round was led since `before`.

        Returns:
            Whether they were noted.
        """
        with self._lock:
            if self.seen is not before:
                return False
            self.seen = attrs.evolve(before, partitions=partitions)
            return True

    def _look(
        self,
        members: tuple[JoinedMember, ...],
        shared_digest: int | None,
        before: SeenTopics,
        *,
        has_notes: bool,
    ) -> None:
        try:
            request = self.read(members)
            metadata = self._metadata(request)
        except Exception as error:  # noqa: BLE001 -- a member that leads is worth more than a watch
            self.sink.warn("topics_unavailable", error=str(error))
            return
        found = ResourceSet() if metadata is None else metadata.resources
        with self._lock:
            if self.seen is not before:
                return  # a round was led meanwhile
            self.seen = SeenTopics(topics=request.topics, partitions=found)
        changed = metadata is not None and resources_digest(found) != shared_digest
        if changed and has_notes:
            self.post(RejoinRequested(reason="partitions changed"))

    def _launch(self, thread: threading.Thread) -> None:
        thread.name = "coopgroup-leader"
        thread.daemon = True
        with self._lock:
            if self._stopped:
                return
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _lead(self, led: _Round) -> None:
        timer = threading.Timer(self.timeout_ms / 1000, self._give_up, (led,))
        try:
            self._launch(timer)
            led.request = self.read(led.duty.members)
            if self.turn.acquire(timeout=self.timeout_ms / 1000):  # otherwise the timer answers
                try:
                    self._decide(led, led.request)
                finally:
                    self.turn.release()
        except BaseException as error:  # noqa: BLE001 -- SystemExit, too, would go unnoticed
            self._refuse(led, one_line(error))
        finally:
            if led.once.locked():
                timer.cancel()

    def _decide(self, led: _Round, request: RoundRequest) -> None:
        if led.once.locked():
            return
        metadata = self._metadata(request)
        lags = None
        if metadata is not None and self.assignor.needs_lags:
            lags = self._lags_of_rebalance(led.duty, metadata)
        outcome = lead_round(
            led.duty, request, metadata, lags, assignor=self.assignor, policy=self.policy
        )
        plan = outcome.led.decided.plan
        # A pause between rationed moves belongs to the rebalance. A wait for a lost owner does not:
        # its partitions have fallen behind when it ends.
        goes_on = plan.follow_up or plan.loss_timeout_ms is not None
        self._goes_on_in = led.duty.generation + 1 if goes_on else None
        if metadata is not None:
            with self._lock:
                self.seen = SeenTopics(topics=request.topics, partitions=metadata.resources)
        self._finish(led, outcome)

    def _give_up(self, led: _Round) -> None:
        self._refuse(led, f"no decision within coopgroup.leader.timeout.ms ({self.timeout_ms})")

    def _refuse(self, led: _Round, failure: str) -> None:
        outcome = lead_round(
            led.duty,
            led.request,
            None,
            None,
            assignor=self.assignor,
            policy=self.policy,
            failure=failure,
        )
        self._finish(led, outcome)

    def _finish(self, led: _Round, outcome: RoundLed) -> None:
        if not led.once.acquire(blocking=False):
            return
        self.post(outcome)
        if not outcome.led.refused:
            self._refusals = 0
            return
        wait_s = min(_RETRY_AFTER_S * 2.0 ** min(self._refusals, 10), _RETRY_AFTER_S_MAX)
        self._refusals += 1
        event = RejoinRequested(reason="the last round moved nothing")
        try:
            self._launch(threading.Timer(wait_s, self.post, (event,)))
        except RuntimeError:  # no thread is available: better too early than never
            self.post(event)

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        try:
            return self.lookup.metadata(request.topics)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            self.sink.warn("metadata_unavailable", error=str(error))
            return None

    def _lags_of_rebalance(self, duty: LeadRound, metadata: TopicMetadata) -> Lags | None:
        """Return the lags of the rebalance that this round is part of.

        Look lags up again if another member led the last round, or if there are new partitions.
        """
        known = self._lags
        is_next = duty.generation == self._goes_on_in
        if is_next and known is not None and metadata.resources <= known.resources:
            return known
        return self._look_up_lags(metadata)

    def _look_up_lags(self, metadata: TopicMetadata) -> Lags | None:
        try:
            self._lags = self.lookup.lags(metadata.resources)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            known = self._lags is not None
            self.sink.warn("lags_unavailable", error=str(error), last_known=known)
        return self._lags
