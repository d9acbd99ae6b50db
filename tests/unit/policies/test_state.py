"""A leader's memory as JSON."""

import json
from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.policies import Claims, Holdings, Loss, PolicyState, state_from_json, state_to_json
from coopgroup.policies.state import NO_HOLDINGS

STATE = PolicyState(
    generation=7,
    members=("a", "b"),
    known=ResourceSet({"T": [0, 1]}),
    granted=ResourceSet({"U": [-1]}),
    released=ResourceSet({"T": [1]}),
    silent=("b",),
    instance_ids=(("b", "pod-1"),),
    holdings=Holdings(
        resources=ResourceSet({"T": [0], "U": [-1]}), holder=np.array([1, 0], dtype=np.int32)
    ),
    losses=(
        Loss(owner="x", instance_id="pod-2", deadline_ms=90),
        Loss(
            owner=None,
            instance_id=None,
            deadline_ms=95,
            given_ms=40,
        ),
    ),
    lost=Holdings(
        resources=ResourceSet({"T": [2], "U": [3]}), holder=np.array([0, 1], dtype=np.int32)
    ),
    stopping=Claims(
        resources=ResourceSet({"T": [5]}),
        resource=np.array([0, 0], dtype=np.int32),
        claimant=np.array([0, 1], dtype=np.int32),
    ),
    moves_due_ms=60,
    moves_pending=True,
    next_round_ms=60,
    planned=ResourceSet({"T": [6]}),
    blind=True,
    subscriptions=(("T", "U"), ("T",)),
    subscription_of=(1, 0),
    promised=Holdings(resources=ResourceSet({"T": [5]}), holder=np.array([1], dtype=np.int32)),
)
OLD_ROW: dict[str, Any] = {
    "version": 1,
    "generation": 7,
    "members": ["a", "b"],
    "known": {"T": [0, 1]},
    "granted": {"U": [-1]},
    "released": {"T": [1]},
    "silent": ["b"],
}
SECOND_ROW: dict[str, Any] = OLD_ROW | {
    "version": 2,
    "instance_ids": {"b": "pod-1"},
    "holdings": {"resources": {"T": [0], "U": [-1]}, "holder": [1, 0]},
    "losses": [
        {
            "owner": "x",
            "instance_id": "pod-2",
            "deadline_ms": 90,
            "given_ms": None,
        },
        {
            "owner": None,
            "instance_id": None,
            "deadline_ms": 95,
            "given_ms": 40,
        },
    ],
    "lost": {"resources": {"T": [2], "U": [3]}, "holder": [0, 1]},
    "stopping": {"resources": {"T": [5]}, "resource": [0, 0], "claimant": [0, 1]},
    "moves_due_ms": 60,
    "moves_pending": True,
    "initial_until_ms": None,
    "next_round_ms": 60,
}
THIRD_ROW: dict[str, Any] = SECOND_ROW | {
    "version": 3,
    "planned": {"T": [6]},
    "blind": True,
    "subscriptions": [["T", "U"], ["T"]],
    "subscription_of": [1, 0],
}
ROW: dict[str, Any] = THIRD_ROW | {
    "version": 4,
    "promised": {"resources": {"T": [5]}, "holder": [1]},
}


def test_state_when_written_is_plain_json_and_comes_back() -> None:
    assert state_to_json(STATE) == ROW
    assert state_from_json(json.loads(json.dumps(ROW))) == STATE


def test_state_when_of_version_1_is_read_without_what_that_lacked() -> None:
    """A leader can continue from the memory that an earlier release wrote."""
    state = state_from_json(OLD_ROW)
    assert state == PolicyState(
        generation=7,
        members=("a", "b"),
        known=STATE.known,
        granted=STATE.granted,
        released=STATE.released,
        silent=("b",),
    )
    assert state is not None
    assert state_to_json(state, version=1) == OLD_ROW


