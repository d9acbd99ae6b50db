"""A leader's memory as JSON."""

import json
from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.core.policies.memory import PairKind
from coopgroup.errors import ConfigurationError
from coopgroup.policies import (
    Loss,
    PolicyState,
    RememberedMembers,
    RememberedPairs,
    RememberedResources,
    state_from_json,
    state_to_json,
)
from tests.support.cases import cases

NAMES = ResourceSet({"T": [0, 1, 2, 5, 6], "U": [-1]})
STATE = PolicyState(
    generation=7,
    members=RememberedMembers(
        ids=("a", "b"),
        instance_ids=(None, "pod-1"),
        subscriptions=(("T", "U"), ("T",)),
        class_of=(1, 0),
    ),
    resources=RememberedResources(
        names=NAMES,
        past=np.array([2, 3, 2, 2, 2, 1], dtype=np.int8),
        holder=np.array([1, -1, -1, -1, 1, 0], dtype=np.int32),
        loss=np.array([-1, -1, 1, -1, -1, -1], dtype=np.int32),
        receiver=np.array([-1, -1, -1, 1, -1, -1], dtype=np.int32),
        promised=np.array([False, False, False, True, False, False]),
        planned=np.array([False, False, False, False, True, False]),
    ),
    pairs=RememberedPairs(
        kind=np.array([PairKind.TOLD, PairKind.TOLD, PairKind.WARMING], dtype=np.int8),
        resource=np.array([3, 3, 1], dtype=np.int32),
        member=np.array([NOBODY, 1, 0], dtype=np.int32),
        since_ms=np.array([0, 0, 30]),
    ),
    losses=(
        Loss(owner="x", instance_id="pod-2", deadline_ms=90),
        Loss(owner=None, instance_id=None, deadline_ms=95, given_ms=40, shared=True),
    ),
    silent=("b",),
    moves_due_ms=60,
    moves_pending=True,
    next_round_ms=60,
    blind=True,
)
ROW: dict[str, Any] = {
    "version": 5,
    "generation": 7,
    "members": {
        "ids": ["a", "b"],
        "instance_ids": {"b": "pod-1"},
        "subscriptions": [["T", "U"], ["T"]],
        "class_of": [1, 0],
    },
    "resources": {
        "names": {"T": [0, 1, 2, 5, 6], "U": [-1]},
        "past": [2, 3, 2, 2, 2, 1],
        "holder": [1, -1, -1, -1, 1, 0],
        "loss": [-1, -1, 1, -1, -1, -1],
        "receiver": [-1, -1, -1, 1, -1, -1],
        "promised": [3],
        "planned": [4],
    },
    "pairs": {
        "kind": [0, 0, 1],
        "resource": [3, 3, 1],
        "member": [-1, 1, 0],
        "since_ms": [0, 0, 30],
    },
    "losses": [
        {
            "owner": "x",
            "instance_id": "pod-2",
            "deadline_ms": 90,
            "given_ms": None,
            "shared": False,
        },
        {"owner": None, "instance_id": None, "deadline_ms": 95, "given_ms": 40, "shared": True},
    ],
    "silent": ["b"],
    "moves_due_ms": 60,
    "moves_pending": True,
    "initial_until_ms": None,
    "next_round_ms": 60,
    "blind": True,
}


def test_state_when_written_is_plain_json_and_comes_back() -> None:
    assert state_to_json(STATE) == ROW
    assert state_from_json(json.loads(json.dumps(ROW))) == STATE


def test_state_when_null_is_none() -> None:
    """Null stands for a leader that did not lead the last round."""
    assert state_from_json(None) is None


@pytest.mark.parametrize(
    ("others", "holder", "expected"),
    [
        (ResourceSet({"T": [0, 1, 2]}), [2, 1, 0], [2, 1, 0]),
        (ResourceSet({"T": [1], "U": [0]}), [1, 0], [NOBODY, 1, NOBODY]),
        (ResourceSet(), [], [NOBODY] * 3),
    ],
    ids=["the same", "one of them vanished", "none"],
)
def test_rows_in_the_order_of_other_resources(
    others: ResourceSet, holder: list[int], expected: list[int]
) -> None:
    rows = attrs.evolve(
        RememberedResources.unknown(others), holder=np.array(holder, dtype=np.int32)
    )
    aligned = rows.aligned(ResourceSet({"T": range(3)}))
    assert aligned.holder.tolist() == expected
    assert aligned.holder.dtype == np.int32


