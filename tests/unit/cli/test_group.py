"""`coopgroup group migrate --check`: each state of a group, and the advice for it."""

from itertools import product

import pytest

from coopgroup.cli.group_migration import Judgement, judge, judge_consumer_group
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup, ConsumerMember
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import Subscription, encode_subscription, with_signature

OURS = with_signature(b"")
BACK = {"to_consumer": False}


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
    **ways: bool,
) -> Judgement:
    group = DescribedGroup(
        error_code=0,
        state=state,
        protocol_type=protocol_type,
        protocol_name=protocol,
        members=members,
    )
    return judge("billing", group, **ways)


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


def assigned(new: int, old: int = 0, **ways: bool) -> Judgement:
    members = tuple(
        ConsumerMember(
            member_id=f"m{one}", client_id=f"c{one}", client_host="/h", is_classic=one >= new
        )
        for one in range(new + old)
    )
    group = ConsumerGroup(error_code=0, state="Stable", assignor="uniform", members=members)
    return judge_consumer_group("billing", group, **ways)


def test_group_that_the_broker_assigns_names_the_protocol_of_each_member() -> None:
    said = assigned(12, 1)
    assert not said.is_blocked
    assert said.facts[:3] == (
        "group billing: Stable, the broker assigns, 13 members",
        "group.protocol=consumer: 12 members",
        "  c0 at /h",
    )
    assert said.facts[-3:] == (
        "  and 2 more",
        "group.protocol=classic: 1 member",
        "  c12 at /h",
    )


@pytest.mark.parametrize(
    ("new", "old", "ways", "begin"),
    [
        (0, 2, {}, "next: restart the 2 members, one after the other, as coopgroup with"),
        (1, 2, {}, "next: restart the 2 members, one after the other, with group.protocol=classic"),
        (2, 1, {}, "next: restart the member with group.protocol=classic"),
        (3, 0, {}, "done: all members have group.protocol=consumer"),
        (0, 0, {}, "next: start members of coopgroup with group.protocol=consumer"),
        (2, 1, BACK, "next: restart the 2 members, one after the other, with group.protocol=con"),
        (1, 2, BACK, "next: restart the member with group.protocol=consumer"),
        (0, 3, BACK, "in the way: the broker goes on to assign"),
        (0, 0, BACK, "next: start members of coopgroup"),
        (2, 0, {"is_back": True}, "next: restart each member of coopgroup, one after the other"),
        (0, 0, {"is_back": True}, "next: start the previous clients"),
    ],
)
def test_each_step_from_classic_to_consumer_and_back(
    new: int, old: int, ways: dict[str, bool], begin: str
) -> None:
    """A group without members of KIP-848 is classic, unless the brokers forbid the downgrade."""
    ways = ways or {"to_consumer": True}
    if not new and old and ways.get("to_consumer"):
        said = judged(
            "coopgroup", *(member(str(one), OURS) for one in range(old)), to_consumer=True
        )
    else:
        said = assigned(new, old, **ways)
    assert said.advice[0].startswith(begin)
    assert said.is_blocked is begin.startswith("in the way")
    assert max(map(len, said.advice)) <= 80


def test_brokers_without_the_second_protocol_are_in_the_way() -> None:
    said = judged("coopgroup", member("a", OURS), to_consumer=True, knows_consumer=False)
    assert said.advice[0] == "in the way: these brokers refuse group.protocol=consumer"
    assert said.is_blocked


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


def test_advice_fits_a_terminal_of_80_columns(subtests: pytest.Subtests) -> None:
    for protocol, ours, version, state, is_back in product(
        ["range", "roundrobin", "cooperative-sticky", "coopgroup", "x"],
        [0, 1, 2],
        [1, 3],
        ["Stable", "Dead", "PreparingRebalance"],
        [False, True],
    ):
        with subtests.test(
            protocol=protocol, ours=ours, version=version, state=state, is_back=is_back
        ):
            members = [
                member(str(one), OURS if one < ours else None, version=version) for one in range(2)
            ]
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
