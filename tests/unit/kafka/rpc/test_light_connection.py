"""Heartbeats whose bytes are repeated, and a socket that sends immediately."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import (
    Coordinator,
    GroupRequest,
    HeartbeatAnswer,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from tests.unit.kafka.rpc.transport_stage import (
    CORRELATION,
    HEARTBEAT,
    HEARTBEAT_KEY,
    LONG_MS,
    WAIT_S,
    PlayedBroker,
    listening,
    node_at,
    transport_to,
)

SYNC_KEY: Final = 14


class Stage:
    """A transport and its broker."""

    def __init__(self, transport: GroupTransport, server: socket.socket, node: Coordinator) -> None:
        self.broker = PlayedBroker(server)
        self._transport, self._node = transport, node
        self._outcomes: queue.Queue[Any] = queue.Queue()

    def send(self, request: GroupRequest = HEARTBEAT) -> None:
        put = self._outcomes.put
        self._transport.send(Lane.JOIN, request, put, node=self._node, timeout_ms=LONG_MS)

    def outcome(self) -> Any:  # noqa: ANN401
        return self._outcomes.get(timeout=WAIT_S)

    def connect(self, version: int) -> None:
        """Send the first heartbeat of a connection, and answer it."""
        self.send()
        self.broker.accept({HEARTBEAT_KEY: version, SYNC_KEY: 3})
        request = self.broker.request()
        assert struct.unpack(">hh", request[:4]) == (HEARTBEAT_KEY, version)
        throttled = struct.pack(">i", 0) if version else b""
        self.broker.answer(request, throttled + struct.pack(">h", 0))
        assert self.outcome() == HeartbeatAnswer(error_code=0)

    def beat(self, request: GroupRequest = HEARTBEAT, *, code: int = 0) -> bytes:
        """Send a heartbeat and answer it; return its bytes."""
        self.send(request)
        sent = self.broker.request()
        self.broker.answer(sent, struct.pack(">ih", 0, code))
        assert self.outcome() == HeartbeatAnswer(error_code=code)
        return sent


@pytest.fixture
def stage() -> Iterator[Stage]:
    with listening() as (server, address), transport_to(address) as transport:
        stage = Stage(transport, server, node_at(address))
        try:
            stage.connect(3)
            yield stage
        finally:
            stage.broker.close()


def _without_correlation(request: bytes) -> bytes:
    return request[: CORRELATION.start] + request[CORRELATION.stop :]


def test_heartbeats_of_a_generation_differ_in_the_correlation_id_only(stage: Stage) -> None:
    """An answer with other bytes is read anew."""
    sent = [stage.beat(code=code) for code in (0, 27, 27, 0, 25, 0)]
    assert len({_without_correlation(one) for one in sent}) == 1
    ids = [struct.unpack(">i", one[CORRELATION])[0] for one in sent]
    assert ids == list(range(ids[0], ids[0] + 6))


def test_the_next_connection_negotiates_the_version_of_the_heartbeat_again(stage: Stage) -> None:
    stage.beat()
    stage.send()
    stage.broker.request()
    stage.broker.close()
    assert isinstance(stage.outcome(), TransportFailure)
    stage.connect(0)


def test_an_answer_to_another_request_closes_the_connection(stage: Stage) -> None:
    stage.send()
    request = stage.broker.request()
    wrong = request[: CORRELATION.start] + struct.pack(">i", 1_000_000)
    stage.broker.answer(wrong, struct.pack(">ih", 0, 0))
    assert stage.outcome().kind is FailureKind.DISCONNECTED


def test_a_request_larger_than_the_buffer_of_the_kernel_arrives_whole(stage: Stage) -> None:
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
