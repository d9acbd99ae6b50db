"""`Network`: connections between processes and brokers.

- Requests on one connection arrive in the order of sending. A broker serves one request of a
  connection at a time. A request that waits for a round delays the requests behind it.
- A lost message breaks its call. The process learns that no answer will come.
- A cut is not a loss, because TCP sends again: requests arrive after the cut, unless their timeout
  has expired. A single connection can be held up in the same way.
- If a call times out on a commit lane, the lane is given up. The next call takes a new connection.
  OffsetCommits on the old connection continue, the one that timed out included. They may arrive
  after later requests, and the coordinator accepts them while their generation is the current one.
- Requests that a process sent before it died still arrive, because its kernel delivers them.
- Every `Send` of a living session is answered exactly once.

Tests inject one fault at a time: `upset` registers a fault for the next matching request.
"""

from __future__ import annotations

import enum
import random

from attrs import define, field, frozen

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.events import Answered, RequestFailed
from coopgroup.core.model.group_api import Answer, GroupRequest, OffsetCommitRequest
from coopgroup.simulator.coordinator import refusal
from coopgroup.simulator.scenario import Span
from coopgroup.simulator.world import World, late_commit_of
from coopgroup.simulator.world.brokers import Brokers
from coopgroup.simulator.world.calls import Call, Caller, Connection
from coopgroup.simulator.world.drawing import between


class Mishap(enum.Enum):
    """The faults that can affect one request."""

    REQUEST_LOST = "request lost"
    """It never reaches the broker."""

    ANSWER_LOST = "answer lost"
    """The broker serves it, but its answer is lost with the connection."""

    REFUSED = "refused"
    """The broker refuses it with an error code and does not process it."""

    DELAYED = "delayed"
    """It takes longer, and so do later requests on its connection."""

    ANSWER_DELAYED = "answered late"
    """The broker serves it in time, but its answer takes longer."""


@frozen(kw_only=True)
class Upset:
    """One fault for one request of a client; `client` is "" for any client."""

    request: type[GroupRequest]
    mishap: Mishap
    client: str = ""
    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    delay_ms: int = 0


