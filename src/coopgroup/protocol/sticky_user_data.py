"""Codec of the user data of Kafka's sticky assignors, which is not ours.

StickyAssignor tells what its member held before it gave that up: an array of (topic, partitions),
and from version 1 on the generation of it. No version stands before them, so a reader tries the
newer form, then the older one, and takes anything else for nothing. CooperativeStickyAssignor of
Kafka's Java client writes a bare generation, for clients whose subscription has no room for one;
other clients write there what StickyAssignor does (librdkafka, franz-go) or nothing (kafka-python).
A bare generation is four bytes long, which the other forms can only be when they are empty.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from coopgroup.errors import DecodeError
from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.resource_set import EMPTY, ResourceSet
from coopgroup.protocol.marks import without_mark
from coopgroup.protocol.reader import ByteReader
from coopgroup.protocol.resource_array import packed_resources, read_resources
from coopgroup.protocol.writer import packed_int32

__all__ = [
    "StickyUserData",
    "decode_cooperative_generation",
    "decode_sticky_user_data",
    "encode_cooperative_generation",
    "encode_sticky_user_data",
]

_GENERATION_BYTES: Final = 4


@frozen(kw_only=True)
class StickyUserData:
    """What a member of Kafka's sticky protocol says of its last assignment.

    Attributes:
        previous: what it held; it may have given that up since.
        generation: in which it was assigned that, NO_GENERATION when unknown.
    """

    previous: ResourceSet = EMPTY
    generation: int = NO_GENERATION


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """Write user data of StickyAssignor, version 1.

    Raises:
        EncodeError: a name or a number has no wire form.
    """
    previous = packed_resources(user_data.previous, "previous", index_min=0)
    return previous + packed_int32(user_data.generation, "generation")


def decode_sticky_user_data(content: bytes | None) -> StickyUserData:
    """Read user data of StickyAssignor; what is none says that nothing was held.

    As Kafka's clients do: a member that cannot be understood only loses its stickiness.

    Args:
        content: `Subscription.user_data`.
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
    """The generation in the user data of CooperativeStickyAssignor, NO_GENERATION for none.

    Args:
        content: `Subscription.user_data`.
    """
    own = without_mark(content or b"")
    if len(own) != _GENERATION_BYTES:
        return decode_sticky_user_data(own).generation
    return max(ByteReader(own).read_int32("generation"), NO_GENERATION)


def _decode(content: bytes) -> StickyUserData:
    reader = ByteReader(content)
    previous = read_resources(reader, "previous", index_min=0)
    generation = reader.read_int32("generation") if reader.left else NO_GENERATION
    return StickyUserData(previous=previous, generation=max(generation, NO_GENERATION))
