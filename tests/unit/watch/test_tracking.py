"""Trends, ages of commits and moves follow from snapshots."""

from attrs import evolve

from coopgroup.watch.tracking import GroupTracker
from tests.unit.watch.views import MEMBERS, view


def test_trend_is_that_of_the_last_half_minute() -> None:
    tracker = GroupTracker()
    found = view()
    for at_s in range(100):
        found = tracker.note(view(at_s, end=40 + (0 if at_s < 60 else 10 * (at_s - 60))))
    trend = found.partitions[0].trend_per_s
    assert trend is not None
    assert 9.5 < trend <= 10


def test_age_of_a_commit_counts_from_its_change() -> None:
    tracker = GroupTracker()
    tracker.note(view())
    tracker.note(view(5.0, committed=(11, 20, 30)))
    found = tracker.note(view(8.0, committed=(11, 20, 30)))
    assert [one.commit_age_s for one in found.partitions] == [3.0, None, None]


def test_partition_that_waits_names_its_last_owner() -> None:
    tracker = GroupTracker()
    tracker.note(view())
    later = view(1.0, owners=("m-a", "m-a", ""), members=MEMBERS[:1])
    lost = evolve(later.partitions[2], state="waiting")
    found = tracker.note(evolve(later, partitions=(*later.partitions[:2], lost)))
    assert [one.waits_for for one in found.partitions] == ["", "", "pod-b"]


def test_moves_name_partitions_and_both_owners() -> None:
    tracker = GroupTracker()
    tracker.note(view())
    found = tracker.note(view(1.0, owners=("m-b", "m-a", "")))
    assert [one.text for one in found.moves] == [
        "orders-2: pod-b → no owner",
        "orders-0: a → pod-b",
    ]


def test_many_moves_are_one_line() -> None:
    tracker, count = GroupTracker(), 10
    tracker.note(view(owners=("m-a",) * count, committed=(0,) * count))
    found = tracker.note(view(1.0, owners=("m-b",) * count, committed=(0,) * count))
    (move,) = found.moves
    assert move.text == "orders-0, orders-1, orders-2, orders-3 and 6 more: a → pod-b"


def test_members_that_join_and_leave_are_told() -> None:
    tracker = GroupTracker()
    tracker.note(view(members=MEMBERS[:1], state="preparing rebalance"))
    found = tracker.note(view(1.0))
    assert [one.text for one in found.moves] == [
        "pod-b joined",
        "the group is stable (it was preparing rebalance)",
    ]


def test_moves_say_which_member_came_or_left() -> None:
    tracker = GroupTracker()
    tracker.note(view(owners=("m-b", "m-b", "m-b")))
    tracker.note(view(1.0, owners=("", "", ""), members=MEMBERS[:1]))
    found = tracker.note(view(2.0, owners=("m-a", "", "m-a"), members=MEMBERS[:1]))
    assert [(one.text, one.why) for one in found.moves] == [
        ("orders-0, orders-2: no owner → a", "pod-b left"),
        ("orders-0, orders-1, orders-2: pod-b → no owner", "pod-b left"),
        ("pod-b left", ""),
    ]


def test_move_long_after_the_last_change_of_members_has_no_reason() -> None:
    tracker = GroupTracker()
    tracker.note(view(members=MEMBERS[:1], owners=("m-a",) * 3))
    tracker.note(view(1.0, owners=("m-a",) * 3))
    found = tracker.note(view(100.0, owners=("m-b", "m-a", "m-a")))
    assert (found.moves[0].text, found.moves[0].why) == ("orders-0: a → pod-b", "")


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
