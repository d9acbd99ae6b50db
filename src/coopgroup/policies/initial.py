"""The first members of a group may wait for others before they start (KIP-134).

Legend of the table `INITIAL_ACTIONS`, one decision per round:

    forming   as far as the leader knows, the group has never owned anything, and it should wait; or
              the leader remembers that the wait has begun
    over      the wait has ended
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from coopgroup.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.policies.base import RoundContext

__all__ = ["INITIAL_ACTIONS", "InitialAction", "initial_until_ms"]


class InitialAction(Enum):
    """The decision about resources that were never owned."""

    GRANT = "granted at once"
    HOLD = "held back"


# fmt: off
INITIAL_ACTIONS: Final = DecisionTable(
    columns=("forming", "over"),
    rows=(
        #          forming over
        Row("@A", (_0,     __), InitialAction.GRANT),
        Row("@B", (_1,     _0), InitialAction.HOLD),
        Row("@C", (_1,     _1), InitialAction.GRANT),
    ),
)
# fmt: on
"""
@A: Design II: new subscriptions "should be resolved immediately", also while lost ones wait.
@B: Design II: "use the deferment process to allow other members to join in that period".
@C: Who has come has come.
"""


def initial_until_ms(
    group: GroupSnapshot, context: RoundContext, initial_delay_ms: int
) -> int | None:
    """Return until when the group's first resources are withheld, or None.

    A leader that did not begin the wait continues with the remaining time that its members know. A
    change of leaders shortens the wait and never restarts it.

    Args:
        group: the group.
        context: context of the round.
        initial_delay_ms: how long the first members wait; 0 for not at all.
    """
    until_ms = None if context.state is None else context.state.initial_until_ms
    if context.state is None and initial_delay_ms and not group.claim_members.size:
        known = [m.remaining_delay_ms for m in group.members if m.remaining_delay_ms is not None]
        until_ms = context.now_ms + min([*known, initial_delay_ms])
    action = INITIAL_ACTIONS.decide(
        forming=until_ms is not None,
        over=until_ms is not None and context.now_ms >= until_ms,
    )
    return until_ms if action is InitialAction.HOLD else None
