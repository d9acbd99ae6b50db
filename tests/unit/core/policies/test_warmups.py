"""Warm-ups, rule by rule, on small groups that are played through the leader's bytes."""

from typing import Any

import pytest

from coopgroup.assignors import RangeAssignor, StickyAssignor
from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.memory import PairKind
from coopgroup.core.policies.policy import Policy
from coopgroup.errors import ConfigurationError
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    SimplePolicy,
    Warmup,
    state_from_json,
    state_to_json,
)
from tests.support.memory import resources_in
from tests.support.warm_group import WarmGroup, partitions

DELAY_MS = 60_000


def simple(**options: Any) -> SimplePolicy:  # noqa: ANN401 - options of Warmup
    return SimplePolicy(warmup=Warmup(**options))


def deferred(**options: Any) -> DeferredPolicy:  # noqa: ANN401
    return DeferredPolicy(warmup=Warmup(**options), scheduled_rebalance_timeout_ms=DELAY_MS)


def group_of(policy: Policy, count: int, *members: str) -> WarmGroup:
    """Return a settled group in which the members share the partitions evenly."""
    group = WarmGroup(existing=partitions(*range(count)), policy=policy)
    for number, member in enumerate(members):
        group.add(member, *range(number, count, len(members)))
    group.round()
    return group


# --- moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [simple(), deferred(), IncrementalPolicy(warmup=Warmup())])
def test_move_to_a_cold_member_waits_for_its_warm_up(policy: Policy) -> None:
    group = group_of(policy, 4, "a")
    group.add("b")
    plan = group.round().plan
    assert group.owned() == {"a": [0, 1, 2, 3], "b": []}
    assert group.warmups() == {"b": [1, 3]}
    assert (plan.follow_up, plan.waiting.tolist()) == (False, [False, True, False, True])
    group.warms_up("b", 1)
    group.settle()
    assert group.owned() == {"a": [0, 2, 3], "b": [1]}
    assert group.warmups() == {"b": [3]}
    group.warms_up("b")
    group.round(after_ms=1_000)
    group.settle()
    assert group.owned() == {"a": [0, 2], "b": [1, 3]}
    assert group.warmups() == {}


def test_receiver_stays_warm_while_the_owner_stops() -> None:
    """The warm-up of the round between revocation and grant must not be cancelled."""
    group = group_of(simple(), 2, "a")
    group.add("b")
    group.round()
    group.warms_up("b")
    decision = group.round()
    assert decision.plan.follow_up
    assert (group.owned(), group.warmups()) == ({"a": [0], "b": []}, {"b": [1]})


def test_warm_member_gets_its_resources_before_others() -> None:
    """A sticky assignor would give partitions 1 and 3; the member found 0 and 2 on its disk."""
    group = group_of(simple(), 4, "a")
    group.add("b", warm=[0, 2])
    group.settle()
    assert group.owned() == {"a": [1, 3], "b": [0, 2]}


def test_range_assignor_keeps_its_own_choice() -> None:
    """It does not look at owners, so another choice would move back in the next round."""
    group = group_of(simple(), 4, "a")
    group.assignor = RangeAssignor()
    group.add("b", warm=[0, 1])
    group.settle()
    assert group.owned() == {"a": [0, 1, 2, 3], "b": []}
    assert group.warmups() == {"b": [2, 3]}


# --- limits and time-outs -----------------------------------------------------------------------


def test_time_out_when_the_option_says_move_moves_cold() -> None:
    group = group_of(simple(timeout_ms=1_000), 2, "a")
    group.add("b")
    assert group.round().state.next_round_ms == group.now_ms + 1_000
    group.round(after_ms=999)
    assert group.owned() == {"a": [0, 1], "b": []}
    group.settle()
    assert group.owned() == {"a": [0], "b": [1]}


# --- losses and returns -------------------------------------------------------------------------


@pytest.mark.parametrize(("joins_in", "owned"), [(-1, []), (2, [1])])
def test_cancelled_warm_up_in_an_old_join_takes_no_loss(joins_in: int, owned: list[int]) -> None:
    """The coordinator answers for a static member whose join was lost with an earlier one.

    In that join the member was warm. It has cooled since, and may be away.
    """
    group = group_of(deferred(), 2, "a", "b")
    static = group.add("s", instance_id="static")
    group.round()
    assert (group.warmups(), static.generation) == ({}, 2)
    del group.members["b"]
    static.warm, static.generation = partitions(1), joins_in
    group.round()
    assert group.owned()["s"] == owned


