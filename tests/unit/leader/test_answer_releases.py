"""Groups of several releases: each member gets the version that it can read."""

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.leader import (
    NO_LAGS,
    RoundDecision,
    TopicMetadata,
    fallback_round,
    lead,
    read_members,
)
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.policies import DeferredPolicy, SimplePolicy
from coopgroup.policies.base import Policy, RoundContext
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import RoundDecided

T4 = TopicMetadata(resources=ResourceSet({"T": range(4)}))
DEFERRED = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
STICKY = StickyAssignor()


def member(
    name: str,
    owned: list[int],
    *,
    version: int = 3,
    after: bytes = b"",
    delay_ms: int | None = None,
) -> JoinedMember:
    subscription = Subscription(
        topics=("T",),
        owned=ResourceSet({"T": owned}) if owned else EMPTY,
        generation=4,
        user_data=encode_user_data(UserData(remaining_delay_ms=delay_ms)) if version > 1 else None,
    )
    content = encode_subscription(subscription, version) + after
    return JoinedMember(member_id=name, group_instance_id=None, metadata=content)


def led(
    *members: JoinedMember, policy: Policy, before: RoundDecision | None = None
) -> RoundDecision:
    context = RoundContext(
        leader_id="a",
        generation=4 + (before is not None),
        now_ms=0,
        state=None if before is None else before.state,
    )
    return lead(read_members(members), T4, NO_LAGS, assignor=STICKY, policy=policy, context=context)


def told(round_: RoundDecision) -> dict[str, Assignment]:
    return {member_id: decode_assignment(content) for member_id, content in round_.assignments}


@pytest.mark.parametrize("version", [0, 1])
def test_member_of_design_i_is_answered_in_version_1(version: int) -> None:
    """Version 1 has assigned and revoked. The other members get the newest version."""
    answers = told(
        led(member("a", [0, 1, 2, 3]), member("b", [], version=version), policy=DEFERRED)
    )
    assert {name: one.version for name, one in answers.items()} == {"a": 2, "b": 1}
    assert answers["b"].revoked == EMPTY


def test_loss_waits_for_nobody_while_a_member_cannot_be_told_to_wait() -> None:
    first = led(member("a", [0, 1]), member("b", [2, 3], version=1), policy=DEFERRED)
    alone = led(member("b", [2, 3], version=1), policy=DEFERRED, before=first)
    assert told(alone)["b"] == Assignment(assigned=T4.resources, version=1)
    (record,) = (one for one in alone.records if isinstance(one, RoundDecided))
    assert record.policy == SimplePolicy.name


def test_delay_that_a_refused_round_lets_run_on_is_kept_from_who_cannot_read_it() -> None:
    """The others rejoin at its end, and that is a round for all."""
    request = read_members([member("a", [0, 1], delay_ms=500), member("b", [2, 3], version=1)])
    refused = fallback_round(
        request,
        None,
        assignor=STICKY,
        policy=DEFERRED,
        context=RoundContext(leader_id="a", generation=4, now_ms=0, state=None),
        reason="no metadata",
    )
    answers = told(refused)
    assert {name: one.scheduled_rebalance_timeout_ms for name, one in answers.items()} == {
        "a": 500,
        "b": 0,
    }


def test_old_readers_are_those_of_design_i() -> None:
    members = [member(f"v{version}", [], version=version) for version in range(4)]
    assert read_members(members).old_readers == {"v0", "v1"}
    subscription = Subscription(topics=("T",), user_data=encode_user_data(UserData()))
    content = encode_subscription(subscription, 1)
    newer = JoinedMember(member_id="n", group_instance_id=None, metadata=content)
    assert read_members([*members[2:], newer]).old_readers == frozenset()
