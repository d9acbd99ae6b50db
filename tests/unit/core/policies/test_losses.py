"""Losses: their owners, who is taken for a returning owner, and which deadline counts.

All cases are played under the deferred policy, so that the leader's memory is tested too.
"""

from uuid import UUID

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.losses import find_cases
from coopgroup.core.policies.policy import RoundContext
from coopgroup.policies import DeferredPolicy, IncrementalPolicy
from tests.support.groups import claim, group_of
from tests.support.groups import indices_of_t as _t
from tests.support.policy_drill import T1, Drill, four, steady


def test_returning_members_when_several_left_take_one_place_each() -> None:
    drill = four()
    drill.leave("D").round(0)
    drill.leave("C", "B").round(10)
    drill.join("x")
    told = drill.join("w").round(20)
    assert told == {"A": (_t(1), None), "w": (_t(4), None), "x": (_t(2), None)}
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(3), T1 - 10)


def test_deadline_when_a_returned_member_leaves_again_is_the_old_one() -> None:
    """A loss is forgotten only when it is claimed: an unproved return earns no new delay."""
    drill = four()
    drill.leave("D").round(0)
    drill.join("D'").round(20_000)
    drill.leave("D'").round(30_000)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), 30_000)
    drill.join("D''").round(50_000)
    drill.leave("D''").round(T1 + 10)
    assert drill.owned() == {"A": [1, 4], "B": [2], "C": [3]}


def test_newcomer_when_two_that_a_new_leader_took_for_owners_left_gets_the_share_of_one() -> None:
    """Regression: both shares were one loss of an unknown owner, and one newcomer got both."""
    drill = four()
    drill.leave("C", "D").join("x").join("w").round(0, leader="B")
    assert drill.owned() == {"A": [1], "B": [2], "w": [3], "x": [4]}
    drill.leave("x", "w").join("v").round(10)
    assert (len(drill.owned()["v"]), drill.timeout_ms) == (1, T1 - 10)
    drill.join("u").round(20)
    assert sorted(map(len, drill.owned().values())) == [1, 1, 1, 1]


def test_newcomer_when_two_that_the_assignor_dealt_with_left_gets_the_share_of_one() -> None:
    """Regression: two members joined a new leader that waited, and left before they claimed."""
    drill = four()
    drill.leave("A", "B", "C").round(0, leader="D")
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(1, 2, 3), T1)
    drill.join("x").join("w").round(10)
    assert sorted(map(len, drill.owned().values())) == [1, 1, 2]
    drill.leave("x", "w").join("v").round(20)
    assert len(drill.owned()["v"]) < 3
    assert drill.timeout_ms == T1 - 20
    drill.round(T1)
    assert sorted(map(len, drill.owned().values())) == [2, 2]


def test_share_of_a_member_that_left_is_not_the_share_of_the_owner_that_is_back() -> None:
    """Regression: the owner came with a newcomer, which left again; the owner got both shares."""
    drill = Drill(policy=DeferredPolicy(scheduled_rebalance_timeout_ms=T1))
    drill.join("L", topics=["U"]).join("p", instance_id="p").round(0)
    drill.join("p'", instance_id="p").join("x").join("y").round(10)
    assert sorted(map(len, drill.owned().values())) == [0, 1, 1, 2]
    share = drill.owned()["x"]
    drill.leave("x").round(20)
    assert (drill.listed("lost"), drill.timeout_ms) == ({"T": share}, T1 - 10)
    drill.round(10 + T1)
    assert sorted(map(len, drill.owned().values())) == [0, 2, 2]


def test_share_of_a_member_that_became_unreadable_is_not_the_share_of_the_owner_that_is_back() -> (
    None
):
    """Regression: the member was still there, so the owner got a part of its own loss again."""
    drill = Drill(policy=DeferredPolicy(scheduled_rebalance_timeout_ms=T1))
    drill.join("L", topics=["U"]).join("p", instance_id="p").round(0)
    drill.join("p'", instance_id="p").join("x").join("y").round(10)
    assert sorted(map(len, drill.owned().values())) == [0, 1, 1, 2]
    drill.actors["x"].readable = False
    drill.round(20)  # it may still own its share
    drill.round(30)
    assert sorted(map(len, drill.owned().values())) == [0, 0, 2, 2]


@pytest.mark.parametrize("proof", ["claimed", "kept for long"])
def test_deadline_when_a_returned_member_has_proved_itself_is_a_fresh_one(proof: str) -> None:
    """It claimed its assignment in a later round, or no round came within the delay."""
    drill = four()
    drill.leave("D").round(0)
    drill.join("D'").round(20_000)
    left_at = 20_000 + T1
    if proof == "claimed":
        drill.round(21_000)
        left_at = 22_000
    drill.leave("D'").round(left_at)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), T1)


