"""A running transport, and sockets on which the test plays the broker."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

from attrs import evolve

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import Coordinator, HeartbeatRequest
from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings
from coopgroup.kafka.rpc.transport import GroupTransport

HEARTBEAT: Final = HeartbeatRequest(
    group_id="nobody", generation=1, member_id="m", group_instance_id=None
)
ANSWER_MS: Final = 2_000
LONG_MS: Final = 30_000  # of requests that a test keeps waiting
WAIT_S: Final = 60.0
HEARTBEAT_KEY: Final = 12
VERSIONS_KEY: Final = 18
CORRELATION: Final = slice(4, 8)


def settings_for(*servers: str, **changes: Any) -> ConnectionSettings:  # noqa: ANN401
    settings = read_connection_settings({"bootstrap.servers": ",".join(servers)})
    usual: dict[str, Any] = {"api_version": (2, 3), "reconnect_backoff_max_ms": 100}
    return evolve(settings, **usual | changes)


@contextmanager
def running(
    settings: ConnectionSettings, reported: list[BaseException] | None = None
) -> Iterator[GroupTransport]:
    """Run a transport, which must close in time."""
    errors: list[BaseException] = [] if reported is None else reported
    transport = GroupTransport(settings, errors.append)
    transport.start()
    try:
        yield transport
    finally:
        assert transport.close()


@contextmanager
def transport_to(
    *servers: str, reported: list[BaseException] | None = None
) -> Iterator[GroupTransport]:
    """Run a transport that may report no unexpected error."""
    errors: list[BaseException] = [] if reported is None else reported
    with running(settings_for(*servers), errors) as transport:
        yield transport
    assert reported is not None or errors == []


def begin(
    transport: GroupTransport,
    request: Any = HEARTBEAT,  # noqa: ANN401
    node: Coordinator | None = None,
    timeout_ms: int = ANSWER_MS,
    lane: Lane = Lane.COMMIT,
) -> queue.Queue[Any]:
    """Send a request; the queue gets its outcome."""
    outcomes: queue.Queue[Any] = queue.Queue()
    transport.send(lane, request, outcomes.put, node=node, timeout_ms=timeout_ms)
    return outcomes


def ask(transport: GroupTransport, *given: Any, **more: Any) -> Any:  # noqa: ANN401
    return begin(transport, *given, **more).get(timeout=WAIT_S)


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """Return a listening socket on loopback, which accepts no connection, and its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def node_at(address: str) -> Coordinator:
    host, _, port = address.partition(":")
    return Coordinator(node_id=1, host=host, port=int(port))


def dead_address() -> str:
    with listening() as (_, address):
        return address


class PlayedBroker:
    """Accepts connections and reads requests; the test gives the answers."""

    def __init__(self, server: socket.socket) -> None:
        server.settimeout(WAIT_S)
        self._server = server
        self.connections: list[socket.socket] = []

    def accept(self, versions: Mapping[int, int]) -> socket.socket:
        """Accept the next connection, and tell the newest version of each kind of request."""
        connection, _ = self._server.accept()
        connection.settimeout(WAIT_S)
        self.connections.append(connection)
        request = self.request(connection)
        assert key_of(request) == VERSIONS_KEY
        known = {**versions, VERSIONS_KEY: 0}
        rows = b"".join(struct.pack(">hhh", key, 0, newest) for key, newest in known.items())
        self.answer(request, struct.pack(">hi", 0, len(known)) + rows + struct.pack(">i", 0))
        return connection

    def request(self, connection: socket.socket | None = None) -> bytes:
        """Return the next request of a connection, usually the last one, without its size."""
        taken = connection or self.connections[-1]
        return _read(taken, struct.unpack(">i", _read(taken, 4))[0])

    def answer(self, request: bytes, body: bytes, connection: socket.socket | None = None) -> None:
        frame = request[CORRELATION] + body
        (connection or self.connections[-1]).sendall(struct.pack(">i", len(frame)) + frame)

    def close(self) -> None:
        for one in self.connections:
            one.close()


def key_of(request: bytes) -> int:
    return int.from_bytes(request[:2])


def _read(connection: socket.socket, size: int) -> bytes:
    read = bytearray()
    while len(read) < size:
        some = connection.recv(size - len(read))
        assert some, "the client closed the connection"
        read += some
    return bytes(read)
