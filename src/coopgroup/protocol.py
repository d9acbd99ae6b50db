"""Embedded messages of a group: bytes to values and back, bounds-checked.

Members and their leader exchange bytes that the group coordinator never reads. Module `values` has
the content of the messages, the other modules their wire format. docs/wire_format.md describes the
bytes; the repository's folder `protocol/` has the schemas.
"""

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.protocol.assignment import (
    decode_assignment,
    encode_assignment,
)
from coopgroup.core.protocol.kafka_assignment import (
    decode_kafka_assignment,
    encode_kafka_assignment,
    is_kafka_assignment,
)
from coopgroup.core.protocol.kafka_protocols import (
    KafkaProtocol,
    has_signature,
    kafka_protocol,
    with_signature,
)
from coopgroup.core.protocol.sticky_user_data import (
    StickyUserData,
    decode_cooperative_generation,
    decode_sticky_user_data,
    encode_cooperative_generation,
    encode_sticky_user_data,
)
from coopgroup.core.protocol.subscription import (
    decode_subscription,
    encode_subscription,
)
from coopgroup.core.protocol.user_data import decode_user_data, encode_user_data
from coopgroup.core.protocol.values import (
    ASSIGNMENT_VERSION,
    KAFKA_ASSIGNMENT_NEWEST,
    SUBSCRIPTION_NEWEST,
    USER_DATA_VERSION,
    Assignment,
    KafkaAssignment,
    Subscription,
    UserData,
)

__all__ = [
    "ASSIGNMENT_VERSION",
    "KAFKA_ASSIGNMENT_NEWEST",
    "SUBSCRIPTION_NEWEST",
    "USER_DATA_VERSION",
    "Assignment",
    "KafkaAssignment",
    "KafkaProtocol",
    "MemberChoices",
    "ResourceSet",
    "StickyUserData",
    "Subscription",
    "UserData",
    "decode_assignment",
    "decode_cooperative_generation",
    "decode_kafka_assignment",
    "decode_sticky_user_data",
    "decode_subscription",
    "decode_user_data",
    "encode_assignment",
    "encode_cooperative_generation",
    "encode_kafka_assignment",
    "encode_sticky_user_data",
    "encode_subscription",
    "encode_user_data",
    "has_signature",
    "is_kafka_assignment",
    "kafka_protocol",
    "with_signature",
]
