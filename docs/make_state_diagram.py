"""Writes the state diagram of a group member from the table that the member itself obeys.

Run as `python docs/make_state_diagram.py`; a test fails while the files are not fresh.

Rules of this file: what is written follows from `TRANSITIONS` alone, moves that lead nowhere else
are left out of the picture and stay in the table.
"""

from pathlib import Path

from coopgroup.member import TRANSITIONS, MemberState

DOCS = Path(__file__).parent
DIAGRAM = DOCS / "member-states.mmd"
PAGE = DOCS / "member.md"
BEGIN = "<!-- the table of states: made by make_state_diagram.py -->"
END = "<!-- end of the table of states -->"


def diagram() -> str:
    """The moves between states in Mermaid's language, one arrow for each pair of states."""
    lines = ["stateDiagram-v2", f"    [*] --> {MemberState.UNSUBSCRIBED.value}"]
    for state, row in TRANSITIONS.items():
        targets = dict.fromkeys(after for after in row.values() if after is not state)
        for after in targets:
            triggers = [trigger.value for trigger, to in row.items() if to is after]
            lines.append(f"    {state.value} --> {after.value}: {', '.join(triggers)}")
    return "\n".join(lines) + "\n"


def table() -> str:
    """Every row of the table of states, as a Markdown table."""
    lines = ["| state | trigger | next state |", "|---|---|---|"]
    for state, row in TRANSITIONS.items():
        for trigger, after in row.items():
            lines.append(f"| {state.value} | {trigger.value} | {after.value} |")
    return "\n".join(lines) + "\n"


def page(before: str) -> str:
    """The page with a fresh table between its two marks."""
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    DIAGRAM.write_text(diagram())
    PAGE.write_text(page(PAGE.read_text()))
