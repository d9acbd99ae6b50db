"""All errors that coopgroup raises, as one tree.

Each kind of failure has a class, which only builds its message. A message is one line that names
the field, the value and a correct value.
"""

from __future__ import annotations

import math

__all__ = [
    "AssignorError",
    "BufferUnderflowError",
    "ConfigurationError",
    "CoopgroupError",
    "Decline",
    "DecodeError",
    "EncodeError",
    "InvalidCountError",
    "InvalidStringError",
    "InvalidValueError",
    "InvariantViolationError",
    "LocalProtocolError",
    "MissingExtraError",
    "PipelineError",
    "ProcessingError",
    "ProtocolError",
    "RemoteProtocolError",
    "StartFailed",
    "TopicError",
    "TrailingBytesError",
    "UnsupportedVersionError",
]


class CoopgroupError(Exception):
    """Base of every error that coopgroup raises on purpose."""


class ConfigurationError(CoopgroupError, ValueError):
    """A configuration key, option or argument is wrong.

    Args:
        field: name of the key, option or argument.
        value: the given value.
        expected: correct values, as the end of the sentence "expected …". For an unknown key, "no
            such key: …" with the key to use instead.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        """Build the one-line message."""
        joint = "but there is" if expected.startswith("no such ") else "expected"
        super().__init__(f"{field}: got {value!r}, {joint} {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class MissingExtraError(CoopgroupError):
    """A package is not installed that comes with an extra of coopgroup."""


class DecodeError(CoopgroupError, ValueError):
    """Bytes that are not a valid message.

    Args:
        message: the error.
        offset: position of the first byte that could not be read, counted from 0.
    """

    def __init__(self, message: str, offset: int) -> None:
        """Build the one-line message."""
        super().__init__(f"{message} at offset {offset}")
        self.message = message
        self.offset = offset


class BufferUnderflowError(DecodeError):
    """The bytes end before the field does."""


class InvalidCountError(DecodeError):
    """A length or count is negative, or larger than the remaining bytes."""


class InvalidStringError(DecodeError):
    """A string is not UTF-8."""


class InvalidValueError(DecodeError):
    """A field has a value that is not allowed, such as a negative or repeated partition."""


class TrailingBytesError(DecodeError):
    """A message of a known version is followed by unexpected bytes."""


class UnsupportedVersionError(DecodeError):
    """A version that never existed, or an assignment newer than this release can read."""


class EncodeError(CoopgroupError, ValueError):
    """A value that the wire format cannot represent."""


class ProtocolError(CoopgroupError):
    """The group protocol was violated; the two subclasses say by which side."""


class LocalProtocolError(ProtocolError):
    """The host made a call that the state of a core object forbids; the state is unchanged."""


class RemoteProtocolError(ProtocolError):
    """The group coordinator or the leader sent something that the protocol does not allow."""


class AssignorError(CoopgroupError):
    """An assignor returned a target that violates its contract."""


class Decline(CoopgroupError):  # noqa: N818 - raised by the application, as an answer
    """The application's `start` cannot start a resource here; another member may get it.

    Args:
        reason: why, for logs and telemetry.
        for_s: how long no leader gives the resource to this member, in seconds above 0.

    Raises:
        ConfigurationError: the time is not a number above 0.
    """

    def __init__(self, reason: str, *, for_s: float = 60.0) -> None:
        """Check the time."""
        is_number = isinstance(for_s, int | float) and not isinstance(for_s, bool)
        if not is_number or not 0 < for_s < math.inf:
            raise ConfigurationError("for_s", for_s, "seconds above 0")
        super().__init__(reason)
        self.for_s = for_s


class StartFailed(CoopgroupError):  # noqa: N818 - raised by the application, as an answer
    """The application's `start` cannot start a resource on any member, such as a wrong definition.

    This process does not start the resource again before `CooperativeGroup.restart`, or before its
    definition changes. If the resource moves, such as for balance, its new member starts it.
    """


class ProcessingError(CoopgroupError):
    """A record could not be handled, so processing stopped before its offset.

    Its cause (`__cause__`) is the exception of the handler.

    Args:
        topic: topic of the record.
        partition: number of its partition.
        offset: its offset.
        reason: the exception of the handler as text.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        """Build the one-line message."""
        super().__init__(f"{topic}[{partition}] at offset {offset} was not handled: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class InvariantViolationError(CoopgroupError):
    """A round would have violated a safety rule of the group: a bug, not a user's mistake."""


class PipelineError(CoopgroupError):
    """A requirement of a job is missing, or the tables cannot be used as they are."""


class ClusterError(CoopgroupError):
    """The cluster cannot do this in its current state."""


class ClusterStartError(ClusterError):
    """A broker did not start; the last lines of its log are in the error's notes."""


class ToolError(ClusterError):
    """One of Kafka's command-line tools failed; its output is in the error's notes."""


class KafkaFetchError(ClusterError):
    """Kafka's jars could not be downloaded or prepared."""


class ToolMissingError(ClusterError):
    """A program or Python package that the test broker needs is not installed.

    Args:
        tool: name of the missing program or package.
        remedy: how to install it, as the end of the sentence "…; install it with …".
    """

    def __init__(self, tool: str, remedy: str) -> None:
        super().__init__(
            f"{tool} is missing, which the test broker needs; install it with {remedy}"
        )
        self.tool = tool
        self.remedy = remedy


class TopicError(CoopgroupError):
    """The cluster did not create the topic."""


def one_line(error: BaseException) -> str:
    """Return an exception as one line for a record."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 -- an exception of a user may fail to say what it is
        said = "…"
    return f"{type(error).__name__}: {said}"
