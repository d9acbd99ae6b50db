"""`replaced`: the result of `attrs.evolve`, without unknown fields."""

import attrs
import pytest

from coopgroup.member.commits import Commits
from coopgroup.model.replacing import replaced


def test_replaced_is_what_evolve_gives_and_leaves_the_value_as_it_was() -> None:
    """The result is a frozen value of the same class."""
    before = Commits(attempts=1)
    after = replaced(before, attempts=2, await_sync=True)
    assert after == attrs.evolve(before, attempts=2, await_sync=True)
    assert before == Commits(attempts=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        after.attempts = 3  # type: ignore[misc]  # that is what is tested


def test_replaced_refuses_a_field_that_there_is_not() -> None:
    """A wrong name is our mistake, and would otherwise be ignored silently."""
    with pytest.raises(TypeError, match="Commits has no tries"):
        replaced(Commits(), tries=1)
