"""The leader's duty on a thread of its own: look up, decide, in bounded time.

Rules of this file: a round is always answered. Lags that cannot be looked up are those of the
last look-up, else 0; metadata that cannot be looked up, an assignor that takes too long, or
anything that is raised, gives the round that moves nothing, and another round is asked for a
little later. The time limit covers everything from the first byte that is read.

All rounds of a rebalance use the lags of its first round. Lags change all the time: with new lags
in each round a lag-aware assignor finds other places, takes partitions from their owners, and so
causes one more round. A group that lags by a few records only would rebalance without end.
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

# After a round that moved nothing: long enough not to spin, short enough not to be an outage. What
# keeps failing is tried less and less often, for each try is a rebalance of the whole group.
_RETRY_AFTER_S: Final = 1.0
_RETRY_AFTER_S_MAX: Final = 30.0
_STOP_TIMEOUT_S: Final = 2.0


@frozen(kw_only=True)
class SeenTopics:
    """What a leader saw when it led; one value, so that both parts are of the same look-up.

    Attributes:
        topics: names that the group subscribed to, ascending.
        partitions: what existed of them.
    """

    topics: tuple[str, ...] = ()
    partitions: ResourceSet = field(factory=ResourceSet)


@define(eq=False)
class _Round:
    """A round under way.

    Attributes:
        duty: what is to be decided.
        once: whoever gets it gives the outcome, and keeps it.
        request: the members as far as they are read.
    """

    duty: LeadRound
    once: threading.Lock = field(factory=threading.Lock, init=False)
    request: RoundRequest | None = field(default=None, init=False)


@define(eq=False)
class RoundLeader:
    """Decides rounds for the driver.

    Attributes:
        assignor: says where.
        policy: says when.
        lookup: metadata and lags.
        timeout_ms: bound of a round, look-ups included.
        post: gives events to the driver, from any thread.
        sink: for what went wrong.
        read: decodes the members' subscriptions.
        seen: topics of the last round that was led here, and what existed of them since.
        turn: held by who asks the assignor. One decision at a time: it need not be fit for two
            threads, and one that hangs must not gather more and more of them.
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
    _goes_on_in: int | None = field(default=None, init=False)  # generation that uses `_lags` again
    _refusals: int = field(default=0, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)  # of these two, and `seen`

    def start(self, duty: LeadRound) -> None:
        """Decide a round in the background; exactly one outcome counts, the first."""
        led = _Round(duty)
        try:
            self._launch(threading.Thread(target=self._lead, args=(led,)))
        except RuntimeError as error:  # no thread is to be had
            self._refuse(led, one_line(error))

    def look_over(
        self, members: tuple[JoinedMember, ...], shared_digest: int | None, *, has_notes: bool
    ) -> None:
        """Begin to look after the topics of a group whose leader came back, in the background.

        Where something changed while it was away a round is asked for, and as soon as it can be
        where that cannot be looked up, or is not known. In a protocol of other clients that is
        never known, and a round may stop everybody: there it asks for none.

        Args:
            members: of the group.
            shared_digest: `resources_digest` of what there was to share when the group had its
                last round; None where that is not known.
            has_notes: whether the group speaks a protocol whose leaders note that digest.
        """
        arguments = (members, shared_digest, self.seen)
        kinds = {"has_notes": has_notes}
        try:
            self._launch(threading.Thread(target=self._look, args=arguments, kwargs=kinds))
        except RuntimeError as error:  # no thread is to be had
            self.sink.warn("topics_unavailable", error=str(error))

    def stop(self) -> None:
        """End what is under way, look-ups included; an assignor at work is waited for briefly."""
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
            Whether it was noted.
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
                return  # a round was led since
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
            if self.turn.acquire(timeout=self.timeout_ms / 1000):  # else the timer answers
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
        except RuntimeError:  # no thread is to be had: too early is better than never
            self.post(event)

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        try:
            return self.lookup.metadata(request.topics)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            self.sink.warn("metadata_unavailable", error=str(error))
            return None

    def _lags_of_rebalance(self, duty: LeadRound, metadata: TopicMetadata) -> Lags | None:
        """Return the lags of the rebalance that this round is part of.

        A round whose predecessor was led elsewhere, or that shares new partitions, begins anew.
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