def test_newcomer_when_an_unreadable_member_delays_its_grant_stays_the_owner() -> None:
    """Regression: the loss waited again, the next newcomer got it, and the first got no share."""
    drill = four()
    drill.leave("D").join("x").join("unheard").actors["unheard"].readable = False
    assert not steady(drill.round(0))
    assert drill.owned()["x"] == []
    told = drill.join("D'").round(10)
    assert told["x"] == (_t(4), None)
    drill.leave("unheard").leave("x").round(20)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), T1 - 20)


def test_newcomer_that_got_a_part_of_a_loss_proves_itself_while_the_rest_waits() -> None:
    """Regression: its grant was not remembered, because the rest of the loss still waited."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(2), "U": range(2)})
    for index, member in enumerate("AB"):
        drill.join(member, {"T": [index], "U": [index]}, topics=["T", "U"])
    drill.round(0)
    drill.leave("A")
    drill.join("Z", topics=["T"]).round(10, leader="B")
    assert (drill.owned(), drill.listed("lost")) == ({"B": [1], "Z": [0]}, {"U": [0]})
    drill.leave("Z").round(10 + T1, leader="B")
    assert (drill.listed("lost"), drill.timeout_ms) == ({"T": [0]}, T1)
    assert drill.owned("U") == {"B": [0, 1]}


# --- dynamic members that can be told apart -------------------------------------------------------


def _uuid(number: int) -> str:
    return str(UUID(int=number))


def test_members_when_a_batch_bounces_get_each_its_own_back() -> None:
    """Kafka names a dynamic member `<client.id>-<uuid>`: the same client id is matched first.

    The order of the new uuids would give each member the resources of another.
    """
    clients = ["pod", "pod-1", "pod-2", "web"]
    drill = Drill(policy=DeferredPolicy())
    for place, client in enumerate(clients, start=1):
        drill.join(f"{client}-{_uuid(place)}", _t(place))
    drill.join("keeper", {"U": [1]}, topics=["U"])
    drill.existing = {"T": range(1, 5), "U": [1]}
    drill.round(0, leader="keeper")
    drill.leave(*(f"{client}-{_uuid(place)}" for place, client in enumerate(clients, start=1)))
    drill.round(10)
    for client in clients[:3]:
        drill.join(f"{client}-{_uuid(99)}")
    told = drill.join(f"a-stranger-{_uuid(99)}").round(20)
    assert {member: owned for member, (owned, _) in told.items() if member != "keeper"} == {
        f"a-stranger-{_uuid(99)}": _t(4),
        f"pod-{_uuid(99)}": _t(1),
        f"pod-1-{_uuid(99)}": _t(2),
        f"pod-2-{_uuid(99)}": _t(3),
    }


@pytest.mark.parametrize(
    ("gone", "back"),
    [
        ("web-1", "web-2"),
        (_uuid(1), _uuid(2)),
        (f"web{_uuid(1)}", f"web{_uuid(2)}"),
        (f"web-{_uuid(1)[:-1]}g", f"web-{_uuid(2)[:-1]}g"),
    ],
    ids=["no uuid", "no client id", "no dash", "no hexadecimal"],
)
def test_members_when_their_ids_do_not_tell_are_taken_in_order(gone: str, back: str) -> None:
    drill = Drill(policy=DeferredPolicy())
    drill.settle(0, **{"0": [1], "1": [2], gone: [3], "zz": [4]})
    drill.leave("1", gone)
    drill.join("00")
    drill.join(back).round(10)
    first, second = sorted(["1", gone]), sorted(["00", back])
    had = {"1": [2], gone: [3]}
    assert [drill.owned()[member] for member in second] == [had[member] for member in first]


def test_additional_member_when_it_leaves_before_its_claim_leaves_its_whole_share() -> None:
    """Regression: an owner that was back got a part, and kept one more than the others."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(6)})
    drill.settle(A=range(3))
    drill.join("D", {"T": [3, 4, 5]}, instance_id="pod-D").round(0)
    drill.actors["A"].owned = ResourceSet()  # its lease has ended
    drill.leave("D").join("D2", instance_id="pod-D")
    drill.join("E").round(10, missed=["E"])
    shares = drill.owned()
    assert [len(shares[member]) for member in ("A", "D2")] == [2, 2]
    drill.leave("E").round(20)
    assert drill.owned() == {member: shares[member] for member in ("A", "D2")}
    drill.join("E2").round(30)
    assert [len(owned) for owned in drill.owned().values()] == [2, 2, 2]


@pytest.mark.parametrize("instance_id", ["pod-D", None])
def test_owner_when_others_have_a_part_of_its_released_loss_is_additional(
    instance_id: str | None,
) -> None:
    """Regression: it got the other part back, kept it as its share, and nothing moved."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(6)})
    drill.settle(A=[0, 1], B=[2, 3])
    drill.join("D", {"T": [4, 5]}, instance_id=instance_id).round(0)
    drill.leave("D").round(0)
    drill.round(T1, missed=["B"])
    drill.leave("B").join("D2", instance_id=instance_id).round(T1 + 10)
    drill.join("B2")
    for later_ms in (20, 30, 40):
        drill.round(T1 + later_ms)
    assert [len(owned) for owned in drill.owned().values()] == [2, 2, 2]


def test_newcomer_that_got_more_than_a_loss_when_it_leaves_is_replaced_by_one_member_only() -> None:
    """Regression: two members shared the place of one, and the others kept too much."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(4)})
    drill.settle(A=[0, 1], B=[2, 3])
    drill.existing = {"T": range(6)}
    drill.leave("B").join("C").round(0, missed=["C"])
    drill.leave("C").join("D").round(10)
    assert [len(owned) for owned in drill.owned().values()] == [3, 3]
    drill.join("E").round(20)
    drill.round(30)
    assert [len(owned) for owned in drill.owned().values()] == [2, 2, 2]


