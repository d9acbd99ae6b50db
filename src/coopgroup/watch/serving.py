"""`LiveServer`: the live view as one page over HTTP, with Starlette and uvicorn.

The page needs nothing from elsewhere: its style and its scripts come from this server. One thread
asks the brokers for all browsers. A second thread has an event loop, which keeps everything else,
so nothing here needs a lock.

Every sender of a request may read the group. By default the server listens on a loopback address,
so only this machine can send one. A foreign web page could still reach it under a name that
resolves to this address (DNS rebinding). There, the header `Host` must be a loopback name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import resources
from typing import Any, Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from coopgroup.listening import is_loopback, is_own_host, listening_socket
from coopgroup.printable import printable
from coopgroup.report import drawing
from coopgroup.report.page import templates
from coopgroup.watch.chronicle import Chronicle
from coopgroup.watch.feed import Feed
from coopgroup.watch.picture import Picture
from coopgroup.watch.polling import Reader, ViewPolling
from coopgroup.watch.rows import (
    MEMBER_COLUMNS,
    NUMBER_COLUMNS,
    PARTITION_COLUMNS,
    member_columns,
    partition_columns,
    shared,
)
from coopgroup.watch.values import GroupView
from coopgroup.worker import Worker

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; "
    # Bokeh writes style elements.
    "style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"connection", b"close"),  # so the time of a connection is that of one request
)
_EVENTS: Final = "/events"
_CONNECTIONS_MAX: Final = 200
# For a whole request and its answer, without streams of events.
_REQUEST_S_MAX: Final = 30.0
_RETRY_MS: Final = 2_000
# A connection that carries nothing for longer may be ended by a proxy.
_SILENT_S_MAX: Final = 15.0
_STOP_S: Final = 2
_CLOSE_S_MAX: Final = 60.0
_SCRIPTS: Final = ("page.js", "live.js")


class LiveServer:
    """Serves the live view of one group until it is closed.

    Args:
        reader: reads the group.
        interval_s: time between two looks.
        group: title of the page.
        host: address to listen on, see `listening_socket`.
        port: TCP port; 0 for any free port.

    Raises:
        ConfigurationError: the port is in use, or the host is not an address of this machine.
    """

    def __init__(
        self, reader: Reader, interval_s: float, *, group: str, host: str, port: int
    ) -> None:
        self._socket = listening_socket(host, port)
        self._loop = asyncio.new_event_loop()
        self._live = _Live(group)
        app = _Guard(self._live.app(), needs_own_host=is_loopback(self._socket.getsockname()[0]))
        # The socket is ours, and signals go to the main thread: uvicorn only serves.
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                loop="asyncio",
                http=_Connection,
                timeout_graceful_shutdown=_STOP_S,
            )
        )
        self._polling = ViewPolling(reader, interval_s, self._take_later)
        self._worker = Worker("coopgroup-watch-http")
        self._worker.submit(self._run)
        self._polling.start()

    @property
    def port(self) -> int:
        """Return the port; useful if port 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """End the server and its threads."""
        self._polling.stop()
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._stop)
        self._worker.close(_CLOSE_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))
        self._socket.close()

    def _stop(self) -> None:
        self._live.stop()
        self._server.should_exit = True

    def _take_later(self, found: GroupView | Exception) -> None:  # on the polling thread
        with suppress(RuntimeError):  # the server has ended during this look
            self._loop.call_soon_threadsafe(self._live.take, found)


