"""Decision tables: the first row that fits decides, and each row and its place are needed."""

import itertools
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.core.policies.tables import (
    CAUSES,
    LAG_STEPS,
    LOSS_ACTIONS,
    MOVE_MODES,
    RECEIVERS,
    RESOURCE_ACTIONS,
    Cause,
    DecisionTable,
    MoveMode,
    ResourceAction,
)

TABLES: dict[str, DecisionTable[Any]] = {
    "causes": CAUSES,
    "lags": LAG_STEPS,
    "losses": LOSS_ACTIONS,
    "moves": MOVE_MODES,
    "receivers": RECEIVERS,
    "resources": RESOURCE_ACTIONS,
}
each_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def actions_of(table: DecisionTable[Any]) -> list[Enum]:
    kind: type[Enum] = type(table.rows[0].action)
    return list(kind)


def cases_of(table: DecisionTable[Any], **fixed: bool) -> Iterator[Mapping[str, bool]]:
    """Yield all combinations of facts, some of which can be fixed."""
    open_ = [name for name in table.facts if name not in fixed]
    for values in itertools.product((False, True), repeat=len(open_)):
        yield dict(zip(open_, values, strict=True)) | fixed


@each_table
def test_only_the_last_row_fits_always(table: DecisionTable[Any]) -> None:
    assert [bool(row.when) for row in table.rows] == [True] * (len(table.rows) - 1) + [False]


@each_table
def test_each_row_decides_some_case(table: DecisionTable[Any]) -> None:
    first = {
        next(number for number, row in enumerate(table.rows) if row.fits(case))
        for case in cases_of(table)
    }
    assert first == set(range(len(table.rows)))


@each_table
def test_rows_name_all_facts_and_all_actions(table: DecisionTable[Any]) -> None:
    named = {fact.removeprefix("not ") for row in table.rows for fact in row.when}
    assert named == set(table.facts)
    assert {row.action for row in table.rows} == set(actions_of(table))


@each_table
def test_neighbours_with_two_actions_cannot_change_places(table: DecisionTable[Any]) -> None:
    rows = table.rows
    for upper in range(len(rows) - 1):
        if rows[upper].action is not rows[upper + 1].action:
            changed = (*rows[:upper], rows[upper + 1], rows[upper], *rows[upper + 2 :])
            swapped = attrs.evolve(table, rows=changed)
            assert any(table.decide(**one) is not swapped.decide(**one) for one in cases_of(table))


@each_table
def test_many_cases_are_decided_like_each_of_them(table: DecisionTable[Any]) -> None:
    cases = list(cases_of(table))
    facts = {name: np.array([case[name] for case in cases]) for name in table.facts}
    decided = table.decide_each(**facts)
    for action in actions_of(table):
        assert decided.are(action).tolist() == [table.decide(**one) is action for one in cases]


def test_decision_when_a_loss_waits_and_no_member_joined_is_rest() -> None:
    """Design II: "In this case there should be no RevokeTopicPartitions"."""
    for case in cases_of(MOVE_MODES, joined=False, waits=True):
        assert MOVE_MODES.decide(**case) is MoveMode.REST


@pytest.mark.parametrize("claimed", [True, False])
def test_decision_when_claimed_is_never_a_grant(*, claimed: bool) -> None:
    """This rule keeps a resource from having two owners."""
    owned = set(ResourceAction) - {
        ResourceAction.WAIT,
        ResourceAction.GATHER,
        ResourceAction.ASK,
        ResourceAction.GRANT,
    }
    for case in cases_of(RESOURCE_ACTIONS, claimed=claimed):
        assert (RESOURCE_ACTIONS.decide(**case) in owned) == claimed


def test_owner_that_may_not_keep_a_resource_stops_it_whatever_else_holds() -> None:
    for case in cases_of(RESOURCE_ACTIONS, claimed=True, keeps=False):
        assert RESOURCE_ACTIONS.decide(**case) is ResourceAction.STOP


def test_missed_sync_is_no_loss() -> None:
    """KAFKA-9848."""
    for case in cases_of(CAUSES, released=False, first_grant=True, departed=False):
        assert CAUSES.decide(**case) is Cause.CREATED
