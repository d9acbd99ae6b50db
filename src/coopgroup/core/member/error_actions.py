"""One table: a member's action for each error code of each request.

`ERROR_ACTIONS[(request, code)]` has a row for every code that Kafka's group coordinators (up to
4.3) give to the request. A code without a row uses the request's row for `UNKNOWN_SERVER_ERROR`.
Future brokers may send new codes, and no new code may block a member forever.

Besides Kafka's codes the table has three codes of the transport for a missing answer.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestKind(enum.Enum):
    """The requests that a member sends."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    OFFSET_COMMIT = "OffsetCommit"
    CONSUMER_BEAT = "ConsumerGroupHeartbeat"


OF_A_ROUND: Final = frozenset({RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP})
"""Requests that wait at the coordinator for the other members of a round."""


class ErrorCode(enum.IntEnum):
    """Kafka's error codes that concern a group member, and the transport's own (below -1)."""

    UNAUTHENTICATED = -4
    UNSUPPORTED_BY_BROKER = -3
    NO_ANSWER = -2
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113


class Action(enum.Enum):
    """A member's action after an answer."""

    PROCEED = "proceed"
    """The request succeeded."""

    RETRY = "retry"
    """Send the same request again after a back-off; a refused sync joins again. A heartbeat of a
    classic member always waits for `retry_backoff_ms`."""

    SEEK = "seek coordinator"
    """The coordinator may have moved: look it up, then send the request again."""

    TAKE_ID = "take member id"
    """Join again immediately with the id in the answer (KIP-394)."""

    REJOIN = "rejoin"
    """A round has begun: join it and keep every claim."""

    REJOIN_LATER = "rejoin after a back-off"
    """The round failed at the broker: join the next one after a back-off, and keep every claim.
    A join begins a round for the whole group, and the next round may fail for the same reason."""

    LOSE = "lose generation"
    """The member is out of the generation: everything is lost; join again with the same id."""

    LOSE_ID = "lose member id"
    """The coordinator has dropped the member: everything is lost; join again as a new member."""

    FENCED = "fenced"
    """Another process has the static id: fail. If the coordinator may have forgotten the member id
    of this process, join again as a new member, once."""

    AFTER_SYNC = "retry after sync"
    """The round must end first; then send the offsets of owned resources again (commits only)."""

    REFUSE = "refuse"
    """Give the error to the caller (commits only); the membership continues."""

    YIELD = "give up all"
    """Other members know only protocols whose leaders may reassign what this member owns: give up
    all resources, then also offer these protocols. With nothing to give up, the member fails."""

    FAIL = "fail"
    """A retry cannot help: the application gets the error."""


TRIED_AGAIN: Final = frozenset({Action.RETRY, Action.SEEK})
"""Actions that send the request again, and keep the membership."""

_C = ErrorCode
_A = Action
_K = RequestKind

