"""Every error that coopgroup raises, as one tree.

Rules of this file: a class per kind of failure, no behaviour beyond building the message, and
every message is one line that names the field, the value and what would be right.
"""

from __future__ import annotations

__all__ = [
    "AssignorError",
    "BufferUnderflowError",
    "ConfigurationError",
    "CoopgroupError",
    "DecodeError",
    "EncodeError",
    "InvalidCountError",
    "InvalidStringError",
    "InvalidValueError",
    "InvariantViolationError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "TrailingBytesError",
    "UnsupportedVersionError",
]


class CoopgroupError(Exception):
    """Base of every error that coopgroup raises on purpose."""


class ConfigurationError(CoopgroupError, ValueError):
    """A configuration key, option or argument is wrong.

    Args:
        field: name of the key, option or argument.
        value: what was given.
        expected: what would be right, as the end of the sentence "expected …"; or, where nothing
            would be, "no such key: …" with what to use instead.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        """Build the one-line message."""
        joint = "but there is" if expected.startswith("no such ") else "expected"
        super().__init__(f"{field}: got {value!r}, {joint} {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class DecodeError(CoopgroupError, ValueError):
    """Bytes that do not hold the message they should hold.

    Args:
        message: what is wrong.
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
    """A length or count is negative where it may not be, or larger than the bytes that follow."""


class InvalidStringError(DecodeError):
    """A string is not UTF-8."""


class InvalidValueError(DecodeError):
    """A field was read, but its value is not allowed: a negative or repeated partition, say."""


class TrailingBytesError(DecodeError):
    """A message of a known version is followed by bytes that it does not have."""


class UnsupportedVersionError(DecodeError):
    """A version that never existed, or an assignment of a newer one than this release reads."""


class EncodeError(CoopgroupError, ValueError):
    """A value that the wire format cannot hold."""


class ProtocolError(CoopgroupError):
    """The group protocol was broken; see the two subclasses for by whom."""


class LocalProtocolError(ProtocolError):
    """The host of a core object called it against the rules; its state did not change."""


class RemoteProtocolError(ProtocolError):
    """The group coordinator or the leader sent what the protocol does not allow."""


class AssignorError(CoopgroupError):
    """An assignor gave a target that breaks its contract."""


class InvariantViolationError(CoopgroupError):
    """A safety rule of the group was about to be broken: a bug, never a user's mistake."""
