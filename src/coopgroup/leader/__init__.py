"""The leader's duty in a round: decode, resolve claims, assign, stage, check, encode.

Pure: the same subscriptions, metadata, lags, context, assignor and policy give the same bytes. The
host of the member that leads does, in this order:

1. `read_members` decodes what JoinGroup answered, once; `RoundRequest.topics` says what to look up.
2. It looks up the metadata, and the lags where `assignor.needs_lags`; what it cannot get in time
   it leaves out.
3. It calls `lead` where a slow assignor delays nobody else, with a time limit of its own, and
   takes `fallback_round` when the limit is over or there is no metadata at all.
4. It sends `LedRound.assignments` with SyncGroup and keeps `LedRound.state` for the next round
   that the same member leads, also when its own SyncGroup fails (the generation in the next
   `RoundContext` tells); once another member led a round it forgets the state.
5. When `LedRound.refused`, it rejoins after a pause of its own choosing: the round moved nothing,
   so what has no owner still has none.
"""

from coopgroup.leader.answer import LedRound, fallback_round, lead, member_assignments
from coopgroup.leader.decision import DecidedRound, decide_round, refused_round
from coopgroup.leader.kafka_rounds import lead_kafka_round
from coopgroup.leader.request import (
    NO_LAGS,
    Lags,
    RoundRequest,
    TopicMetadata,
    read_members,
)

__all__ = [
    "NO_LAGS",
    "DecidedRound",
    "Lags",
    "LedRound",
    "RoundRequest",
    "TopicMetadata",
    "decide_round",
    "fallback_round",
    "lead",
    "lead_kafka_round",
    "member_assignments",
    "read_members",
    "refused_round",
]
