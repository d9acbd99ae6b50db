"""Group RPCs to the brokers, from one background thread, without ever blocking the caller.

Rules of this file: plain values go in (`coopgroup.core.model.group_api`), plain values come out.
Each request gets exactly one outcome: an answer, or a `TransportFailure`. The caller decides what
an error code or a failure means, and whether to try again.

Theory of operation. A broker serves one request of a connection at a time, so a JoinGroup that
waits for the group would hold up all later requests. Therefore there are two lanes, each with its
own connection to every broker:

- JOIN: JoinGroup and SyncGroup, and heartbeats while neither waits;
- COMMIT: requests that must not wait for a join: OffsetCommit, FindCoordinator, LeaveGroup, and
  heartbeats while a join or sync waits.

The caller chooses the lane of each request. The transport chooses the broker (`_route`), and gives
the request to the channel of that lane and broker. Requests of one channel are sent and answered in
order. An OffsetCommit keeps its connection until its answer or its timeout, because
its result is unknown until then. This holds even if another request on the connection times out.

To end a join that waits, close its lane (`close_lane`) and send LeaveGroup on the COMMIT lane.

The lease of a member counts from the SENDING of a heartbeat. Read the monotonic clock before
calling `send`: this is earlier than the moment the bytes leave, and therefore safe.

`keep_quiet_about_connections` filters log lines. kafka-python logs every end of a connection as an
error, even a regular close, and each failed attempt to connect. The application gets the relevant
events as results or in telemetry. So the lines about coopgroup's connections are suppressed unless
kafka-python's logger is set to DEBUG. No logger's level or handler is changed, and an application's
own use of kafka-python logs as usual.

At DEBUG, kafka-python logs the bytes and the messages of SASL, with passwords and tokens. In lines
about coopgroup's connections, bytes are replaced by their number and such messages by their name.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, field
from kafka.net.selector import NetworkSelector

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorRequest,
    GroupRequest,
    OffsetCommitRequest,
)
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc.outcomes import FailureKind, HandshakeError, Outcome, TransportFailure
from coopgroup.kafka.rpc.questions import Question
from coopgroup.worker import Worker

if TYPE_CHECKING:
    from coopgroup.kafka.rpc.channel import Channel

THREAD_PREFIX: Final = "coopgroup-transport-"
"""Prefix of the names of threads that run coopgroup's own connections."""

# Name prefix of coopgroup's threads, some of which speak to a broker.
_OWN_THREADS: Final = "coopgroup-"
_LOGGERS: Final = ("kafka.net.connection", "kafka.net.transport")
_LOGGERS_OF_BYTES: Final = ("kafka.protocol.parser", *_LOGGERS)
# SaslHandshake only names the mechanism.
_SECRET_MESSAGES: Final = ("SaslAuthenticate", "SaslBytes")


def keep_quiet_about_connections() -> None:
    """Suppress lines about coopgroup's connections, and secrets; repeated calls change nothing."""
    for name in _LOGGERS_OF_BYTES:
        logging.getLogger(name).addFilter(_without_secrets)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    if not (record.threadName or "").startswith(THREAD_PREFIX):
        return True
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _without_secrets(record: logging.LogRecord) -> bool:
    if (record.threadName or "").startswith(_OWN_THREADS) and isinstance(record.args, tuple):
        record.args = tuple(_shown(one) for one in record.args)
    return True


def _shown(argument: object) -> object:
    """Return an argument of a log line, without a possible password or token."""
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"({len(argument)} bytes)"
    name = type(argument).__name__
    return f"{name}(not shown)" if name.startswith(_SECRET_MESSAGES) else argument


LOOK_UP_ATTEMPT_MS_MIN: Final = 1_000
RESTART_PAUSE_S: Final = 0.1
_LEARN_AFTER_S: Final = 1.0
OnAnswer: TypeAlias = Callable[[Any], None]
"""Called with the answer to the request, or with a `TransportFailure`."""
Address: TypeAlias = tuple[str, int]
_Due: TypeAlias = tuple[float, Callable[[], None]]


class TopicLane(enum.Enum):
    """The connections for records of the group's own topics.

    A request that waits for rings must not delay a ring, and telemetry must delay neither.
    """

    LISTEN = "listen"
    RING = "ring"
    TELEMETRY = "telemetry"


AnyLane: TypeAlias = Lane | TopicLane


class _Phase(enum.Enum):
    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


@define(eq=False, kw_only=True)
class _Order:
    """A caller's request, which gets one outcome."""

    lane: AnyLane
    request: GroupRequest | Question
    node: Coordinator | None
    deadline: float
    on_answer: OnAnswer
    is_answered: bool = field(default=False, init=False)


