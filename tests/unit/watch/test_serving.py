"""The live page: its answers and events in this process, and its server over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.watch import serving
from coopgroup.watch.rows import time_of_day
from coopgroup.watch.serving import LiveServer
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView
from tests.support.by_hand import Hand, by_hand
from tests.support.ipv6 import with_ipv6_only
from tests.unit.watch.views import view

WAIT_S = 60  # of a read that the server ends; only a broken server reaches it
OWN_HOST = "localhost:8080"


# --- in this process ------------------------------------------------------------------------------


@frozen
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@define
class Stream:
    """Events as a browser gets them."""

    page: Page
    last_id: str = ""
    chunks: asyncio.Queue[dict[str, Any]] = field(factory=asyncio.Queue)
    _lines: deque[str] = field(factory=deque)

    def next(self) -> dict[str, Any]:
        while True:
            while not self._lines:
                chunk = self.page.runner.run(self.chunks.get())
                self._lines.extend(chunk.get("body", b"").decode().splitlines())
            name, _, text = self._lines.popleft().partition(": ")
            if name == "id":
                self.last_id = text
            elif name == "data":
                found: dict[str, Any] = json.loads(text)
                return found


@define
class Page:
    """The page without its server; the test takes the looks."""

    runner: asyncio.Runner
    live: Any = field(factory=lambda: serving._Live("bill<i>ing"))  # noqa: SLF001
    app: Any = field(init=False)
    streams: list[asyncio.Task[None]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.app = serving._Guard(self.live.app(), needs_own_host=True)  # noqa: SLF001

    def get(self, path: str, host: str = OWN_HOST) -> Answer:
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.runner.run(self._call(path, messages, host=host))
        start, body = messages.get_nowait(), messages.get_nowait()
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, body["body"].decode())

    def stream(self, last_id: str = "") -> Stream:
        """Return a stream that has begun."""
        stream = Stream(self)

        async def begin() -> None:
            call = self._call("/events", stream.chunks, last_id=last_id)
            self.streams.append(asyncio.create_task(call))
            assert (await stream.chunks.get())["type"] == "http.response.start"

        self.runner.run(begin())
        return stream

    async def _call(
        self,
        path: str,
        messages: asyncio.Queue[dict[str, Any]],
        host: str = OWN_HOST,
        last_id: str = "",
    ) -> None:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", host.encode()), (b"last-event-id", last_id.encode())],
        }
        await self.app(scope, None, messages.put)


@pytest.fixture
def page() -> Iterator[Page]:
    with asyncio.Runner() as runner:
        yield Page(runner)


def test_page_is_escaped_and_loads_nothing_from_elsewhere(page: Page) -> None:
    answer = page.get("/")
    assert "<h1>bill&lt;i&gt;ing</h1>" in answer.text
    assert "http" not in answer.text
    assert "<script>" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("page.js", "live.js", "page.css"):
        assert f'"{name}"' in answer.text
        assert page.get(f"/{name}").status == 200
    assert '"bokeh.js"' in answer.text
    assert page.get("/page.js/../live.html").status == 404


@pytest.mark.parametrize("host", ["evil.example:80", "", "127.0.0.1.evil.example", "[::1].evil"])
def test_foreign_name_of_this_host_is_refused(page: Page, host: str) -> None:
    answers = [page.get(path, host=host) for path in ("/", "/events", "/drawing")]
    assert [one.status for one in answers] == [421] * 3
    assert not any("billing" in one.text for one in answers)


def test_page_of_named_resources_has_their_columns_after_the_first_look(page: Page) -> None:
    """Before it, the page has the columns of partitions; the event tells it to load again."""
    assert 'data-shared="partition"' in page.get("/").text
    stream = page.stream()
    page.live.take(evolve(view(1.0), shares_resources=True))
    while "shared" not in (event := stream.next()):
        pass
    text = page.get("/").text
    assert f'data-shared="{event["shared"]}"' in text
    assert "<h2>Resources</h2>" in text
    visible = re.sub(r"<[^>]*>", " ", text).lower()
    assert not [word for word in ("partition", "topic", " lag ") if word in visible]


def test_browser_that_reconnects_goes_on_after_its_last_event(page: Page) -> None:
    tracker = GroupTracker()
    page.live.take(tracker.note(view(1.0)))
    first = page.stream()
    assert first.next()["whole"]
    page.live.take(tracker.note(view(2.0, ("m-b", "m-a", "m-b"))))
    again = page.stream(first.last_id)
    event = again.next()
    assert "whole" not in event
    assert event["moves"][0][1] == "orders-0: a → pod-b"


def test_silence_of_the_brokers_is_told_with_its_begin_and_its_end(page: Page) -> None:
    begin_at = time_of_day(1_000 * time.time())
    page.live.take(view(1.0))
    stream = page.stream()
    assert stream.next()["cards"]
    page.live.take(OSError("no broker"))
    silence = stream.next()["silence"]
    assert silence["reason"] == "no broker"
    assert begin_at <= silence["since"] <= time_of_day(1_000 * time.time())
    page.live.take(view(2.0))
    assert stream.next()["silence"] is None


def test_drawing_of_the_same_shape_has_values_only(page: Page) -> None:
    for at_s in range(4):
        page.live.take(view(at_s))
    whole = json.loads(page.get("/drawing").text)
    patch = json.loads(page.get(f"/drawing?shape={whole['shape']}").text)
    assert len(whole["figures"]["divs"]) == 4
    assert "figures" not in patch
    assert set(patch["changeable"]) >= {"time", "by_owner_owned", "lags_of_a", "unowned_range"}
    assert patch["changeable"]["by_owner_owned"]["data"]["who"] == ["a", "pod-b"]
    assert [chip[0] for chip in patch["legend"]["chips"]][-2:] == ["a", "pod-b"]


# --- over HTTP ------------------------------------------------------------------------------------


@define
class Reader:
    """Each look is a second later."""

    looks: int = 0

    def read(self) -> GroupView:
        self.looks += 1
        return view(float(self.looks))


@contextmanager
def _served(
    reader: Reader, host: str = "127.0.0.1", port: int = 0
) -> Iterator[tuple[LiveServer, Hand]]:
    """Serve on a real thread; the test turns the looks by hand."""
    with by_hand() as hand:
        server = LiveServer(reader, 1.0, group="billing", host=host, port=port)
        thread = threading.Thread(target=hand.run_one, args=("coopgroup-watch-http",))
        thread.start()
        try:
            yield server, hand
        finally:
            server.close()
            thread.join(WAIT_S)
        assert not thread.is_alive()


def _asked(
    server: LiveServer, path: str, host: str = OWN_HOST, address: str = "127.0.0.1"
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(address, server.port, timeout=WAIT_S)
    connection.request("GET", path, headers={"Host": host, "Connection": "close"})
    answer = connection.getresponse()
    connection.close()  # the answer keeps the socket until it is closed itself
    return answer


def _next_ms(stream: http.client.HTTPResponse) -> int | None:
    """Return the time of the next event; None at first, before the first look."""
    while not (line := stream.readline()).startswith(b"data: "):
        assert line
    found: int | None = json.loads(line.removeprefix(b"data: ")).get("at_ms")
    return found


def test_brokers_are_asked_once_for_all_browsers_and_close_ends_their_streams() -> None:
    reader = Reader()
    with _served(reader) as (server, hand):
        with closing(_asked(server, "/bokeh.js")) as library:
            assert library.status == 200
        streams = [_asked(server, "/events") for _ in range(3)]
        for one in streams:
            assert (one.headers["content-type"] or "").startswith("text/event-stream")
            assert _next_ms(one) is None
        for look in (1, 2):
            hand.run_one("coopgroup-watch")
            assert [_next_ms(one) for one in streams] == [view(look).at_ms] * 3
            hand.now_s += 1.0
        assert reader.looks == 2
        port = server.port
    for one in streams:
        one.read()
        one.close()
    with _served(reader, port=port) as (server, _):
        assert server.port == port


def _dripping(server: LiveServer) -> socket.socket:
    """Begin a request, and do not end it."""
    drip = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
    drip.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    return drip


def test_connections_that_drip_keep_no_browser_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one is cut; a stream of events stays."""
    monkeypatch.setattr(serving, "_CONNECTIONS_MAX", 4)
    with _served(Reader()) as (server, hand), ExitStack() as closing_all:
        stream = closing_all.enter_context(closing(_asked(server, "/events")))
        assert _next_ms(stream) is None
        drips = [closing_all.enter_context(_dripping(server)) for _ in range(20)]
        with closing(_asked(server, "/")) as answer:
            assert answer.status == 200
        for one in drips[:17]:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        hand.run_one("coopgroup-watch")
        assert _next_ms(stream) == view(1).at_ms