def test_state_when_of_version_2_is_read_without_what_that_lacked() -> None:
    """It lacks the planned moves and the subscriptions."""
    state = state_from_json(SECOND_ROW)
    assert state == attrs.evolve(
        STATE,
        planned=ResourceSet(),
        blind=False,
        subscriptions=(),
        subscription_of=(),
        promised=NO_HOLDINGS,
    )
    assert state is not None
    assert state_to_json(state, version=2) == SECOND_ROW


def test_state_when_of_version_3_is_read_without_what_that_lacked() -> None:
    """It lacks the promised exchanges."""
    state = state_from_json(THIRD_ROW)
    assert state == attrs.evolve(STATE, promised=NO_HOLDINGS)
    assert state is not None
    assert state_to_json(state, version=3) == THIRD_ROW


def test_state_when_compared_minds_who_held_what() -> None:
    """Arrays are compared by content."""
    other = Holdings(resources=STATE.holdings.resources, holder=np.array([1, 1], dtype=np.int32))
    assert attrs.evolve(STATE, holdings=other) != STATE


def test_state_when_null_is_none() -> None:
    """Null stands for a leader that did not lead the last round."""
    assert state_from_json(None) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 5}, "state.version: got 5, expected 4"),
        (
            {"promised": {"resources": {"T": [5]}, "holder": [2]}},
            "state.promised.holder: got [2], expected 1 numbers from 0 to 1",
        ),
        (
            {"members": ["b", "a"]},
            "state.members: got ['b', 'a'], expected ids in order, each once",
        ),
        (
            {"members": ["a", "a"]},
            "state.members: got ['a', 'a'], expected ids in order, each once",
        ),
        (
            {"instance_ids": {"c": "pod-1"}},
            "state.instance_ids: got 'c', expected ids of members only",
        ),
        (
            {"next_round_ms": 2**63},
            f"state: got {2**63}, expected times in ms up to {2**63 - 1}",
        ),
        (
            {"losses": [ROW["losses"][0], ROW["losses"][1] | {"deadline_ms": -(2**63) - 1}]},
            f"state: got {-(2**63) - 1}, expected times in ms up to {2**63 - 1}",
        ),
        (
            {"generation": 2**31},
            f"state.generation: got {2**31}, expected an integer from -1 to {2**31 - 1}",
        ),
        (
            {"subscription_of": [0, 2]},
            "state.subscription_of: got [0, 2], expected 2 numbers from 0 to 1",
        ),
        ({"losses": [{}]}, "expected the state of an earlier output line"),
        ({"next_round_ms": "soon"}, "expected the state of an earlier output line"),
        ({"stopping": [1]}, "expected the state of an earlier output line"),
        (
            {"stopping": {"resources": {"T": [5]}, "resource": [0, 0], "claimant": [1, 0]}},
            "state.stopping: got [0, 0], expected claims in order, each once",
        ),
        (
            {"holdings": {"resources": {"T": [0]}, "holder": [2]}},
            "state.holdings.holder: got [2], expected 1 numbers from 0 to 1",
        ),
        (
            {"holdings": {"resources": {"T": [0]}, "holder": []}},
            "state.holdings.holder: got [], expected 1 numbers from 0 to 1",
        ),
        (
            {"holdings": {"resources": {"T": [0]}, "holder": [2**70]}},
            "expected the state of an earlier output line",
        ),
        ({"generation": "x"}, "expected the state of an earlier output line"),
        ({"members": None}, "expected the state of an earlier output line"),
        ({"known": [["T", 0]]}, "expected the state of an earlier output line"),
        ({"known": {"T": [[1], [1, 2]]}}, "expected the state of an earlier output line"),
        ({"known": {"T": [0.5]}}, "indices of T: got [0.5], expected integers"),
    ],
)
def test_state_when_tampered_with_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        state_from_json({**ROW, **change})
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("field", sorted(ROW))
def test_state_when_a_field_is_missing_is_refused(field: str) -> None:
    """All fields were written, so no default is assumed."""
    row = {name: value for name, value in ROW.items() if name != field}
    with pytest.raises(ConfigurationError, match=r"expected the state of an earlier output line$"):
        state_from_json(row)
