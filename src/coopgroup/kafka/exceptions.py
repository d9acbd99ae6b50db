"""Errors in the form that users of confluent_kafka expect: `KafkaException`.

The group's connections have some errors without a number in librdkafka. They use the number of
librdkafka's error with the same meaning.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.member import ErrorCode

_OF_LIBRDKAFKA: Final = {
    int(ErrorCode.NO_ANSWER): KafkaError._TRANSPORT,
    int(ErrorCode.UNSUPPORTED_BY_BROKER): KafkaError._UNSUPPORTED_FEATURE,
    int(ErrorCode.UNAUTHENTICATED): KafkaError._AUTHENTICATION,
}

_REMEDIES: Final = {
    int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "offer their protocol beside ours, such as "
        '"coopgroup.protocols": "coopgroup,range"; '
        "`coopgroup group migrate --check {}` prints the next step"
    ),
}

PASSING_ERRORS: Final = frozenset({KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Codes of events that end without the application: the member rejoins, or the topic is created."""


def refusal(code: int, message: str, group_id: str) -> KafkaException:
    """Return the exception of a permanent refusal by the group, with a remedy if there is one."""
    remedy = _REMEDIES.get(code)
    text = message if remedy is None else f"{message}: {remedy.format(group_id)}"
    return kafka_exception(code, text, fatal=True)


def kafka_error(code: int, message: str | None = None, *, fatal: bool = False) -> KafkaError:
    """Return an error of the group or of librdkafka; the default text is librdkafka's."""
    return KafkaError(_OF_LIBRDKAFKA.get(code, code), message, fatal=fatal)


def kafka_exception(
    code: int, message: str | None = None, *, fatal: bool = False
) -> KafkaException:
    """Return the exception that carries such an error."""
    return KafkaException(kafka_error(code, message, fatal=fatal))
