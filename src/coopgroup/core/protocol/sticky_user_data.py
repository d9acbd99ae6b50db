"""Codec of the user data of Kafka's sticky assignors.

StickyAssignor sends its member's previous resources: an array of (topic, partitions), and from
version 1 on their generation. The data has no version number. So a reader tries the newer form,
then the older one, and treats anything else as empty. CooperativeStickyAssignor of Kafka's Java
client writes only a generation, for subscriptions without a generation field. Other clients write
the form of StickyAssignor there (librdkafka, franz-go) or nothing (kafka-python). A generation has
four bytes; the other forms have four bytes only if they are empty.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.resource_set import EMPTY, ResourceSet
from coopgroup.core.protocol.kafka_protocols import without_signature
from coopgroup.core.protocol.reader import ByteReader
from coopgroup.core.protocol.resource_array import packed_resources, read_resources
from coopgroup.core.protocol.writer import packed_int32
from coopgroup.errors import DecodeError

_GENERATION_BYTES: Final = 4


@frozen(kw_only=True)
class StickyUserData:
    """The last assignment that a member of Kafka's sticky protocol reports.

    Attributes:
        previous: its resources; it may have given them up since.
        generation: generation of that assignment, `NO_GENERATION` if unknown.
    """

    previous: ResourceSet = EMPTY
    generation: int = NO_GENERATION


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """Write user data of StickyAssignor, version 1.

    Raises:
        EncodeError: a name or a number cannot be encoded.
    """
    previous = packed_resources(user_data.previous, "previous", index_min=0)
    return previous + packed_int32(user_data.generation, "generation")


def decode_sticky_user_data(content: bytes | None) -> StickyUserData:
    """Read user data of StickyAssignor; unreadable data counts as empty.

    Kafka's clients do the same: a member with unreadable data only loses its stickiness.
    """
    try:
        return _decode(content or b"")
    except DecodeError:
        return StickyUserData()


def encode_cooperative_generation(generation: int) -> bytes:
    """Write user data of CooperativeStickyAssignor as Kafka's Java client does.

    Raises:
        EncodeError: the number does not fit into an int32.
    """
    return packed_int32(generation, "generation")


def decode_cooperative_generation(content: bytes | None) -> int:
    """Return the generation in user data of CooperativeStickyAssignor, or `NO_GENERATION`."""
    own = without_signature(content or b"")
    if len(own) != _GENERATION_BYTES:
        return decode_sticky_user_data(own).generation
    return max(ByteReader(own).read_int32("generation"), NO_GENERATION)


def _decode(content: bytes) -> StickyUserData:
    reader = ByteReader(content)
    previous = read_resources(reader, "previous", index_min=0)
    generation = reader.read_int32("generation") if reader.left else NO_GENERATION
    return StickyUserData(previous=previous, generation=max(generation, NO_GENERATION))
