"""Writes the tables of decisions into their pages: python docs/make_rule_tables.py."""

from pathlib import Path
from typing import Any, Final

from coopgroup.core.policies import tables
from coopgroup.core.policies.tables import DecisionTable
from coopgroup.groups import state

DOCS = Path(__file__).parent
BEGIN = "<!-- tables, made by make_rule_tables.py -->"
END = "<!-- end of tables -->"
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
PAGES: Final = {"rules": ROUND, "groups": WORK}


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


def made(page: str, text: str) -> str:
    """Return the text of the page with fresh tables."""
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    parts = [section(title, table) for title, table in PAGES[page].items()]
    return "\n\n".join([f"{before}{BEGIN}", *parts, f"{END}{after}"])


if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / f"{name}.md"
        path.write_text(made(name, path.read_text()))
