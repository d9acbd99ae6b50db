"""Whether a member has left its group, and a bounded wait for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from coopgroup.core.member import Member, MemberState
from coopgroup.kafka.clock import now_s

if TYPE_CHECKING:
    from coopgroup.kafka.membership.driver import GroupDriver

__all__ = ["has_left", "wait_left"]

_LEAVE_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01


def has_left(member: Member) -> bool:
    """Return whether a member is outside its group, by its own request or by an error."""
    return member.state in {MemberState.UNSUBSCRIBED, MemberState.FAILED}


def wait_left(driver: GroupDriver) -> bool:
    """Wait until a member has left its group, for a bounded time; return whether it has."""
    deadline_s = now_s() + _LEAVE_TIMEOUT_S
    while not has_left(driver.member) and now_s() < deadline_s:
        time.sleep(_STEP_S)
    return has_left(driver.member)
