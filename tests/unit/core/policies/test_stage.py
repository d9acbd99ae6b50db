"""Rounds of policies that wait: lessons from Kafka Connect, edge cases and its bugs.

The first part has one test for each edge case that a deferred policy must handle. The second part
has one for each of Connect's bugs in this area. All tests run the leader's decision.
"""

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy
from tests.support.groups import in_words
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import T1, Drill, four, steady

NOTHING: dict[str, list[int]] = {}


# --- the edge cases -----------------------------------------------------------------------------


def test_case_01_sync_of_a_member_when_missed_is_no_departure() -> None:
    """KAFKA-9848: its pending grants stay its own, and no resource waits."""
    drill = four()
    drill.leave("D").round(0)
    drill.round(T1, missed=["A"])
    assert drill.owned() == {"A": [1], "B": [2], "C": [3]}
    told = drill.round(T1 + 10)
    assert (told["A"], drill.timeout_ms) == ((_t(1, 4), None), 0)


def test_case_02_revocation_when_not_applied_is_told_again() -> None:
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.join("D").round(0, missed=["A"])
    drill.completed = drill.generation
    assert in_words(drill.round(10)) == "A(T1,revoked:T4) B(T2) C(T3) D()"
    drill.round(20)
    assert drill.owned() == {"A": [1], "B": [2], "C": [3], "D": [4]}


def test_case_03_zombie_when_it_returns_with_old_claims_stops_them_first() -> None:
    """The claim of the newer generation counts. The stale one stops before D is granted any."""
    drill = four()
    zombie = drill.actors["D"]
    drill.leave("D").round(0)
    drill.round(T1)
    drill.actors["D"] = zombie
    told = drill.round(2 * T1)
    assert (told["A"], told["D"]) == ((_t(1), _t(4)), (NOTHING, _t(4)))
    drill.round(2 * T1 + 1)
    assert drill.owned() == {"A": [1], "B": [2], "C": [3], "D": [4]}


def test_case_04_leader_when_it_changes_in_the_window_keeps_the_delay() -> None:
    """Connect's new leader took everything for created and gave it away in the first round."""
    drill = four()
    drill.leave("D").round(0)
    for now, leader in ((10_000, "B"), (20_000, "C"), (30_000, "A"), (40_000, "C")):
        assert steady(drill.round(now, leader=leader))
        assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), T1 - now)
    drill.round(T1, leader="B")
    assert drill.owned() == {"A": [1, 4], "B": [2], "C": [3]}


def test_case_05_losses_when_they_overlap_have_their_own_deadlines() -> None:
    """Connect: members lost at 0 and at 299 s; the second got only 1 s of grace."""
    drill = four(scheduled_rebalance_timeout_ms=300_000)
    drill.leave("D").round(0)
    drill.leave("C").round(299_000)
    assert drill.timeout_ms == 1_000
    drill.round(300_000)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(3), 299_000)
    drill.round(599_000)
    assert drill.owned() == {"A": [1, 4], "B": [2, 3]}


def test_case_07_resources_when_created_or_deleted_in_the_window_are_dealt_with_at_once() -> None:
    """Created resources are granted. A deleted one is no longer waited for, and the delay ends."""
    drill = four()
    drill.leave("D").round(0)
    drill.existing = {"T": range(1, 7)}
    drill.round(10)
    assert (drill.owned()["A"], drill.listed("created")) == ([1, 5], _t(5, 6))
    drill.existing = {"T": [1, 2, 3, 5, 6]}
    drill.round(20)
    assert (drill.listed("lost"), drill.timeout_ms) == (NOTHING, 0)
    assert drill.memory.losses == ()


def test_case_08_delay_when_0_is_none_at_all() -> None:
    """KAFKA-15693: everything is assigned in the round that misses the member."""
    drill = four(scheduled_rebalance_timeout_ms=0)
    drill.leave("D")
    assert (steady(drill.round(0)), drill.timeout_ms) == (True, 0)
    assert drill.owned() == {"A": [1, 4], "B": [2], "C": [3]}


def test_case_15_coordinator_when_it_forgot_all_members_costs_no_delay() -> None:
    """All members are fenced and come back with new ids and no claims. Each gets a place."""
    drill = four()
    drill.leave(*"ABCD")
    for member in "WXYZ":
        drill.join(member)
    assert steady(drill.round(5, leader="X"))
    assert sorted(map(len, drill.owned().values())) == [1, 1, 1, 1]


# --- the bugs of Connect ------------------------------------------------------------------------


def test_kafka_8463_leader_when_it_leaves_moves_nothing_that_is_owned() -> None:
    """Redundant reassignment: active resources were counted together with lost ones."""
    drill = four()
    drill.leave("A")
    assert steady(drill.round(0))
    assert drill.owned() == {"B": [2], "C": [3], "D": [4]}


