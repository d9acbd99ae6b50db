"""`TopicBell`: the rings of a group on a topic of the cluster.

The bell listens with a Fetch that the broker holds open until a ring comes, at most 30 s. So an
idle member sends two requests a minute. Rings and the Fetch have a connection each, because a
broker serves one request of a connection at a time. The connection for rings is opened by the first
ring. Look-ups of the leader use the connection of the member's own look-ups.

Rules of this file: everything runs on the transport's thread, except `ring` and `finish`. Nothing
here is needed for correctness, so no failure is an error. A missing topic or right is one warning
if the configuration names the topic, and is tried again after minutes. Other failures are tried
again after a pause, and are a warning if they last.
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
_REFUSED_PAUSE_S: Final = 300.0
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
    _is_finding: bool = field(default=False, init=False)
    _listening: Trouble = field(init=False)
    _ringing: Trouble = field(init=False)
    # Rings that wait for the leader, or for its answer.
    _unsent: int = field(default=0, init=False)
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
            self._end_ring()

    def finish(self, timeout_s: float) -> None:
        """Wait until the rings so far have reached their broker, or have failed."""
        self._silent.wait(timeout_s)

    def _end_ring(self) -> None:
        with self._lock:
            self._rings -= 1
            if not self._rings:
                self._silent.set()

    # --- where the rings are ---------------------------------------------------------------------

    def _find(self) -> None:
        if self._is_finding:
            return
        self._is_finding = True
        request = FindPartition(topic=self.topic, group_id=self.group_id)
        self._send(Lane.COMMIT, request, self._take_place)

    def _take_place(self, answer: FoundPartition | TransportFailure) -> None:
        self._is_finding = False
        if isinstance(answer, TransportFailure) or answer.leader is None:
            self._drop_unsent()
            self._try_again(answer)
            return
        self._place = answer
        for _ in range(self._unsent):
            self._send_ring(answer)
        self._unsent = 0
        self._listen()

    # --- listening -------------------------------------------------------------------------------

    def _listen(self) -> None:
        place, offset = self._place, self._offset
        if place is None:
            self._find()
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
            self._try_again(answer)
            return
        (end,) = answer.values()
        if end.error_code:
            self._try_again(end)
            return
        self._offset = end.offset
        self._listen()

    def _take_rings(self, answer: RingsAnswer | TransportFailure) -> None:
        if isinstance(answer, TransportFailure) or answer.error_code:
            self._try_again(answer)
            return
        self._failures = 0
        self._listening.succeed(topic=self.topic, action="listen")
        if self.group_id.encode() in answer.keys:
            self.heard()
        is_behind = answer.end_offset - answer.next_offset > _BEHIND_MAX
        self._offset = answer.end_offset if is_behind else answer.next_offset
        if answer.keys:
            self.transport.later(_READ_PAUSE_S, self._listen)
        else:
            self._listen()

    def _try_again(
        self, answer: FoundPartition | LogOffset | RingsAnswer | TransportFailure
    ) -> None:
        """Find the partition again after a pause; its leader may have moved."""
        code = None if isinstance(answer, TransportFailure) else answer.error_code
        # Without the right to read, a member can still ring for the others.
        is_deaf = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not is_deaf or isinstance(answer, FoundPartition):
            self._place = None
        if code == _OFFSET_OUT_OF_RANGE:
            self._offset = None
        is_refused = code is not None and code in TOPIC_REFUSALS
        error = _said(answer)
        self._listening.fail(at_once=is_refused, topic=self.topic, action="listen", error=error)
        if is_refused:
            self._offset = None
            self.transport.later(_REFUSED_PAUSE_S, self._find)
            return
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(self._failures, 16), _PAUSE_S_MAX)
        self._failures += 1
        self.transport.later(pause_s, self._find)

    # --- ringing ---------------------------------------------------------------------------------

    def _begin_ring(self) -> None:
        if self._place is not None:
            self._send_ring(self._place)
        elif self._is_finding:
            self._unsent += 1
        else:  # no broker, no topic or no right, a moment ago
            self._end_ring()

    def _send_ring(self, place: FoundPartition) -> None:
        ring = Produce(
            topic=self.topic,
            partition=place.partition,
            group_id=self.group_id,
            records=((time.time_ns() // 1_000_000, b""),),
            timeout_ms=self.timeout_ms,
            acks=1,
        )

        def on_answer(answer: ProduceAnswer | TransportFailure) -> None:
            # If the leader has moved, the request for rings fails too, and finds the next leader.
            if isinstance(answer, ProduceAnswer):
                if answer.error_code in TOPIC_REFUSALS:
                    error = _said(answer)
                    self._ringing.fail(at_once=True, topic=self.topic, action="ring", error=error)
                elif not answer.error_code:
                    self._ringing.succeed(topic=self.topic, action="ring")
            self._end_ring()

        self._send(TopicLane.RING, ring, on_answer, place.leader)

    def _drop_unsent(self) -> None:
        for _ in range(self._unsent):
            self._end_ring()
        self._unsent = 0

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


def _said(
    answer: FoundPartition | LogOffset | RingsAnswer | ProduceAnswer | TransportFailure,
) -> str:
    if isinstance(answer, TransportFailure):
        return answer.message
    return TOPIC_REFUSALS.get(answer.error_code) or error_name(answer.error_code)
