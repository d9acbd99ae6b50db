"""The server of the live page, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, Self

import pytest
from attrs import evolve, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.watch.serving import LiveServer, is_own_host
from coopgroup.watch.tables import time_of_day
from coopgroup.watch.values import GroupView, MemberView
from tests.support.waiting import wait_for
from tests.unit.watch.views import MEMBERS, view

WAIT_S = 20
SECOND_MS = 1_000  # each look of the reader is a second later


class Reader:
    """Counts its looks; `owners` and `error` can be set while it is used."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None
        self.owners: tuple[str, ...] = ("m-a", "m-a", "m-b")
        self.committed: tuple[int, ...] = (10, 20, 30)
        self.members: tuple[MemberView, ...] = MEMBERS

    def read(self) -> GroupView:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return view(float(self.looks), self.owners, self.committed, members=self.members)


@contextmanager
def _served(reader: Reader, host: str = "127.0.0.1", port: int = 0) -> Iterator[LiveServer]:
    with LiveServer(reader, 0.05, group="bill<i>ing", host=host, port=port) as server:
        yield server


def _asked(server: LiveServer, path: str, headers: dict[str, str]) -> Any:  # noqa: ANN401
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    connection.request("GET", path, headers=headers | {"Connection": "close"})
    answer = connection.getresponse()
    connection.close()  # the answer keeps the socket until it is closed itself
    return answer


@frozen
class Answer:
    status: int
    headers: Any
    text: str


def _answer(server: LiveServer, path: str, **headers: str) -> Answer:
    with _asked(server, path, headers) as answer:
        return Answer(answer.status, answer.headers, answer.read().decode())


