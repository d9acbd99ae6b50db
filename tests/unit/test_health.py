"""The server answers probes from its own thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from attrs import define, evolve

from coopgroup import health as server_module
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.health import (
    Answer,
    HealthServer,
    _Answers,
    _Requests,
    live,
    ready,
    serve,
)
from coopgroup.kafka.health.value import DEFAULT_LIMITS, Health, HealthLimits
from tests.support.by_hand import Hand, by_hand
from tests.support.ipv6 import with_ipv6_only
from tests.support.probes import get
from tests.support.virtual_loop import run_virtual, time_passes

LIMIT_S = 60.0  # of a request; only a broken server reaches it
FINE = Health(group_id="g", generation=1, state="stable", is_joined=True)


@define(eq=False)
class Member:
    state: Health = FINE
    error: Exception | None = None

    def health(self) -> Health:
        if self.error is not None:
            raise self.error
        return self.state


class Metrics:
    def text(self) -> str:
        return "coopgroup_members 3\n"


def _answer(path: str, member: Member) -> tuple[int, str]:
    answer = _Answers((member,), Metrics(), DEFAULT_LIMITS).answer(path)
    return answer.status, answer.content.decode()


def _get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310
        return answer.status, answer.read().decode()


def test_liveness_turns_red_and_green_again() -> None:
    member = Member(evolve(FINE, since_poll_s=301.0))
    status, content = _answer("/livez", member)
    assert (status, "poll was not called for 301.0 s" in content) == (503, True)
    member.state = FINE
    assert _answer("/livez/", member)[0] == 200
    assert _answer("/readyz?verbose", Member())[0] == 200


def test_brokers_that_refuse_are_no_reason_to_restart_and_are_named() -> None:
    """A restart does not help, so liveness stays green."""
    why = "FindCoordinator fails for 12.3 s: COORDINATOR_NOT_AVAILABLE: usually no replicas"
    member = Member(evolve(FINE, is_joined=False, state="joining", retried=(why,)))
    status, content = _answer("/livez", member)
    (told,) = json.loads(content)["members"]
    assert (status, told["problems"], told["group_problems"]) == (200, [], [why])
    status, content = _answer("/readyz", member)
    (told,) = json.loads(content)["members"]
    assert (status, told["problems"]) == (503, [f"not in the group: {why}"])
    member.state = evolve(member.state, is_joined=True)  # it still works, within its lease
    assert _answer("/readyz", member)[0] == 200


def test_member_that_has_not_joined_yet_is_not_ready() -> None:
    status, content = _answer("/readyz", Member(evolve(FINE, is_joined=False)))
    assert (status, '"not in the group"' in content) == (503, True)


def test_other_paths_are_not_found() -> None:
    assert _answer("/", Member())[0] == 404
    assert _Answers((Member(),), None, DEFAULT_LIMITS).answer("/metrics").status == 404


def test_error_is_an_answer() -> None:
    assert _answer("/livez", Member(error=LookupError("a bug"))) == (500, "LookupError('a bug')\n")


def test_server_answers_and_leaves_no_port_when_it_is_closed() -> None:
    member = Member()
    with serve(0, member, metrics=Metrics()) as server:
        assert server._socket.getsockname()[0] == "127.0.0.1"  # noqa: SLF001  (what it is bound to)
        assert _get(server, "/metrics") == (200, "coopgroup_members 3\n")
        assert _get(server, "/livez", "HEAD") == (200, "")
        server.close()
    # Another process of this machine may take the free port at once, so no test can.
    assert server._socket.fileno() == -1  # noqa: SLF001


def _raw(server: HealthServer, request: bytes) -> bytes:
    """Send bytes, and return all bytes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: localhost:8080\r\n", b"200"),
        (b"", b"200"),
        (b"Host: [::1].evil.example\r\n", b"421"),
        (b"Host: localhost\r\nHost: evil.example\r\n", b"421"),
    ],
)
def test_foreign_name_of_this_host_is_refused(host: bytes, status: bytes) -> None:
    """Of a web page whose name resolves to the loopback address."""
    with serve(0, Member()) as server:
        answer = _raw(server, b"GET /livez HTTP/1.0\r\n" + host + b"\r\n")
    assert answer.split()[1] == status
    assert (b'"group"' in answer) == (status == b"200")


