"""A proxy in front of one broker that can leave all brokers out of its metadata.

Kafka answers so during some rolling upgrades (librdkafka#5301), but not on demand. Otherwise the
proxy names itself as the only broker, so that all requests of a client pass it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kafka.protocol.metadata import MetadataResponse

_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
# The port is the end of the answer up to this version; later versions are left unchanged.
_FIND_COORDINATOR_VERSION_MAX: Final = 2
_HEADER: Final = 5  # number of the request, no tagged fields
_HOST: Final = "127.0.0.1"
_Response: Final[Any] = MetadataResponse  # kafka-python makes its fields at run time


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

    def _begin(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(self._broker)
                self._open += (client, broker)
                asked: dict[int, tuple[int, int]] = {}
                self._begin(_pass_on, client, broker, partial(_note, asked))
                self._begin(_pass_on, broker, client, partial(self._changed, asked))

    def _changed(self, asked: dict[int, tuple[int, int]], frame: bytes) -> bytes:
        """Return an answer with the proxy in place of the broker."""
        key, version = asked.pop(struct.unpack(">i", frame[:4])[0])
        if key == _METADATA:
            return self._metadata(frame, version)
        if key == _FIND_COORDINATOR and version <= _FIND_COORDINATOR_VERSION_MAX:
            return frame[:-4] + struct.pack(">i", self.port)
        return frame

    def _metadata(self, frame: bytes, version: int) -> bytes:
        """Replace the brokers of a metadata answer."""
        answer = _Response.decode(frame[_HEADER:], version=version)
        for node in answer.brokers:
            node.host, node.port = _HOST, self.port
        if not self.lists_brokers:
            self.without_brokers += 1
            answer.brokers = []
        answer._header = None  # noqa: SLF001  (a decoded message cannot be encoded without)
        return frame[:_HEADER] + bytes(answer.encode(version=version))


@contextlib.contextmanager
def metadata_proxy(address: str) -> Iterator[MetadataProxy]:
    host, port = address.rsplit(":", 1)
    proxy = MetadataProxy(host, int(port))
    try:
        yield proxy
    finally:
        proxy.close()


def _note(asked: dict[int, tuple[int, int]], frame: bytes) -> bytes:
    key, version, number = struct.unpack(">hhi", frame[:8])
    asked[number] = key, version
    return frame


def _pass_on(
    source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]
) -> None:
    """Pass messages on; end both directions when one has ended."""
    try:
        while True:
            (size,) = struct.unpack(">i", _exactly(source, 4))
            frame = change(_exactly(source, size))
            target.sendall(struct.pack(">i", len(frame)) + frame)
    except (OSError, EOFError):
        pass
    finally:
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found
