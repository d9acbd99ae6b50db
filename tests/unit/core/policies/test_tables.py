"""Decision tables: exactly one row matches any facts, and each row is needed."""

import itertools
from enum import Enum
from typing import Any

import numpy as np
import pytest

from coopgroup.core.policies.balance import LAG_STEPS
from coopgroup.core.policies.losses import LOSS_ACTIONS
from coopgroup.core.policies.moves import MOVE_MODES, MoveMode
from coopgroup.core.policies.stage import RESOURCE_ACTIONS, ResourceAction
from coopgroup.core.policies.tables import DecisionTable

TABLES: dict[str, DecisionTable[Any]] = {
    "lags": LAG_STEPS,
    "losses": LOSS_ACTIONS,
    "moves": MOVE_MODES,
    "resources": RESOURCE_ACTIONS,
}


def _actions(table: DecisionTable[Any]) -> list[Enum]:
    kind: type[Enum] = type(table.rows[0].action)
    return list(kind)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_rows_when_all_facts_are_tried_fit_exactly_once(name: str) -> None:
    table = TABLES[name]
    used: set[str] = set()
    for facts in itertools.product((False, True), repeat=len(table.columns)):
        labels = [row.label for row in table.fitting(facts)]
        assert len(labels) == 1, (facts, labels)
        used.update(labels)
    assert used == {row.label for row in table.rows}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_columns_when_decided_as_arrays_say_the_same_as_one_by_one(name: str) -> None:
    table = TABLES[name]
    cases = list(itertools.product((False, True), repeat=len(table.columns)))
    columns = dict(zip(table.columns, np.array(cases).T, strict=True))
    for action in _actions(table):
        one_by_one = [table.fitting(facts)[0].action is action for facts in cases]
        assert table.decide_each(action, **columns).tolist() == one_by_one


def test_decision_when_a_loss_waits_and_nobody_joined_is_rest() -> None:
    """Design II: "In this case there should be no RevokeTopicPartitions"."""
    for others in itertools.product((False, True), repeat=5):
        columns = dict(zip(MOVE_MODES.columns[2:], others, strict=True))
        assert MOVE_MODES.decide(joined=False, waits=True, **columns) is MoveMode.REST


@pytest.mark.parametrize("claimed", [True, False])
def test_decision_when_claimed_is_never_a_grant(claimed: bool) -> None:
    """This rule keeps a resource from having two owners."""
    for facts in itertools.product((False, True), repeat=6):
        columns = dict(zip(RESOURCE_ACTIONS.columns[1:], facts, strict=True))
        action = RESOURCE_ACTIONS.decide(claimed=claimed, **columns)
        assert (action in {ResourceAction.KEEP, ResourceAction.STOP}) == claimed
