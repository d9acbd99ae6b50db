"""Codec of the subscription, member to leader: Kafka's ConsumerProtocolSubscription v0 to v3.

Theory of operation: a version only ever appends fields (KIP-429 owned, KIP-792 generation, KIP-881
rack), so a version that is newer than ours is read by the prefix that we know.
"""

from __future__ import annotations

from coopgroup.errors import UnsupportedVersionError
from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.resource_set import EMPTY, ResourceSet
from coopgroup.protocol.reader import ByteReader
from coopgroup.protocol.resource_array import packed_resources, read_resources
from coopgroup.protocol.values import SUBSCRIPTION_NEWEST, Subscription
from coopgroup.protocol.writer import (
    packed_int32,
    packed_nullable_bytes,
    packed_nullable_string,
    packed_strings,
    require_version,
)

__all__ = ["SUBSCRIPTION_NEWEST", "decode_subscription", "encode_subscription"]


def encode_subscription(
    subscription: Subscription, version: int = SUBSCRIPTION_NEWEST, *, index_min: int = 0
) -> bytes:
    """Write a subscription; what the version lacks is left out, as Kafka's clients do.

    Args:
        subscription: what to write; its own `version` plays no part.
        version: 0 to 3.
        index_min: smallest index that may be owned: 0 for partitions, -1 where a connector counts.

    Raises:
        EncodeError: the version does not exist, or a field does not fit its wire type.
    """
    parts = [
        require_version(version, oldest=0, newest=SUBSCRIPTION_NEWEST),
        packed_strings(subscription.topics, "topics"),
        packed_nullable_bytes(subscription.user_data, "user_data"),
    ]
    if version >= 1:
        parts.append(packed_resources(subscription.owned, "owned", index_min=index_min))
    if version >= 2:
        parts.append(packed_int32(subscription.generation, "generation"))
    if version >= 3:
        parts.append(packed_nullable_string(subscription.rack, "rack"))
    return b"".join(parts)


def decode_subscription(
    content: bytes, *, index_min: int = 0, skips_rest: bool = False
) -> Subscription:
    """Read a subscription.

    Topics may come in any order and repeated: clients of other languages send them as the user
    wrote them. A v1 that ends right after the user data claims nothing: some clients say v1
    and write v0 (franz-go issue 493). A negative generation means none, as it does to Kafka.

    Args:
        content: the bytes of the member's protocol metadata in JoinGroup.
        index_min: smallest index that may be owned: 0 for partitions, -1 where a connector counts.
        skips_rest: whether bytes after the last field of the version are passed over, as leaders
            do: a member that says more than they know must not count as one that says nothing.

    Raises:
        DecodeError: the bytes hold no subscription.
    """
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if version < 0:
        raise UnsupportedVersionError(f"version: {version} has never existed", 0)
    topics = reader.read_strings("topics")
    user_data = reader.read_nullable_bytes("user_data")
    owned = _read_owned(reader, version, index_min)
    generation = reader.read_int32("generation") if version >= 2 else NO_GENERATION
    rack = reader.read_nullable_string("rack") if version >= 3 else None
    if version <= SUBSCRIPTION_NEWEST and not skips_rest:
        reader.require_end()
    return Subscription(
        topics=tuple(topics),
        user_data=user_data,
        owned=owned,
        generation=max(generation, NO_GENERATION),
        rack=rack,
        version=version,
    )


def _read_owned(reader: ByteReader, version: int, index_min: int) -> ResourceSet:
    if version == 0 or (version == 1 and not reader.left):
        return EMPTY
    return read_resources(reader, "owned", index_min=index_min)
