"""Errors in the form that users of confluent_kafka expect: `KafkaException`.

The group's connections have some errors without a number in librdkafka. They use the number of
librdkafka's error with the same meaning.
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
    """Return an error of the group, or an error with one of librdkafka's own codes.

    Args:
        code: error code.
        message: one line; None for librdkafka's text for the code.
        fatal: whether the consumer cannot continue.
    """
    return KafkaError(_OF_LIBRDKAFKA.get(code, code), message, fatal=fatal)


def kafka_exception(
    code: int, message: str | None = None, *, fatal: bool = False
) -> KafkaException:
    """Return the exception that carries such an error."""
    return KafkaException(kafka_error(code, message, fatal=fatal))