# fmt: off
_ROWS: Final[Mapping[RequestKind, Mapping[ErrorCode, Action]]] = {
    _K.FIND_COORDINATOR: {
        _C.NONE:                           _A.PROCEED,
        _C.NO_ANSWER:                      _A.RETRY,
        _C.UNKNOWN_SERVER_ERROR:           _A.RETRY,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.RETRY,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.RETRY,  # __consumer_offsets is being created
        _C.NOT_COORDINATOR:                _A.RETRY,
        _C.REQUEST_TIMED_OUT:              _A.RETRY,
        _C.KAFKA_STORAGE_ERROR:            _A.RETRY,
        _C.THROTTLING_QUOTA_EXCEEDED:      _A.RETRY,
        _C.UNAUTHENTICATED:                _A.FAIL,
        _C.UNSUPPORTED_BY_BROKER:          _A.FAIL,
        _C.UNSUPPORTED_VERSION:            _A.FAIL,
        _C.INVALID_GROUP_ID:               _A.FAIL,
        _C.INVALID_REQUEST:                _A.FAIL,
        _C.TOPIC_AUTHORIZATION_FAILED:     _A.FAIL,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.FAIL,
        _C.CLUSTER_AUTHORIZATION_FAILED:   _A.FAIL,
    },
    _K.JOIN_GROUP: {
        _C.NONE:                           _A.PROCEED,
        _C.MEMBER_ID_REQUIRED:             _A.TAKE_ID,
        _C.NO_ANSWER:                      _A.SEEK,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.SEEK,
        _C.NOT_COORDINATOR:                _A.SEEK,
        _C.UNKNOWN_SERVER_ERROR:           _A.REJOIN_LATER,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.RETRY,
        _C.REBALANCE_IN_PROGRESS:          _A.RETRY,
        _C.REQUEST_TIMED_OUT:              _A.RETRY,
        _C.THROTTLING_QUOTA_EXCEEDED:      _A.RETRY,
        _C.UNRELEASED_INSTANCE_ID:         _A.RETRY,  # KIP-848: the earlier holder must leave first
        _C.ILLEGAL_GENERATION:             _A.LOSE,
        _C.FENCED_MEMBER_EPOCH:            _A.LOSE_ID,
        _C.STALE_MEMBER_EPOCH:             _A.LOSE_ID,
        _C.UNKNOWN_MEMBER_ID:              _A.LOSE_ID,
        _C.UNAUTHENTICATED:                _A.FAIL,
        _C.UNSUPPORTED_BY_BROKER:          _A.FAIL,
        _C.UNSUPPORTED_VERSION:            _A.FAIL,
        _C.INVALID_REQUEST:                _A.FAIL,
        _C.INVALID_GROUP_ID:               _A.FAIL,
        _C.INVALID_SESSION_TIMEOUT:        _A.FAIL,
        _C.INCONSISTENT_GROUP_PROTOCOL:    _A.YIELD,
        _C.GROUP_MAX_SIZE_REACHED:         _A.FAIL,
        _C.FENCED_INSTANCE_ID:             _A.FENCED,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.FAIL,
    },
    _K.SYNC_GROUP: {
        _C.NONE:                           _A.PROCEED,
        _C.NO_ANSWER:                      _A.SEEK,   # then join again: the claims are still valid
        _C.COORDINATOR_NOT_AVAILABLE:      _A.SEEK,
        _C.NOT_COORDINATOR:                _A.SEEK,
        _C.UNKNOWN_SERVER_ERROR:           _A.REJOIN_LATER,  # also: too large for the broker's log
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.REJOIN_LATER,
        _C.REQUEST_TIMED_OUT:              _A.REJOIN_LATER,
        _C.INVALID_REQUEST:                _A.REJOIN_LATER,  # librdkafka's mock: sync was too late
        _C.INCONSISTENT_GROUP_PROTOCOL:    _A.REJOIN_LATER,  # converted since the join (KIP-848)
        _C.REBALANCE_IN_PROGRESS:          _A.REJOIN,
        # The round ended without this sync. The join of that round carried the claims, so no other
        # member can have been given them (KAFKA-14016). Keep them and join again.
        _C.ILLEGAL_GENERATION:             _A.REJOIN,
        _C.UNKNOWN_MEMBER_ID:              _A.LOSE_ID,
        _C.FENCED_MEMBER_EPOCH:            _A.LOSE_ID,
        _C.STALE_MEMBER_EPOCH:             _A.LOSE_ID,
        _C.UNAUTHENTICATED:                _A.FAIL,
        _C.UNSUPPORTED_BY_BROKER:          _A.FAIL,
        _C.UNSUPPORTED_VERSION:            _A.FAIL,
        _C.INVALID_GROUP_ID:               _A.FAIL,
        _C.FENCED_INSTANCE_ID:             _A.FENCED,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.FAIL,
    },
    _K.HEARTBEAT: {
        _C.NONE:                           _A.PROCEED,
        _C.REBALANCE_IN_PROGRESS:          _A.REJOIN,
        _C.NO_ANSWER:                      _A.SEEK,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.SEEK,
        _C.NOT_COORDINATOR:                _A.SEEK,
        _C.UNKNOWN_SERVER_ERROR:           _A.RETRY,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.RETRY,
        _C.REQUEST_TIMED_OUT:              _A.RETRY,
        _C.ILLEGAL_GENERATION:             _A.LOSE,
        _C.UNKNOWN_MEMBER_ID:              _A.LOSE_ID,
        _C.FENCED_MEMBER_EPOCH:            _A.LOSE_ID,
        _C.STALE_MEMBER_EPOCH:             _A.LOSE_ID,
        _C.UNAUTHENTICATED:                _A.FAIL,
        _C.UNSUPPORTED_BY_BROKER:          _A.FAIL,
        _C.UNSUPPORTED_VERSION:            _A.FAIL,
        _C.INVALID_REQUEST:                _A.FAIL,
        _C.INVALID_GROUP_ID:               _A.FAIL,
        _C.FENCED_INSTANCE_ID:             _A.FENCED,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.FAIL,
    },
    # Leaving is optional: the session timeout has the same effect later. So any answer ends it.
    _K.LEAVE_GROUP: {
        _C.NONE:                           _A.PROCEED,
        _C.NO_ANSWER:                      _A.PROCEED,
        _C.UNAUTHENTICATED:                _A.PROCEED,
        _C.UNSUPPORTED_BY_BROKER:          _A.PROCEED,
        _C.UNKNOWN_SERVER_ERROR:           _A.PROCEED,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.PROCEED,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.PROCEED,
        _C.NOT_COORDINATOR:                _A.PROCEED,
        _C.REQUEST_TIMED_OUT:              _A.PROCEED,
        _C.UNKNOWN_MEMBER_ID:              _A.PROCEED,
        _C.FENCED_INSTANCE_ID:             _A.PROCEED,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.PROCEED,
        _C.INVALID_GROUP_ID:               _A.PROCEED,
        _C.INVALID_REQUEST:                _A.PROCEED,
        _C.UNSUPPORTED_VERSION:            _A.PROCEED,
    },
    _K.OFFSET_COMMIT: {
        _C.NONE:                           _A.PROCEED,
        _C.REBALANCE_IN_PROGRESS:          _A.AFTER_SYNC,
        _C.ILLEGAL_GENERATION:             _A.AFTER_SYNC,
        _C.NO_ANSWER:                      _A.SEEK,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.SEEK,
        _C.NOT_COORDINATOR:                _A.SEEK,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.RETRY,
        _C.REQUEST_TIMED_OUT:              _A.RETRY,
        _C.KAFKA_STORAGE_ERROR:            _A.RETRY,
        _C.THROTTLING_QUOTA_EXCEEDED:      _A.RETRY,
        _C.UNSTABLE_OFFSET_COMMIT:         _A.RETRY,
        _C.UNKNOWN_MEMBER_ID:              _A.LOSE_ID,
        _C.FENCED_MEMBER_EPOCH:            _A.LOSE_ID,
        _C.STALE_MEMBER_EPOCH:             _A.AFTER_SYNC,  # KIP-848: the next beat tells the epoch
        _C.FENCED_INSTANCE_ID:             _A.FAIL,
        _C.UNKNOWN_SERVER_ERROR:           _A.REFUSE,
        _C.UNAUTHENTICATED:                _A.REFUSE,
        _C.UNSUPPORTED_BY_BROKER:          _A.REFUSE,
        _C.UNSUPPORTED_VERSION:            _A.REFUSE,
        _C.UNSUPPORTED_FOR_MESSAGE_FORMAT: _A.REFUSE,
        _C.UNKNOWN_TOPIC_OR_PARTITION:     _A.REFUSE,
        _C.UNKNOWN_TOPIC_ID:               _A.REFUSE,
        _C.OFFSET_METADATA_TOO_LARGE:      _A.REFUSE,
        _C.INVALID_COMMIT_OFFSET_SIZE:     _A.REFUSE,
        _C.INVALID_GROUP_ID:               _A.REFUSE,
        _C.INVALID_REQUEST:                _A.REFUSE,
        _C.GROUP_ID_NOT_FOUND:             _A.REFUSE,
        _C.TOPIC_AUTHORIZATION_FAILED:     _A.REFUSE,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.REFUSE,
    },
    # The only request of a member of KIP-848 apart from commits; it leaves as in LEAVE_GROUP.
    _K.CONSUMER_BEAT: {
        _C.NONE:                           _A.PROCEED,
        _C.NO_ANSWER:                      _A.SEEK,
        _C.COORDINATOR_NOT_AVAILABLE:      _A.SEEK,
        _C.NOT_COORDINATOR:                _A.SEEK,
        _C.UNKNOWN_SERVER_ERROR:           _A.RETRY,
        _C.COORDINATOR_LOAD_IN_PROGRESS:   _A.RETRY,
        _C.REQUEST_TIMED_OUT:              _A.RETRY,
        _C.THROTTLING_QUOTA_EXCEEDED:      _A.RETRY,
        _C.UNRELEASED_INSTANCE_ID:         _A.RETRY,  # until the session of its holder ends
        # The group is classic: it was converted when its last member of KIP-848 was removed. A join
        # tries again for a while, because a round that revokes delays the conversion.
        _C.GROUP_ID_NOT_FOUND:             _A.LOSE_ID,
        _C.UNKNOWN_MEMBER_ID:              _A.LOSE_ID,
        _C.FENCED_MEMBER_EPOCH:            _A.LOSE_ID,
        _C.UNAUTHENTICATED:                _A.FAIL,
        _C.UNSUPPORTED_BY_BROKER:          _A.FAIL,
        _C.UNSUPPORTED_VERSION:            _A.FAIL,
        _C.INVALID_REQUEST:                _A.FAIL,
        _C.INVALID_GROUP_ID:               _A.FAIL,
        _C.GROUP_MAX_SIZE_REACHED:         _A.FAIL,
        _C.FENCED_INSTANCE_ID:             _A.FAIL,
        _C.UNSUPPORTED_ASSIGNOR:           _A.FAIL,
        _C.GROUP_AUTHORIZATION_FAILED:     _A.FAIL,
        _C.TOPIC_AUTHORIZATION_FAILED:     _A.FAIL,
    },
}
# fmt: on