# --- losses found by a leader without memory: it knows only the delays that members report ------
#
# The pause between two moves is announced in the same field as the wait for a lost owner.

DELAY_MS = 60_000
PAUSE_MS = 1_000
PACED = IncrementalPolicy(
    max_moves_per_round=1, move_interval_ms=PAUSE_MS, scheduled_rebalance_timeout_ms=DELAY_MS
)


def _scale_up() -> Drill:
    """A and B have six partitions each. C has joined and was granted its first one."""
    drill = Drill(policy=PACED, existing={"T": range(12)})
    drill.settle(A=range(6), B=range(6, 12))
    drill.join("C", instance_id="pod-C")
    assert not steady(drill.round(0))
    assert steady(drill.round(10))
    assert (drill.timeout_ms, len(drill.owned()["C"])) == (PAUSE_MS - 10, 1)
    return drill


@pytest.mark.parametrize("dies_ms", [10, PAUSE_MS - 1, PAUSE_MS, PAUSE_MS + 40])
def test_leader_when_it_dies_between_paced_moves_is_waited_for_in_full(dies_ms: int) -> None:
    """Regression: the end of the pause was taken for the end of the delay."""
    drill = _scale_up()
    lost = drill.actors["A"].owned
    drill.leave("A").round(dies_ms)
    assert drill.listed("lost") == lost.to_dict()
    assert [loss.deadline_ms for loss in drill.memory.losses] == [dies_ms + DELAY_MS]
    drill.round(dies_ms + DELAY_MS - 1)
    assert drill.listed("lost") == lost.to_dict()
    drill.round(dies_ms + DELAY_MS)
    assert drill.listed("lost") == {}


def _until_announced(drill: Drill, now_ms: int, leader: str | None = None) -> int:
    """Play rounds until one announces the next round. Return the time at which that is due."""
    for later_ms in range(now_ms, now_ms + 50, 10):
        drill.round(later_ms, leader=leader)
        if drill.timeout_ms:
            return later_ms
    raise AssertionError(drill.decided)


def test_loss_when_moves_go_on_beside_it_keeps_its_deadline_through_leader_changes() -> None:
    drill = _scale_up()
    lost = drill.actors["B"].owned
    drill.actors["B"].instance_id = "pod-B"
    drill.round(20)
    drill.leave("B")
    drill.join("D", instance_id="pod-D")
    now_ms = _until_announced(drill, 30)
    now_ms = _until_announced(drill, now_ms + drill.timeout_ms)
    assert drill.owned()["D"]  # without resources it would be taken for the returning owner
    assert (drill.listed("lost"), drill.timeout_ms < DELAY_MS // 2) == (lost.to_dict(), True)
    for leader in ("C", "A", "D", "C"):
        now_ms = _until_announced(drill, now_ms + PAUSE_MS, leader)
        assert drill.listed("lost") == lost.to_dict()
        assert [loss.deadline_ms for loss in drill.memory.losses] == [30 + DELAY_MS]
    drill.round(30 + DELAY_MS, leader="A")
    assert drill.listed("lost") == {}


@pytest.mark.parametrize(
    ("known", "expected_ms"),
    [
        ([(None, None), (None, None)], DELAY_MS),
        ([(0, 0), (None, None)], 0),
        ([(400, 400), (700, 700)], 400),
        ([(0, None), (0, None)], DELAY_MS),
        ([(0, 5_000), (0, None)], 5_000),
        ([(100, 5_000), (4_000, 4_000)], 4_000),
        ([(None, 5_000), (None, None)], 5_000),
        ([(0, 0), (900, 70_000)], 0),
        ([(0, None), (0, 70_000)], DELAY_MS),
    ],
)
def test_loss_of_a_stranger_waits_for_what_members_know_of_losses(
    known: list[tuple[int | None, int | None]], expected_ms: int
) -> None:
    claims = [
        claim(f"m{at}", _t(at), rejoin_in_ms=rejoin_ms, loss_ends_in_ms=loss_ms)
        for at, (rejoin_ms, loss_ms) in enumerate(known)
    ]
    group = group_of({"T": range(5)}, *claims)
    context = RoundContext(leader_id="m0", generation=1, now_ms=1_000, state=None)
    cases = find_cases(group, context, DELAY_MS)
    assert [loss.deadline_ms for loss in cases.losses] == [1_000 + expected_ms]
