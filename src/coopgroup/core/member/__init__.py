"""A group member as a pure state machine: events in, effects out.

`transitions` is the table of states, `error_actions` the table of error codes. `machine` takes
events, and `requests` derives the requests to send. This package uses no clock, thread or socket.
"""

from coopgroup.core.member.config import MemberConfig
from coopgroup.core.member.effects import KeptIdentity
from coopgroup.core.member.error_actions import ERROR_ACTIONS, Action, ErrorCode, RequestKind
from coopgroup.core.member.machine import step
from coopgroup.core.member.member import Member, lease_is_over, new_member
from coopgroup.core.member.requests import next_deadline_ms
from coopgroup.core.member.transitions import TRANSITIONS, MemberState, Trigger

__all__ = [
    "ERROR_ACTIONS",
    "TRANSITIONS",
    "Action",
    "ErrorCode",
    "KeptIdentity",
    "Member",
    "MemberConfig",
    "MemberState",
    "RequestKind",
    "Trigger",
    "lease_is_over",
    "new_member",
    "next_deadline_ms",
    "step",
]