def test_all_addresses_accept_any_name() -> None:
    """A probe of Kubernetes names the address of the pod."""
    with serve(0, Member(), host="0.0.0.0") as server:  # noqa: S104 - loopback is what is asked
        answer = _raw(server, b"GET /livez HTTP/1.1\r\nHost: pod.example\r\n\r\n")
    assert answer.split()[1] == b"200"


@with_ipv6_only
def test_probes_are_answered_without_ipv4() -> None:
    for host in ("::1", "::", "[::1]"):
        with serve(0, Member(), host=host, metrics=Metrics()) as server:
            found = {
                one: get(server.port, one, "[::1]")[0] for one in ("livez", "readyz", "metrics")
            }
            assert found == {"livez": 200, "readyz": 200, "metrics": 200}
            foreign = http.client.HTTPConnection("::1", server.port, timeout=LIMIT_S)
            foreign.request("GET", "/livez", headers={"Host": "pod.example"})
            assert foreign.getresponse().status == (200 if host == "::" else 421)
            foreign.close()


def test_wrong_host_is_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^host: got 'pod', expected an address of this"):
        serve(0, Member(), host="pod")


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE"])
def test_answer_forbids_guesses_and_names_no_version(method: bytes) -> None:
    with serve(0, Member()) as server:
        answer = _raw(server, method + b" /livez HTTP/1.0\r\n\r\n")
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"x-content-type-options: nosniff" in head
    assert b"server: coopgroup\r\n" in head
    assert b"python" not in head


