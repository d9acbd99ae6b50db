"""A leader's memory as JSON."""

import json
from typing import Any

import numpy as np
import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.policies import Claims, Holdings, Loss, PolicyState, state_from_json, state_to_json
from tests.support.cases import cases

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
        Loss(owner=None, instance_id=None, deadline_ms=95, given_ms=40, shared=True),
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
ROW: dict[str, Any] = {
    "version": 4,
    "generation": 7,
    "members": ["a", "b"],
    "known": {"T": [0, 1]},
    "granted": {"U": [-1]},
    "released": {"T": [1]},
    "silent": ["b"],
    "instance_ids": {"b": "pod-1"},
    "holdings": {"resources": {"T": [0], "U": [-1]}, "holder": [1, 0]},
    "losses": [
        {"owner": "x", "instance_id": "pod-2", "deadline_ms": 90, "given_ms": None},
        {"owner": None, "instance_id": None, "deadline_ms": 95, "given_ms": 40, "shared": True},
    ],
    "lost": {"resources": {"T": [2], "U": [3]}, "holder": [0, 1]},
    "stopping": {"resources": {"T": [5]}, "resource": [0, 0], "claimant": [0, 1]},
    "moves_due_ms": 60,
    "moves_pending": True,
    "initial_until_ms": None,
    "next_round_ms": 60,
    "planned": {"T": [6]},
    "blind": True,
    "subscriptions": [["T", "U"], ["T"]],
    "subscription_of": [1, 0],
    "promised": {"resources": {"T": [5]}, "holder": [1]},
}


def test_state_when_written_is_plain_json_and_comes_back() -> None:
    assert state_to_json(STATE) == ROW
    assert state_from_json(json.loads(json.dumps(ROW))) == STATE


def test_state_when_null_is_none() -> None:
    """Null stands for a leader that did not lead the last round."""
    assert state_from_json(None) is None


REFUSED = """\
{"version": 5}
    state.version: got 5, expected 4
{"promised": {"resources": {"T": [5]}, "holder": [2]}}
    state.promised.holder: got [2], expected 1 numbers from 0 to 1
{"members": ["b", "a"]}
    state.members: got ['b', 'a'], expected ids in order, each once
{"members": ["a", "a"]}
    state.members: got ['a', 'a'], expected ids in order, each once
{"instance_ids": {"c": "pod-1"}}
    state.instance_ids: got 'c', expected ids of members only
{"next_round_ms": 9223372036854775808}
    state: got 9223372036854775808, expected times in ms up to 9223372036854775807
{"losses": [{"owner": "x", "instance_id": null, "deadline_ms": -9223372036854775809,
"given_ms": null}]}
    state: got -9223372036854775809, expected times in ms up to 9223372036854775807
{"generation": 2147483648}
    state.generation: got 2147483648, expected an integer from -1 to 2147483647
{"subscription_of": [0, 2]}
    state.subscription_of: got [0, 2], expected 2 numbers from 0 to 1
{"stopping": {"resources": {"T": [5]}, "resource": [0, 0], "claimant": [1, 0]}}
    state.stopping: got [0, 0], expected claims in order, each once
{"holdings": {"resources": {"T": [0]}, "holder": [2]}}
    state.holdings.holder: got [2], expected 1 numbers from 0 to 1
{"holdings": {"resources": {"T": [0]}, "holder": []}}
    state.holdings.holder: got [], expected 1 numbers from 0 to 1
{"known": {"T": [0.5]}}
    indices of T: got [0.5], expected integers
"""


@pytest.mark.parametrize(("change", "message"), cases(REFUSED))
def test_state_when_tampered_with_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        state_from_json(ROW | json.loads(change))
    assert str(caught.value).endswith(message)


ANOTHER_FORM: list[dict[str, Any]] = [
    {"losses": [{}]},
    {"next_round_ms": "soon"},
    {"stopping": [1]},
    {"holdings": {"resources": {"T": [0]}, "holder": [2**70]}},
    {"generation": "x"},
    {"members": None},
    {"known": [["T", 0]]},
    {"known": {"T": [[1], [1, 2]]}},
]


@pytest.mark.parametrize(
    "row",
    [
        *(ROW | change for change in ANOTHER_FORM),
        *({name: value for name, value in ROW.items() if name != field} for field in ROW),
    ],
)
def test_state_of_another_form_or_without_a_field_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected the state of an earlier output line$"):
        state_from_json(row)
