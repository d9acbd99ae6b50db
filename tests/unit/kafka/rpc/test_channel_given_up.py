"""An abandoned connection: only an OffsetCommit on it still waits for its answer.

The broker is a socket that answers when the test tells it to.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest

from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import (
    Coordinator,
    GroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
)
from tests.unit.kafka.rpc.test_transport import HEARTBEAT, coordinator_at, listening, transport_to

WAIT_S: Final = 10.0
LONG_MS: Final = 30_000
SHORT_MS: Final = 100
COMMIT_KEY: Final = 8
HEARTBEAT_KEY: Final = 12
VERSIONS_KEY: Final = 18
VERSIONS: Final = ((COMMIT_KEY, 0, 7), (HEARTBEAT_KEY, 0, 3), (VERSIONS_KEY, 0, 0))
COMMIT: Final = OffsetCommitRequest(
    group_id="g",
    generation=1,
    member_id="m",
    group_instance_id=None,
    offsets=(("t", 0, 5, -1, ""),),
)


class SlowBroker:
    """Accept connections, read requests, and answer only when told to."""

    def __init__(self, server: socket.socket, address: str) -> None:
        server.settimeout(WAIT_S)
        self.server = server
        self.node: Coordinator = coordinator_at(address)
        self.connections: list[socket.socket] = []

    def accept(self) -> socket.socket:
        """Accept the next connection, and answer ApiVersions."""
        connection, _ = self.server.accept()
        connection.settimeout(WAIT_S)
        self.connections.append(connection)
        key, correlation = self.request_of(connection)
        assert key == VERSIONS_KEY
        rows = b"".join(struct.pack(">hhh", *row) for row in VERSIONS)
        head = struct.pack(">ihi", correlation, 0, len(VERSIONS))
        self._answer(connection, head + rows + struct.pack(">i", 0))
        return connection

    def request_of(self, connection: socket.socket) -> tuple[int, int]:
        """Return the key and the correlation id of the next request."""
        (size,) = struct.unpack(">i", _read(connection, 4))
        key, _, correlation = struct.unpack(">hhi", _read(connection, size)[:8])
        return key, correlation

    def answer_commit(self, connection: socket.socket, correlation: int) -> None:
        """Answer an OffsetCommit without throttling and without topics."""
        self._answer(connection, struct.pack(">iii", correlation, 0, 0))

    def _answer(self, connection: socket.socket, body: bytes) -> None:
        connection.sendall(struct.pack(">i", len(body)) + body)


def _read(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = connection.recv(size - len(read))
        assert part, "the connection was closed"
        read += part
    return read


def is_reset(connection: socket.socket) -> bool:
    """Return whether a reset arrives. An orderly close is not a reset."""
    watched = select.poll()
    watched.register(connection, select.POLLERR)
    return any(events & select.POLLERR for _, events in watched.poll(WAIT_S * 1_000))


@pytest.fixture
def broker() -> Iterator[SlowBroker]:
    with listening() as (server, address):
        slow = SlowBroker(server, address)
        yield slow
        for connection in slow.connections:
            connection.close()


@pytest.fixture
def transport(broker: SlowBroker) -> Iterator[GroupTransport]:
    with transport_to(f"{broker.node.host}:{broker.node.port}") as running:
        yield running


def send(
    transport: GroupTransport, request: GroupRequest, node: Coordinator, timeout_ms: int
) -> queue.Queue[Any]:
    """Send a request on the commit lane; the queue receives the outcome."""
    outcomes: queue.Queue[Any] = queue.Queue()
    transport.send(Lane.COMMIT, request, outcomes.put, node=node, timeout_ms=timeout_ms)
    return outcomes


def test_commit_when_a_heartbeat_times_out_waits_for_its_answer_on_the_old_connection(
    transport: GroupTransport, broker: SlowBroker
) -> None:
    """The commit failed, was sent again with newer offsets, and arrived last."""
    committed = send(transport, COMMIT, broker.node, LONG_MS)
    old = broker.accept()
    key, correlation = broker.request_of(old)
    assert key == COMMIT_KEY
    late = send(transport, HEARTBEAT, broker.node, SHORT_MS)
    assert late.get(timeout=WAIT_S).kind is FailureKind.TIMED_OUT
    send(transport, HEARTBEAT, broker.node, LONG_MS)
    assert broker.request_of(broker.accept())[0] == HEARTBEAT_KEY
    assert committed.empty()
    assert broker.request_of(old)[0] == HEARTBEAT_KEY  # the heartbeat that timed out
    broker.answer_commit(old, correlation)
    assert committed.get(timeout=WAIT_S) == OffsetCommitAnswer(codes=())
    assert is_reset(old)  # no request waits there


def test_commit_when_its_own_time_is_over_is_discarded_by_the_kernel(
    transport: GroupTransport, broker: SlowBroker
) -> None:
    """After a plain close, the kernel would keep sending the commit for minutes."""
    committed = send(transport, COMMIT, broker.node, SHORT_MS)
    connection = broker.accept()
    assert broker.request_of(connection)[0] == COMMIT_KEY
    assert committed.get(timeout=WAIT_S).kind is FailureKind.TIMED_OUT
    assert is_reset(connection)


@pytest.mark.parametrize("end", ["lost", "closed", "timed out"])
def test_commit_on_a_given_up_connection_has_one_outcome_however_it_ends(
    end: str, transport: GroupTransport, broker: SlowBroker
) -> None:
    committed = send(transport, COMMIT, broker.node, 500 if end == "timed out" else LONG_MS)
    old = broker.accept()
    broker.request_of(old)
    late = send(transport, HEARTBEAT, broker.node, SHORT_MS)
    assert late.get(timeout=WAIT_S).kind is FailureKind.TIMED_OUT
    if end == "lost":
        old.close()
    elif end == "closed":
        transport.close()
    outcome = committed.get(timeout=WAIT_S)
    assert isinstance(outcome, TransportFailure)
    wanted = FailureKind.TIMED_OUT if end == "timed out" else FailureKind.DISCONNECTED
    assert outcome.kind is wanted
    assert committed.empty()
