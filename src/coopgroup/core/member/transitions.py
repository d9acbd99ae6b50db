"""The states of a member of the classic protocol and the moves between them, as one table.

A member of KIP-848 has seven of these states, and its own table (`consumer.transitions`).

Two rules. Every change of a member's state goes through `TRANSITIONS`. A missing entry forbids the
move.

Theory of operation. A member is always in one state; a trigger moves it. A trigger is the meaning
of an event. The application makes a request, an answer arrives, or a deadline passes. The table of
error codes defines the meaning of an answer. Requests are never part of a move. They follow from
the state (see `requests`), so a lost request is simply sent again.

The look-up of the coordinator, heartbeats and commits continue in most states. So they are values
of the member, not states.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Final, TypeAlias


class MemberState(enum.Enum):
    """The states of a member, each with its facts, its requests, and its end."""

    UNSUBSCRIBED = "unsubscribed"
    """Not in the group, owns nothing, sends nothing. Ends with a subscription."""

    RETURNING = "returning"
    """Its earlier process, or itself before it lost its membership, was in the group. It checks
    whether that generation still stands: sends a heartbeat of that generation. Ends with the
    answer: sync without a round, or join."""

    JOINING = "joining"
    """Joins the next round. Sends JoinGroup and, with a generation, heartbeats; keeps working on
    everything that it owns. Ends with the answer to the join."""

    LEADING = "leading"
    """Is the leader and decides the round. Sends heartbeats. Ends with the decision."""

    SYNCING = "syncing"
    """Has joined and waits for its assignment. Sends SyncGroup and heartbeats."""

    STABLE = "stable"
    """Owns what it was assigned. Sends heartbeats. Ends when a round begins or is requested."""

    REVOKING = "revoking"
    """Must stop some resources. Waits until the application has stopped them, and until their
    earlier commits have ended. Sends heartbeats; keeps working on the others. Ends with a join
    that does not claim the stopped resources. If only some are stopped by then, the join still
    claims the others, and the application continues to stop them in all states of the round."""

    LOSING = "losing"
    """Has lost everything that it owned, and waits until the application has handled the loss.
    Sends nothing, because it must not join before that."""

    LEAVING = "leaving"
    """Has given up everything. Sends LeaveGroup once. Ends with any answer."""

    FAILED = "failed"
    """Failed: a retry cannot help. Sends nothing. Ends when the application leaves."""


class Trigger(enum.Enum):
    """The meaning of an event for the state machine."""

    SUBSCRIBED = "subscribed"
    RETURN = "return"
    KNOWN = "known"
    MEMBER_ID_GIVEN = "member id given"
    JOINED_AS_LEADER = "joined as leader"
    JOINED_AS_FOLLOWER = "joined as follower"
    ROUND_DECIDED = "round decided"
    ASSIGNED = "assigned"
    ASSIGNED_WITH_REVOCATION = "assigned with revocation"
    ASSIGNED_WITH_FOLLOW_UP = "assigned with follow-up"
    REVOKED = "revoked"
    GIVE_UP_ALL = "give up all"
    REJOIN = "rejoin"
    LOST = "lost"
    LOST_NOTHING = "lost nothing"
    LOSS_HANDLED = "loss handled"
    LEAVE = "leave"
    LEFT = "left"
    FAIL = "fail"


AT_WORK: Final = frozenset(
    {
        MemberState.RETURNING,
        MemberState.JOINING,
        MemberState.LEADING,
        MemberState.SYNCING,
        MemberState.STABLE,
        MemberState.REVOKING,
    }
)
"""States in which the member is in the group, or is joining it."""

SETTLED: Final = frozenset({MemberState.STABLE, MemberState.REVOKING})
"""States in which the member has completed its last round and does not need another one yet."""

_S = MemberState
_T = Trigger

Moves: TypeAlias = Mapping[MemberState, Mapping[Trigger, MemberState]]
"""The legal moves of a member in a group protocol."""

# fmt: off
TRANSITIONS: Final[Moves] = types.MappingProxyType({
    _S.UNSUBSCRIBED: {
        _T.SUBSCRIBED:               _S.JOINING,
        _T.RETURN:                   _S.RETURNING,
        _T.LEAVE:                    _S.UNSUBSCRIBED,
    },
    _S.RETURNING: {
        _T.SUBSCRIBED:               _S.JOINING,    # the stored assignment is for other topics
        _T.KNOWN:                    _S.SYNCING,
        _T.REJOIN:                   _S.JOINING,    # a round has begun
        _T.LOST:                     _S.LOSING,     # the application does not poll
        _T.LOST_NOTHING:             _S.JOINING,    # the generation has ended, or the id is invalid
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.JOINING: {
        _T.SUBSCRIBED:               _S.JOINING,
        _T.MEMBER_ID_GIVEN:          _S.JOINING,    # KIP-394: join again with the id
        _T.JOINED_AS_LEADER:         _S.LEADING,
        _T.JOINED_AS_FOLLOWER:       _S.SYNCING,
        _T.RETURN:                   _S.RETURNING,  # perhaps without a new session
        _T.REJOIN:                   _S.JOINING,    # the join must be sent again
        _T.GIVE_UP_ALL:              _S.REVOKING,   # leaders would give it away: stop first
        _T.LOST:                     _S.LOSING,
        _T.LOST_NOTHING:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.LEADING: {
        _T.SUBSCRIBED:               _S.LEADING,    # takes effect in the next round
        _T.ROUND_DECIDED:            _S.SYNCING,
        _T.LOST:                     _S.LOSING,
        _T.LOST_NOTHING:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.SYNCING: {
        _T.SUBSCRIBED:               _S.SYNCING,    # takes effect in the next round
        _T.ASSIGNED:                 _S.STABLE,
        _T.ASSIGNED_WITH_REVOCATION: _S.REVOKING,
        _T.ASSIGNED_WITH_FOLLOW_UP:  _S.JOINING,
        _T.REJOIN:                   _S.JOINING,
        _T.LOST:                     _S.LOSING,
        _T.LOST_NOTHING:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.STABLE: {
        _T.SUBSCRIBED:               _S.JOINING,
        _T.REJOIN:                   _S.JOINING,
        _T.GIVE_UP_ALL:              _S.REVOKING,   # an eager member before each join
        _T.LOST:                     _S.LOSING,
        _T.LOST_NOTHING:             _S.JOINING,
        _T.LEAVE:                    _S.LEAVING,
        _T.FAIL:                     _S.FAILED,
    },
    _S.REVOKING: {
        _T.SUBSCRIBED:               _S.REVOKING,   # the next join carries it
        _T.REVOKED:                  _S.JOINING,
        _T.REJOIN:                   _S.JOINING,    # slow revocations must not delay other members
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
