"""Probes of a process: is it alive, and does it take part in its groups?

`serve` starts a small HTTP server for Kubernetes and Prometheus, with `/livez`, `/readyz` and
`/metrics`. It answers from the members' `health()`, and needs no library beyond Python's own.

The server has a thread of its own, so it answers while a handler of the application hangs. This is
the case in which a probe must answer. On this thread an event loop reads all requests side by side.
So a client that drips its request holds no thread, and keeps no probe out.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Protocol, Self

from attrs import define, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.health.value import DEFAULT_LIMITS, Health, HealthLimits, StuckPartition
from coopgroup.listening import is_loopback, is_own_host, listening_socket
from coopgroup.worker import Worker

__all__ = ["Health", "HealthLimits", "HealthServer", "StuckPartition", "serve"]

_PORT_MAX: Final = 65_535
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
# For a whole request and its answer.
_REQUEST_S_MAX: Final = 10.0
# Beyond this number, the oldest connection is cut.
_CONNECTIONS_MAX: Final = 128
# Beyond this number, connections are cut that are open for longer than this time.
_CROWD: Final = 32
_CROWD_S: Final = 1.0
# Many new connections at the same moment must not delay a probe.
_BACKLOG: Final = 128
_HEAD_BYTES_MAX: Final = 32_768
_CLOSE_S_MAX: Final = 60.0
_OK: Final = 200
_UNAVAILABLE: Final = 503
_PARTS: Final = 3  # of the first line: method, path and version


class HasHealth(Protocol):
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
        host: str,
        port: int,
        members: tuple[HasHealth, ...],
        metrics: Metrics | None,
        limits: HealthLimits,
    ) -> None:
        answers = _Answers(members, metrics, limits)
        self._socket = listening_socket(host, port, backlog=_BACKLOG)
        address, self._port, *_ = self._socket.getsockname()
        self._requests = _Requests(answers.answer, needs_own_host=is_loopback(address))
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._is_closed = False
        self._worker = Worker("coopgroup-health")
        self._worker.submit(self._run)

    @property
    def port(self) -> int:
        """Return the port; useful if port 0 was asked for."""
        return int(self._port)

    def close(self) -> None:
        """End the server; requests in progress are answered."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(RuntimeError):  # the loop has failed, and is closed
            self._loop.call_soon_threadsafe(self._ended.set)
        self._worker.close(_CLOSE_S_MAX)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._requests.answer, sock=self._socket, limit=_HEAD_BYTES_MAX
        )
        await self._ended.wait()
        server.close()
        await self._requests.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    port: int,
    *members: HasHealth,
    host: str = "127.0.0.1",
    metrics: Metrics | None = None,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> HealthServer:
    """Answer `/livez`, `/readyz` and, with `metrics`, `/metrics` over HTTP, on a thread.

    `/livez` is 200 while no member is stuck, else 503: a supervisor should restart the process.
    `/readyz` is 200 while all members are in their groups, with or without partitions. The content
    is JSON and names the problems. Brokers that do not answer, or refuse, are no reason to restart:
    `/livez` names them among `group_problems` and stays 200.

    Args:
        port: TCP port; 0 for any free port.
        members: consumers, groups of named resources and leaderships of this process.
        host: address to listen on. Probes of Kubernetes need "::", which means all addresses, also
            those of IPv4. If the kernel has no IPv6, "0.0.0.0" is right.
        metrics: such as the `PrometheusMetrics` of these members.
        limits: how long each state may last before a member counts as stuck.

    Raises:
        ConfigurationError: the port is not a port or is in use, or the host is not an address of
            this machine, or there is no member, or a member has no `health`.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= _PORT_MAX:
        raise ConfigurationError("port", port, f"a whole number from 0 to {_PORT_MAX}")
    if not members:
        raise ConfigurationError("members", members, "at least one consumer, group or leadership")
    for one in members:
        if not callable(getattr(one, "health", None)):
            raise ConfigurationError("members", one, "an object with health()")
    return HealthServer(host, port, members, metrics, limits)


# --- answers --------------------------------------------------------------------------------------


@frozen
class Answer:
    """An HTTP answer: status, type of the content, content."""

    status: int
    kind: str
    content: bytes


def live(members: Iterable[Health], limits: HealthLimits) -> Answer:
    """Return 200 if no member is stuck, else 503 with the problems of each member."""
    found = [_told(one, one.problems(limits)) for one in members]
    return _answer(found, is_good=not any(one["problems"] for one in found))


def ready(members: Iterable[Health]) -> Answer:
    """Return 200 if all members are in their groups, else 503; partitions are not required."""
    known = list(members)
    found = [_told(one, () if one.is_ready else _why_not_ready(one)) for one in known]
    return _answer(found, is_good=all(one.is_ready for one in known))


def _why_not_ready(health: Health) -> tuple[str, ...]:
    return tuple(f"not in the group: {one}" for one in health.retried) or ("not in the group",)


def _answer(found: list[dict[str, Any]], *, is_good: bool) -> Answer:
    content = json.dumps({"ok": is_good, "members": found}, indent=1).encode() + b"\n"
    return Answer(_OK if is_good else _UNAVAILABLE, "application/json", content)


def _told(health: Health, problems: tuple[str, ...]) -> dict[str, Any]:
    return {
        "group": health.group_id,
        "client_id": health.client_id,
        "member_id": health.member_id,
        "state": health.state,
        "generation": health.generation,
        "partitions": len(health.owned),
        "lease_s": round(health.lease_s, 3) if math.isfinite(health.lease_s) else None,
        "since_poll_s": round(health.since_poll_s, 3),
        "problems": list(problems),
        "group_problems": list(health.group_problems()),
    }


class _Answers:
    """The answers to all paths."""

    def __init__(
        self, members: tuple[HasHealth, ...], metrics: Metrics | None, limits: HealthLimits
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


@define(eq=False)
class _Connection:
    writer: asyncio.StreamWriter
    opened_s: float
    has_request: bool = False


class _Requests:
    """Reads requests and answers them, with a bound on their number and on the time of each."""

    def __init__(self, answer_path: Callable[[str], Answer], *, needs_own_host: bool) -> None:
        self._answer_path = answer_path
        self._needs_own_host = needs_own_host
        # The oldest first.
        self._open: dict[asyncio.Task[None], _Connection] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        task = asyncio.current_task()
        assert task is not None
        now_s = asyncio.get_running_loop().time()
        self._make_room(now_s)
        connection = self._open[task] = _Connection(writer, now_s)
        # `drain` waits until the socket has taken the whole answer.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            # A client that disconnects early is no error of this process, and worth no traceback.
            with suppress(TimeoutError, OSError, ValueError):
                async with asyncio.timeout(_REQUEST_S_MAX):
                    first, hosts = await _read_head(reader)
                    connection.has_request = True
                    writer.write(self._answer(first, hosts))
                    await writer.drain()
                    writer.write_eof()
        finally:
            self._open.pop(task, None)
            # `close` would keep the socket until the client has read the answer, perhaps for ever.
            writer.transport.abort()

    async def end(self) -> None:
        """Wait for the requests in progress, and cut connections without a request."""
        for one in self._open.values():
            if not one.has_request:
                one.writer.transport.abort()
        if self._open:
            await asyncio.wait(self._open, timeout=_REQUEST_S_MAX)

    def _make_room(self, now_s: float) -> None:
        """Cut the oldest connections if there are too many; a burst of probes is answered."""
        while len(self._open) >= _CROWD:
            oldest, connection = next(iter(self._open.items()))
            if len(self._open) < _CONNECTIONS_MAX and now_s - connection.opened_s < _CROWD_S:
                return
            del self._open[oldest]
            connection.writer.transport.abort()

    def _answer(self, first: str, hosts: list[str]) -> bytes:
        """Return the bytes of the answer to a first line and the values of all headers Host."""
        words = first.split()
        if len(words) != _PARTS:
            return _encoded(Answer(400, _TEXT, b"expected METHOD PATH VERSION\n"))
        method, path, _ = words
        if method not in {"GET", "HEAD"}:
            return _encoded(Answer(501, _TEXT, b"GET or HEAD\n"))
        # No browser omits the header, a simple probe may.
        if self._needs_own_host and not all(map(is_own_host, hosts)):
            refusal = b"Host: expected localhost or a loopback address\n"
            return _encoded(Answer(421, _TEXT, refusal), with_content=method == "GET")
        return _encoded(self._answer_path(path), with_content=method == "GET")


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, list[str]]:
    """Return the first line of a request, and the values of its headers Host.

    Raises:
        ValueError: the head is too long.
        ConnectionError: the client ended the connection.
    """
    lines: list[str] = []
    size = 0
    while line := await reader.readline():
        size += len(line)
        if size > _HEAD_BYTES_MAX:
            raise ValueError("the head of the request is too long")
        if not line.strip():
            break
        lines.append(line.decode("latin-1").strip())
    else:
        raise ConnectionError("the client ended the connection")
    fields = (line.partition(":") for line in lines[1:])
    hosts = [value.strip() for name, _, value in fields if name.strip().lower() == "host"]
    return (lines[0] if lines else ""), hosts


def _encoded(answer: Answer, *, with_content: bool = True) -> bytes:
    head = (
        f"HTTP/1.0 {answer.status} {HTTPStatus(answer.status).phrase}",
        "Server: coopgroup",  # no version of Python
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.content)}",
        "X-Content-Type-Options: nosniff",
    )
    content = answer.content if with_content else b""
    return "".join(f"{line}\r\n" for line in (*head, "")).encode() + content
