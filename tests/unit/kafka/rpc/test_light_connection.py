"""Heartbeats whose bytes are repeated, and a socket that sends immediately.

The broker is a socket that answers as the test tells it to.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
from attrs import evolve

from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import (
    Coordinator,
    GroupRequest,
    HeartbeatAnswer,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from tests.unit.kafka.rpc.test_transport import HEARTBEAT, coordinator_at, listening, transport_to

WAIT_S: Final = 10.0
LONG_MS: Final = 30_000
VERSIONS_KEY: Final = 18
SYNC_KEY: Final = 14
HEARTBEAT_KEY: Final = 12
CORRELATION: Final = slice(4, 8)


class Broker:
    """Answers ApiVersions, and hands over all other requests."""

    def __init__(self, server: socket.socket) -> None:
        server.settimeout(WAIT_S)
        self._server = server
        self.connection = server

    def accept(self, heartbeat_version: int) -> None:
        """Accept the next connection."""
        self.connection, _ = self._server.accept()
        self.connection.settimeout(WAIT_S)
        rows = ((HEARTBEAT_KEY, 0, heartbeat_version), (SYNC_KEY, 0, 3), (VERSIONS_KEY, 0, 0))
        request = self.request()
        assert struct.unpack(">h", request[:2]) == (VERSIONS_KEY,)
        body = b"".join(struct.pack(">hhh", *row) for row in rows)
        self.answer(request, struct.pack(">hi", 0, len(rows)) + body + struct.pack(">i", 0))

    def request(self) -> bytes:
        """Return the next request without its size."""
        return self._read(struct.unpack(">i", self._read(4))[0])

    def answer(self, request: bytes, body: bytes) -> None:
        frame = request[CORRELATION] + body
        self.connection.sendall(struct.pack(">i", len(frame)) + frame)

    def _read(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            some = self.connection.recv(size - len(read))
            assert some, "the client closed the connection"
            read += some
        return bytes(read)


class Stage:
    """A transport and its broker."""

    def __init__(self, transport: GroupTransport, server: socket.socket, node: Coordinator) -> None:
        self.broker = Broker(server)
        self.node = node
        self._transport = transport
        self._outcomes: queue.Queue[Any] = queue.Queue()

    def send(self, request: GroupRequest = HEARTBEAT) -> None:
        node, put = self.node, self._outcomes.put
        self._transport.send(Lane.JOIN, request, put, node=node, timeout_ms=LONG_MS)

    def outcome(self) -> object:
        return self._outcomes.get(timeout=WAIT_S)

    def connect(self, heartbeat_version: int) -> None:
        """Send the first heartbeat of a connection, and answer it."""
        self.send()
        self.broker.accept(heartbeat_version)
        request = self.broker.request()
        assert struct.unpack(">hh", request[:4]) == (HEARTBEAT_KEY, heartbeat_version)
        throttled = struct.pack(">i", 0) if heartbeat_version else b""
        self.broker.answer(request, throttled + struct.pack(">h", 0))
        assert self.outcome() == HeartbeatAnswer(error_code=0)

    def beat(self, request: GroupRequest = HEARTBEAT, *, code: int = 0) -> tuple[bytes, object]:
        """Send a heartbeat and answer it; return its bytes and the outcome."""
        self.send(request)
        sent = self.broker.request()
        self.broker.answer(sent, struct.pack(">ih", 0, code))
        return sent, self.outcome()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with listening() as (server, address), transport_to(address) as transport:
        stage = Stage(transport, server, coordinator_at(address))
        try:
            stage.connect(3)
            yield stage
        finally:
            stage.broker.connection.close()


def _without_correlation(request: bytes) -> bytes:
    return request[: CORRELATION.start] + request[CORRELATION.stop :]


def test_heartbeats_of_a_generation_differ_in_the_correlation_id_only(stage: Stage) -> None:
    sent = []
    for _ in range(4):
        request, outcome = stage.beat()
        sent.append(request)
        assert outcome == HeartbeatAnswer(error_code=0)
    assert len({_without_correlation(one) for one in sent}) == 1
    ids = [struct.unpack(">i", one[CORRELATION])[0] for one in sent]
    assert ids == list(range(ids[0], ids[0] + 4))


def test_an_answer_with_other_bytes_is_read_anew(stage: Stage) -> None:
    codes = (0, 27, 27, 0, 25, 0)
    found = [stage.beat(code=code)[1] for code in codes]
    assert found == [HeartbeatAnswer(error_code=code) for code in codes]


def test_a_heartbeat_of_the_next_generation_says_so(stage: Stage) -> None:
    later = evolve(HEARTBEAT, generation=77)
    before, _ = stage.beat()
    after, outcome = stage.beat(later)
    assert outcome == HeartbeatAnswer(error_code=0)
    assert _without_correlation(after) == _without_correlation(before).replace(
        struct.pack(">i", HEARTBEAT.generation), struct.pack(">i", 77)
    )
    assert _without_correlation(stage.beat(later)[0]) == _without_correlation(after)
    assert _without_correlation(stage.beat()[0]) == _without_correlation(before)


def test_the_next_connection_negotiates_the_version_of_the_heartbeat_again(stage: Stage) -> None:
    stage.beat()
    stage.send()
    stage.broker.request()
    stage.broker.connection.close()
    assert isinstance(stage.outcome(), TransportFailure)
    stage.connect(0)


def test_an_answer_to_another_request_closes_the_connection(stage: Stage) -> None:
    stage.send()
    request = stage.broker.request()
    wrong = request[: CORRELATION.start] + struct.pack(">i", 1_000_000)
    stage.broker.answer(wrong, struct.pack(">ih", 0, 0))
    outcome = stage.outcome()
    assert isinstance(outcome, TransportFailure)
    assert outcome.kind is FailureKind.DISCONNECTED


def test_a_request_that_does_not_fit_into_the_buffer_of_the_kernel_arrives_whole(
    stage: Stage,
) -> None:
    assignment = bytes(range(256)) * 80_000
    stage.send(
        SyncGroupRequest(
            group_id="g",
            generation=1,
            member_id="m",
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="p",
            assignments=(("m", assignment),),
        )
    )
    stage.send()  # waits until the request before it has left
    request = stage.broker.request()
    assert request.endswith(assignment)
    stage.broker.answer(request, struct.pack(">ihi", 0, 0, 0))
    assert stage.outcome() == SyncGroupAnswer(error_code=0, assignment=b"")
    heartbeat = stage.broker.request()
    stage.broker.answer(heartbeat, struct.pack(">ih", 0, 0))
    assert stage.outcome() == HeartbeatAnswer(error_code=0)


def test_an_answer_may_arrive_byte_by_byte(stage: Stage) -> None:
    stage.send()
    request = stage.broker.request()
    frame = struct.pack(">i", 10) + request[CORRELATION] + struct.pack(">ih", 0, 27)
    for byte in frame:
        stage.broker.connection.sendall(bytes([byte]))
        threading.Event().wait(0.005)
    assert stage.outcome() == HeartbeatAnswer(error_code=27)
