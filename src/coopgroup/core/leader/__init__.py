"""The leader's duty in a round: decode, resolve claims, assign, stage, check, encode.

Pure: equal subscriptions, metadata, lags, context, assignor and policy give equal bytes. The host
of the leading member does the following, in this order:

1. It calls `read_members` once, on the answer to JoinGroup. `RoundRequest.topics` are the topics to
   look up.
2. It looks up the metadata, and the lags if `assignor.needs_lags`. It leaves out everything that
   does not arrive in time.
3. It calls `lead` where a slow assignor delays nothing else, with its own time limit. When the
   limit has passed, or without metadata, it calls `fallback_round`.
4. It sends `RoundDecision.assignments` with SyncGroup. It keeps `RoundDecision.state` for the next
   round that the same member leads, even if its own SyncGroup fails (the generation in the next
   `RoundContext` shows this). After another member has led a round it forgets the state.
5. If `RoundDecision.refused`, it rejoins after a pause: the round moved nothing, so unowned
   resources still have no owner.

`rounds` and `lag_checks` do steps 3 and 5 for a member of `coopgroup.core.session`.
"""

from coopgroup.core.leader.answer import fallback_round, lead, member_assignments
from coopgroup.core.leader.decision import RoundDecision, decide_round, refused_round
from coopgroup.core.leader.kafka_rounds import lead_kafka_round
from coopgroup.core.leader.request import RoundRequest, read_members
from coopgroup.core.model.lags import NO_LAGS, Lags
from coopgroup.core.model.metadata import TopicMetadata

__all__ = [
    "NO_LAGS",
    "Lags",
    "RoundDecision",
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
