"""`replaced`: what `attrs.evolve` gives, and no field that there is not."""

import attrs
import pytest

from coopgroup.member.commits import Commits
from coopgroup.model.replacing import replaced


def test_replaced_is_what_evolve_gives_and_leaves_the_value_as_it_was() -> None:
    """A frozen value of the same class."""
    before = Commits(attempts=1)
    after = replaced(before, attempts=2, await_sync=True)
    assert after == attrs.evolve(before, attempts=2, await_sync=True)
    assert before == Commits(attempts=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        after.attempts = 3  # type: ignore[misc]  # that is what is tested


def test_replaced_refuses_a_field_that_there_is_not() -> None:
    """A wrong name is a mistake of ours, and would be lost without a word."""
    with pytest.raises(TypeError, match="Commits has no tries"):
        replaced(Commits(), tries=1)
