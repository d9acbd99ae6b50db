"""Codec of the subscription, member to leader: Kafka's ConsumerProtocolSubscription v0 to v3.

Theory of operation: a new version only appends fields (KIP-429 owned, KIP-792 generation, KIP-881
rack). So we read the known fields of a newer version.

Any member can send a large subscription, and the leader reads all of them. So the size is checked
before anything is decoded. The limit leaves room for a member that owns a million partitions alone.

Members of a group send the same topics and mostly the same resources as before. Both are looked up
in a cache (module `recent`) before they are decoded. No list of topics and no array of resources is
a prefix of another one, so a cached prefix identifies the value.
"""

from __future__ import annotations

from typing import Final

from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.resource_set import EMPTY, ResourceSet
from coopgroup.core.protocol.reader import INT16, INT32, NULL, ByteReader
from coopgroup.core.protocol.recent import RecentlyRead
from coopgroup.core.protocol.resource_array import packed_resources, read_recent_resources
from coopgroup.core.protocol.values import (
    SUBSCRIPTION_NEWEST,
    Subscription,
    TopicNames,
    ascending_distinct,
)
from coopgroup.core.protocol.writer import (
    packed_int32,
    packed_nullable_bytes,
    packed_nullable_string,
    packed_strings,
    require_version,
)
from coopgroup.errors import InvalidCountError, UnsupportedVersionError

SUBSCRIPTION_BYTES_MAX: Final = 5 * 2**20
"""Four bytes for each of a million partitions, and 1 MiB for the rest.

Brokers store at most 1 MB for a whole group, unless `message.max.bytes` is raised.
"""
_ALIKE_MAX: Final = 8
_TOPICS: Final = RecentlyRead[tuple[tuple[bytes, TopicNames], ...]](2**24)
"""Lists of topics by their length and first topic: newest first, 16 MiB at most."""
_NULL_STRING: Final = INT16.pack(NULL)
_RACK_BYTES_MAX: Final = 64  # longest guessed rack; a longer one costs a second reading


def encode_subscription(
    subscription: Subscription, version: int = SUBSCRIPTION_NEWEST, *, index_min: int = 0
) -> bytes:
    """Write a subscription; fields that the version lacks are left out, as in Kafka's clients.

    Args:
        subscription: the subscription; its own `version` is ignored.
        version: 0 to 3.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.

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

    Topics may be unsorted and repeated, because some clients send them as the user wrote them. A v1
    that ends after the user data claims nothing: some clients declare v1 and write v0 (franz-go
    issue 493). A negative generation means none, as in Kafka.

    Args:
        content: bytes of the member's protocol metadata in JoinGroup.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.
        skips_rest: whether to skip bytes after the last field of the version, as leaders do. A
            newer member must not count as unreadable.

    Raises:
        DecodeError: the bytes are not a subscription.
    """
    subscription, _ = read_subscription(content, index_min=index_min, skips_rest=skips_rest)
    return subscription


def read_subscription(
    content: bytes, *, index_min: int, skips_rest: bool
) -> tuple[Subscription, bytes | None]:
    """Read a subscription, and return the bytes of its owned resources.

    Returns:
        The subscription, and the bytes of `owned`; None if we would write other bytes.

    Raises:
        DecodeError: the bytes are not a subscription.
    """
    if len(content) > SUBSCRIPTION_BYTES_MAX:
        raise InvalidCountError(
            f"subscription: {len(content)} bytes, expected {SUBSCRIPTION_BYTES_MAX} at most", 0
        )
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if version < 0:
        raise UnsupportedVersionError(f"version: {version} has never existed", 0)
    topics = _read_topics(reader)
    user_data = reader.read_nullable_bytes("user_data")
    owned, wire = _read_owned(reader, version, index_min)
    generation = reader.read_int32("generation") if version >= 2 else NO_GENERATION
    rack = reader.read_nullable_string("rack") if version >= 3 else None
    if version <= SUBSCRIPTION_NEWEST and not skips_rest:
        reader.require_end()
    subscription = Subscription(
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation=max(generation, NO_GENERATION),
        rack=rack,
        version=version,
    )
    return subscription, wire


def _read_topics(reader: ByteReader) -> TopicNames:
    start = reader.offset
    head = reader.content[start : _end_of_first_topic(reader.content, start)]
    alike = _TOPICS.find(head) or ()
    for section, names in alike:
        if reader.content.startswith(section, start):
            reader.offset += len(section)
            return names
    names = ascending_distinct(reader.read_strings("topics"))
    section = reader.content[start : reader.offset]
    alike = ((section, names), *alike)[:_ALIKE_MAX]
    _TOPICS.keep(head, alike, sum(len(section) for section, _ in alike))
    return names


def _end_of_first_topic(content: bytes, start: int) -> int:
    """Return the end of the first topic name; with the count it distinguishes most lists."""
    length_at = start + INT32.size
    if len(content) < length_at + INT16.size:
        return length_at
    length: int = INT16.unpack_from(content, length_at)[0]
    return length_at + INT16.size + max(length, 0)


def _read_owned(
    reader: ByteReader, version: int, index_min: int
) -> tuple[ResourceSet, bytes | None]:
    if version == 0 or (version == 1 and not reader.left):
        return EMPTY, None
    end = _likely_end_of_owned(reader.content, version)
    return read_recent_resources(reader, "owned", index_min=index_min, likely_end=end)


def _likely_end_of_owned(content: bytes, version: int) -> int:
    """Return the end of the owned resources if the following bytes have their usual form.

    Generation and rack are at the end, and only the length of the rack varies. A wrong guess is
    harmless, because no cached array ends there.
    """
    end = len(content)
    if version >= 3:
        if content.endswith(_NULL_STRING):
            end -= INT16.size
        else:
            end -= next(
                (
                    INT16.size + length
                    for length in range(_RACK_BYTES_MAX)
                    if content[end - length - INT16.size : end - length] == INT16.pack(length)
                ),
                0,
            )
    return end - INT32.size if version >= 2 else end
