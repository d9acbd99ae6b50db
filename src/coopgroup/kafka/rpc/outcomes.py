"""How a request ends without an answer, and the errors of a handshake."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

from attrs import frozen

# One of kafka-python's messages, or a failure.
Outcome: TypeAlias = Any


class CredentialsRefusedError(Exception):
    """The broker has read the credentials and refused them."""


class HandshakeError(Exception):
    """SASL failed for a reason that does not concern the credentials."""


class FailureKind(enum.Enum):
    """The reason why a request has no answer.

    Attributes:
        TIMED_OUT: no answer within the request's time; the broker may have acted on it.
        DISCONNECTED: no connection, or it was lost or closed; the broker may have acted on it.
        UNSUPPORTED: the broker speaks no version that can carry the request; nothing was sent.
        AUTHENTICATION: the broker refused the credentials; nothing was sent.
        HANDSHAKE: TLS or SASL failed for another, perhaps temporary reason; nothing was sent.
    """

    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    UNSUPPORTED = "unsupported"
    AUTHENTICATION = "authentication"
    HANDSHAKE = "handshake"


@frozen(kw_only=True)
class TransportFailure:
    """The outcome of a request without an answer."""

    kind: FailureKind
    message: str