def _dripping(server: HealthServer) -> socket.socket:
    """Begin a request, and do not end it."""
    drip = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
    drip.sendall(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n")
    return drip


@pytest.mark.parametrize(("connections_max", "crowd_s"), [(64, 600.0), (128, 0.0)])
def test_connections_that_drip_hold_no_thread_and_keep_no_probe_out(
    monkeypatch: pytest.MonkeyPatch, connections_max: int, crowd_s: float
) -> None:
    """The oldest ones are cut: beyond the maximum always, beyond a crowd after some time."""
    monkeypatch.setattr(server_module, "_CONNECTIONS_MAX", connections_max)
    monkeypatch.setattr(server_module, "_CROWD_S", crowd_s)
    with serve(0, Member()) as server, ExitStack() as clients:
        drips = [clients.enter_context(_dripping(server)) for _ in range(120)]
        assert _get(server, "/livez")[0] == 200
        with suppress(ConnectionResetError):
            assert drips[0].recv(1) == b""
        assert len(server._requests._open) <= (64 if crowd_s else server_module._CROWD)  # noqa: SLF001
        names = [one.name for one in threading.enumerate()]
        assert names.count("coopgroup-health") == 1


def test_request_that_takes_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although each byte comes in time."""
    monkeypatch.setattr(server_module, "_REQUEST_S_MAX", 0.05)
    with serve(0, Member()) as server, _dripping(server) as drip, suppress(ConnectionResetError):
        assert drip.recv(1) == b""


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand() as hand:
        yield hand


REQUEST = b"GET /metrics HTTP/1.0\r\n\r\n"


async def _asked(
    requests: _Requests, clients: ExitStack, request: bytes
) -> tuple[asyncio.Task[None], asyncio.WriteTransport, socket.socket]:
    """Serve a client that has sent its bytes, and does not read."""
    client, own = socket.socketpair()
    clients.enter_context(client)
    client.settimeout(LIMIT_S)
    client.sendall(request)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    reader, writer = await asyncio.open_connection(sock=own)
    task = asyncio.create_task(requests.answer(reader, writer))
    return task, writer.transport, client


def _requests(content: bytes = b"") -> _Requests:
    return _Requests(lambda _: Answer(200, "text/plain", content), needs_own_host=False)


@pytest.mark.parametrize("size", [40_000, 8_000_000])
def test_client_that_does_not_read_its_answer_is_cut(hand: Hand, size: int) -> None:
    """Asyncio would keep its socket and the rest of the answer for ever."""

    async def serve_one() -> None:
        with ExitStack() as clients:
            task, transport, client = await _asked(_requests(b"x" * size), clients, REQUEST)
            await task
            assert transport.get_write_buffer_size() == 0
            await time_passes()
            assert len(b"".join(iter(lambda: client.recv(65_536), b""))) < size

    run_virtual(hand, serve_one())


def test_burst_of_probes_is_answered() -> None:
    """All connections are accepted in the same step of the loop."""

    async def serve_all() -> None:
        loop = asyncio.get_running_loop()
        with ExitStack() as last_first:
            listening = socket.create_server(("127.0.0.1", 0), backlog=128)
            clients = [
                last_first.enter_context(socket.create_connection(listening.getsockname()))
                for _ in range(90)
            ]
            for client in clients:
                client.sendall(REQUEST)
                client.settimeout(0.0)
            async with await asyncio.start_server(_requests().answer, sock=listening):
                heard = [loop.sock_recv(client, 65_536) for client in clients]
                answers = await asyncio.gather(*heard, return_exceptions=True)
        assert [b" 200 OK" in one for one in answers if isinstance(one, bytes)] == [True] * 90

    asyncio.run(serve_all())


@pytest.mark.parametrize(("request_", "wait_s"), [(b"", 0.0), (REQUEST[:-2], 0.0), (REQUEST, 9.0)])
def test_end_waits_only_for_requests(hand: Hand, request_: bytes, wait_s: float) -> None:
    """`HealthServer.close` must not wait for a silent client."""

    async def end() -> None:
        requests = _requests(b"x" * 8_000_000)
        with ExitStack() as clients:
            task, *_ = await _asked(requests, clients, request_)
            await time_passes(1.0)
            begun_s = hand.now_s
            await requests.end()
            assert hand.now_s - begun_s == pytest.approx(wait_s)
            assert task.done()

    run_virtual(hand, end())


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.0 400 Bad Request"),
        (b"POST /livez HTTP/1.1\n\n", b"HTTP/1.0 501 Not Implemented"),
        (b"GET /livez HTTP/1.1\nHost: localhost\n\n", b"HTTP/1.0 200 OK"),
        (b"GET /" + b"x" * 100_000, b""),
    ],
)
def test_request_is_read_as_simple_probes_write_it(request_: bytes, answer: bytes) -> None:
    with serve(0, Member()) as server, suppress(ConnectionResetError):
        assert _raw(server, request_).partition(b"\r\n")[0] == answer


@pytest.mark.parametrize("port", [-1, 70_000, True, "80"])
def test_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(ConfigurationError, match=r"port: got .* expected a whole number from 0"):
        serve(port, Member())


def test_server_without_members_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"members: got .* expected at least one consumer"):
        serve(0)
    with pytest.raises(ConfigurationError, match=r"expected an object with health\(\)"):
        serve(0, "billing")  # type: ignore[arg-type]


STUCK = evolve(FINE, since_poll_s=400.0, owned=ResourceSet({"t": [0]}), lease_s=12.3456)
LIMITS = HealthLimits()


STARTING = evolve(FINE, is_joined=False, generation=-1, state="joining")
PATIENT = HealthLimits(poll_s=500.0)


@pytest.mark.parametrize(
    ("members", "limits", "is_live", "is_ready"),
    [
        pytest.param([FINE, FINE], LIMITS, 200, 200, id="no partitions and no problems"),
        pytest.param([FINE, STUCK], LIMITS, 503, 200, id="one stuck member is enough"),
        pytest.param([STUCK], PATIENT, 200, 200, id="limits of the caller"),
        pytest.param([FINE, STARTING], LIMITS, 200, 503, id="outside of its group"),
    ],
)
def test_status_is_that_of_the_worst_member(
    members: list[Health], limits: HealthLimits, is_live: int, is_ready: int
) -> None:
    assert (live(members, limits).status, ready(members).status) == (is_live, is_ready)


def test_content_tells_what_a_person_on_call_asks() -> None:
    answer = live([STUCK, FINE], LIMITS)
    assert answer.kind == "application/json"
    content = json.loads(answer.content)
    assert content["ok"] is False
    assert b"poll was not called for 400.0 s (limit 300.0 s)" in answer.content
    told = [(one["partitions"], one["lease_s"]) for one in content["members"]]
    assert told == [(1, 12.346), (0, None)]
