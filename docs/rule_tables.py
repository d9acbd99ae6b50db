"""The tables of decisions."""

from collections.abc import Mapping
from typing import Any, Final

from coopgroup.core.policies import tables
from coopgroup.core.policies.tables import DecisionTable
from coopgroup.groups import state

ROUND: Final[dict[str, DecisionTable[Any]]] = {
    "Why a resource is unclaimed: `CAUSES`": tables.CAUSES,
    "What happens to a loss: `LOSS_ACTIONS`": tables.LOSS_ACTIONS,
    "Whether resources may move in this round: `MOVE_MODES`": tables.MOVE_MODES,
    "Who gets a resource: `RECEIVERS`": tables.RECEIVERS,
    "What happens to a resource: `RESOURCE_ACTIONS`": tables.RESOURCE_ACTIONS,
    "Between rounds, whether a member is overloaded: `LAG_STEPS`": tables.LAG_STEPS,
}
WORK: Final[dict[str, DecisionTable[Any]]] = {
    "The next callback of a resource: `STEPS`": state.STEPS,
}


def section(title: str, table: DecisionTable[Any]) -> str:
    """Return a table, and the meanings of its facts, in Markdown."""
    rows = [
        f"| {', '.join(_code(fact) for fact in row.when) or 'otherwise'} "
        f"| **{row.action.name}**: {row.action.value} | {row.why} |"
        for row in table.rows
    ]
    facts = [f"- `{name}`: {meaning}" for name, meaning in table.facts.items()]
    head = ["| if | then | because |", "|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *rows, "", *facts])


def _code(fact: str) -> str:
    return f"not `{fact[4:]}`" if fact.startswith("not ") else f"`{fact}`"


def sections(tables_: Mapping[str, DecisionTable[Any]]) -> str:
    """Return all sections of a page, in Markdown."""
    return "\n\n".join(section(title, table) for title, table in tables_.items())
