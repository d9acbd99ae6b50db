"""Who runs what in a group of named resources, from what its coordinator tells."""

from __future__ import annotations

from contextlib import closing

import pytest

from coopgroup import CooperativeGroup, Leadership, Resource
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.groups import group as group_module
from coopgroup.groups.peers import Peer, peer_of
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    encode_assignment,
    encode_subscription,
    encode_user_data,
)

CHOICES = MemberChoices(policy="simple", assignor="weighted")
SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def described(
    name: str, *resources: tuple[str, int], traits: dict[str, object] | None = None
) -> DescribedMember:
    user_data = encode_user_data(UserData(traits=traits or {}, choices=CHOICES))
    joined = Subscription(topics=("*",), user_data=user_data, generation=4)
    given = Assignment(assigned=ResourceSet.from_pairs(resources))
    return DescribedMember(
        member_id=f"{name}-1",
        client_id=name,
        client_host="/10.0.0.1",
        metadata=encode_subscription(joined),
        assignment=encode_assignment(given, index_min=-1),
    )


def test_member_tells_its_resources_and_traits() -> None:
    assert peer_of(described("w1", ("sink", 0), ("sink", -1), traits={"places": 4})) == (
        Peer(
            member_id="w1-1",
            client_id="w1",
            host="10.0.0.1",
            traits={"places": 4},
            choices=CHOICES,
            resources=(Resource("sink", -1), Resource("sink", 0)),
            generation=4,
        )
    )


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\1garbage"])
def test_member_that_cannot_be_read_is_listed(content: bytes) -> None:
    member = DescribedMember(
        member_id="m",
        client_id="c",
        client_host="h",
        metadata=content,
        assignment=content,
        group_instance_id="static",
    )
    assert peer_of(member) == Peer(member_id="m", client_id="c", host="h", instance_id="static")


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[DescribedMember]:
    """Let the coordinator describe these members of the group."""
    found = list[DescribedMember]()

    def describe(_: ConnectionSettings, group_id: str, timeout_ms: int) -> DescribedGroup:
        assert (group_id, timeout_ms) == ("g", 10_000)
        return DescribedGroup(
            error_code=0,
            state="Stable",
            protocol_type="coopgroup",
            protocol_name="resources",
            members=tuple(found),
        )

    monkeypatch.setattr(group_module, "describe_group", describe)
    return found


def test_members_of_a_group_are_told_by_its_coordinator(members: list[DescribedMember]) -> None:
    members += [described("w2", ("x", 0)), described("w1")]
    group = CooperativeGroup(SETTINGS, catalogue=[("x", 0)], start=print, stop=print)
    with closing(group):
        told = [(one.client_id, one.resources) for one in group.members()]
    assert told == [("w1", ()), ("w2", (Resource("x", 0),))]


def test_leader_is_the_process_that_has_the_leadership(members: list[DescribedMember]) -> None:
    with closing(Leadership(SETTINGS)) as leadership:
        before = leadership.leader
        assert before is None
        members += [described("w1"), described("w2", ("leader", 0))]
        leader = leadership.leader
    assert leader is not None
    assert leader.client_id == "w2"