ERROR_ACTIONS: Final[Mapping[tuple[RequestKind, ErrorCode], Action]] = types.MappingProxyType(
    {(kind, code): action for kind, rows in _ROWS.items() for code, action in rows.items()}
)


def action_for(kind: RequestKind, code: int) -> Action:
    """Return a member's action for the error code of a request."""
    row = _ROWS[kind]
    if code in row:
        return row[ErrorCode(code)]
    return row[ErrorCode.UNKNOWN_SERVER_ERROR]


# The usual cause of each error that is retried, for the application and for the tools.
_USUAL_CAUSES: Final[Mapping[int, str]] = {
    _C.NO_ANSWER: (
        "a broker is down, or advertised.listeners names an address that this process cannot reach"
    ),
    _C.UNKNOWN_SERVER_ERROR: (
        "the broker's log names the reason, such as assignments above message.max.bytes"
    ),
    _C.REQUEST_TIMED_OUT: "too few replicas of __consumer_offsets are in sync",
    _C.COORDINATOR_LOAD_IN_PROGRESS: (
        "a broker has become the coordinator and still reads __consumer_offsets"
    ),
    _C.COORDINATOR_NOT_AVAILABLE: (
        "offsets.topic.replication.factor is above the number of brokers, so that "
        "__consumer_offsets cannot be created; or the group's partition of it has no leader"
    ),
    _C.NOT_COORDINATOR: (
        "the group's partition of __consumer_offsets moves, or brokers disagree on its leader"
    ),
    _C.ILLEGAL_GENERATION: "rounds end without this member: it is slow, or cut off for moments",
    _C.INCONSISTENT_GROUP_PROTOCOL: "the group is being converted between two group protocols",
    _C.UNKNOWN_MEMBER_ID: "session.timeout.ms is too short, or the coordinator forgets its members",
    _C.REBALANCE_IN_PROGRESS: "members join and leave the group all the time",
    _C.INVALID_REQUEST: "the sync arrives after the end of its round",
    _C.KAFKA_STORAGE_ERROR: "a disk of a broker is full or broken",
    _C.UNSTABLE_OFFSET_COMMIT: "a transaction that commits offsets of the group is still open",
    _C.THROTTLING_QUOTA_EXCEEDED: "a quota of the cluster is used up",
    _C.UNRELEASED_INSTANCE_ID: "another process still has this group.instance.id",
    _C.GROUP_ID_NOT_FOUND: (
        "the classic group cannot be converted: group.consumer.migration.policy forbids it, or its "
        "members stop partitions"
    ),
    _C.FENCED_MEMBER_EPOCH: "the coordinator has counted the member out",
    _C.STALE_MEMBER_EPOCH: "the coordinator has counted the member out",
}


def usual_cause(code: int, before: str = "") -> str:
    """Return the usual cause of an error that is retried, after `before`; "" if none is known."""
    cause = _USUAL_CAUSES.get(code)
    return "" if cause is None else f"{before}usually {cause}"


def error_name(code: int) -> str:
    """Return Kafka's name of a code, or the number if this version knows no name."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
