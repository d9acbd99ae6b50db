"""The work space of a step: fields are replaced, and the member before does not change."""

import attrs
import pytest

from coopgroup.member.member import new_member
from coopgroup.member.turn import Turn
from tests.support.members import CONFIG


def test_set_when_done_makes_another_member_of_the_same_fields() -> None:
    before = new_member(CONFIG)
    turn = Turn(member=before, now_ms=0)
    turn.set(generation=3, member_id="m")
    assert turn.member == attrs.evolve(before, generation=3, member_id="m")
    assert before == new_member(CONFIG)


def test_set_when_there_is_no_such_field_raises() -> None:
    turn = Turn(member=new_member(CONFIG), now_ms=0)
    with pytest.raises(TypeError, match="Member has no colour, weight"):
        turn.set(weight=1, colour="red", generation=3)


def test_member_when_replaced_stays_frozen() -> None:
    turn = Turn(member=new_member(CONFIG), now_ms=0)
    turn.set(generation=3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        turn.member.generation = 4  # type: ignore[misc]
