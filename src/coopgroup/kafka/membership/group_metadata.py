"""The group metadata that a transactional producer sends along with offsets (KIP-447).

confluent-kafka takes the metadata as bytes that librdkafka wrote. librdkafka does not know the
generation and member id of our membership, so this file writes the bytes in the same format
(librdkafka's rd_kafka_consumer_group_metadata_write, version 2):

- a magic word;
- the generation as a native int32;
- group id and member id, each ended by a zero byte;
- a byte: 0 if an instance id follows, 1 if not;
- the instance id, ended by a zero byte.

A group coordinator does not check offsets without a generation and a member id. So the fence of the
last membership stays after a loss: the offsets of a zombie are refused.
"""

from __future__ import annotations

import struct
from typing import Final

from attrs import frozen

from coopgroup.core.member import Member, MemberConfig
from coopgroup.core.model.group import NO_GENERATION

_MAGIC: Final = b"CGMDv2:"


@frozen
class Fence:
    """The identity that a coordinator checks before it accepts transactional offsets."""

    member_id: str = ""
    generation: int = NO_GENERATION

    def after(self, member: Member) -> Fence:
        """Return the fence after a step of the member.

        The generation is that of the last join, not of the last sync. Between the two, the
        coordinator refuses the old generation and accepts transactional offsets of the new one.
        Other offsets have to wait for the sync.
        """
        if member.generation == NO_GENERATION or (
            member.generation == self.generation and member.member_id == self.member_id
        ):
            return self
        return Fence(member.member_id, member.generation)


def encode_group_metadata(config: MemberConfig, fence: Fence) -> bytes:
    """Return the metadata of a member as bytes."""
    instance_id = config.instance_id
    return b"".join(
        (
            _MAGIC,
            struct.pack("=i", fence.generation),
            config.group_id.encode(),
            b"\0",
            fence.member_id.encode(),
            b"\0",
            b"\1" if instance_id is None else b"\0" + instance_id.encode() + b"\0",
        )
    )
