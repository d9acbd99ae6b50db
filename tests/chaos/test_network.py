"""The proxy and the namespaces; sockets of the test replace member and broker."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from attrs import define, field

from tests.chaos.network import Effect, Link, Namespace, Proxy, enter_namespace
from tests.chaos.stage import can_disturb_network
from tests.support.waiting import WAIT_S_MAX, wait_for

pytestmark = pytest.mark.skipif(not can_disturb_network(), reason="network namespaces need root")
HELD = Effect(holds_requests=True, holds_answers=True)


@define
class Wire:
    """A broker that echoes each byte, and a member's link to it."""

    namespace: Namespace
    proxy: Proxy
    links: tuple[Link, ...]
    port: int
    accepted: list[socket.socket] = field(factory=list)
    received: bytearray = field(factory=bytearray)

    def connect(self) -> socket.socket:
        """Return a connection from within the namespace."""

        def connect() -> socket.socket:
            enter_namespace(self.namespace.path)
            return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S_MAX)

        with ThreadPoolExecutor(1) as thread:  # a namespace is a thread's
            return thread.submit(connect).result()


def echo(listener: socket.socket, accepted: list[socket.socket], received: bytearray) -> None:
    """Echo each byte, on any number of connections, until the listener is closed."""

    def answer(connection: socket.socket) -> None:
        try:
            while chunk := connection.recv(100):
                received.extend(chunk)
                connection.sendall(chunk)
        except OSError:
            pass  # reset: part of the test

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        accepted.append(connection)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The broker is outside of the namespace, on the same address as the proxy within."""
    accepted: list[socket.socket] = []
    received = bytearray()
    namespace, proxy = Namespace(), Proxy(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=echo, args=(listener, accepted, received), daemon=True)
        thread.start()
        links = proxy.connect([namespace.listen(port)])
        yield Wire(namespace, proxy, links, port, accepted, received)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    proxy.close()
    namespace.close()
    for connection in accepted:
        connection.close()


def answers(connection: socket.socket, timeout_s: float = 0.3) -> bytes | None:
    """Return the bytes that arrive in that time; None for no byte, b"" for the end."""
    connection.settimeout(timeout_s)
    try:
        return connection.recv(100)
    except TimeoutError:
        return None


@pytest.fixture
def connection(wire: Wire) -> Iterator[socket.socket]:
    """Return a connection that works; the proxy is its only way out of the namespace."""
    with wire.connect() as connection:
        connection.sendall(b"x")
        assert answers(connection, WAIT_S_MAX) == b"x"
        yield connection


@pytest.mark.parametrize(
    "effect", [HELD, Effect(holds_requests=True), Effect(holds_answers=True)], ids=str
)
def test_held_bytes_arrive_when_the_fault_is_over(
    wire: Wire, connection: socket.socket, effect: Effect
) -> None:
    """The connection stays open meanwhile, as after a network partition."""
    wire.proxy.add(wire.links, effect)
    connection.sendall(b"y")
    assert answers(connection) is None
    wire.proxy.remove(wire.links, effect)
    assert answers(connection, WAIT_S_MAX) == b"y"


def test_request_of_a_closed_connection_arrives_late(wire: Wire, connection: socket.socket) -> None:
    """TCP retransmits accepted bytes, even after the sender has closed."""
    wire.proxy.add(wire.links, HELD)
    connection.sendall(b"y")
    connection.close()
    time.sleep(0.3)
    assert wire.received == b"x"
    wire.proxy.remove(wire.links, HELD)
    wait_for(lambda: wire.received == b"xy")


def test_faults_that_overlap_end_one_by_one(wire: Wire, connection: socket.socket) -> None:
    """The end of the first of two faults releases no bytes."""
    wire.proxy.add(wire.links, HELD)
    wire.proxy.add(wire.links, Effect(holds_answers=True))
    wire.proxy.remove(wire.links, HELD)
    connection.sendall(b"y")
    assert answers(connection) is None
    wire.proxy.heal(wire.links)
    assert answers(connection, WAIT_S_MAX) == b"y"


@pytest.mark.parametrize("gone", ["broker", "member"])
def test_half_open_connection_is_silent_and_a_new_one_works(
    wire: Wire, connection: socket.socket, gone: Literal["broker", "member"]
) -> None:
    """One end is reset; the other end stays silent."""
    wire.proxy.half_open(wire.links, gone)
    if gone == "broker":
        connection.sendall(b"y")
        assert answers(connection) is None
    else:
        with pytest.raises(ConnectionResetError):
            answers(connection, WAIT_S_MAX)
    with wire.connect() as another:
        another.sendall(b"z")
        assert answers(another, WAIT_S_MAX) == b"z"


def test_refused_connections_are_reset(wire: Wire, connection: socket.socket) -> None:
    refusing = Effect(refuses=True)
    wire.proxy.add(wire.links, refusing)
    with pytest.raises(ConnectionResetError):
        answers(connection, WAIT_S_MAX)
    # The reset may come before the connection is handed over.
    with pytest.raises(ConnectionResetError), wire.connect() as another:
        answers(another, WAIT_S_MAX)
    wire.proxy.remove(wire.links, refusing)
    with wire.connect() as third:
        third.sendall(b"z")
        assert answers(third, WAIT_S_MAX) == b"z"


@pytest.mark.verify
def test_delay_and_loss_take_time(wire: Wire, connection: socket.socket) -> None:
    """Each direction takes at least half of the delay; a lost chunk is retransmitted later."""
    for effect, least_s in ((Effect(delay_s=0.2), 0.2), (Effect(loss=1.0), 2 * 0.2 * 15)):
        wire.proxy.add(wire.links, effect)
        began = time.monotonic()
        connection.sendall(b"x")
        assert answers(connection, WAIT_S_MAX) == b"x"
        assert time.monotonic() - began >= least_s
        wire.proxy.remove(wire.links, effect)


def test_interface_that_is_down_drops_packets_until_it_is_up(
    wire: Wire, connection: socket.socket
) -> None:
    """TCP keep-alive notices this fault: no kernel answers for the other side."""
    wire.namespace.set_up(is_up=False)
    connection.sendall(b"y")
    assert answers(connection, 0.5) is None
    wire.namespace.set_up(is_up=True)
    assert answers(connection, WAIT_S_MAX) == b"y"