@define(eq=False)
class GroupTransport:
    """Sends group requests and returns their answers, on a separate thread.

    Attributes:
        report: called with every internal exception, mostly from `on_answer`, and with a
            `HandshakeError` for the first, second, fourth, … consecutive failed handshake. It is
            called on the transport's thread and must not block.
    """

    settings: ConnectionSettings
    report: Callable[[BaseException], None]
    _net: NetworkSelector = field(init=False)
    _worker: Worker = field(init=False)
    _phase: _Phase = field(default=_Phase.NEW, init=False)
    # Reentrant: a signal handler may close the consumer while its thread is in `send`.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    # Taken by the thread when it begins, or by a failed `start`, once; never waited for.
    _begun: threading.Lock = field(factory=threading.Lock, init=False)
    # The callers' orders, in sequence; only the thread takes from it.
    _inbox: deque[Callable[[], None]] = field(factory=deque, init=False)
    # Only the thread uses the rest.
    _channels: dict[tuple[AnyLane, str, int], Channel] = field(factory=dict, init=False)
    _known_brokers: tuple[Address, ...] = field(default=(), init=False)
    _brokers_read_at: float = field(default=0.0, init=False)
    _look_ups: int = field(default=0, init=False)
    _failed_handshakes: int = field(default=0, init=False)
    # Actions of `later` with their times: a new loop must run them, too.
    _due: set[_Due] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = Worker(f"{THREAD_PREFIX}{self.settings.client_id}", idle_s=0.0)

    # --- the caller's side -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; connections are made when they are first needed.

        Raises:
            RuntimeError: the transport was started before.
        """
        with self._lock:
            if self._phase is not _Phase.NEW:
                raise RuntimeError("the transport can be started once only")
            keep_quiet_about_connections()
            self._net = self._new_loop()
            self._phase = _Phase.OPEN
            try:
                self._worker.submit(self._run)
            except BaseException:
                self._phase = _Phase.CLOSED
                if self._begun.acquire(blocking=False):
                    self._net.close()
                else:  # a signal's exception came after the thread had begun, which now ends
                    self._net.wakeup()
                raise

    def send(
        self,
        lane: AnyLane,
        request: GroupRequest | Question,
        on_answer: OnAnswer,
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        """Send a request and return immediately.

        Args:
            lane: the connection to use.
            request: the request.
            on_answer: called exactly once, on the transport's thread, with the answer or a failure.
                It must be quick, because it delays all other answers. Its exceptions are given to
                `report`. If the transport does not run, the caller's thread calls it.
            node: the group coordinator, or another broker; None for requests that any broker
                answers, such as FindCoordinator.
            timeout_ms: time for the answer, connecting included. The caller adds the time for which
                a coordinator holds a join or a sync.

        Raises:
            ValueError: a request without a node that not every broker answers.
        """
        load_connections(self.settings)
        asks_any = isinstance(request, FindCoordinatorRequest)
        if node is None and not (asks_any or getattr(request, "asks_any_broker", False)):
            raise ValueError(f"{type(request).__name__} needs the group coordinator as its node")
        order = _Order(
            lane=lane,
            request=request,
            node=node,
            deadline=time.monotonic() + timeout_ms / 1000,
            on_answer=on_answer,
        )
        if not self._enqueue(lambda: self._route(order)):
            message = "the transport is not running"
            on_answer(TransportFailure(kind=FailureKind.DISCONNECTED, message=message))

    def ask(
        self,
        lane: AnyLane,
        request: GroupRequest | Question,
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> Any:  # noqa: ANN401  (the answer to the request)
        """Send a request as `send` does, and wait for the answer or the failure."""
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send(lane, request, outcome.put, node=node, timeout_ms=timeout_ms)
        return outcome.get()

    def later(self, delay_s: float, action: Callable[[], None]) -> bool:
        """Run an action on the transport's thread after a delay; its exceptions are reported.

        Returns:
            False if the transport does not run, so that the action is never run.
        """
        due = (time.monotonic() + delay_s, action)
        return self._enqueue(lambda: self._wait_for(due))

    def close_lane(self, lane: AnyLane) -> None:
        """Close all connections of a lane; its pending requests fail as disconnected.

        Only a FindCoordinator continues with the next broker.

        The lane can be used again immediately. A coordinator does not notice that a join's
        connection is gone: the member stays in the group until it leaves or its session ends.
        """
        self._enqueue(lambda: self._close_lane(lane))

    def close(self, timeout_ms: int = 5_000) -> bool:
        """Fail all pending requests and close all connections; return whether the thread has ended.

        Raises:
            RuntimeError: called on the transport's thread, which cannot wait for itself.
        """
        if self._worker.is_own_thread:
            raise RuntimeError("the transport cannot be closed from its own thread")
        with self._lock:
            was_open = self._phase is _Phase.OPEN
            self._phase = _Phase.CLOSED
            if was_open:
                # Wake it only now, or the thread could check the phase too early and sleep again.
                self._net.wakeup()
        return self._worker.close(timeout_ms / 1000)

    def _enqueue(self, action: Callable[[], None]) -> bool:
        with self._lock:
            if self._phase is _Phase.OPEN:
                self._inbox.append(action)
                self._net.call_soon_threadsafe(self._drain_inbox)
            return self._phase is _Phase.OPEN

    # --- the thread's side -----------------------------------------------------------------------

    def _new_loop(self) -> NetworkSelector:
        return NetworkSelector(client_id=self.settings.client_id)

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return  # `start` was interrupted, and has closed the loop
        while self._phase is _Phase.OPEN:
            try:
                self._net.poll()
            except Exception as error:  # noqa: BLE001 -- a dead thread would be a dead member
                self._report(error)
                self._restart()
        # Nothing is added now: earlier requests are taken, then failed.
        self._drain_inbox()
        self._drop_channels("the transport was closed")
        self._net.close()

    def _restart(self) -> None:
        time.sleep(RESTART_PAUSE_S)
        with self._lock:
            broken, self._net = self._net, self._new_loop()
            self._net.call_soon(self._drain_inbox)
        for due in tuple(self._due):
            self._wait_for(due)
        self._drop_channels("the transport's loop failed and was restarted")
        try:
            broken.close()
        except Exception as error:  # noqa: BLE001 -- it was broken before
            self._report(error)

    def _wait_for(self, due: _Due) -> None:
        self._due.add(due)
        self._net.call_at(due[0], lambda: self._act(due))

    def _act(self, due: _Due) -> None:
        if due in self._due:
            self._due.remove(due)
            try:
                due[1]()
            except Exception as error:  # noqa: BLE001 -- the caller's code
                self._report(error)

    def _drain_inbox(self) -> None:
        while self._inbox:
            action = self._inbox.popleft()
            try:
                action()
            except Exception as error:  # noqa: BLE001 -- one request must not end the others
                self._report(error)

    def _report(self, error: BaseException) -> None:
        with contextlib.suppress(Exception):  # the failure cannot be reported anywhere
            self.report(error)

    def _route(self, order: _Order) -> None:
        """Choose the broker, and give the request to the channel to it."""
        with self._failing(order):
            if order.node is None:
                self._try_in_turn(order, self._candidates(order.lane))
            else:
                address, answer = (order.node.host, order.node.port), partial(self._answer, order)
                self._give_to_channel(order, address, order.deadline, answer)

    @contextlib.contextmanager
    def _failing(self, order: _Order) -> Iterator[None]:
        """Fail a request that cannot be begun."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- the request must have an outcome
            self._report(error)
            failure = TransportFailure(kind=FailureKind.DISCONNECTED, message=repr(error))
            self._answer(order, failure)

    def _give_to_channel(
        self, order: _Order, address: Address, deadline: float, on_done: Callable[[Outcome], None]
    ) -> None:
        from coopgroup.kafka.rpc.channel import Call  # noqa: PLC0415 - see `load_connections`
        from coopgroup.kafka.rpc.requests import build_message  # noqa: PLC0415 - see `load_connections`

        channel = self._channel(order.lane, address)
        try:
            message = build_message(order.request)
        except Exception as error:  # noqa: BLE001 -- the request must have an outcome
            self._report(error)
            on_done(TransportFailure(kind=FailureKind.UNSUPPORTED, message=str(error)))
            return
        channel.write(
            Call(
                message=message,
                deadline=deadline,
                on_done=on_done,
                outlives=isinstance(order.request, OffsetCommitRequest),
            )
        )

    def _answer(self, order: _Order, outcome: Outcome) -> None:
        if order.is_answered:  # the exception came after the request was written
            return
        order.is_answered = True
        self._watch_handshakes(outcome)
        try:
            order.on_answer(_read(order.request, outcome))
        except Exception as error:  # noqa: BLE001 -- the caller's code
            self._report(error)

    def _watch_handshakes(self, outcome: Outcome) -> None:
        """Report failed handshakes, because they are repeated without end."""
        if not isinstance(outcome, TransportFailure):
            self._failed_handshakes = 0
        elif outcome.kind is FailureKind.HANDSHAKE:
            self._failed_handshakes += 1
            if self._failed_handshakes.bit_count() == 1:
                self._report(HandshakeError(outcome.message))

    def _channel(self, lane: AnyLane, address: Address) -> Channel:
        from coopgroup.kafka.rpc.channel import Channel  # noqa: PLC0415 - see `load_connections`

        key = (lane, *address)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(self._net, *address, self.settings)
        return channel

    def _close_lane(self, lane: AnyLane) -> None:
        for key, channel in sorted(self._channels.items(), key=_by_address):
            if key[0] is lane:
                channel.close("the lane was closed")

    def _drop_channels(self, reason: str) -> None:
        channels = [channel for _, channel in sorted(self._channels.items(), key=_by_address)]
        self._channels.clear()
        for channel in channels:
            try:
                channel.close(reason)
            except Exception as error:  # noqa: BLE001 -- the other channels must close, too
                self._report(error)

    # --- look-up ---------------------------------------------------------------------------------

    def _candidates(self, lane: AnyLane) -> list[Address]:
        """Return the brokers to ask, connected ones first; the order rotates with each call."""
        addresses = [*dict.fromkeys((*self._known_brokers, *self.settings.bootstrap_servers))]
        turn = self._look_ups % len(addresses)
        self._look_ups += 1

        def rank(address: Address) -> tuple[bool, float]:
            channel = self._channels.get((lane, *address))
            if channel is None:
                return (True, 0.0)
            return (not channel.is_connected, channel.retry_at)

        return sorted((*addresses[turn:], *addresses[:turn]), key=rank)

    def _try_in_turn(self, order: _Order, candidates: list[Address]) -> None:
        """Ask one broker after the other until one answers or the time is over."""
        address, *others = candidates
        now = time.monotonic()
        share = max((order.deadline - now) / len(candidates), LOOK_UP_ATTEMPT_MS_MIN / 1000)

        def on_done(outcome: Outcome) -> None:
            failed = isinstance(outcome, TransportFailure)
            in_time = time.monotonic() < order.deadline and self._phase is _Phase.OPEN
            if failed and others and in_time:
                with self._failing(order):
                    self._try_in_turn(order, others)
                return
            self._answer(order, outcome)
            if not failed:
                # Not immediately: the first join would wait for this request.
                due_at = time.monotonic() + _LEARN_AFTER_S
                self._wait_for((due_at, lambda: self._learn_brokers(order.lane, address)))

        self._give_to_channel(order, address, min(now + share, order.deadline), on_done)

    def _learn_brokers(self, lane: AnyLane, address: Address) -> None:
        """Read the list of brokers occasionally, to survive the loss of all bootstrap brokers."""
        now = time.monotonic()
        age_ms = (now - self._brokers_read_at) * 1000
        if self._brokers_read_at and age_ms < self.settings.metadata_max_age_ms:
            return
        self._brokers_read_at = now

        def on_done(outcome: Outcome) -> None:
            if isinstance(outcome, TransportFailure):
                self._brokers_read_at = 0.0  # the next look-up tries again
                return
            self._known_brokers = tuple(
                sorted((broker.host, broker.port) for broker in outcome.brokers)
            )

        from kafka.protocol.metadata import MetadataRequest  # noqa: PLC0415 - see `load_connections`

        from coopgroup.kafka.rpc.channel import Call  # noqa: PLC0415 - see `load_connections`

        self._channel(lane, address).write(
            Call(
                message=MetadataRequest(topics=[], allow_auto_topic_creation=False),
                deadline=now + self.settings.request_timeout_ms / 1000,
                on_done=on_done,
            )
        )


def load_connections(settings: ConnectionSettings) -> None:
    """Import kafka-python's connections and messages, which take 45 ms of CPU time.

    The thread of the first request does this. If the transport's thread imported them, a child
    that is forked meanwhile would inherit a module's lock that no thread releases.
    """
    import coopgroup.kafka.rpc.channel  # noqa: PLC0415
    import coopgroup.kafka.rpc.requests  # noqa: PLC0415

    if "sasl_mechanism" in settings.connection:
        import coopgroup.kafka.rpc.authentication  # noqa: F401, PLC0415


def _by_address(item: tuple[tuple[AnyLane, str, int], Channel]) -> tuple[str, str, int]:
    lane, host, port = item[0]
    return (lane.value, host, port)


def _read(request: GroupRequest | Question, outcome: Outcome) -> Outcome:
    if isinstance(outcome, TransportFailure):
        return outcome
    from coopgroup.kafka.rpc.requests import read_answer  # noqa: PLC0415 - see `load_connections`

    try:
        return read_answer(request, outcome)
    except Exception as error:  # noqa: BLE001 -- the request must have an outcome
        return TransportFailure(
            kind=FailureKind.UNSUPPORTED,
            message=f"unreadable answer to {type(request).__name__}: {error}",
        )
