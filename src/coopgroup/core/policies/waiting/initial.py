"""The first members of a group may wait for others before they start (KIP-134)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.policies.base import RoundContext

__all__ = ["initial_until_ms"]


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
    forms = _knows_of_no_owner(context) and not group.claim_members.size
    if until_ms is None and initial_delay_ms and forms:
        known = [m.rejoin_in_ms for m in group.members if m.rejoin_in_ms is not None]
        until_ms = context.now_ms + min([*known, initial_delay_ms])
    # Design II: "use the deferment process to allow other members to join in that period". Without
    # a wait, new subscriptions "should be resolved immediately", also while lost resources wait.
    return until_ms if until_ms is not None and context.now_ms < until_ms else None


def _knows_of_no_owner(context: RoundContext) -> bool:
    """Return whether the leader has decided no round of the group and knows no owned resource.

    The memory of refused rounds alone is blind and names no resource. Without this case, a group
    whose first round was refused would share its resources before the other members arrive.
    """
    state = context.state
    return state is None or (state.blind and not state.known and not state.granted)