def test_request_that_takes_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with _served(Reader()) as (server, _), closing(_asked(server, "/events")) as stream:
        assert _next_ms(stream) is None
        connections = server._server.server_state.connections  # noqa: SLF001 - what has a limit
        assert [one.is_limited for one in connections] == [False]  # type: ignore[union-attr]
        monkeypatch.setattr(serving, "_REQUEST_S_MAX", 0.05)
        with suppress(ConnectionResetError, BrokenPipeError), _dripping(server) as drip:
            assert drip.recv(1) == b""


def test_all_addresses_accept_any_name_of_this_host() -> None:
    with (
        _served(Reader(), host="0.0.0.0") as (server, _),  # noqa: S104 - loopback is what is asked
        closing(_asked(server, "/", "pod.example")) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("host", ["::1", "::"])
@with_ipv6_only
def test_page_is_served_without_ipv4(host: str) -> None:
    with _served(Reader(), host=host) as (server, _):
        for name, status in (("[::1]:80", 200), ("pod.example", 200 if host == "::" else 421)):
            with closing(_asked(server, "/", name, "::1")) as answer:
                assert answer.status == status


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_address_of_another_machine_is_one_line(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"host: got '{host}', expected an address"):
        LiveServer(Reader(), 1.0, group="g", host=host, port=0)
