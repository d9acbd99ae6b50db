"""The group metadata that a transactional producer sends along with offsets (KIP-447).

confluent-kafka takes it as bytes that librdkafka wrote. Ours must carry the generation and member
id of our own membership, which librdkafka does not know, so they are written here in the same
form (librdkafka's rd_kafka_consumer_group_metadata_write, version 2): a magic word, the generation
as a native int32, then group id and member id, each ended by a zero byte, a byte that says whether
an instance id follows (0) or not (1), and the instance id, ended by a zero byte.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coopgroup.member import Member

__all__ = ["encode_group_metadata"]

_MAGIC: Final = b"CGMDv2:"


def encode_group_metadata(member: Member) -> bytes:
    """Write the metadata of a member as it is now."""
    instance_id = member.config.instance_id
    return b"".join(
        (
            _MAGIC,
            struct.pack("=i", member.claim_generation),
            member.config.group_id.encode(),
            b"\0",
            member.member_id.encode(),
            b"\0",
            b"\1" if instance_id is None else b"\0" + instance_id.encode() + b"\0",
        )
    )