@define(kw_only=True, eq=False)
class Network:
    """All connections.

    Attributes:
        delay_ms: of a request or an answer, one way.
    """

    world: World
    delay_ms: Span = field(factory=lambda: Span(1, 1))
    request_loss: float = 0.0
    answer_loss: float = 0.0
    upsets: list[Upset] = field(factory=list)
    brokers: Brokers = field(init=False)
    _lanes: dict[tuple[Caller, Lane], Connection] = field(factory=dict)
    _calls: dict[Caller, dict[Call, None]] = field(factory=dict)
    _cut_until_ms: dict[str, int] = field(factory=dict)
    _held_up_until_ms: dict[tuple[str, Lane], int] = field(factory=dict)
    _dice: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dice = self.world.dice("network")

    # --- what a test or a deployment does ------------------------------------------------------

    def upset(self, upset: Upset) -> None:
        """Register a fault for the next matching request."""
        self.upsets.append(upset)

    def cut(self, client: str, for_ms: int) -> None:
        """Delay all messages between a process and the brokers for a while."""
        until_ms = self.world.now_ms + for_ms
        self._cut_until_ms[client] = max(until_ms, self._cut_until_ms.get(client, 0))

    def is_cut(self, client: str) -> bool:
        """Return whether nothing gets through between a process and the brokers."""
        return self._cut_until_ms.get(client, 0) > self.world.now_ms

    def hold_up(self, client: str, lane: Lane, for_ms: int) -> None:
        """Delay all messages on one connection of a process for a while.

        If the connection is given up, the next connection of its lane works.
        """
        until_ms = self.world.now_ms + for_ms
        self._held_up_until_ms[client, lane] = until_ms

    def heal(self) -> None:
        """End all cuts and lose no more messages."""
        self.request_loss = self.answer_loss = 0.0
        self._cut_until_ms.clear()
        self._held_up_until_ms.clear()
        for calls in self._calls.values():
            for call in calls:
                call.connection.held_until_ms = 0
        self.upsets.clear()

    def break_all(self) -> None:
        """Fail all pending calls because the broker died."""
        for calls in tuple(self._calls.values()):
            for call in tuple(calls):
                self.fail(call)

    # --- what a process does -------------------------------------------------------------------

    def send(self, process: Caller, send: Send) -> None:
        """Send a request of a process."""
        connection = self._lanes.get((process, send.lane))
        if connection is None:
            connection = self._lanes[process, send.lane] = Connection()
        call = Call(process, send, connection, self.world.now_ms + send.timeout_ms)
        self._calls.setdefault(process, {})[call] = None
        world, dice = self.world, self._dice
        if self.answer_loss:
            call.answer_lost = dice.random() < self.answer_loss
        lost = bool(self.request_loss) and dice.random() < self.request_loss
        delay_ms = self._delay()
        if self.upsets:
            more_ms, upset_lost = self._be_upset(call)
            delay_ms += more_ms
            lost = lost or upset_lost
        arrives_ms = max(world.now_ms + delay_ms, connection.free_at_ms)
        connection.free_at_ms = arrives_ms
        world.at(arrives_ms, self.fail if lost else self._arrive, call)
        if arrives_ms >= call.due_ms:
            self._time_out(call)
        if world.transcript is not None:
            world.transcript.sent(call)

    def close_lane(self, process: Caller, lane: Lane) -> None:
        """Give up a connection and fail its pending calls."""
        connection = self._lanes.pop((process, lane), None)
        for call in tuple(self._calls.get(process, ())):
            if call.connection is connection:
                call.answer_lost = True
                self.world.later(1, self.fail, call)

    def forget(self, process: Caller) -> None:
        """Handle the death of a process: its requests still arrive, but it gets no answers."""
        if not self._calls.get(process):
            self._calls.pop(process, None)
        for lane in Lane:
            self._lanes.pop((process, lane), None)

    # --- on the way ----------------------------------------------------------------------------

    def _delay(self) -> int:
        low, high = self.delay_ms.low, self.delay_ms.high
        return low if low == high else between(self._dice, low, high)

    def _be_upset(self, call: Call) -> tuple[int, bool]:
        """Apply the first matching fault; return the delay and whether the request is lost."""
        for upset in self.upsets:
            if isinstance(call.send.request, upset.request) and (
                upset.client in {"", call.process.name}
            ):
                self.upsets.remove(upset)
                request = upset.request.__name__
                self.world.fault(f"{request} of {call.process.name} is {upset.mishap.value}")
                if upset.mishap is Mishap.ANSWER_LOST:
                    call.answer_lost = True
                if upset.mishap is Mishap.ANSWER_DELAYED:
                    call.answer_delay_ms = upset.delay_ms
                    return 0, False
                if upset.mishap is Mishap.REFUSED:
                    call.refused_with = upset.code
                return upset.delay_ms, upset.mishap is Mishap.REQUEST_LOST
        return 0, False

    def _time_out(self, call: Call) -> None:
        if not call.is_timed:
            call.is_timed = True
            self.world.at(call.due_ms, self._expire, call)

    def _expire(self, call: Call) -> None:
        """Fail a call without an answer in time; calls behind it would wait as well.

        Only the commit lane gets a new connection. The join lane stays held up for the given time,
        because a new connection would hide the effect on joins.
        """
        if call.is_over:
            return
        lane = call.process, call.send.lane
        is_current = call.send.lane is Lane.COMMIT and self._lanes.get(lane) is call.connection
        if is_current:
            del self._lanes[lane]
            held = call.process.name, call.send.lane
            call.connection.held_until_ms = self._held_up_until_ms.pop(held, 0)
        if isinstance(call.send.request, OffsetCommitRequest) and not call.is_replied:
            call.is_late = True
            self._tell_failed(call)
        else:
            self.fail(call)
        if is_current:
            self._give_up(call.process, call.connection)

    def _give_up(self, process: Caller, connection: Connection) -> None:
        """Fail the calls of a connection except commits, which may still arrive."""
        for call in tuple(self._calls.get(process, ())):
            if call.connection is not connection:
                continue
            if isinstance(call.send.request, OffsetCommitRequest):
                continue  # the commit waits for its answer on the old connection
            self.fail(call)

    def _held_until_ms(self, call: Call) -> int:
        name, until_ms = call.process.name, call.connection.held_until_ms
        if self._cut_until_ms:
            until_ms = max(until_ms, self._cut_until_ms.get(name, 0))
        if self._held_up_until_ms:
            until_ms = max(until_ms, self._held_up_until_ms.get((name, call.send.lane), 0))
        return until_ms

    def _arrive(self, call: Call) -> None:
        if call.is_over:
            return
        held_until_ms = self._held_until_ms(call)
        if held_until_ms > self.world.now_ms:
            self._time_out(call)
            self.world.at(held_until_ms, self._arrive, call)
            return
        connection = call.connection
        if connection.serving is not None and not connection.serving.is_over:
            self._time_out(call)
            connection.waiting.append(call)
            return
        connection.serving = call
        if not call.process.alive and call.process.config.keeps_identity:
            self._tell_of_former_life(call)
        elif call.is_late:
            self._tell_of_held_commit(call)
        if call.refused_with is not None:
            self.reply(call, refusal(call.send.request, call.refused_with))
        else:
            self.brokers.serve(call)
            if not call.is_replied:
                self._time_out(call)

    def _tell_of_former_life(self, call: Call) -> None:
        """Record a late commit: a kept identity is not fenced from its former life."""
        request = call.send.request
        if isinstance(request, OffsetCommitRequest):
            self.world.fault(late_commit_of(request.member_id))

    def _tell_of_held_commit(self, call: Call) -> None:
        """Record a commit whose connection alone was held up for longer than a lease.

        No member is safe from it: heartbeats on the other connection keep its generation alive. If
        the process was cut off, its lease has ended meanwhile.
        """
        request, config = call.send.request, call.process.config
        lease_ms = config.session_timeout_ms + config.heartbeat_interval_ms
        ends_ms = call.sent_ms + lease_ms
        cut_until_ms = self._cut_until_ms.get(call.process.name, 0)
        is_alone = cut_until_ms < ends_ms <= self.world.now_ms
        if isinstance(request, OffsetCommitRequest) and is_alone:
            self.world.fault(late_commit_of(request.member_id))

    def reply(self, call: Call, answer: Answer) -> None:
        """Deliver an answer to its process."""
        if call.is_over:
            return
        if call.is_late:
            self._finish(call)
            return
        call.is_replied = True
        arrives_ms = self.world.now_ms + self._delay() + call.answer_delay_ms
        if arrives_ms >= call.due_ms:
            self._time_out(call)
        if call.answer_lost:
            self.world.at(arrives_ms, self.fail, call)
        else:
            self.world.at(arrives_ms, self._deliver, call, answer)

    def _deliver(self, call: Call, answer: Answer) -> None:
        if call.is_over:
            return
        held_until_ms = self._held_until_ms(call)
        if held_until_ms > self.world.now_ms:
            self._time_out(call)
            self.world.at(held_until_ms, self._deliver, call, answer)
            return
        self._finish(call)
        if not call.process.alive:
            return
        if self.world.transcript is not None:
            self.world.transcript.answered(call, answer)
        call.process.give(Answered(request_id=call.send.request_id, answer=answer))

    def fail(self, call: Call) -> None:
        """End a call without an answer."""
        if call.is_over:
            return
        self._finish(call)
        if not call.is_late:
            self._tell_failed(call)

    def _tell_failed(self, call: Call) -> None:
        if not call.process.alive:
            return
        if self.world.transcript is not None:
            self.world.transcript.failed(call)
        call.process.give(
            RequestFailed(
                request_id=call.send.request_id,
                code=ErrorCode.NO_ANSWER,
                message="connection lost",
            )
        )

    def _finish(self, call: Call) -> None:
        call.is_over = True
        calls = self._calls[call.process]
        del calls[call]
        if not calls and not call.process.alive:
            del self._calls[call.process]
        connection = call.connection
        if connection.serving is call and connection.waiting:
            self.world.later(0, self._arrive, connection.waiting.popleft())
