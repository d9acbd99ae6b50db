"""The leader's duty on a thread of its own: look up, decide, in bounded time.

Rules of this file: a round is always answered. Lags that cannot be looked up are those of the
last look-up, else 0; metadata that cannot be looked up, or an assignor that takes too long, gives
the round that moves nothing, and another round is asked for a little later.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.leader import Lags, TopicMetadata, read_members
from coopgroup.member.events import RejoinRequested
from coopgroup.model import ResourceSet
from coopgroup.session import RoundLed, lead_round

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.assignors.base import Assignor
    from coopgroup.kafka.lookup import ClusterLookup
    from coopgroup.kafka.telemetry_sink import TelemetrySink
    from coopgroup.leader import RoundRequest
    from coopgroup.policies.base import Policy
    from coopgroup.session import LeadRound

__all__ = ["RoundLeader"]

# After a round that moved nothing: long enough not to spin, short enough not to be an outage. What
# keeps failing is tried less and less often, for each try is a rebalance of the whole group.
_RETRY_AFTER_S: Final = 1.0
_RETRY_AFTER_S_MAX: Final = 30.0
_STOP_TIMEOUT_S: Final = 2.0


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
        topics: names that the group subscribed to in the last round that was led here.
        partitions: what existed of them then.
    """

    assignor: Assignor
    policy: Policy
    lookup: ClusterLookup
    timeout_ms: int
    post: Callable[[RoundLed | RejoinRequested], None]
    sink: TelemetrySink
    topics: tuple[str, ...] = ()
    partitions: ResourceSet = field(factory=ResourceSet)
    _lags: Lags | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)
    # One decision at a time: an assignor need not be fit for two threads, and one that hangs must
    # not gather more and more of them.
    _turn: threading.Lock = field(factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)  # of the list

    def start(self, duty: LeadRound) -> None:
        """Decide a round in the background; exactly one outcome counts, the first."""
        self._launch(threading.Thread(target=self._lead, args=(duty,)))

    def stop(self) -> None:
        """End what is under way, look-ups included; an assignor at work is waited for briefly."""
        self.lookup.close()
        deadline = now_s() + _STOP_TIMEOUT_S
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            if isinstance(thread, threading.Timer):
                thread.cancel()
        for thread in threads:
            thread.join(max(0.0, deadline - now_s()))

    def _launch(self, thread: threading.Thread) -> None:
        thread.name = "coopgroup-leader"
        thread.daemon = True
        with self._lock:
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _lead(self, duty: LeadRound) -> None:
        once = threading.Lock()  # whoever gets it gives the outcome, and keeps it
        request = read_members(duty.members)
        timer = threading.Timer(self.timeout_ms / 1000, self._give_up, (duty, once, request))
        self._launch(timer)
        if not self._turn.acquire(timeout=self.timeout_ms / 1000):
            return  # the timer answers
        try:
            if not once.locked():
                self._decide(duty, once, request)
        finally:
            self._turn.release()
            timer.cancel()

    def _decide(self, duty: LeadRound, once: threading.Lock, request: RoundRequest) -> None:
        metadata = self._metadata(request)
        lags = None
        if metadata is not None and self.assignor.needs_lags:
            lags = self._look_up_lags(metadata)
        led = lead_round(duty, request, metadata, lags, assignor=self.assignor, policy=self.policy)
        if metadata is not None:
            self.topics, self.partitions = request.topics, metadata.resources
        self._finish(led, once)

    def _give_up(self, duty: LeadRound, once: threading.Lock, request: RoundRequest) -> None:
        failure = f"no decision within coopgroup.leader.timeout.ms ({self.timeout_ms})"
        led = lead_round(
            duty,
            request,
            None,
            None,
            assignor=self.assignor,
            policy=self.policy,
            failure=failure,
        )
        self._finish(led, once)

    def _finish(self, led: RoundLed, once: threading.Lock) -> None:
        if not once.acquire(blocking=False):
            return
        self.post(led)
        if not led.led.refused:
            self._refusals = 0
            return
        wait_s = min(_RETRY_AFTER_S * 2.0 ** min(self._refusals, 10), _RETRY_AFTER_S_MAX)
        self._refusals += 1
        event = RejoinRequested(reason="the last round moved nothing")
        self._launch(threading.Timer(wait_s, self.post, (event,)))

    def _metadata(self, request: RoundRequest) -> TopicMetadata | None:
        try:
            return self.lookup.metadata(request.topics)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            self.sink.warn("metadata_unavailable", error=str(error))
            return None

    def _look_up_lags(self, metadata: TopicMetadata) -> Lags | None:
        try:
            self._lags = self.lookup.lags(metadata.resources)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            self.sink.warn("lags_unavailable", error=str(error), last_known=self._lags is not None)
        return self._lags
