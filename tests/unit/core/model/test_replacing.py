"""`replaced`: the result of `attrs.evolve`, without unknown fields."""

import attrs
import pytest

from coopgroup.core.member.commits import Commits
from coopgroup.core.model.replacing import replaced


def test_replaced_gives_what_evolve_gives_and_keeps_the_value() -> None:
    before = Commits(awaited=frozenset({1}))
    after = replaced(before, awaited=frozenset(), await_sync=True)
    assert after == attrs.evolve(before, awaited=frozenset(), await_sync=True)
    assert before == Commits(awaited=frozenset({1}))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        after.await_sync = False  # type: ignore[misc]  # that is what is tested


def test_replaced_refuses_an_unknown_field() -> None:
    """A wrong name is our mistake, and would otherwise be ignored silently."""
    with pytest.raises(TypeError, match="Commits has no tries"):
        replaced(Commits(), tries=1)
