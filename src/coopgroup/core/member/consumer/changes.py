"""The two changes of a member's `beat` that all parts of the machine make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coopgroup.core.model.replacing import replaced

if TYPE_CHECKING:
    from coopgroup.core.member.turn import Turn


def set_beat(turn: Turn, **changes: Any) -> None:  # noqa: ANN401  (`replaced` checks the names)
    """Replace fields of the member's `beat`."""
    turn.set(beat=replaced(turn.member.beat, **changes))


def beat_now(turn: Turn) -> None:
    """Let the next heartbeat be due now, because this member has something to tell or to ask."""
    turn.set(heartbeat_at_ms=turn.now_ms)
    if turn.member.beat.is_rung:
        set_beat(turn, is_rung=False)