def test_column_of_one_number_is_written_as_this_number() -> None:
    """A state of a million partitions is read and written by `coopgroup plan` in each round."""
    rows = RememberedResources.unknown(NAMES)
    row = state_to_json(attrs.evolve(STATE, resources=rows, losses=()))
    assert row["resources"] | {"names": {}} == {
        "names": {},
        "past": 0,
        "holder": -1,
        "loss": -1,
        "receiver": -1,
        "promised": [],
        "planned": [],
    }
    again = state_from_json(row)
    assert again is not None
    assert again.resources == rows


REFUSED = """\
{"version": 4}
    state.version: got 4, expected 5
{"members.ids": ["b", "a"]}
    state.members.ids: got ['b', 'a'], expected ids in order, each once
{"members.ids": ["a", "a"]}
    state.members.ids: got ['a', 'a'], expected ids in order, each once
{"members.instance_ids": {"c": "pod-1"}}
    state.members.instance_ids: got 'c', expected ids of members only
{"members.class_of": [0, 2]}
    state.members.class_of: got [0, 2], expected 2 numbers from 0 to 1
{"next_round_ms": 9223372036854775808}
    state: got 9223372036854775808, expected times in ms up to 9223372036854775807
{"losses": [{"owner": "x", "instance_id": null, "deadline_ms": -9223372036854775809,
"given_ms": null, "shared": false}]}
    state: got -9223372036854775809, expected times in ms up to 9223372036854775807
{"generation": 2147483648}
    state.generation: got 2147483648, expected an integer from -1 to 2147483647
{"resources.holder": [1, -1, -1, -1, 2, 0]}
    state.resources.holder: got [1, -1, -1, -1, 2, 0], expected 6 numbers from -1 to 1
{"resources.holder": [1.0, -1, -1, -1, 1, 0]}
    state.resources.holder: got [1.0, -1, -1, -1, 1, 0], expected 6 numbers from -1 to 1
{"resources.holder": [true, -1, -1, -1, 1180591620717411303424, 0]}
    state.resources.holder: got [True, -1, -1, -1, 1180591620717411303424, 0], expected 6 numbers \
from -1 to 1
{"resources.holder": "1"}
    state.resources.holder: got '1', expected 6 numbers from -1 to 1
{"resources.receiver": []}
    state.resources.receiver: got [], expected 6 numbers from -1 to 1
{"resources.loss": 2}
    state.resources.loss: got 2, expected 6 numbers from -1 to 1
{"resources.past": 4}
    state.resources.past: got 4, expected 6 numbers from 0 to 3
{"resources.planned": [6]}
    state.resources.planned: got [6], expected 1 numbers from 0 to 5
{"pairs.resource": [3, 3, 6]}
    state.pairs.resource: got [3, 3, 6], expected 3 numbers from 0 to 5
{"pairs.member": [1, -1, 0]}
    state.pairs: got [3, 3, 1], expected pairs in order, each once
{"pairs.since_ms": [0]}
    state.pairs.since_ms: got [0], expected 3 times in ms
{"resources.names": {"T": [0.5]}}
    indices of T: got [0.5], expected integers
"""


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """Return the row with other values; a dot leads into a table."""
    row: dict[str, Any] = json.loads(json.dumps(ROW))
    for name, value in change.items():
        *table, last = name.split(".")
        (row[table[0]] if table else row)[last] = value
    return row


def test_state_when_tampered_with_is_refused(subtests: pytest.Subtests) -> None:
    for change, message in cases(REFUSED):
        with subtests.test(change=change):
            with pytest.raises(ConfigurationError) as caught:
                state_from_json(changed(json.loads(change)))
            assert str(caught.value).endswith(message)


ANOTHER_FORM: list[dict[str, Any]] = [
    {"losses": [{}]},
    {"next_round_ms": "soon"},
    {"pairs": [1]},
    {"generation": "x"},
    {"members": None},
    {"resources.names": [["T", 0]]},
    {"resources.names": {"T": [[1], [1, 2]]}},
]


@pytest.mark.parametrize("change", ANOTHER_FORM)
def test_state_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected the state of an earlier output line$"):
        state_from_json(changed(change))


FIELDS = [
    *ROW,
    *(f"{table}.{name}" for table in ("members", "resources", "pairs") for name in ROW[table]),
]


def test_state_without_a_field_is_refused(subtests: pytest.Subtests) -> None:
    for field in FIELDS:
        with subtests.test(field=field):
            row = json.loads(json.dumps(ROW))
            *table, last = field.split(".")
            del (row[table[0]] if table else row)[last]
            with pytest.raises(
                ConfigurationError, match=r"expected the state of an earlier output line$"
            ):
                state_from_json(row)
