"""Errors in the form that users of confluent_kafka expect: `KafkaException`.

The group's connections have some errors without a number in librdkafka. They use the number of
librdkafka's error with the same meaning.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from coopgroup.core.member import ErrorCode, MemberConfig

OF_LIBRDKAFKA: Final = {
    int(ErrorCode.NO_ANSWER): KafkaError._TRANSPORT,
    int(ErrorCode.UNSUPPORTED_BY_BROKER): KafkaError._UNSUPPORTED_FEATURE,
    int(ErrorCode.UNAUTHENTICATED): KafkaError._AUTHENTICATION,
}

_REMEDIES: Final = {
    int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "offer their protocol beside ours, such as "
        '"coopgroup.protocols": "coopgroup,range"; '
        "`coopgroup group migrate --check {0.group_id}` prints the next step"
    ),
    int(ErrorCode.INVALID_SESSION_TIMEOUT): (
        "session.timeout.ms: got {0.session_timeout_ms}, expected a value that the brokers allow: "
        "from group.min.session.timeout.ms (6000 by default) to group.max.session.timeout.ms"
    ),
    int(ErrorCode.FENCED_INSTANCE_ID): (
        "group.instance.id: got '{0.instance_id}', expected an id that no other process uses"
    ),
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED): (
        "group.id: got '{0.group_id}', expected a group on which this user has the right Read"
    ),
}

PASSING_ERRORS: Final = frozenset({KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Codes of events that end without the application: the member rejoins, or the topic is created."""


def refusal(code: int, message: str, member: MemberConfig) -> KafkaException:
    """Return the exception of a permanent refusal by the group, with a remedy if there is one."""
    remedy = _REMEDIES.get(code)
    text = message if remedy is None else f"{message}: {remedy.format(member)}"
    return kafka_exception(code, text, fatal=True)


def kafka_error(code: int, message: str | None = None, *, fatal: bool = False) -> KafkaError:
    """Return an error of the group or of librdkafka; the default text is librdkafka's."""
    return KafkaError(OF_LIBRDKAFKA.get(code, code), message, fatal=fatal)


def kafka_exception(
    code: int, message: str | None = None, *, fatal: bool = False
) -> KafkaException:
    """Return the exception that carries such an error."""
    return KafkaException(kafka_error(code, message, fatal=fatal))
