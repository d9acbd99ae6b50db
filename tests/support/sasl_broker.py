"""A broker with programmable authentication that answers heartbeats: two requests of Kafka.

Kafka's own broker cannot refuse one token and accept the next, nor hang up during a step.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, evolve, field
from kafka.protocol.consumer.group import HeartbeatResponse
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings

REFUSED: Final = 58
_HEARTBEAT, _HANDSHAKE, _VERSIONS, _AUTHENTICATE = 12, 17, 18, 36
_KEYS: Final = {_HEARTBEAT: 1, _HANDSHAKE: 1, _VERSIONS: 1, _AUTHENTICATE: 1}
# kafka-python's messages take their fields as keywords without types.
_api_versions: Final[Any] = ApiVersionsResponse
_handshake: Final[Any] = SaslHandshakeResponse
_authenticate: Final[Any] = SaslAuthenticateResponse
_heartbeat: Final[Any] = HeartbeatResponse


@define(eq=False)
class SaslBroker:
    """The broker.

    Attributes:
        judge: gets the bytes of an authentication and returns the error code of the answer, or None
            to hang up.
        lifetime_ms: lifetime of a session (KIP-368), 0 for no end.
        seen: bytes of all authentications.
    """

    judge: Callable[[bytes], int | None]
    mechanisms: tuple[str, ...] = ("OAUTHBEARER",)
    lifetime_ms: int = 0
    seen: list[bytes] = field(factory=list)
    _server: socket.socket = field(init=False)
    _open: list[socket.socket] = field(factory=list, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._run(self._accept)

    @property
    def address(self) -> str:
        host, port = self._server.getsockname()
        return f"{host}:{port}"

    @property
    def connections(self) -> int:
        """Return how many connections there were so far."""
        return len(self._open)

    def settings(self, **configuration: Any) -> ConnectionSettings:  # noqa: ANN401  (as users write it)
        """Return settings for a connection to it, with further keys of the configuration."""
        reach = {"bootstrap.servers": self.address, "security.protocol": "SASL_PLAINTEXT"}
        settings = read_connection_settings(
            reach | {"sasl.mechanism": self.mechanisms[0], **configuration}
        )
        return evolve(settings, api_version=(1, 0), reconnect_backoff_max_ms=100)

    def close(self) -> None:
        for one in (self._server, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                self._open.append(peer)
                self._run(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), peer:
            while True:
                (size,) = struct.unpack(">i", _exactly(peer, 4))
                body = _exactly(peer, size)
                key, _, number = struct.unpack(">hhi", body[:8])
                answer = self._answer(key, body)
                if answer is None:
                    return
                frame = struct.pack(">i", number) + bytes(answer.encode(header=False))
                peer.sendall(struct.pack(">i", len(frame)) + frame)

    def _answer(self, key: int, body: bytes) -> Any:  # noqa: ANN401  (kafka-python's message)
        if key == _VERSIONS:
            known = [
                _api_versions.ApiVersion(api_key=one, min_version=0, max_version=last)
                for one, last in _KEYS.items()
            ]
            return _api_versions(version=1, error_code=0, api_keys=known)
        if key == _HANDSHAKE:
            return _handshake(version=1, error_code=0, mechanisms=[*self.mechanisms])
        if key == _HEARTBEAT:
            return _heartbeat(version=1, throttle_time_ms=0, error_code=0)
        given = body[body.index(b"n,,") if b"n,," in body else 0 :]
        self.seen.append(given)
        code = self.judge(given)
        if code is None:
            return None
        return _authenticate(
            version=1,
            error_code=code,
            error_message="no" if code else None,
            auth_bytes=b"",
            session_lifetime_ms=self.lifetime_ms,
        )


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


@contextlib.contextmanager
def sasl_broker(judge: Callable[[bytes], int | None], **options: Any) -> Iterator[SaslBroker]:  # noqa: ANN401
    broker = SaslBroker(judge, **options)
    try:
        yield broker
    finally:
        broker.close()
