"""Parts of kafka-python's connection that cost an idle member less.

Most requests are heartbeats of a member at rest. Two heartbeats of a generation differ in the
correlation id only, and so do their answers. kafka-python encodes the first heartbeat of a
connection, and decodes its answer. Later heartbeats are these bytes with another correlation id
(`RepeatedMessage`). An answer with the same bytes has the same meaning.

kafka-python sends with the second turn of the loop after a request, and registers the socket anew
for each read and each write. `TcpTransport` sends immediately what the kernel takes, and its socket
stays registered for reads. A connection with TLS keeps kafka-python's way.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import Any, Final, NamedTuple

import kafka.errors as wire_errors
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from coopgroup.kafka.rpc.questions import WireMessage
from coopgroup.kafka.rpc.tasks import Reader

__all__ = ["RepeatedMessage", "TcpTransport"]

_READ_BYTES: Final = 65_536
# Size, key and version come before the correlation id of a request; nothing does in an answer.
_CORRELATION: Final = slice(8, 12)
_CORRELATION_BYTES: Final = 4


class RepeatedMessage:
    """A request of one connection, with other correlation ids.

    It takes the place of kafka-python's message inside kafka-python's connection. It belongs to one
    connection, because the version of the request does, too.

    Attributes:
        API_VERSION: version of the request; kafka-python sets it before the first one is sent.
        header: what kafka-python needs to read the answer to the latest request.
    """

    def __init__(self, message: WireMessage) -> None:
        """Repeat a message of kafka-python that has no version yet."""
        self.API_VERSION: int | None = None
        self.header: _Header | None = None
        self._message = message
        self._frame = b""
        self._answers: _Answers | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (what the version depends on)
        """Return an attribute of kafka-python's message."""
        return getattr(self._message, name)

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Take the next correlation id; the client id stays the same."""
        answers = self._answers
        if answers is None:
            message = self._message
            message.API_VERSION = self.API_VERSION
            message.with_header(correlation_id=correlation_id, client_id=client_id)
            self._frame = bytes(message.encode(framed=True, header=True))
            answers = self._answers = _Answers(message.header.get_response_class())
        self.header = _Header(correlation_id, answers)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """Return the bytes of the request, with frame and header."""
        assert framed
        assert header
        assert self.header is not None
        correlation = self.header.correlation_id.to_bytes(_CORRELATION_BYTES, "big")
        frame = self._frame
        return frame[: _CORRELATION.start] + correlation + frame[_CORRELATION.stop :]


class _Answers:
    """Reads answers, in place of kafka-python's class of the response."""

    def __init__(self, response_class: Any) -> None:  # noqa: ANN401  (kafka-python has no types)
        self._response_class = response_class
        self._body = b""  # of the answer that is decoded
        self._response: WireMessage = None
        self._is_other = True

    def parse_header(self, buffer: Any) -> Any:  # noqa: ANN401  (the same)
        received: bytes = buffer.read()
        self._is_other = received[_CORRELATION_BYTES:] != self._body
        if not self._is_other:
            return _Header(int.from_bytes(received[:_CORRELATION_BYTES], "big"), self)
        buffer.seek(0)
        self._body = b""
        header = self._response_class.parse_header(buffer)
        self._new_body = received[_CORRELATION_BYTES:]
        return header

    def decode(self, buffer: Any) -> WireMessage:  # noqa: ANN401  (the same)
        if self._is_other:
            self._response = self._response_class.decode(buffer)
            self._body = self._new_body
        return self._response


class _Header(NamedTuple):
    """The part of a header that kafka-python reads."""

    correlation_id: int
    answers: _Answers

    def get_response_class(self) -> _Answers:
        return self.answers


class TcpTransport(KafkaTCPTransport):
    """kafka-python's transport, with other reads and writes."""

    def __init__(self, net: NetworkSelector, sock: socket.socket, host: str) -> None:
        """Speak over a connected socket."""
        super().__init__(net, sock, host=host)  # type: ignore[no-untyped-call]

    def resume_reading(self) -> None:
        """Register the socket for all reads until it is closed."""
        if not self._read:
            self._net.register_event(self._sock, selectors.EVENT_READ, Reader(self._receive))
        self._read = True

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if self._read:
            self._net.unregister_event(self._sock, selectors.EVENT_READ)
        self._read = False

    def write(self, request: bytes) -> None:
        """Send what the kernel takes now; the loop sends the rest.

        The loop meets an error of this call again, and reports it when no caller is on the stack.
        """
        if not request or not self._write or self._closed or self._writing or self._write_buffer:
            super().write(request)  # type: ignore[no-untyped-call]
            return
        sent = 0
        with contextlib.suppress(OSError):
            sent = self._sock.send(request)
            self.last_write = time.monotonic()
        if sent < len(request):
            super().write(memoryview(request)[sent:])  # type: ignore[no-untyped-call]

    def _receive(self) -> None:
        """Take what has arrived; the loop calls again while there is more.

        A broker sends its refusal of credentials together with the end of the stream. So the end
        must not be read together with the last bytes.
        """
        base: Any = self  # kafka-python's code has no types
        if self._closed or not self._read:
            self._net.unregister_event(self._sock, selectors.EVENT_READ)
            return
        try:
            received = base._sock.recv(_READ_BYTES)  # noqa: SLF001
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            base.abort(wire_errors.KafkaConnectionError(error))
            return
        if not received:
            base.abort(wire_errors.KafkaConnectionError("socket disconnected"))
            return
        self.last_read = time.monotonic()
        try:
            base._protocol.data_received(received)  # noqa: SLF001
        except wire_errors.KafkaProtocolError as error:
            base.abort(error)
