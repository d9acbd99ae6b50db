"""The seam of three functions: the settings choose the machine of a group protocol."""

import attrs
import pytest

from coopgroup.core.member import GroupProtocol, MemberConfig, machines
from coopgroup.core.member.consumer.transitions import MOVES
from coopgroup.core.member.events import SubscriptionChanged
from coopgroup.core.member.transitions import TRANSITIONS, Moves
from coopgroup.core.model import group_api
from tests.support import consumer_members, members

CONFIGS = {
    GroupProtocol.CLASSIC: members.CONFIG,
    GroupProtocol.CONSUMER: consumer_members.CONFIG,
}
MOVES_OF: dict[GroupProtocol, Moves] = {
    GroupProtocol.CLASSIC: TRANSITIONS,
    GroupProtocol.CONSUMER: MOVES,
}
JOINS = {
    GroupProtocol.CLASSIC: group_api.JoinGroupRequest,
    GroupProtocol.CONSUMER: group_api.ConsumerBeatRequest,
}


@pytest.mark.parametrize("protocol", GroupProtocol)
def test_protocol_of_the_settings_chooses_the_machine(protocol: GroupProtocol) -> None:
    member = machines.new_member(CONFIGS[protocol])
    assert member.moves is MOVES_OF[protocol]
    member, _ = machines.step(member, SubscriptionChanged(topics=("T",)), now_ms=1)
    driven = members.DrivenMember(member=member, now_ms=1).find()
    assert driven.sent() == [JOINS[protocol].__name__]
    assert machines.next_deadline_ms(driven.member) == machines.next_deadline_ms(
        attrs.evolve(driven.member)
    )


def test_classic_is_the_default() -> None:
    assert MemberConfig(group_id="g").protocol is GroupProtocol.CLASSIC
