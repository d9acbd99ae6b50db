"""`serve`: `/livez`, `/readyz` and `/metrics` on a small server of the standard library.

The server has a thread of its own, so it answers while a handler of the application hangs. This is
the case in which a probe must answer. Connections are few and short: a client that drips its
request is cut, and keeps no probe out.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any, Final, Protocol, Self

from coopgroup.errors import ConfigurationError
from coopgroup.health.answers import Answer, live, ready
from coopgroup.health.hosts import is_loopback, is_own_host
from coopgroup.kafka.health.value import DEFAULT_LIMITS, Health, HealthLimits
from coopgroup.worker import Worker

_PORT_MAX: Final = 65_535
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
# For a whole request and its answer.
_REQUEST_S_MAX: Final = 10.0
# Beyond this number, the oldest connection is cut. Its thread ends a moment later. So at twice the
# number, a new connection waits for the end of a thread. It is refused if all threads hang.
_CONNECTIONS_MAX: Final = 16
_THREAD_S_MAX: Final = 1.0
_CLOSE_S_MAX: Final = 60.0


class Member(Protocol):
    """A consumer, a group of named resources, or a leadership."""

    def health(self) -> Health:
        """Return the state of this moment; for any thread, without waiting."""
        ...


class Metrics(Protocol):
    """Metrics with a text form, such as `coopgroup.metrics.PrometheusMetrics`."""

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        ...


class HealthServer:
    """The server of one process, see `serve`."""

    def __init__(
        self,
        address: tuple[str, int],
        members: tuple[Member, ...],
        metrics: Metrics | None,
        limits: HealthLimits,
    ) -> None:
        answers = _Answers(members, metrics, limits)
        needs_own_host = is_loopback(address[0])
        request = _request_class(answers.answer, needs_own_host=needs_own_host)
        self._server = _Server(address, request)
        # A client that disconnects early is no error of this process, and worth no traceback.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._is_closed = False
        self._worker = Worker("coopgroup-health")
        self._worker.submit(partial(self._server.serve_forever, poll_interval=0.1))

    @property
    def port(self) -> int:
        """Return the port; useful if port 0 was asked for."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """End the server; requests in progress are answered."""
        if self._is_closed:
            return
        self._is_closed = True
        self._server.shutdown()
        self._worker.close(_CLOSE_S_MAX)
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    port: int,
    *members: Member,
    host: str = "127.0.0.1",
    metrics: Metrics | None = None,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> HealthServer:
    """Answer `/livez`, `/readyz` and, with `metrics`, `/metrics` over HTTP, on a thread.

    `/livez` is 200 while no member is stuck, else 503: a supervisor should restart the process.
    `/readyz` is 200 while all members are in their groups, with or without partitions. The content
    is JSON and names the problems.

    Args:
        port: TCP port; 0 for any free port.
        members: consumers, groups of named resources and leaderships of this process.
        host: address to listen on. Probes of Kubernetes need "0.0.0.0".
        metrics: such as the `PrometheusMetrics` of these members.
        limits: how long each state may last before a member counts as stuck.

    Raises:
        ConfigurationError: the port is not a port, or there is no member, or a member has no
            `health`.
        OSError: the port is in use, or the address is not an address of this machine.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= _PORT_MAX:
        raise ConfigurationError("port", port, f"a whole number from 0 to {_PORT_MAX}")
    if not members:
        raise ConfigurationError("members", members, "at least one consumer, group or leadership")
    for one in members:
        if not callable(getattr(one, "health", None)):
            raise ConfigurationError("members", one, "an object with health()")
    return HealthServer((host, port), members, metrics, limits)


class _Server(ThreadingHTTPServer):
    """Bounds the number of connections, and the time of each."""

    # With the default of 5, many new connections delay a probe by a second or more.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], request: type[BaseHTTPRequestHandler]) -> None:
        self._changed = threading.Condition()
        self._limits: dict[Any, float] = {}  # of each connection, the oldest first
        super().__init__(address, request)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002
        """Return whether a new connection gets a thread."""
        with self._changed:
            if len(self._limits) >= _CONNECTIONS_MAX:
                self._cut(1)
            has_room = self._changed.wait_for(
                lambda: len(self._limits) < 2 * _CONNECTIONS_MAX, _THREAD_S_MAX
            )
            if has_room:
                self._limits[request] = monotonic() + _REQUEST_S_MAX
        return has_room

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401  (as the base class has it)
        """End a connection, also one that was refused."""
        with self._changed:
            self._limits.pop(request, None)
            self._changed.notify_all()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut the connections whose time is over; called several times a second."""
        now = monotonic()
        with self._changed:
            self._cut(sum(limit <= now for limit in self._limits.values()))

    def _cut(self, count: int) -> None:
        open_ones = [one for one, limit in self._limits.items() if limit < math.inf]
        for one in open_ones[:count]:
            self._limits[one] = math.inf
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Answers:
    """The answers to all paths."""

    def __init__(
        self, members: tuple[Member, ...], metrics: Metrics | None, limits: HealthLimits
    ) -> None:
        self._members, self._metrics, self._limits = members, metrics, limits

    def answer(self, path: str) -> Answer:
        """Answer a path; an error is an answer, too."""
        try:
            match path.partition("?")[0].rstrip("/"):
                case "/livez":
                    return live(self._healths(), self._limits)
                case "/readyz":
                    return ready(self._healths())
                case "/metrics" if self._metrics is not None:
                    return Answer(200, _TEXT, self._metrics.text().encode())
                case _:
                    return Answer(404, _TEXT, b"/livez, /readyz or /metrics\n")
        except Exception as error:  # noqa: BLE001 -- a probe without an answer says less
            return Answer(500, _TEXT, f"{error!r}\n".encode())

    def _healths(self) -> list[Health]:
        return [one.health() for one in self._members]


def _request_class(
    answer_path: Callable[[str], Answer], *, needs_own_host: bool
) -> type[BaseHTTPRequestHandler]:
    class Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer a request."""
            self._send(with_content=True)

        def do_HEAD(self) -> None:
            """Answer a request without the content."""
            self._send(with_content=False)

        def _send(self, *, with_content: bool) -> None:
            hosts = self.headers.get_all("Host", [])  # no browser omits it, a simple probe may
            if needs_own_host and not all(map(is_own_host, hosts)):
                answer = Answer(421, _TEXT, b"Host: expected localhost or a loopback address\n")
            else:
                answer = answer_path(self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            if with_content:
                self.wfile.write(answer.content)

        def end_headers(self) -> None:
            """Add what all answers have, also those of the base class."""
            self.send_header("X-Content-Type-Options", "nosniff")
            super().end_headers()

        def version_string(self) -> str:
            """Name no version of Python."""
            return "coopgroup"

        def log_message(self, *_: Any) -> None:  # noqa: ANN401  (as the base class has it)
            """Log nothing: a probe each second is no event."""

    return Request
