"""Ask a coordinator to describe a group that it assigns itself (KIP-848).

Such a group has at least one member of KIP-848, or had one last. Its other members may speak the
classic protocol. DescribeGroups answers that the group is dead.
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.rpc.questions import WireMessage

_CLASSIC: Final = 0


@frozen(kw_only=True)
class ConsumerMember:
    """A member as the coordinator knows it.

    Attributes:
        group_instance_id: static id, "" for a dynamic member.
        epoch: the member's epoch; -2 for a static member that is expected back.
        is_classic: whether it speaks the classic protocol. Brokers before 4.0 do not tell: False.
        owned: its partitions, as far as no other member has to release them.
        target: the partitions that it shall own.
    """

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str = ""
    epoch: int = -1
    is_classic: bool = False
    owned: ResourceSet = EMPTY
    target: ResourceSet = EMPTY


@frozen(kw_only=True)
class ConsumerGroup:
    """A group as its coordinator knows it.

    Attributes:
        error_code: GROUP_ID_NOT_FOUND for a missing group and for a classic one, and
            UNSUPPORTED_VERSION if the brokers do not speak KIP-848.
        state: "Empty", "Assigning", "Reconciling" or "Stable"; "" with an error.
        assignor: name of the coordinator's assignor.
        members: by member id.
    """

    error_code: int
    state: str = ""
    assignor: str = ""
    members: tuple[ConsumerMember, ...] = ()


@frozen(kw_only=True)
class DescribeConsumerGroup:
    """Ask the coordinator of a group (ConsumerGroupDescribe)."""

    group_id: str

    asks_any_broker: ClassVar[bool] = False

    def message(self) -> WireMessage:
        """Return kafka-python's message."""
        from coopgroup.kafka.rpc.schemas import (  # noqa: PLC0415 - CPU time
            ConsumerGroupDescribeRequest,
        )

        request: WireMessage = ConsumerGroupDescribeRequest
        return request(group_ids=[self.group_id], include_authorized_operations=False)

    def read(self, response: WireMessage) -> ConsumerGroup:
        """Return the answer."""
        (group,) = response.groups
        if group.error_code:
            return ConsumerGroup(error_code=group.error_code)
        members = (
            ConsumerMember(
                member_id=one.member_id,
                client_id=one.client_id,
                client_host=one.client_host,
                group_instance_id=one.instance_id or "",
                epoch=one.member_epoch,
                is_classic=one.member_type == _CLASSIC,
                owned=_partitions(one.assignment),
                target=_partitions(one.target_assignment),
            )
            for one in group.members
        )
        return ConsumerGroup(
            error_code=0,
            state=group.group_state,
            assignor=group.assignor_name,
            members=tuple(sorted(members, key=lambda one: one.member_id)),
        )


def _partitions(assignment: WireMessage) -> ResourceSet:
    return ResourceSet({one.topic_name: one.partitions for one in assignment.topic_partitions})
