"""Losses: their owners, who is taken for a returning owner, and which deadline counts.

All cases are played under the deferred policy, so that the leader's memory is tested too.
"""

from uuid import UUID

import pytest

from coopgroup.assignors import RangeAssignor
from coopgroup.policies import DeferredPolicy
from tests.support.policy_drill import Drill, steady

T1 = 60_000
NOTHING: dict[str, list[int]] = {}


def _t(*indices: int) -> dict[str, list[int]]:
    return {"T": list(indices)} if indices else {}


def _four() -> Drill:
    """The document's "Initial group and assignment: A(T1), B(T2), C(T3), D(T4)"."""
    drill = Drill(policy=DeferredPolicy(scheduled_rebalance_timeout_ms=T1))
    drill.settle(A=[1], B=[2], C=[3], D=[4])
    return drill


def test_returning_members_when_several_left_take_one_place_each() -> None:
    """One newcomer for each departed member, in order of deadline and member id."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.leave("C", "B")
    drill.round(10)
    drill.join("x")
    drill.join("w")
    told = drill.round(20)
    assert told == {"A": (_t(1), None), "w": (_t(4), None), "x": (_t(2), None)}
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(3), T1 - 10)


def test_newcomer_that_does_not_subscribe_to_what_was_lost_is_nobody_who_returns() -> None:
    """The subscription must match. The loss keeps waiting."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.join("E", topics=["U"])
    drill.round(10_000)
    assert (drill.owned()["E"], drill.listed("lost"), drill.timeout_ms) == ([], _t(4), T1 - 10_000)


def test_deadline_when_a_returned_member_leaves_again_is_the_old_one() -> None:
    """A loss is forgotten only when it is claimed: an unproved return earns no new delay."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.join("D'")
    drill.round(20_000)
    drill.leave("D'")
    drill.round(30_000)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), 30_000)
    drill.join("D''")
    drill.round(50_000)
    drill.leave("D''")
    drill.round(T1 + 10)
    assert drill.owned() == {"A": [1, 4], "B": [2], "C": [3]}


@pytest.mark.parametrize("proof", ["claimed", "kept for long"])
def test_deadline_when_a_returned_member_has_proved_itself_is_a_fresh_one(proof: str) -> None:
    """It claimed its assignment in a later round, or no round came within the delay."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.join("D'")
    drill.round(20_000)
    left_at = 20_000 + T1
    if proof == "claimed":
        drill.round(21_000)
        left_at = 22_000
    drill.leave("D'")
    drill.round(left_at)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(4), T1)


def test_deadline_when_somebody_got_it_after_all_and_left_is_over() -> None:
    """No owner returned in time. B got the partition and left before it claimed it."""
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1, 4], B=[2], C=[3])
    drill.leave("C")
    drill.round(0)
    drill.round(T1)
    assert drill.owned() == {"A": [1, 4], "B": [2, 3]}
    drill.leave("B")
    drill.round(T1 + 10)
    assert (drill.owned(), drill.listed("lost")) == ({"A": [1, 3, 4]}, _t(2))
    assert drill.timeout_ms == T1


