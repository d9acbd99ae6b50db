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
    int(ErrorCode.NO_ANSWER): KafkaError._TRANSPORT,
    int(ErrorCode.UNSUPPORTED_BY_BROKER): KafkaError._UNSUPPORTED_FEATURE,
    int(ErrorCode.UNAUTHENTICATED): KafkaError._AUTHENTICATION,
}


def kafka_error(code: int, message: str | None = None, *, fatal: bool = False) -> KafkaError:
    """Return an error of the group or of librdkafka; the default text is librdkafka's."""
    return KafkaError(_OF_LIBRDKAFKA.get(code, code), message, fatal=fatal)


def kafka_exception(
    code: int, message: str | None = None, *, fatal: bool = False
) -> KafkaException:
    """Return the exception that carries such an error."""
    return KafkaException(kafka_error(code, message, fatal=fatal))
