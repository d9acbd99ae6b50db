"""Partitions that appear after the first look are known."""

from __future__ import annotations

from coopgroup.kafka.membership.first_look import FirstLook


def test_partitions_beyond_those_of_the_first_look_have_appeared() -> None:
    look = FirstLook()
    assert not look.has_appeared("t", 5)
    look.note("t", 2)
    look.note("t", 4)
    assert [look.has_appeared("t", number) for number in range(4)] == [False, False, True, True]
    assert look.unseen(["u", "t"]) == ["u"]


def test_all_partitions_of_a_topic_that_was_missing_have_appeared() -> None:
    look = FirstLook()
    look.note("t", 2)
    look.note_missing("t")
    look.note("t", 2)
    assert look.has_appeared("t", 0)
    look.forget()
    assert not look.has_appeared("t", 0)
