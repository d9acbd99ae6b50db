"""A group member as a pure state machine: events in, effects out.

There is one machine for each group protocol, and `machines` chooses. The files here are the classic
one and what both share; `consumer` is that of KIP-848. `transitions` is the table of states,
`error_actions` the table of error codes. `machine` takes events, and `requests` derives the
requests to send. This package uses no clock, thread or socket.
"""

from coopgroup.core.member.config import GroupProtocol, MemberConfig
from coopgroup.core.member.effects import KeptIdentity
from coopgroup.core.member.error_actions import ERROR_ACTIONS, Action, ErrorCode, RequestKind
from coopgroup.core.member.machines import new_member, next_deadline_ms, step
from coopgroup.core.member.member import Member, lease_is_over
from coopgroup.core.member.transitions import TRANSITIONS, MemberState, Trigger

__all__ = [
    "ERROR_ACTIONS",
    "TRANSITIONS",
    "Action",
    "ErrorCode",
    "GroupProtocol",
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
