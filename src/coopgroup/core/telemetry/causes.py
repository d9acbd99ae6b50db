"""Why a member changes its state, joins again, or loses its resources.

These are the texts of `StateChanged.cause`, of `MembershipLost.cause` and of the join reason that a
broker logs (KIP-800). A cause that is none of them is an answer of the coordinator
(`answered_with`), a reason to leave that the host gives, or the message of an error that ends the
member.
"""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["Cause", "answer_in", "answered_with"]

_ANSWER: Final = re.compile(r"(\w+) answered (\w+)")


class Cause(enum.StrEnum):
    """A cause that the member, its leader or its host knows by itself."""

    ASSIGNED = "assigned"
    ASSIGNMENT_REFUSED = "assignment refused"
    ASSIGNMENT_UNREADABLE = "unreadable assignment"
    BECAME_WARM = "became warm"
    BROKER_ASKED = "what does the broker assign?"
    BROKER_NO_LONGER_ASSIGNS = "the broker no longer assigns"
    CATALOGUE_CHANGED = "the catalogue changed"
    CATALOGUE_IS_NEWER = "a newer catalogue than the group's"
    CLAIM_NOT_GIVEN_UP = "a claim was not given up"
    COORDINATOR_MOVED = "coordinator moved"
    DECLINED_CHANGED = "declined resources changed"
    DECLINED_WARMUP = "declined a warm-up"
    FOLLOW_UP = "follow-up round"
    GROUP_STANDS = "the group still stands where it stood"
    ID_GIVEN = "member id given"
    IDENTITY_KEPT = "identity kept"
    JOINED = "joined"
    JOINED_AS_KNOWN = "joined as a known member"
    LAGS_UNEVEN = "lags are uneven"
    LEADER_RETURNED = "the leader returned"
    LEASE_EXPIRED = "lease expired"
    LEFT = "left the group"
    LOSS_HANDLED = "loss handled"
    MISSED_ROUND = "a round ended without its join"
    MUST_NOT_HOLD_UP = "what is still being stopped must not hold others back"
    NOT_POLLED = "max.poll.interval.ms exceeded"
    NOTHING_MOVED = "the last round moved nothing"
    NOTHING_SUBSCRIBED = "subscribes to nothing"
    PARTITIONS_CHANGED = "partitions changed"
    POLICY_DEADLINE = "a deadline of the policy has come"
    REBALANCE_TIMEOUT = "rebalance time-out"
    RETURNED_CHANGED = "returned; the leader may not know its declines, rack or traits"
    REVOKED = "revocation completed"
    ROUND_BEGUN = "a round has begun"
    ROUND_DECIDED = "round decided"
    SCHEDULED = "scheduled rebalance"
    SUBSCRIPTION_CHANGED = "subscription changed"
    WARM_DECLARED = "warm resources declared"
    WEIGHTS_CHANGED = "the weights changed"


def answered_with(request: str, error: str) -> str:
    """Return the cause that a request was answered with an error."""
    return f"{request} answered {error}"


def answer_in(cause: str) -> tuple[str, str]:
    """Return the request and the error of such a cause, without the broker's message; else ""."""
    found = _ANSWER.match(cause)
    return (found[1], found[2]) if found else ("", "")
