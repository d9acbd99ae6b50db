"""A leader's memory as JSON."""

import json
from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.policies import PolicyState, state_from_json, state_to_json

STATE = PolicyState(
    generation=7,
    members=("a", "b"),
    known=ResourceSet({"T": [0, 1]}),
    granted=ResourceSet({"U": [-1]}),
    released=ResourceSet({"T": [1]}),
    silent=("b",),
)
ROW: dict[str, Any] = {
    "version": 1,
    "generation": 7,
    "members": ["a", "b"],
    "known": {"T": [0, 1]},
    "granted": {"U": [-1]},
    "released": {"T": [1]},
    "silent": ["b"],
}


def test_state_when_written_is_plain_json_and_comes_back() -> None:
    """What a line of output shows is what the next line of input takes."""
    assert state_to_json(STATE) == ROW
    assert state_from_json(json.loads(json.dumps(ROW))) == STATE


def test_state_when_null_is_none() -> None:
    """Null is a leader that did not lead the last round."""
    assert state_from_json(None) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "state.version: got 2, expected 1"),
        ({"generation": "x"}, "expected the state of an earlier output line"),
        ({"members": None}, "expected the state of an earlier output line"),
        ({"known": [["T", 0]]}, "expected the state of an earlier output line"),
        ({"known": {"T": [[1], [1, 2]]}}, "expected the state of an earlier output line"),
        ({"known": {"T": [0.5]}}, "indices of T: got [0.5], expected integers"),
    ],
)
def test_state_when_tampered_with_is_refused(change: dict[str, Any], message: str) -> None:
    """One line says that this is not what an earlier output line had."""
    with pytest.raises(ConfigurationError) as caught:
        state_from_json({**ROW, **change})
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("field", sorted(ROW))
def test_state_when_a_field_is_missing_is_refused(field: str) -> None:
    """Nothing is guessed: all fields were written."""
    row = {name: value for name, value in ROW.items() if name != field}
    with pytest.raises(ConfigurationError, match=r"expected the state of an earlier output line$"):
        state_from_json(row)