class Stream:
    """Events as a browser gets them."""

    def __init__(self, server: LiveServer, last_id: str = "") -> None:
        self._answer = _asked(server, "/events", {"Last-Event-ID": last_id})
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self.last_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()

    def next(self) -> dict[str, Any]:
        while True:
            name, _, text = self._answer.readline().decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last_id = text
            elif name == "data":
                found: dict[str, Any] = json.loads(text)
                return found

    def until(self, key: str) -> dict[str, Any]:
        """Return the next event in which `key` is true."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            event = self.next()
            if event.get(key):
                return event
        raise AssertionError(f"no event with {key}")

    def rest(self) -> bytes:
        """Return everything up to the end of the stream."""
        found: bytes = self._answer.read()
        return found


def test_page_is_escaped_and_loads_nothing_from_elsewhere() -> None:
    with _served(Reader()) as server:
        answer = _answer(server, "/")
        text = answer.text
        assert "<h1>bill&lt;i&gt;ing</h1>" in text
        assert "http" not in text
        assert "<script>" not in text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        for name in ("bokeh.js", "page.js", "live.js", "page.css"):
            assert f'"{name}"' in text
            assert _answer(server, f"/{name}").status == 200
        assert _answer(server, "/page.js/../live.html").status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_foreign_name_of_this_host_is_refused(host: str) -> None:
    with _served(Reader()) as server:
        for path in ("/", "/events", "/drawing"):
            answer = _answer(server, path, Host=host)
            assert answer.status == 421
            assert "billing" not in answer.text


def test_own_hosts_are_loopback_names() -> None:
    good = ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3", "[::1]:80"]
    bad = ["", "example.com", "localhost.example.com", "10.0.0.1", "[::2]", "0.0.0.1"]
    assert [one for one in good if not is_own_host(one)] == []
    assert [one for one in bad if is_own_host(one)] == []


def test_all_addresses_accept_any_name_of_this_host() -> None:
    with _served(Reader(), host="0.0.0.0") as server:  # noqa: S104 - loopback is what is asked
        assert _answer(server, "/", Host="pod.example").status == 200


def test_event_comes_for_each_look_and_brokers_are_asked_once_for_all() -> None:
    with _served(Reader()) as server, ExitStack() as opened:
        streams = [opened.enter_context(Stream(server)) for _ in range(5)]
        for one in streams:
            assert one.until("cards")["whole"]
            seen_ms = [one.next()["at_ms"] for _ in range(4)]
            assert [later - at_ms for at_ms, later in pairwise(seen_ms)] == [SECOND_MS] * 3


def test_browser_that_reconnects_goes_on_after_its_last_event() -> None:
    reader = Reader()
    with _served(reader) as server:
        with Stream(server) as first:
            first.until("cards")
            first.next()
        reader.owners = ("m-b", "m-a", "m-b")
        time.sleep(0.2)
        with Stream(server, first.last_id) as again:
            event = again.next()
            while not event["moves"]:
                assert "whole" not in event
                event = again.next()
        assert event["moves"][0][1] == "orders-0: a → pod-b"


def test_silence_of_the_brokers_is_told_with_its_begin_and_its_end() -> None:
    reader = Reader()
    begin_at = time_of_day(1_000 * time.time())
    with _served(reader) as server, Stream(server) as stream:
        stream.until("cards")
        reader.error = OSError("no broker")
        event = stream.until("silence")
        assert event["silence"]["reason"] == "no broker"
        assert begin_at <= event["silence"]["since"] <= time_of_day(1_000 * time.time())
        reader.error = None
        assert stream.until("cards")["silence"] is None


def _when_seen(server: LiveServer) -> dict[str, Any]:
    """Return the first event with the group."""
    with Stream(server) as stream:
        return stream.until("cards")


def test_drawing_of_the_same_shape_has_values_only() -> None:
    reader = Reader()
    with _served(reader) as server:
        wait_for(lambda: reader.looks > 3, "", WAIT_S)
        whole = json.loads(_answer(server, "/drawing").text)
        patch = json.loads(_answer(server, f"/drawing?shape={whole['shape']}").text)
        assert len(whole["figures"]["divs"]) == 4
        assert "figures" not in patch
        assert set(patch["changeable"]) >= {"time", "by_owner_owned", "lags_of_a", "unowned_range"}
        assert patch["changeable"]["by_owner_owned"]["data"]["who"] == ["a", "pod-b"]
        assert [chip[0] for chip in patch["legend"]["chips"]][-2:] == ["a", "pod-b"]


def test_group_without_partitions_has_no_drawing() -> None:
    reader = Reader()
    reader.owners = ()
    reader.committed = ()
    with _served(reader) as server:
        _when_seen(server)
        assert json.loads(_answer(server, "/drawing").text)["shape"] == ""


def test_name_of_a_member_is_only_text() -> None:
    reader = Reader()
    reader.members = (evolve(MEMBERS[0], client_id="<script>alert(1)</script>"), MEMBERS[1])
    with _served(reader) as server:
        event = _when_seen(server)
        assert event["members"]["rows"][0][1][0] == "<script>alert(1)</script>"
        assert _answer(server, "/drawing").headers["content-type"] == "application/json"


def test_close_ends_streams_at_once_and_frees_the_port() -> None:
    with ExitStack() as opened:
        with _served(Reader()) as server:
            stream = opened.enter_context(Stream(server))
            stream.next()
            port, begun_s = server.port, time.monotonic()
        assert time.monotonic() - begun_s < 5
        stream.rest()
    with _served(Reader(), port=port) as server:
        assert server.port == port
    assert not [one for one in threading.enumerate() if one.name == "coopgroup-watch-http"]


def test_port_in_use_is_one_line_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            LiveServer(Reader(), 1.0, group="g", host="127.0.0.1", port=port)
    said = f"port: got {port}, expected a port that is free on 127.0.0.1: address already in use"
    assert str(caught.value) == said


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_address_of_another_machine_is_one_line(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"host: got '{host}', expected an address"):
        LiveServer(Reader(), 1.0, group="g", host=host, port=0)
