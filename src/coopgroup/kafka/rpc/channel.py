"""One connection to one broker: opened on demand, reopened with backoff, closed on a time-out.

All code here runs on the transport's thread, on kafka-python's loop. kafka-python provides the
protocol of a connection: version negotiation, SASL and its renewal, framing, TLS. This file
provides connecting, queueing, deadlines and backoff. kafka-python's own connection pool does not
fit: it keeps an authentication failure forever, does not bound the TLS handshake, and has only one
connection to a node.

Theory of operation. A call waits in the queue until the connection is open. A call whose deadline
passes fails, whether it was sent or not. If it was sent, the connection is abandoned too. A broker
serves one request of a connection at a time, so later requests on it would wait as well. When the
connection is lost or cannot be opened, all its calls fail immediately. The next call connects again
after the backoff.

Closing a connection does not take a request back. The broker, or a proxy before it, may hold an
OffsetCommit and serve it after newer commits of the next connection. The committed offset would go
back. So an abandoned connection stays open until each call that `outlives` it has its answer or is
past its deadline (`_given_up`).

With SASL, a session of a connection ends (KIP-368). Before its end, new calls wait, the open calls
get their answers, and the connection authenticates again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import random
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import kafka.errors as wire_errors
from attrs import define, field
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.broker_version_data import BrokerVersionData

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.aside import Aside, outcome_of
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc.outcomes import (
    CredentialsRefusedError,
    FailureKind,
    HandshakeError,
    Outcome,
    TransportFailure,
)
from coopgroup.kafka.rpc.sockets import BrokerSocket, TlsWrapper, discard_unsent_bytes
from coopgroup.printable import host_and_port

if TYPE_CHECKING:
    from coopgroup.kafka.config.sasl import OAuthTokenSource
    from coopgroup.kafka.rpc.authentication import Authentication

# Time between two looks at a connection while a broker throttles this client (KIP-219).
PAUSED_POLL_S: Final = 0.02
# The deadline in this file comes first; kafka-python's own timer is only a safety net.
TIMER_SLACK_MS: Final = 10_000
IN_FLIGHT_MAX: Final = 1_000
# TLS alerts of a broker about the client's certificate (RFC 8446, section 6.2).
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "ACCESS_DENIED",
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)
Address: TypeAlias = tuple[Any, ...]


@define(eq=False, kw_only=True)
class Call:
    """One request on its way; finished exactly once.

    Attributes:
        deadline: end of the wait, in seconds of the monotonic clock.
        outlives: whether the call still waits for its answer after its connection was abandoned.
    """

    message: Any
    deadline: float
    on_done: Callable[[Outcome], None]
    outlives: bool = False
    sent: bool = False
    timer: Any = None
    is_done: bool = field(default=False, init=False)

    def finish(self, outcome: Outcome) -> None:
        """Report the outcome, unless another outcome was reported before."""
        if not self.is_done:
            self.is_done = True
            self.on_done(outcome)


@define(eq=False)
class Channel:
    """A connection to one address, and the calls that wait for it.

    Attributes:
        retry_at: earliest time of the next connect, in seconds of the monotonic clock.
    """

    net: NetworkSelector
    host: str
    port: int
    settings: ConnectionSettings
    _waiting: deque[Call] = field(factory=deque, init=False)
    # In the order of sending, so that failures are reported in that order.
    _in_flight: dict[Call, None] = field(factory=dict, init=False)
    _connection: KafkaConnection | None = field(default=None, init=False)
    _authentication: Authentication | None = field(default=None, init=False)
    _is_renewing: bool = field(default=False, init=False)
    _renew_timer: Any = field(default=None, init=False)
    # Connections that were given up for new calls, with the calls that still wait there.
    _given_up: dict[KafkaConnection, dict[Call, None]] = field(factory=dict, init=False)
    _attempt: Any = field(default=None, init=False)
    _attempt_timer: Any = field(default=None, init=False)
    _flush_timer: Any = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    retry_at: float = field(default=0.0, init=False)
    # At most one thread each, even if every look-up and every step hangs.
    _resolver: Aside = field(factory=lambda: Aside(name="coopgroup-resolve"), init=False)
    _authenticator: Aside = field(factory=lambda: Aside(name="coopgroup-sasl"), init=False)

    @property
    def address(self) -> str:
        """Return host and port, for messages."""
        return host_and_port(self.host, self.port)

    @property
    def is_connected(self) -> bool:
        """Return whether a request could be sent now."""
        return self._connection is not None and self._connection.connected

    def write(self, call: Call) -> None:
        """Write a request as soon as the connection is open; the call gets its answer."""
        call.timer = self.net.call_at(call.deadline, lambda: self._expire(call))
        self._waiting.append(call)
        self._advance()

    def close(self, reason: str) -> None:
        """Close all connections and fail all calls; a later call connects again."""
        self._stop_attempt()
        failure = TransportFailure(kind=FailureKind.DISCONNECTED, message=reason)
        given_up, self._given_up = self._given_up, {}
        for connection, calls in given_up.items():
            _abort(connection, reason)
            for call in calls:
                self._finish(call, failure)
        self._drop(failure)

    def _advance(self) -> None:
        if self.is_connected:
            if not self._is_being_renewed():
                self._flush()
        elif self._waiting and self._attempt is None:
            start_at = max(self.retry_at, time.monotonic())
            self._attempt = self.net.call_at(start_at, self._connect)
            self._attempt_timer = self.net.call_at(
                start_at + self.settings.connect_timeout_ms / 1000, self._give_up
            )

    def _flush(self) -> None:
        connection = self._connection
        while self._waiting and connection is not None and connection.connected:
            if connection.paused:
                if self._flush_timer is None:
                    self._flush_timer = self.net.call_later(PAUSED_POLL_S, self._flush_again)
                return
            call = self._waiting.popleft()
            if not call.is_done:
                self._write_now(connection, call)

    def _flush_again(self) -> None:
        self._flush_timer = None
        self._advance()

    def _write_now(self, connection: KafkaConnection, call: Call) -> None:
        call.sent = True
        self._in_flight[call] = None
        remaining_ms = (call.deadline - time.monotonic()) * 1000
        try:
            future = connection.send_request(call.message, max(remaining_ms, 0) + TIMER_SLACK_MS)
        except Exception as error:  # noqa: BLE001 -- a message that cannot be encoded ends here
            self._finish(call, _failure(error))
            return
        future.add_callback(lambda response: self._finish(call, response))
        future.add_errback(lambda error: self._finish(call, _failure(error)))

    def _finish(self, call: Call, outcome: Outcome) -> None:
        was_sent = self._in_flight.pop(call, call) is None
        self.net.cancel(call.timer)
        call.finish(outcome)
        self._end_given_up(call)
        if was_sent and self._renewal_is_due:
            self._advance()

    def _expire(self, call: Call) -> None:
        if call.is_done:
            return
        is_current = self._in_flight.pop(call, call) is None
        call.finish(
            TransportFailure(
                kind=FailureKind.TIMED_OUT,
                message=f"no answer from {self.address} in time",
            )
        )
        self._end_given_up(call)
        # A call that was never sent waits for the renewal, which hangs.
        if is_current or (self._is_renewing and not call.sent):
            self._give_up_connection()

    def _give_up_connection(self) -> None:
        """Abandon the connection and fail its calls, except those that outlive it."""
        outliving = [call for call in self._in_flight if call.outlives]
        for call in outliving:
            del self._in_flight[call]
        connection = self._connection
        if outliving and connection is not None:
            self._given_up[connection] = dict.fromkeys(outliving)
            self._connection = None
        reason = f"closed {self.address}: a request before timed out"
        self._drop(TransportFailure(kind=FailureKind.DISCONNECTED, message=reason))

    def _end_given_up(self, call: Call) -> None:
        """End a call; close its given-up connection if this was its last call."""
        for connection, calls in tuple(self._given_up.items()):
            if call in calls:
                del calls[call]
                if not calls:
                    del self._given_up[connection]
                    _abort(connection, "given up, and no call waits there any longer")

    def _drop(self, failure: TransportFailure) -> None:
        """Close the connection, if it exists, and fail every call."""
        connection, self._connection = self._connection, None
        self._authentication, self._is_renewing = None, False
        if self._renew_timer is not None:
            self.net.cancel(self._renew_timer)
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            self._finish(call, failure)
        if connection is not None:
            _abort(connection, failure.message)

    # --- connecting ------------------------------------------------------------------------------

    async def _connect(self) -> None:
        transport = connection = sock = None
        try:
            transport, sock = self._wrap(await self._open_socket())
            await transport.handshake()
            connection = self._new_connection()
            connection.connection_made(transport)
            until = time.monotonic() + self.settings.connect_timeout_ms / 1000
            await connection.initialize(timeout_at=until)
            await connection.init_future
            authentication = None
            if "sasl_mechanism" in self.settings.connection:
                from coopgroup.kafka.rpc.authentication import (  # noqa: PLC0415 - an option
                    Authentication,
                )

                authentication = Authentication(connection, self.settings, self._authenticator)
                await authentication.run(until)
            discard_unsent_bytes(sock)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the calls must be answered
            _discard(transport, connection, error)
            self._attempt_failed(_failure(error))
            return
        except GeneratorExit:  # cancelled by _stop_attempt
            _discard(transport, connection, wire_errors.Cancelled())
            raise
        self._attempt = None
        self._stop_attempt()
        self._failures = 0
        self._connection, self._authentication = connection, authentication
        connection.close_future.add_both(lambda error: self._lost(connection, error))
        self._plan_renewal()
        self._advance()

    # --- renewing the session ---------------------------------------------------------------------

    def _plan_renewal(self) -> None:
        if self._authentication is not None and self._authentication.renew_at < math.inf:
            self._renew_timer = self.net.call_at(self._authentication.renew_at, self._advance)

    @property
    def _renewal_is_due(self) -> bool:
        authentication = self._authentication
        return authentication is not None and time.monotonic() >= authentication.renew_at

    def _is_being_renewed(self) -> bool:
        """Return whether calls must wait for a new session; begin it when no call is under way."""
        if self._renewal_is_due and not self._is_renewing and not self._in_flight:
            self._is_renewing = True
            self.net.call_soon(self._renew)
        return self._is_renewing or self._renewal_is_due

    async def _renew(self) -> None:
        connection, authentication = self._connection, self._authentication
        if connection is None or authentication is None:
            return  # it was lost a moment ago
        failure = None
        try:
            await authentication.run(time.monotonic() + self.settings.request_timeout_ms / 1000)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the calls must be answered
            failure = _failure(error)
        if self._connection is not connection:
            return
        if failure is not None:
            self._drop(failure)
            return
        self._is_renewing = False
        self._plan_renewal()
        self._advance()

    # --- the way to the broker --------------------------------------------------------------------

    async def _open_socket(self) -> BrokerSocket:
        error: Exception = OSError(f"no address for {self.host}")
        for family, kind, protocol, _, address in await self._addresses():
            sock = BrokerSocket(family, kind, protocol)
            try:
                await self._connect_socket(sock, address)
            except OSError as reason:
                sock.close()
                error = reason
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise error

    async def _connect_socket(self, sock: socket.socket, address: Address) -> None:
        sock.settimeout(0)
        for option in self.settings.socket_options:
            sock.setsockopt(*option)
        for option in self.settings.dead_peer_options:
            # Some systems lack the option. The connection works without it.
            with contextlib.suppress(OSError):
                sock.setsockopt(*option)
        try:
            sock.connect(address)
        except BlockingIOError:
            await self.net.wait_write(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, f"{os.strerror(code)} ({self.address})") from None

    async def _addresses(self) -> list[tuple[Any, ...]]:
        """Prepare an OAuth token, and look up the broker's name.

        Both may wait for seconds on a service. They run on threads beside the loop, because
        heartbeats of other connections must go out on time.
        """
        tokens = self.settings.token_source
        if tokens is not None and not tokens.is_fresh:
            await self._prepare(tokens)
        if _is_ip(self.host):
            return self._look_up()
        found: list[tuple[Any, ...]] = await outcome_of(
            self.net, lambda on_done: self._resolver.share(self, self._look_up, on_done)
        )
        return found

    async def _prepare(self, tokens: OAuthTokenSource) -> None:
        from coopgroup.kafka.config.oidc import TokenError  # noqa: PLC0415 - an option

        try:
            await outcome_of(self.net, lambda on_done: tokens.prepare(self, on_done))
        except (TokenError, ConfigurationError) as error:
            raise HandshakeError(f"no OAuth token: {error}") from None
        except Exception as error:  # the text of an application's exception may be a secret
            raise HandshakeError(f"no OAuth token: {type(error).__name__}") from error

    def _look_up(self) -> list[tuple[Any, ...]]:
        return list(
            socket.getaddrinfo(
                self.host, self.port, self.settings.address_family, socket.SOCK_STREAM
            )
        )

    def _wrap(self, sock: BrokerSocket) -> tuple[KafkaTCPTransport, socket.socket]:
        """Return kafka-python's transport, and the socket that it uses."""
        if self.settings.ssl_context is None:
            return KafkaTCPTransport(self.net, sock, host=self.host), sock
        wrapper = TlsWrapper(self.settings.ssl_context)
        try:
            transport = KafkaSSLTransport(self.net, sock, host=self.host, ssl_context=wrapper)
        except BaseException:
            sock.close()
            raise
        assert wrapper.wrapped is not None
        return transport, wrapper.wrapped

    def _new_connection(self) -> KafkaConnection:
        version, settings = self.settings.api_version, self.settings
        return KafkaConnection(
            self.net,
            node_id=self.address,
            broker_version_data=None if version is None else BrokerVersionData(version),
            client_id=settings.client_id,
            client_software_name="coopgroup",
            max_in_flight_requests_per_connection=IN_FLIGHT_MAX,
            receive_message_max_bytes=settings.connection["receive_message_max_bytes"],
        )

    def _give_up(self) -> None:
        self._attempt_timer = None
        if self._attempt is None:
            return
        self._stop_attempt()
        self._attempt_failed(
            TransportFailure(
                kind=FailureKind.TIMED_OUT,
                message=f"no connection to {self.address} within "
                f"{self.settings.connect_timeout_ms} ms",
            )
        )

    def _stop_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        timer, self._attempt_timer = self._attempt_timer, None
        for task in (attempt, timer):
            if task is not None:
                self.net.cancel(task)

    def _attempt_failed(self, failure: TransportFailure) -> None:
        self._attempt = None
        self._stop_attempt()
        self._failures += 1
        settings = self.settings
        # Without the bound on the exponent, 2.0**1024 would overflow after a long outage.
        backoff_ms = settings.reconnect_backoff_ms * 2.0 ** min(self._failures - 1, 30)
        jitter = random.uniform(0.8, 1.2)  # noqa: S311 -- spreads reconnects, hides nothing
        self.retry_at = (
            time.monotonic() + min(backoff_ms, settings.reconnect_backoff_max_ms) * jitter / 1000
        )
        self._drop(failure)

    def _lost(self, connection: KafkaConnection, error: object) -> None:
        if self._connection is connection:
            self._drop(_failure(error))


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _discard(
    transport: KafkaTCPTransport | None, connection: KafkaConnection | None, error: BaseException
) -> None:
    if connection is not None and not connection.closed:
        connection.close(error)
    if transport is not None:
        transport.abort(error)