def test_running_warm_up_in_an_old_join_takes_a_loss() -> None:
    group = group_of(deferred(standbys=2), 2, "a", "b")
    group.add("s", instance_id="static")
    group.round()
    assert group.warmups()["s"] == [0, 1]
    del group.members["b"]
    group.members["s"].warm, group.members["s"].generation = partitions(1), -1
    group.round()
    assert group.owned()["s"] == [1]


@pytest.mark.parametrize("policy", [simple(standbys=1), deferred(standbys=1)])
def test_lost_resource_goes_at_once_to_its_standby(policy: Policy) -> None:
    group = group_of(policy, 4, "a", "b")
    group.round()
    assert group.warmups() == {"a": [1, 3], "b": [0, 2]}
    for member in "ab":
        group.warms_up(member)
    group.round()
    del group.members["b"]
    group.round()
    assert group.owned() == {"a": [0, 1, 2, 3]}


def test_lost_resources_wait_only_as_far_as_no_member_is_warm() -> None:
    group = group_of(deferred(), 6, "a", "b", "c")
    group.members["b"].warm = partitions(2)
    del group.members["c"]
    decision = group.round()
    assert group.owned() == {"a": [0, 3], "b": [1, 2, 4]}
    assert decision.plan.rejoin_in_ms == DELAY_MS
    group.round(after_ms=DELAY_MS)
    group.settle()
    assert group.owned() == {"a": [0, 3, 5], "b": [1, 2, 4]}


def test_lost_resource_goes_to_the_warm_member_with_the_smallest_share() -> None:
    group = WarmGroup(existing=partitions(*range(7)), policy=simple())
    group.add("a", 0, 1, 2, warm=[6])
    group.add("b", 3, 4, warm=[6])
    group.add("c", 5, warm=None)
    decision = group.round()
    assert group.owned() == {"a": [0, 1, 2], "b": [3, 4, 6], "c": [5]}
    assert decision.state.next_round_ms == group.now_ms + 1, "a round follows that levels"


# --- standbys -----------------------------------------------------------------------------------


def test_previous_owner_becomes_a_standby() -> None:
    """It has the state, so no other member has to restore it."""
    group = group_of(simple(standbys=1), 2, "a")
    group.add("b", warm=[1])
    group.add("c", warm=None, topics=("other",))
    decision = group.round()
    assert decision.plan.follow_up
    assert group.warmups() == {"a": [1], "b": [0, 1]}
    group.settle()
    assert group.owned() == {"a": [0], "b": [1], "c": []}
    assert group.warmups() == {"a": [1], "b": [0]}


# --- memory -------------------------------------------------------------------------------------


def test_refused_round_keeps_the_warm_ups() -> None:
    group = group_of(simple(), 4, "a")
    group.add("b")
    group.round()
    before = group.warmups()

    class Broken:
        name = "broken"
        needs_lags = False

        def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
            raise RuntimeError

    group.assignor = Broken()
    decision = group.decide()
    assert decision.refused
    group.obey(decision)
    assert group.warmups() == before != {}
    group.assignor = StickyAssignor()
    group.round()
    assert group.warmups() == before


def test_state_with_warm_ups_survives_json() -> None:
    group = group_of(simple(), 5, "a")
    group.add("b")
    group.round()
    group.declines("b", *group.warmups()["b"][:1])
    state = group.round().state
    row = state_to_json(state)
    assert resources_in(state, PairKind.WARMING)
    assert resources_in(state, PairKind.REFUSED)
    assert state_from_json(row) == state
    with pytest.raises(ConfigurationError, match=r"^state\.pairs\.since_ms: "):
        state_from_json(row | {"pairs": row["pairs"] | {"since_ms": []}})


# --- without the option -------------------------------------------------------------------------


def test_policy_of_a_user_gets_warm_ups_from_its_attribute() -> None:
    class Mine:
        name = "mine"
        warmup = Warmup()
        offer = staticmethod(SimplePolicy().offer)
        stage = staticmethod(SimplePolicy().stage)

    group = WarmGroup(policy=Mine())
    group.add("a", 0, 1, 2, 3)
    group.add("b")
    group.round()
    assert (group.owned()["b"], group.warmups()) == ([], {"b": [1, 3]})
