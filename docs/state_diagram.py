"""The state diagram of a group member, from the table that the member itself obeys.

Moves that lead nowhere else are left out of the picture.
"""

from coopgroup.core.member import TRANSITIONS, MemberState


def diagram() -> str:
    """The moves between states in Mermaid's language, one arrow for each pair of states."""
    lines = ["stateDiagram-v2", f"    [*] --> {MemberState.UNSUBSCRIBED.value}"]
    for state, row in TRANSITIONS.items():
        targets = dict.fromkeys(after for after in row.values() if after is not state)
        for after in targets:
            triggers = [trigger.value for trigger, to in row.items() if to is after]
            lines.append(f"    {state.value} --> {after.value}: {', '.join(triggers)}")
    return "\n".join(lines) + "\n"
