"""Errors in the form in which users of confluent_kafka expect them: `KafkaException`.

The group's connections know errors that librdkafka has no number for; they take the number of
librdkafka's own that says the same.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from coopgroup.member import ErrorCode

__all__ = ["kafka_error", "kafka_exception"]

_OF_LIBRDKAFKA: Final = {
    int(ErrorCode.NO_ANSWER): KafkaError._TRANSPORT,  # noqa: SLF001  (public constant)
    int(ErrorCode.UNSUPPORTED_BY_BROKER): KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001  (same)
    int(ErrorCode.UNAUTHENTICATED): KafkaError._AUTHENTICATION,  # noqa: SLF001  (same)
}


def kafka_error(code: int, message: str | None = None, *, fatal: bool = False) -> KafkaError:
    """An error of the group, or one of librdkafka's own codes.

    Args:
        code: error code.
        message: one line; what librdkafka says of the code if None.
        fatal: whether the consumer can do nothing more.
    """
    return KafkaError(_OF_LIBRDKAFKA.get(code, code), message, fatal=fatal)


def kafka_exception(
    code: int, message: str | None = None, *, fatal: bool = False
) -> KafkaException:
    """The exception that carries such an error."""
    return KafkaException(kafka_error(code, message, fatal=fatal))
