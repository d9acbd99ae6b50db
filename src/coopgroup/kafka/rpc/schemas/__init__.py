"""Messages that kafka-python lacks, from schemas in the form of Apache Kafka's own.

kafka-python makes a message's class from a JSON schema, and takes the schema of any package. A
schema has the name of its message.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """Join a consumer group, report the owned partitions, or leave (KIP-848).

    Version 1 is the first with ids of members that the client chooses (KIP-1082). If the answer to
    the first join is lost in version 0, the group keeps a member that no process knows.
    """


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """The member's epoch and its assignment; no assignment if it has not changed."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):
    """Describe groups whose coordinator assigns; DescribeGroups answers that they are dead."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):
    """Members, and the partitions that they own and shall own.

    From version 1 on, it tells which members speak the classic protocol.
    """
