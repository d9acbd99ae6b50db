"""A proxy in front of one broker that can leave all brokers out of its metadata.

Kafka answers so during some rolling upgrades (librdkafka#5301), but not on demand. Otherwise the
proxy names itself as the only broker, so that all requests of a client pass it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["MetadataProxy", "metadata_proxy"]

_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
# Flexible versions (KIP-482): an array begins with a variable-length count + 1.
_METADATA_VERSION_MIN: Final = 9
# The port is the end of the answer up to this version; later versions are left unchanged.
_FIND_COORDINATOR_VERSION_MAX: Final = 2
_HOST: Final = "127.0.0.1"


class MetadataProxy:
    """The proxy.

    Attributes:
        lists_brokers: whether its metadata lists the broker.
        without_brokers: number of answers that listed no broker.
    """

    def __init__(self, host: str, port: int) -> None:
        self.lists_brokers = True
        self.without_brokers = 0
        self._broker = (host, port)
        self._server = socket.create_server((_HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    def close(self) -> None:
        for one in (self._server, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _begin(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(self._broker)
                self._open += (client, broker)
                asked: dict[int, tuple[int, int]] = {}
                self._begin(self._pass_requests, client, broker, asked)
                self._begin(self._pass_answers, broker, client, asked)

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with _ending(client, broker):
            while True:
                frame = _frame(client)
                key, version, number = struct.unpack(">hhi", frame[:8])
                asked[number] = key, version
                broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _pass_answers(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with _ending(client, broker):
            while True:
                frame = _frame(broker)
                key, version = asked.pop(struct.unpack(">i", frame[:4])[0])
                if key == _METADATA:
                    frame = self._metadata(frame, version)
                elif key == _FIND_COORDINATOR and version <= _FIND_COORDINATOR_VERSION_MAX:
                    frame = frame[:-4] + struct.pack(">i", self.port)
                client.sendall(struct.pack(">i", len(frame)) + frame)

    def _metadata(self, frame: bytes, version: int) -> bytes:
        """Replace the brokers of a metadata answer."""
        assert version >= _METADATA_VERSION_MIN, version
        begin = 4 + 1 + 4  # number of the request, no tagged fields, throttle time
        count, at = _count(frame, begin)
        nodes = []
        for _ in range(count):
            nodes.append(frame[at : at + 4])
            length, at = _count(frame, at + 4)
            at += length + 4  # host, port
            length, at = _count(frame, at)
            at += max(0, length) + 1  # rack, no tagged fields
        if not self.lists_brokers:
            self.without_brokers += 1
            nodes = []
        host = bytes([len(_HOST) + 1]) + _HOST.encode() + struct.pack(">i", self.port)
        brokers = b"".join(node + host + b"\0\0" for node in nodes)
        return frame[:begin] + bytes([len(nodes) + 1]) + brokers + frame[at:]


@contextlib.contextmanager
def metadata_proxy(address: str) -> Iterator[MetadataProxy]:
    host, port = address.rsplit(":", 1)
    proxy = MetadataProxy(host, int(port))
    try:
        yield proxy
    finally:
        proxy.close()


@contextlib.contextmanager
def _ending(*both: socket.socket) -> Iterator[None]:
    """End both directions when one has ended."""
    try:
        yield
    except (OSError, EOFError):
        pass
    finally:
        for one in both:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _frame(source: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(source, 4))
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _count(frame: bytes, at: int) -> tuple[int, int]:
    """Read the length of an array or a string, -1 for null; return it and the next place."""
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # the highest bit says that more follows
            return value - 1, at