def test_kafka_9184_delay_when_nothing_is_lost_any_more_is_over() -> None:
    """Connect kept rebalancing periodically."""
    drill = four()
    gone = drill.actors["D"]
    drill.leave("D").round(0)
    drill.actors["D"] = gone
    drill.round(10)
    assert (drill.timeout_ms, drill.round(20) and drill.timeout_ms) == (0, 0)
    assert drill.memory.next_round_ms is None


def test_kafka_9841_resource_when_claimed_twice_is_stopped_by_both_and_granted_once() -> None:
    """Equal claims cancel each other. Afterwards the resource is free, and not lost."""
    drill = four()
    drill.actors["B"].owned = ResourceSet(_t(2, 4))
    told = drill.round(0)
    assert (told["B"][1], told["D"][1]) == (_t(4), _t(4))
    drill.round(10)
    assert (drill.timeout_ms, drill.owned()) == (0, {"A": [1], "B": [2], "C": [3], "D": [4]})


def test_kafka_10413_members_when_several_return_share_what_was_lost() -> None:
    """Connect gave everything to one candidate, or rounded shares up."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(12)})
    drill.settle(A=range(4), B=range(4, 8), C=range(8, 12))
    drill.leave("B", "C").round(0)
    drill.join("D")
    drill.join("E")
    assert steady(drill.round(10))
    assert set(map(len, drill.owned().values())) == {4}


def test_kafka_12309_shares_when_a_member_joins_are_even() -> None:
    """Connect: 8/8/0 became 6/6/4."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(16)})
    drill.settle(A=range(8), B=range(8, 16))
    drill.join("C").round(0)
    drill.round(10)
    assert sorted(map(len, drill.owned().values())) == [5, 5, 6]


def test_kafka_12495_members_when_they_join_right_after_one_another_are_all_served() -> None:
    """Connect allowed only one revoking round in a row."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(12)})
    drill.settle(A=range(12))
    drill.join("B").round(0)
    drill.join("C").round(10)
    drill.join("D").round(20)
    drill.round(30)
    assert set(map(len, drill.owned().values())) == {3}


def test_kafka_17049_moves_when_rationed_do_not_take_all_of_one_connector() -> None:
    """Connect revoked from the head of the list: all tasks of one connector."""
    drill = Drill(
        policy=IncrementalPolicy(max_moves_per_round=4),
        existing={"heavy": range(6), "light": range(6)},
    )
    drill.join("A", {"heavy": range(6), "light": range(6)}, topics=["heavy", "light"]).round(0)
    drill.join("B", topics=["heavy", "light"])
    for now in range(1, 5):
        drill.round(now)
    assert {len(owned) for owned in (*drill.owned("heavy").values(),)} == {3}
    assert {len(owned) for owned in (*drill.owned("light").values(),)} == {3}


def test_joiner_when_it_leaves_before_it_got_anything_costs_no_delay() -> None:
    """Connect: nothing is lost, yet the full delay was sent and balancing was blocked."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(12)})
    drill.settle(w1=range(12))
    drill.join("w2").round(0)
    drill.leave("w2").round(10)
    assert (drill.timeout_ms, drill.owned()) == (0, {"w1": list(range(12))})


def test_joiner_when_the_bounced_one_is_back_does_not_keep_what_was_not_its_own() -> None:
    """Connect: a new empty worker took all lost work until one more round."""
    drill = four()
    for member in "ABCD":
        drill.actors[member].instance_id = f"pod-{member}"
    drill.round(0)
    drill.leave("D").round(0)
    drill.join("E", instance_id="pod-E").round(10)
    drill.join("D2", instance_id="pod-D")
    assert steady(drill.round(1_000))
    assert drill.owned() == {"A": [1], "B": [2], "C": [3], "D2": [4], "E": []}


def test_member_when_it_bounces_is_not_idle_until_the_delay_ends() -> None:
    """strimzi#11475: the replacement idled until the delay was over."""
    drill = four()
    drill.leave("D").round(0)
    drill.join("E")
    assert drill.round(1_000)["E"] == (_t(4), None)


@pytest.mark.parametrize("policy", [SimplePolicy(), DeferredPolicy(), IncrementalPolicy()])
def test_slow_stop_when_it_is_all_that_is_left_brings_nobody_back(
    policy: SimplePolicy | DeferredPolicy | IncrementalPolicy,
) -> None:
    """Members would rejoin in a tight loop without any effect."""
    drill = Drill(policy=policy)
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.join("D").round(0)
    drill.actors["A"].slow = ResourceSet(_t(4))
    drill.actors["A"].owned |= drill.actors["A"].slow
    for now in (10, 20, 30):
        assert in_words(drill.round(now)) == "A(T1,revoked:T4) B(T2) C(T3) D()"
    drill.finish_stops("A")
    assert drill.round(40)["D"] == (_t(4), None)
