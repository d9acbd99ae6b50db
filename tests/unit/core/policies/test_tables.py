"""Decision tables: the first row that fits decides, and each row and its place are needed."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
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
    LagStep,
    LossAction,
    MoveMode,
    Receiver,
    ResourceAction,
)
from coopgroup.groups.state import STEPS, Step

TABLES: dict[str, DecisionTable[Any]] = {
    "causes": CAUSES,
    "lags": LAG_STEPS,
    "losses": LOSS_ACTIONS,
    "moves": MOVE_MODES,
    "receivers": RECEIVERS,
    "resources": RESOURCE_ACTIONS,
    "steps": STEPS,
}
NEITHER = {"joined": False, "waits": False}
IDLE = {"busy": False, "runs": False, "wanted": True}
RUNS = {"busy": False, "runs": True, "stale": False}
STAYS = {"claimed": True, "keeps": True, "wanted": False, "told": False}
MOVES = STAYS | {"taken": False}
# An action, and the facts that lead to it whatever else holds.
RULES: dict[str, list[tuple[Enum, dict[str, bool]]]] = {
    "causes": [
        (Cause.RELEASED, {"released": True}),
        # A missed sync is not a departure (KAFKA-9848).
        (Cause.CREATED, {"released": False, "first_grant": True, "departed": False}),
        (Cause.LOST, {"released": False, "departed": True, "owned": True}),
    ],
    "lags": [
        (LagStep.RESET, {"matters": False}),
        (LagStep.COUNT, {"matters": True, "over": True}),
        (LagStep.RESET, {"matters": True, "over": False, "calm": True}),
    ],
    "losses": [
        (LossAction.RETURN, {"back": True}),
        (LossAction.REPLACE, {"back": False, "static": False, "newcomer": True}),
        (LossAction.WAIT, {"back": False, "static": True, "expired": False}),
        (LossAction.WAIT, {"back": False, "newcomer": False, "expired": False}),
    ],
    "moves": [
        # Design II: "Reassignment happens immediately via two step revoke + assign".
        (MoveMode.MOVE, {"joined": True}),
        # Design II: "In this case there should be no RevokeTopicPartitions".
        (MoveMode.REST, {"joined": False, "waits": True}),
        (MoveMode.MOVE, NEITHER | {"begun": True}),
        (MoveMode.MOVE, NEITHER | {"blind": True, "uneven": True}),
        (
            MoveMode.REST,
            NEITHER | {"begun": False, "blind": True, "returned": True, "uneven": False},
        ),
        (MoveMode.BALANCE, NEITHER | {"begun": False, "blind": False, "lagging": True}),
    ],
    "receivers": [
        (Receiver.TARGET, {"elsewhere": True, "limited": True}),
        (Receiver.PROMISED, {"promised": True, "elsewhere": False}),
        (Receiver.PROMISED, {"promised": True, "limited": False}),
        (Receiver.TARGET, {"promised": False, "elsewhere": True, "joined": True}),
        (Receiver.TARGET, {"promised": False, "elsewhere": True, "given_up": True}),
        (Receiver.OWNER, {"promised": False, "elsewhere": False, "back": True}),
    ],
    "resources": [
        (ResourceAction.STOP, {"claimed": True, "keeps": False}),
        (ResourceAction.KEEP, {"claimed": True, "keeps": True, "wanted": True}),
        (ResourceAction.STOP, STAYS | {"told": True}),
        (ResourceAction.KEEP, STAYS | {"taken": True}),
        (ResourceAction.WARM, MOVES | {"cold": True}),
        (ResourceAction.STOP, MOVES | {"cold": False, "turn": True}),
        (ResourceAction.HOLD, MOVES | {"cold": False, "turn": False}),
        (ResourceAction.WAIT, {"claimed": False, "waits": True}),
        # KIP-134: the first member of a group does not start with everything.
        (ResourceAction.GATHER, {"claimed": False, "waits": False, "forms": True}),
        (ResourceAction.ASK, {"claimed": False, "waits": False, "forms": False, "unheard": True}),
    ],
    "steps": [
        (Step.WAIT, {"busy": True}),
        # A frozen process must not flush beside the next owner.
        (Step.LOST, {"busy": False, "runs": True, "stale": True}),
        (Step.STOP, RUNS | {"wanted": False}),
        (Step.END, IDLE | {"wanted": False}),
        (Step.KEEP, IDLE | {"refused": True}),
        (Step.START, IDLE | {"refused": False}),
        (Step.CHANGE, RUNS | {"wanted": True, "changed": True}),
        (Step.KEEP, RUNS | {"wanted": True, "changed": False}),
    ],
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


def swapped(table: DecisionTable[Any], upper: int) -> DecisionTable[Any]:
    """Return the table with two neighbouring rows swapped: a deliberate bug."""
    rows = table.rows
    return attrs.evolve(
        table, rows=(*rows[:upper], rows[upper + 1], rows[upper], *rows[upper + 2 :])
    )


def breaks(table: DecisionTable[Any], rules: Iterable[tuple[Enum, dict[str, bool]]]) -> bool:
    return any(
        table.decide(**case) is not action
        for action, fixed in rules
        for case in cases_of(table, **fixed)
    )


def test_rules_hold_and_find_each_pair_of_swapped_rows(subtests: pytest.Subtests) -> None:
    """Rows with one action may change places, because both lead to it."""
    for name, table in TABLES.items():
        with subtests.test(name=name):
            rules = RULES[name]
            assert not breaks(table, rules)
            for upper, (row, below) in enumerate(itertools.pairwise(table.rows)):
                assert breaks(swapped(table, upper), rules) == (row.action is not below.action)


@each_table
def test_many_cases_are_decided_like_each_of_them(table: DecisionTable[Any]) -> None:
    cases = list(cases_of(table))
    facts = {name: np.array([case[name] for case in cases]) for name in table.facts}
    decided = table.decide_each(**facts)
    for action in actions_of(table):
        assert decided.are(action).tolist() == [table.decide(**one) is action for one in cases]


@pytest.mark.parametrize("claimed", [True, False])
def test_decision_when_claimed_is_never_a_grant(*, claimed: bool) -> None:
    """This rule keeps a resource from having two owners."""
    of_claimed = {
        ResourceAction.KEEP,
        ResourceAction.STOP,
        ResourceAction.WARM,
        ResourceAction.HOLD,
    }
    for case in cases_of(RESOURCE_ACTIONS, claimed=claimed):
        assert (RESOURCE_ACTIONS.decide(**case) in of_claimed) == claimed
