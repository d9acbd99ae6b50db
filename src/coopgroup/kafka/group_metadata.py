"""The group metadata that a transactional producer sends along with offsets (KIP-447).

confluent-kafka takes it as bytes that librdkafka wrote. Ours must carry the generation and member
id of our own membership, which librdkafka does not know, so they are written here in the same
form (librdkafka's rd_kafka_consumer_group_metadata_write, version 2): a magic word, the generation
as a native int32, then group id and member id, each ended by a zero byte, a byte that says whether
an instance id follows (0) or not (1), and the instance id, ended by a zero byte.

A group coordinator does not check offsets that come without a generation and a member id. So the
fence of the last membership stays after a loss: the offsets of a zombie are refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from attrs import frozen

from coopgroup.model.claims import NO_GENERATION

if TYPE_CHECKING:
    from coopgroup.member import Member, MemberConfig

__all__ = ["Fence", "encode_group_metadata"]

_MAGIC: Final = b"CGMDv2:"


@frozen
class Fence:
    """What a group coordinator checks before it takes offsets of a transaction.

    Attributes:
        member_id: id of the member in its last membership, "" before the first.
        generation: the last generation of that membership.
    """

    member_id: str = ""
    generation: int = NO_GENERATION

    def after(self, member: Member) -> Fence:
        """Return the fence after a step of the member.

        The generation is that of the last join, not that of the last sync: between the two the
        coordinator refuses the generation before, and takes transactional offsets of the new one
        (other offsets have to wait for the sync).
        """
        if member.generation == NO_GENERATION or (
            member.generation == self.generation and member.member_id == self.member_id
        ):
            return self
        return Fence(member.member_id, member.generation)


def encode_group_metadata(config: MemberConfig, fence: Fence) -> bytes:
    """Write the metadata of a member."""
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