class _Live:
    """The page and its events; everything happens on one event loop."""

    def __init__(self, group: str) -> None:
        self._group = printable(group)
        self._chronicle = Chronicle()
        self._picture = Picture(self._chronicle)
        self._feed = Feed(f"{time.time_ns():x}")
        self._browsers = 0
        self._answered_ms = _now_ms()  # the last answer of the brokers, at first the start
        self._is_silent = False
        self._view: GroupView | None = None
        self._news = asyncio.Event()
        self._is_over = False

    def app(self) -> Starlette:
        own = resources.files("coopgroup.report").joinpath("templates")
        files = {name: own.joinpath(name).read_text("utf-8") for name in (*_SCRIPTS, "page.css")}
        library = drawing.library_file()

        def static(name: str) -> Route:
            kind = "text/css" if name.endswith(".css") else "text/javascript"

            async def endpoint(_: Request) -> Response:
                return Response(files[name], media_type=kind)

            return Route(f"/{name}", endpoint)

        async def bokeh(_: Request) -> Response:
            return FileResponse(library, media_type="text/javascript")

        return Starlette(
            routes=[
                Route("/", self._page),
                Route(_EVENTS, self._events),
                Route("/drawing", self._drawing),
                Route("/bokeh.js", bokeh),
                *map(static, files),
            ]
        )

    def take(self, found: GroupView | Exception) -> None:
        """Tell all browsers what a look found."""
        if isinstance(found, Exception):
            self._is_silent = True
            self._feed.show_silence(self._answered_ms, str(found))
        else:
            if self._is_silent:
                self._chronicle.note_silence(self._answered_ms, _now_ms())
            self._is_silent, self._answered_ms = False, _now_ms()
            self._view = found
            self._chronicle.note(found)
            if self._browsers:
                self._picture.look(time.monotonic())
            self._feed.show(found, self._picture.version)
        self._wake()

    def stop(self) -> None:
        """End all streams of events."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _page(self, _: Request) -> Response:
        view = self._view
        text = (
            templates()
            .get_template("live.html")
            .render(
                title=self._group,
                under="",
                shared="partition" if view is None else shared(view),
                member_columns=MEMBER_COLUMNS if view is None else member_columns(view),
                partition_columns=PARTITION_COLUMNS if view is None else partition_columns(view),
                number_columns=NUMBER_COLUMNS,
                scripts=("bokeh.js", *_SCRIPTS),
            )
        )
        return Response(text, media_type="text/html", headers={"cache-control": "no-store"})

    async def _drawing(self, request: Request) -> Response:
        self._picture.look(time.monotonic())
        answer = self._picture.answer(request.query_params.get("shape", ""))
        return Response(
            answer, media_type="application/json", headers={"cache-control": "no-store"}
        )

    async def _events(self, request: Request) -> Response:
        last_id = request.headers.get("last-event-id", "")
        return StreamingResponse(
            self._stream(last_id),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _stream(self, last_id: str) -> AsyncIterator[bytes]:
        self._browsers += 1
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            while not self._is_over:
                news = self._news
                events = self._feed.after(last_id)
                last_id = self._feed.last_id
                if events:
                    yield events
                if news is self._news and not self._is_over:
                    try:
                        await asyncio.wait_for(news.wait(), _SILENT_S_MAX)
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._browsers -= 1


class _Connection(H11Protocol):
    """A connection with a limit of time, unless it is a stream of events.

    Connections that drip their requests must not keep browsers out. If there are too many, the one
    that has waited longest is cut, which may be the new one.
    """

    begun_s = 0.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; cut the oldest connection if there are too many."""
        super().connection_made(transport)
        self.begun_s = self.loop.time()
        self._limit = self.loop.call_later(_REQUEST_S_MAX, self._end)
        if len(self.connections) > _CONNECTIONS_MAX:
            mine = (one for one in self.connections if isinstance(one, _Connection))
            oldest = min((one for one in mine if one.is_limited), key=lambda one: one.begun_s)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, also the limit of time."""
        if self._limit is not None:
            self._limit.cancel()
        super().connection_lost(exc)

    @property
    def is_limited(self) -> bool:
        """Whether the connection is open, and no stream of events."""
        is_stream = self.scope is not None and self.scope["path"] == _EVENTS
        return not is_stream and not self.transport.is_closing()

    def _end(self) -> None:
        if self.is_limited:
            self.transport.abort()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Guard:
    """Refuses foreign names of this host, and adds the headers that protect the page."""

    def __init__(self, app: ASGIApp, *, needs_own_host: bool) -> None:
        self._app = app
        self._needs_own_host = needs_own_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers: Mapping[bytes, bytes] = dict(scope.get("headers", ()))
        host = headers.get(b"host", b"").decode("latin-1")
        if self._needs_own_host and not is_own_host(host):
            refusal = PlainTextResponse("Host: expected localhost or a loopback address\n", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)