def test_static_owner_when_a_stranger_joins_is_still_waited_for() -> None:
    """A new dynamic member does not take a static member's place; it gets a share of the rest."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(1, 9)})
    for place, member in enumerate("ABCD"):
        drill.join(member, {"T": [2 * place + 1, 2 * place + 2]}, instance_id=f"pod-{member}")
    drill.round(0)
    drill.leave("D")
    drill.round(0)
    drill.join("E", instance_id="pod-E")
    told = drill.round(10_000)
    assert [len(revoked["T"]) for _, revoked in told.values() if revoked] == [1]
    assert drill.timeout_ms == 0
    told = drill.round(10_010)
    assert (steady(told), drill.timeout_ms) == (True, T1 - 10_010)
    assert (drill.listed("lost"), len(drill.owned()["E"])) == (_t(7, 8), 1)
    drill.join("D2", instance_id="pod-D")
    told = drill.round(30_000)
    assert (told["D2"][0], steady(told)) == (_t(7, 8), True)


def test_static_owner_when_an_anonymous_member_joins_is_still_waited_for() -> None:
    """Only a member with that instance id can be the owner."""
    drill = _four()
    drill.actors["D"].instance_id = "pod-D"
    drill.round(0)
    drill.leave("D")
    drill.round(0)
    drill.join("E")
    drill.round(10)
    assert (drill.listed("lost"), drill.owned()["E"]) == (_t(4), [])
    drill.round(T1)
    assert drill.owned() == {"A": [1], "B": [2], "C": [3], "E": [4]}


def test_static_member_when_it_comes_back_under_a_new_member_id_keeps_its_place() -> None:
    """The coordinator gives a static member a new member id. Nothing was lost in between."""
    drill = _four()
    drill.actors["D"].instance_id = "pod-D"
    drill.round(0)
    drill.leave("D")
    drill.join("0", instance_id="pod-D")
    assert drill.round(5)["0"] == (_t(4), None)


def test_static_member_when_it_returns_before_it_heard_of_a_loss_gets_it() -> None:
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1], B=[2, 3], L=[4])
    drill.leave("L")
    drill.join("D", instance_id="pod-D")
    assert drill.round(10, leader="B", missed=["D"])["D"][0] == _t(4)
    drill.leave("D")
    drill.join("D2", instance_id="pod-D")
    assert drill.round(20)["D2"] == (_t(4), None)
    drill.join("E", instance_id="pod-E")
    drill.round(30)
    drill.round(40)
    assert drill.owned() == {"A": [1], "B": [2], "D2": [4], "E": [3]}


def test_static_member_when_it_returns_with_the_owner_of_a_released_loss_keeps_a_share() -> None:
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1, 2], B=[3], D=[4])
    drill.leave("D")
    drill.round(0)
    drill.join("E", instance_id="pod-E")
    assert drill.round(T1, missed=["E"])["E"][0] == _t(4)
    drill.leave("E")
    drill.join("E2", instance_id="pod-E")
    drill.join("D")
    for now_ms in (T1 + 10, T1 + 20, T1 + 30):
        drill.round(now_ms)
    assert list(map(len, drill.owned().values())) == [1, 1, 1, 1]


def test_anonymous_owner_when_a_static_member_joins_is_still_waited_for() -> None:
    """A member with another provable identity is not the owner, and waits for its share."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.join("E", instance_id="pod-E")
    drill.round(10)
    assert (drill.owned()["E"], drill.listed("lost")) == ([], _t(4))


def test_owner_when_it_comes_back_with_its_claims_is_waited_for_no_longer() -> None:
    """Its lease had not ended: it keeps its claims, and the delay ends."""
    drill = _four()
    gone = drill.actors["D"]
    drill.leave("D")
    drill.round(0)
    drill.actors["D"] = gone
    assert (drill.round(5_000), drill.timeout_ms) == (
        {"A": (_t(1), None), "B": (_t(2), None), "C": (_t(3), None)} | {"D": (_t(4), None)},
        0,
    )
    assert drill.state is not None
    assert drill.state.losses == ()


def test_owner_when_it_comes_back_under_its_member_id_gets_its_own() -> None:
    """A member id kept in a file proves identity as well as an instance id does."""
    drill = _four()
    drill.leave("D")
    drill.round(0)
    drill.join("C2", instance_id="pod-C2")
    drill.join("D")
    assert drill.round(5_000)["D"] == (_t(4), None)


