"""`TopicBell`: the rings of a group on a topic of the cluster.

The bell listens with a Fetch that the broker holds open until a ring comes, at most 30 s. So an
idle member sends two requests a minute. Rings and the Fetch have a connection each, because a
broker serves one request of a connection at a time. The connection for rings is opened by the first
ring. Look-ups of the leader use the connection of the member's own look-ups.

Rules of this file: everything runs on the transport's thread, except `ring` and `finish`. Nothing
here is needed for correctness, so no failure is an error. A missing topic or right is one warning
if the configuration names the topic, and is tried again after minutes. Other failures are tried
again after a pause, and are a warning if they last.

When the leader of the partition moves, no ring is lost. A ring that fails is sent to the next
leader, a few times. A listener continues there at its offset. All in-sync replicas must have a ring
before the broker answers: the next leader would not have a ring that only the last one had.
Listeners do not hear it any sooner either, because a broker hands out replicated records only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import error_name
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import FindLogOffsets, LogOffset
from coopgroup.kafka.rpc.topics import (
    TOPIC_REFUSALS,
    FindPartition,
    FoundPartition,
    ListenForRings,
    Produce,
    ProduceAnswer,
    RingsAnswer,
)
from coopgroup.kafka.rpc.transport import AnyLane, GroupTransport, TopicLane
from coopgroup.kafka.trouble import Trouble

_LISTEN_MS: Final = 30_000
_FIRST_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 30.0
# A topic or a right may be added later. Until then each try only adds noise to the broker's log.
# A topic that is made again is there soon, so the pauses begin short if the member has listened.
_REFUSED_PAUSE_S: Final = 300.0
# A ring waits for the next look-up of its leader, unless that comes too late. By then, the members
# have heard of the round with their heartbeats.
_RING_PAUSE_S_MAX: Final = 10.0
_RING_TRIES_MAX: Final = 6
# Between two answers with rings: a flood of rings must not keep the transport's thread busy.
_READ_PAUSE_S: Final = 0.01
# A member that is further behind continues at the end, because old rings are useless.
_BEHIND_MAX: Final = 1_000
_OFFSET_OUT_OF_RANGE: Final = 1
_LATEST: Final = -1  # the timestamp that stands for the log end


@define(eq=False, kw_only=True)
class TopicBell:
    """Rings and listens for one group.

    Attributes:
        heard: called on the transport's thread when the group rang.
        warn: called with an event and its fields; None if the topic need not exist.
        timeout_ms: time limit of a request; the broker may hold a Fetch for longer.
    """

    transport: GroupTransport
    topic: str
    group_id: str
    heard: Callable[[], None]
    warn: Callable[..., None] | None
    timeout_ms: int
    _place: FoundPartition | None = field(default=None, init=False)
    _offset: int | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    # The pause before the look-up of the partition that is due or under way; None without one.
    _find_pause_s: float | None = field(default=None, init=False)
    _is_listening: bool = field(default=False, init=False)
    _has_listened: bool = field(default=False, init=False)
    _listening: Trouble = field(init=False)
    _ringing: Trouble = field(init=False)
    # Rings that wait for the leader: how often each has failed.
    _waiting: list[int] = field(factory=list, init=False)
    # Rings that have not ended.
    _rings: int = field(default=0, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _silent: threading.Event = field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._listening = Trouble(self.warn, "bell_unavailable", "bell_available")
        self._ringing = Trouble(self.warn, "bell_unavailable", "bell_available")
        self._silent.set()

    # --- for any thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen."""
        self.transport.later(0.0, self._find)

    def ring(self) -> None:
        """Tell the other members that a round has begun, if they can be reached."""
        with self._lock:
            self._rings += 1
            self._silent.clear()
        if not self.transport.later(0.0, self._begin_ring):
            self._end_rings(1)

    def finish(self, timeout_s: float) -> None:
        """Wait until the rings so far have reached their broker, or have failed."""
        self._silent.wait(timeout_s)

    def _end_rings(self, count: int) -> None:
        with self._lock:
            self._rings -= count
            if not self._rings:
                self._silent.set()

    # --- where the rings are ---------------------------------------------------------------------

    def _find_after(self, pause_s: float) -> None:
        """Find the partition after a pause, unless a look-up is due or under way."""
        if self._find_pause_s is not None:
            return
        self._find_pause_s = pause_s
        is_open = self.transport.later(pause_s, self._find)
        if pause_s > _RING_PAUSE_S_MAX or not is_open:
            waiting, self._waiting = self._waiting, []
            self._end_rings(len(waiting))

    def _find(self) -> None:
        self._find_pause_s = 0.0
        request = FindPartition(topic=self.topic, group_id=self.group_id)
        self._send(Lane.COMMIT, request, self._take_place)

    def _take_place(self, answer: FoundPartition | TransportFailure) -> None:
        self._find_pause_s = None
        if isinstance(answer, TransportFailure) or answer.leader is None:
            self._place = None
            self._find_after(self._pause_after(answer))
            return
        self._place = answer
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._send_rings(answer, waiting)
        if not self._is_listening:
            self._listen()

    def _pause_after(
        self, answer: FoundPartition | LogOffset | RingsAnswer | TransportFailure
    ) -> float:
        """Tell of a failure if that is due; return the pause before the next try, in seconds."""
        is_refused = _code(answer) in TOPIC_REFUSALS
        self._listening.fail(
            at_once=is_refused, topic=self.topic, action="listen", error=_said(answer)
        )
        if is_refused and not self._has_listened:
            return _REFUSED_PAUSE_S
        return self._next_pause_s(_REFUSED_PAUSE_S if is_refused else _PAUSE_S_MAX)

    def _next_pause_s(self, most_s: float) -> float:
        pause_s: float = min(_FIRST_PAUSE_S * 2 ** min(self._failures, 16), most_s)
        self._failures += 1
        return pause_s

    # --- listening -------------------------------------------------------------------------------

    def _listen(self) -> None:
        place, offset = self._place, self._offset
        self._is_listening = place is not None
        if place is None:
            self._find_after(0.0)
        elif offset is None:
            end = FindLogOffsets(timestamps={(self.topic, place.partition): _LATEST})
            self._send(TopicLane.LISTEN, end, self._take_end, place.leader)
        else:
            listen = ListenForRings(
                topic=self.topic, partition=place.partition, offset=offset, wait_ms=_LISTEN_MS
            )
            self._send(TopicLane.LISTEN, listen, self._take_rings, place.leader)

    def _take_end(self, answer: Mapping[tuple[str, int], LogOffset] | TransportFailure) -> None:
        if isinstance(answer, TransportFailure):
            self._listen_again(answer)
            return
        (end,) = answer.values()
        if end.error_code:
            self._listen_again(end)
            return
        self._offset = end.offset
        self._listen()

    def _take_rings(self, answer: RingsAnswer | TransportFailure) -> None:
        if isinstance(answer, TransportFailure) or answer.error_code:
            self._listen_again(answer)
            return
        self._failures, self._has_listened = 0, True
        self._listening.succeed(topic=self.topic, action="listen")
        if self.group_id.encode() in answer.keys:
            self.heard()
        is_behind = answer.end_offset - answer.next_offset > _BEHIND_MAX
        self._offset = answer.end_offset if is_behind else answer.next_offset
        if answer.keys:
            self.transport.later(_READ_PAUSE_S, self._listen)
        else:
            self._listen()

    def _listen_again(self, answer: LogOffset | RingsAnswer | TransportFailure) -> None:
        """Listen after a pause at the present leader, which may be another one."""
        code, pause_s = _code(answer), self._pause_after(answer)
        if code == _OFFSET_OUT_OF_RANGE:
            self._offset = None
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # Without the right to read, a member can still ring for the others.
            self.transport.later(pause_s, self._listen)
            return
        self._place, self._is_listening = None, False
        self._find_after(pause_s)

    # --- ringing ---------------------------------------------------------------------------------

    def _begin_ring(self) -> None:
        if self._place is not None:
            self._send_rings(self._place, [0])
        elif self._find_pause_s is not None and self._find_pause_s <= _RING_PAUSE_S_MAX:
            self._waiting.append(0)
        else:  # no broker, no topic or no right for a while
            self._end_rings(1)

    def _send_rings(self, place: FoundPartition, rings: list[int]) -> None:
        """Send one record for several rings, because all rings of a group are equal."""
        ring = Produce(
            topic=self.topic,
            partition=place.partition,
            group_id=self.group_id,
            records=((time.time_ns() // 1_000_000, b""),),
            timeout_ms=self.timeout_ms,
            acks=-1,
        )

        def on_answer(answer: ProduceAnswer | TransportFailure) -> None:
            code = _code(answer)
            if not code and code is not None:
                self._ringing.succeed(topic=self.topic, action="ring")
                self._end_rings(len(rings))
                return
            is_refused = code in TOPIC_REFUSALS
            error = _said(answer)
            self._ringing.fail(at_once=is_refused, topic=self.topic, action="ring", error=error)
            again = [] if is_refused else [one + 1 for one in rings if one + 1 < _RING_TRIES_MAX]
            self._end_rings(len(rings) - len(again))
            if again:
                self._waiting += again
                self._place = None
                self._find_after(self._next_pause_s(_RING_PAUSE_S_MAX))

        self._send(TopicLane.RING, ring, on_answer, place.leader)

    # --- requests --------------------------------------------------------------------------------

    def _send(
        self,
        lane: AnyLane,
        request: Any,  # noqa: ANN401  (one of several kinds)
        on_answer: Callable[[Any], None],
        node: Coordinator | None = None,
    ) -> None:
        held_ms = request.wait_ms if isinstance(request, ListenForRings) else 0
        self.transport.send(
            lane, request, on_answer, node=node, timeout_ms=self.timeout_ms + held_ms
        )


def _code(
    answer: FoundPartition | LogOffset | RingsAnswer | ProduceAnswer | TransportFailure,
) -> int | None:
    return None if isinstance(answer, TransportFailure) else answer.error_code


def _said(
    answer: FoundPartition | LogOffset | RingsAnswer | ProduceAnswer | TransportFailure,
) -> str:
    if isinstance(answer, TransportFailure):
        return answer.message
    return TOPIC_REFUSALS.get(answer.error_code) or error_name(answer.error_code)