def _abort(connection: KafkaConnection, reason: str) -> None:
    """Close a connection immediately."""
    if not connection.closed:
        # Pass an error: a close without one waits until the peer has taken all bytes, and a dead
        # peer takes none.
        connection.close(wire_errors.KafkaConnectionError(reason))


def _failure(error: object) -> TransportFailure:
    message = " ".join(str(error or "connection closed").split()) or type(error).__name__
    return TransportFailure(kind=_kind(error), message=message)


def _kind(error: object) -> FailureKind:
    causes = [error, *(error.args if isinstance(error, BaseException) else ())]
    # A broker that hangs up during a handshake causes an end of the stream. That is an SSLError
    # too, but it does not concern the credentials.
    if any(isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) for cause in causes):
        return FailureKind.DISCONNECTED
    if any(_is_refusal(cause) for cause in causes):
        return FailureKind.AUTHENTICATION
    if any(isinstance(cause, ssl.SSLError | HandshakeError) for cause in causes):
        return FailureKind.HANDSHAKE
    if isinstance(error, wire_errors.IncompatibleBrokerVersion):
        return FailureKind.UNSUPPORTED
    if isinstance(error, wire_errors.RequestTimedOutError | wire_errors.KafkaTimeoutError):
        return FailureKind.TIMED_OUT
    return FailureKind.DISCONNECTED


def _is_refusal(cause: object) -> bool:
    """Return whether a broker refused this client's credentials. No other failure is final.

    An untrusted certificate of the broker does not count as a refusal. The broker may be half
    configured, or its certificate may be renewed soon. librdkafka also keeps trying.
    """
    if isinstance(cause, ssl.SSLError):
        # Example: "TLSV1_ALERT_UNKNOWN_CA"; newer versions of OpenSSL have another prefix. Python
        # sets no reason if OpenSSL gave none.
        _, is_alert, alert = str(getattr(cause, "reason", None)).rpartition("ALERT_")
        return bool(is_alert) and alert in _CERTIFICATE_ALERTS
    return isinstance(cause, CredentialsRefusedError)
