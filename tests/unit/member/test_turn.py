"""The work space of a step: fields are replaced, and the member before does not change."""

import pytest

from coopgroup.member.member import new_member
from coopgroup.member.turn import Turn
from tests.support.members import CONFIG


def test_set_when_there_is_no_such_field_raises() -> None:
    turn = Turn(member=new_member(CONFIG), now_ms=0)
    with pytest.raises(TypeError, match="Member has no colour, weight"):
        turn.set(weight=1, colour="red", generation=3)
