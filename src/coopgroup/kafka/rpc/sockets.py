"""Sockets that deliver a broker's last bytes before they report the end of the stream.

A broker sends its refusal of credentials together with the end of the stream. kafka-python drops
bytes that it reads together with the end (seen with 3.0.12). A wrong password would then look like
a broker that hangs up.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any

from attrs import define, field


class _EndsApart:
    """Reports the end, or a failure, with the read after the last bytes."""

    _has_bytes = False
    _failure: OSError | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive bytes as any socket that does not block."""
        base: Any = super()
        if self._failure is not None:  # the system reports it only once
            failure, self._failure = self._failure, None
            raise failure
        try:
            received: bytes = base.recv(buflen, flags)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as error:
            if not self._has_bytes:
                raise
            self._has_bytes, self._failure = False, error
            raise BlockingIOError from None
        if received:
            self._has_bytes = True
        elif self._has_bytes:
            self._has_bytes = False
            raise BlockingIOError  # the next read reports it again
        return received


class BrokerSocket(_EndsApart, socket.socket):
    """A TCP socket to a broker."""


class _BrokerTlsSocket(_EndsApart, ssl.SSLSocket):
    """A socket with TLS to a broker."""


@define
class TlsWrapper:
    """Wraps one socket with TLS, in place of the context that kafka-python expects.

    Attributes:
        wrapped: the socket, None before.
    """

    context: ssl.SSLContext
    wrapped: ssl.SSLSocket | None = field(default=None, init=False)

    def wrap_socket(self, sock: socket.socket, **arguments: Any) -> ssl.SSLSocket:  # noqa: ANN401
        """Wrap the socket as the context does."""
        self.context.sslsocket_class = _BrokerTlsSocket
        self.wrapped = self.context.wrap_socket(sock, **arguments)
        return self.wrapped


def discard_unsent_bytes(sock: socket.socket) -> None:
    """Let a close discard all bytes still to be sent.

    Without this option the kernel would go on sending for minutes. An OffsetCommit that timed out
    would arrive after newer ones when a network partition ends.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
