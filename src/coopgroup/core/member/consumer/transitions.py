"""The states of a member of KIP-848 and the moves between them, as one table.

The rules are those of the classic table: every change of state goes through the table, a missing
entry forbids the move, and requests follow from the state. The states have the names of the classic
ones, so a host need not know which protocol its member speaks. Seven of the ten suffice:

    UNSUBSCRIBED   Not in the group, owns nothing, sends nothing. Ends with a subscription.
    JOINING        Owns nothing. Sends heartbeats with epoch 0. Ends with the first answer. An
                   answer with unknown topic ids counts when their names have been looked up.
    STABLE         Works on everything that it owns. Sends a heartbeat per interval, and a full one
                   immediately after a change. Each answer may grant more.
    REVOKING       Must stop some partitions, and works on all others. Sends the same heartbeats.
                   The coordinator releases nothing before the whole revocation is acknowledged. So
                   the state ends when all partitions have stopped and their commits have ended. The
                   next heartbeat acknowledges. Answers may grant and revoke more meanwhile.
    LOSING         Has lost everything, and waits until the application has handled the loss. Sends
                   no heartbeat. May tell the coordinator that its earlier member id has left.
    LEAVING        Has given up everything. Sends one heartbeat with epoch -1 or -2. Ends with any
                   outcome.
    FAILED         A retry cannot help. Sends nothing. Ends when the application leaves.

A join owns nothing, because a member joins only after a loss or at its start. One answer replaces
the classic round of JoinGroup and SyncGroup.
"""

from __future__ import annotations

import types
from typing import Final

from coopgroup.core.member.transitions import MemberState, Moves, Trigger

_S = MemberState
_T = Trigger

# fmt: off
MOVES: Final[Moves] = types.MappingProxyType({
    _S.UNSUBSCRIBED: {
        _T.SUBSCRIBED:               _S.JOINING,
        _T.LEAVE:                    _S.UNSUBSCRIBED,
    },
    _S.JOINING: {
        _T.SUBSCRIBED:               _S.JOINING,    # the next heartbeat carries it
        _T.ASSIGNED:                 _S.STABLE,
        _T.LOST:                     _S.LOSING,     # the application does not poll
        _T.LOST_NOTHING:             _S.JOINING,    # the id is invalid
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.STABLE: {
        _T.SUBSCRIBED:               _S.STABLE,     # the next heartbeat carries it
        _T.ASSIGNED_WITH_REVOCATION: _S.REVOKING,
        _T.LOST:                     _S.LOSING,
        _T.LOST_NOTHING:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.REVOKING: {
        _T.SUBSCRIBED:               _S.REVOKING,
        _T.ASSIGNED_WITH_REVOCATION: _S.REVOKING,   # more must stop
        _T.REVOKED:                  _S.STABLE,
        _T.LOST:                     _S.LOSING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.LOSING: {
        _T.SUBSCRIBED:               _S.LOSING,     # the next join carries it
        _T.LOSS_HANDLED:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
    },
    _S.LEAVING: {
        _T.LEFT:                     _S.UNSUBSCRIBED,
    },
    _S.FAILED: {
        _T.LEAVE:                    _S.UNSUBSCRIBED,
    },
})
# fmt: on
