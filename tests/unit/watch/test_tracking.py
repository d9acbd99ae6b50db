"""Trends, ages of commits and moves follow from snapshots."""

import pytest
from attrs import evolve

from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView
from tests.unit.watch.views import MEMBERS, view


def test_trend_is_that_of_the_last_half_minute() -> None:
    tracker = GroupTracker()
    found = view()
    for at_s in range(100):
        found = tracker.note(view(at_s, end=40 + (0 if at_s < 60 else 10 * (at_s - 60))))
    trend = found.partitions[0].trend_per_s
    assert trend is not None
    assert 9.5 < trend <= 10


def _noted(*views: GroupView) -> GroupView:
    tracker = GroupTracker()
    return [tracker.note(one) for one in views][-1]


def test_age_of_a_commit_counts_from_its_change() -> None:
    later = (11, 20, 30)
    found = _noted(view(), view(5.0, committed=later), view(8.0, committed=later))
    assert [one.commit_age_s for one in found.partitions] == [3.0, None, None]


def test_partition_that_waits_names_its_last_owner() -> None:
    tracker = GroupTracker()
    tracker.note(view())
    later = view(1.0, owners=("m-a", "m-a", ""), members=MEMBERS[:1])
    lost = evolve(later.partitions[2], state="waiting")
    found = tracker.note(evolve(later, partitions=(*later.partitions[:2], lost)))
    assert [one.waits_for for one in found.partitions] == ["", "", "pod-b"]


ALONE = MEMBERS[:1]
OF_A, OF_B, FREE = ("m-a",) * 3, ("m-b",) * 3, ("",) * 3


@pytest.mark.parametrize(
    ("views", "moves"),
    [
        pytest.param(
            [view(), view(1.0, ("m-b", "m-a", ""))],
            [("orders-2: pod-b → no owner", ""), ("orders-0: a → pod-b", "")],
            id="partitions and both owners",
        ),
        pytest.param(
            [view(0.0, ("m-a",) * 10, (0,) * 10), view(1.0, ("m-b",) * 10, (0,) * 10)],
            [("orders-0, orders-1, orders-2, orders-3 and 6 more: a → pod-b", "")],
            id="many moves are one line",
        ),
        pytest.param(
            [view(members=ALONE, state="preparing rebalance"), view(1.0)],
            [("pod-b joined", ""), ("the group is stable (it was preparing rebalance)", "")],
            id="members that join",
        ),
        pytest.param(
            [
                view(0.0, OF_B),
                view(1.0, FREE, members=ALONE),
                view(2.0, ("m-a", "", "m-a"), members=ALONE),
            ],
            [
                ("orders-0, orders-2: no owner → a", "pod-b left"),
                ("orders-0, orders-1, orders-2: pod-b → no owner", "pod-b left"),
                ("pod-b left", ""),
            ],
            id="members that leave",
        ),
        pytest.param(
            [view(0.0, OF_A, members=ALONE), view(1.0, OF_A), view(100.0, ("m-b", "m-a", "m-a"))],
            [("orders-0: a → pod-b", ""), ("pod-b joined", "")],
            id="long after the last change of members",
        ),
    ],
)
def test_moves_name_partitions_owners_and_the_reason(
    views: list[GroupView], moves: list[tuple[str, str]]
) -> None:
    assert [(one.text, one.why) for one in _noted(*views).moves] == moves


def test_member_that_comes_back_again_and_again_flaps() -> None:
    tracker = GroupTracker()
    tracker.note(view(members=MEMBERS[:1]))
    found = view()
    for number in range(4):
        again = evolve(MEMBERS[1], member_id=f"m-b{number}")
        found = tracker.note(view(number + 1.0, members=(MEMBERS[0], again)))
    assert found.flapping == ("pod-b",)
    assert [one.returns for one in found.members] == [0, 3]


def test_many_new_members_with_one_client_id_do_not_flap() -> None:
    tracker = GroupTracker()
    tracker.note(view(members=MEMBERS[:1]))
    pods = tuple(
        evolve(MEMBERS[0], member_id=f"a-{number}000", host="10.0.0.9") for number in range(5)
    )
    found = tracker.note(view(1.0, members=(MEMBERS[0], *pods)))
    assert found.flapping == ()
    assert found.moves[0].text == "a 4000 joined"
