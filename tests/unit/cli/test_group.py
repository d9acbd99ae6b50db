"""`coopgroup group migrate --check`: each state of a group, and the advice for it."""

import pytest

from coopgroup.cli.group_migration import Judgement, judge, judge_consumer_group
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import Subscription, encode_subscription, with_signature
from coopgroup.watch.values import GroupView, MemberView

OURS = with_signature(b"")


def member(
    name: str, user_data: bytes | None = None, *, version: int = 3, metadata: bytes | None = None
) -> DescribedMember:
    subscription = Subscription(topics=("T",), user_data=user_data)
    return DescribedMember(
        member_id=name,
        client_id=f"{name}-client",
        client_host="/10.0.0.1",
        metadata=encode_subscription(subscription, version) if metadata is None else metadata,
    )


def judged(
    protocol: str,
    *members: DescribedMember,
    state: str = "Stable",
    protocol_type: str = "consumer",
    is_back: bool = False,
) -> Judgement:
    group = DescribedGroup(
        error_code=0,
        state=state,
        protocol_type=protocol_type,
        protocol_name=protocol,
        members=members,
    )
    return judge("billing", group, is_back=is_back)


def test_group_of_others_is_to_be_restarted_one_after_the_other() -> None:
    said = judged("cooperative-sticky", member("a"), member("b", version=1))
    assert said == Judgement(
        facts=(
            "group billing: Stable, protocol cooperative-sticky, 2 members",
            "other clients: 2 members (subscriptions: v1 1, v3 1)",
            "  a-client at /10.0.0.1",
            "  b-client at /10.0.0.1",
        ),
        advice=(
            "next: restart the 2 other clients, one after the other, as coopgroup with",
            "    coopgroup.protocols=coopgroup,cooperative-sticky",
            "  When no other client is left, the group speaks coopgroup by itself.",
        ),
        is_blocked=False,
    )


def test_group_that_the_broker_assigns_moves_in_one_bounce() -> None:
    members = tuple(MemberView(member_id=f"m{n}", client_id=f"c{n}", host="h") for n in range(12))
    group = GroupView(
        group="billing",
        at_ms=0,
        state="stable",
        kind="consumer",
        assignor="uniform",
        coordinator="broker:9092",
        members=members,
        partitions=(),
    )
    said = judge_consumer_group(group)
    assert not said.is_blocked
    assert said.facts[:2] == (
        "group billing: stable, the broker assigns, 12 members",
        "  c0 at h",
    )
    assert said.facts[-1] == "  and 2 more"
    assert said.advice[0].startswith("next: restart each member with group.protocol=consumer")
    assert max(map(len, said.advice)) <= 80


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (judged("", state="Dead", protocol_type=""), "there is no such group"),
        (judged("default", member("a"), protocol_type="connect"), "of type connect"),
        (judged("range", member("a"), state="PreparingRebalance"), "a rebalance is in progress"),
        (judged("streams", member("a")), "does not know the protocol streams"),
        (judged("range", member("a", metadata=b"\0")), "1 member that cannot be read"),
    ],
)
def test_what_stands_in_the_way_is_said(said: Judgement, why: str) -> None:
    assert said.is_blocked
    assert said.advice[0].startswith("in the way: ")
    assert why in said.advice[0]


@pytest.mark.parametrize(
    "protocol", ["range", "roundrobin", "cooperative-sticky", "coopgroup", "x"]
)
@pytest.mark.parametrize("ours", [0, 1, 2])
@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("state", ["Stable", "Dead", "PreparingRebalance"])
@pytest.mark.parametrize("is_back", [False, True])
def test_advice_fits_a_terminal_of_80_columns(
    protocol: str, ours: int, version: int, state: str, is_back: bool
) -> None:
    members = [member(str(one), OURS if one < ours else None, version=version) for one in range(2)]
    said = judged(protocol, *members, state=state, is_back=is_back)
    assert said.advice
    assert max(map(len, said.advice)) <= 80


def test_long_list_of_other_clients_is_cut() -> None:
    said = judged("range", *(member(f"m{number:02}") for number in range(12)))
    assert (said.facts[-1], len(said.facts)) == ("  and 2 more", 13)


@pytest.mark.parametrize(
    ("protocol", "ours", "begin"),
    [
        ("coopgroup", 2, "next: restart all members, one after the other, as the previous client"),
        ("range", 2, "next: restart 2 members of coopgroup as the previous client"),
        ("cooperative-sticky", 1, "next: restart 1 member of coopgroup as the previous client"),
        ("range", 0, "done: no member is coopgroup"),
        ("", 0, "next: start the previous clients"),
    ],
)
def test_way_back_is_done_when_no_member_is_coopgroup(protocol: str, ours: int, begin: str) -> None:
    """Halfway back to an eager protocol, all members are coopgroup, as at the end of the way."""
    members = [member(str(one), OURS if one < ours else None) for one in range(2)]
    said = judged(protocol, *(members if protocol else ()), is_back=True)
    assert said.advice[0].startswith(begin)
    assert not said.is_blocked