def test_loss_when_nobody_else_subscribes_is_kept_for_its_owner_silently() -> None:
    """No delay is announced, since no other member could take it. A returning member gets it."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": [1], "U": [1]})
    drill.join("A", {"T": [1]})
    drill.join("B", {"U": [1]}, topics=["U"])
    drill.round(0)
    drill.leave("B")
    drill.round(1)
    assert (drill.timeout_ms, drill.listed("lost")) == (0, NOTHING)
    drill.join("C", topics=["U"])
    assert drill.round(2)["C"] == ({"U": [1]}, None)


def test_loss_when_nobody_subscribed_for_a_while_is_still_waited_for() -> None:
    """B left before it was seen to own its first grant, so that grant is lost."""
    drill = Drill(policy=DeferredPolicy())
    drill.join("A", topics=["U"])
    drill.join("B")
    drill.round(0)
    drill.leave("B")
    drill.round(10)
    drill.join("C", _t(1))
    drill.round(20)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(2, 3, 4), T1 - 10)
    drill.round(10 + T1)
    assert (drill.owned()["C"], drill.listed("created")) == ([1, 2, 3, 4], NOTHING)


# --- a leader that did not lead the last round ----------------------------------------------------


def _six_by_range() -> Drill:
    drill = Drill(policy=DeferredPolicy(), assignor=RangeAssignor(), existing={"T": range(6)})
    drill.settle(A=[0, 1], B=[2, 3], C=[4, 5])
    return drill


def test_leader_when_it_bounces_fast_disturbs_nobody() -> None:
    """The member without resources is taken for the owner of the unclaimed ones."""
    drill = _six_by_range()
    drill.leave("A")
    drill.join("Z")
    told = drill.round(5, leader="B")
    assert told == {"B": (_t(2, 3), None), "C": (_t(4, 5), None), "Z": (_t(0, 1), None)}
    assert drill.timeout_ms == 0


def test_static_leader_when_it_comes_back_after_a_round_without_it_gets_its_own() -> None:
    """No member remembers its ownership any more. The leader must not wait for itself."""
    drill = Drill(policy=DeferredPolicy(), existing={"T": range(8)})
    drill.settle(A=[0, 1], B=[2, 3], C=[4, 5], D=[6, 7])
    drill.leave("A")
    drill.round(5, leader="B")
    assert drill.timeout_ms == 60_000
    drill.join("A2", instance_id="i-A")
    told = drill.round(6)
    assert told["A2"] == (_t(0, 1), None)
    assert [told[member][1] for member in "BCD"] == [None] * 3


def test_members_when_several_bounce_with_the_leader_share_what_is_lost() -> None:
    """The owners are unknown, so the returning members get equal parts. No other member moves."""
    drill = Drill(policy=DeferredPolicy(), assignor=RangeAssignor(), existing={"T": range(8)})
    drill.settle(A=[0, 1], B=[2, 3], C=[4, 5], D=[6, 7])
    drill.leave("A", "D")
    drill.join("Y")
    drill.join("Z")
    told = drill.round(5, leader="B")
    assert (told["B"], told["C"]) == ((_t(2, 3), None), (_t(4, 5), None))
    assert [len(drill.owned()[member]) for member in "YZ"] == [2, 2]


def test_member_that_gets_nothing_of_what_is_lost_is_an_additional_one() -> None:
    """There are fewer resources than members: others give up some for the members without any."""
    drill = Drill(policy=DeferredPolicy())
    drill.settle(A=[1], B=[2], C=[3, 4])
    drill.leave("A")
    drill.join("Y")
    drill.join("Z")
    told = drill.round(5, leader="B")
    assert (told["Y"], told["Z"]) == ((_t(1), NOTHING), (NOTHING, NOTHING))
    drill.round(6)
    assert list(map(len, drill.owned().values())) == [1, 1, 1, 1]


def test_idle_member_that_knows_of_the_delay_is_nobody_who_returns() -> None:
    """It knew of the delay when that was announced, so it is not the missing member."""
    drill = _four()
    drill.leave("D")
    drill.join("E", instance_id="pod-E")
    drill.round(0)
    drill.leave("A")
    drill.round(10)
    assert drill.owned() == {"B": [2], "C": [3], "E": []}
    drill.round(20_000, leader="C")
    assert drill.owned() == {"B": [2], "C": [3], "E": []}
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(1, 4), T1 - 20_000)


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
    drill.join(f"a-stranger-{_uuid(99)}")
    told = drill.round(20)
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
    """The order of the ids decides, as among members with one client id."""
    drill = Drill(policy=DeferredPolicy())
    drill.settle(0, **{"0": [1], "1": [2], gone: [3], "zz": [4]})
    drill.leave("1", gone)
    drill.join("00")
    drill.join(back)
    drill.round(10)
    first, second = sorted(["1", gone]), sorted(["00", back])
    had = {"1": [2], gone: [3]}
    assert [drill.owned()[member] for member in second] == [had[member] for member in first]


def test_newcomer_of_the_same_client_when_it_does_not_subscribe_is_not_taken_for_it() -> None:
    """The subscription must match here too."""
    drill = _four()
    drill.join(f"web-{_uuid(1)}", _t(5))
    drill.existing = {"T": range(1, 6)}
    drill.round(0)
    drill.leave(f"web-{_uuid(1)}")
    drill.join(f"web-{_uuid(2)}", topics=["U"])
    drill.round(10)
    assert (drill.listed("lost"), drill.timeout_ms) == (_t(5), T1)
