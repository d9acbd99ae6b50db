"""Connections that were given up for new calls, while some of their calls still wait for answers.

Closing a connection does not take a request back. The broker, or a proxy before it, may hold an
OffsetCommit and serve it after newer commits of the next connection. The committed offset would go
back. So the old connection stays open until each such call has its answer or is past its deadline.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable
from typing import Generic, TypeVar

import kafka.errors as wire_errors
from attrs import define, field
from kafka.net.connection import KafkaConnection

__all__ = ["GivenUpConnections", "abort"]

_Call = TypeVar("_Call")


@define(eq=False)
class GivenUpConnections(Generic[_Call]):
    """The given-up connections of one channel."""

    _calls: dict[KafkaConnection, dict[_Call, None]] = field(factory=dict, init=False)

    def keep(self, connection: KafkaConnection, calls: Iterable[_Call]) -> None:
        """Keep a connection open for the given calls."""
        self._calls[connection] = dict.fromkeys(calls)

    def end(self, call: _Call) -> None:
        """End a call; close its connection if this was its last call."""
        for connection, calls in tuple(self._calls.items()):
            if call in calls:
                del calls[call]
                if not calls:
                    del self._calls[connection]
                    abort(connection, "given up, and no call waits there any longer")

    def close(self, reason: str) -> list[_Call]:
        """Close all connections and return the calls that waited on them."""
        kept, self._calls = self._calls, {}
        for connection in kept:
            abort(connection, reason)
        return [call for calls in kept.values() for call in calls]


def abort(connection: KafkaConnection, reason: str) -> None:
    """Close a connection immediately, and discard all bytes still to be sent.

    Without the linger option the kernel would go on sending for minutes. An OffsetCommit that timed
    out would arrive after newer ones when a network partition ends.
    """
    if connection.closed:
        return
    sock = getattr(connection.transport, "_sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Pass an error: a close without one waits until the peer has taken all bytes, and a dead peer
    # takes none.
    connection.close(wire_errors.KafkaConnectionError(reason))
