"""`Session`: one member and its duty as a leader, without clock, thread or socket.

The Kafka driver and the simulator host sessions. A host knows no more of the group protocol than
this page. Duties of a host, in this order:

1. Give every event to `step` with the monotonic time, and perform the effects in order.
2. Wake the session (`Woken`) at `session_deadline_ms`. While `backing_off`, add a random delay, so
   that members do not return in lockstep.
3. Answer every `Send` with exactly one `Answered` or `RequestFailed`.
4. For `DecideRound`, where it delays nothing else and with a time limit: `read_members`, look up
   metadata and lags, `lead_round`, and give `DecisionMade`. All rounds of a rebalance get the same
   lags (`RebalanceLags`). When the limit has passed, call `lead_round` without metadata. If members
   cannot be read, pass None; the round is still answered, and the session starts another one later.
   For `LookOver`, likewise: look up the topics, compare later look-ups with this one, and give
   `RejoinRequested` if it `needs_round`. For `CheckLags`: look up the lags of its
   resources, call `check_lags`, and give `LagsChecked`. Run one check at a time, and none while a
   round is decided. A failed or skipped check needs no answer. The functions of these duties are in
   `coopgroup.core.leader` (`request`, `rounds`, `lag_checks`). Only a member that may lead needs
   them, so this package does not import them. For `CountPartitions`: look up the
   topics, and give its `answered` with `partition_counts`; also, and soon, if the look-up fails.
   For `NameTopics`, likewise, with `topic_names`. For `FindSessionTimeout`: ask the cluster, and
   deliver `SessionTimeoutFound` if it answers.
5. Run `GrantResources`, `RevokeResources` and `LoseResources` on the application's thread in the
   given order. A revocation is complete when the callback has returned and the offsets are
   committed, or at least requested. Only then give `RevocationCompleted`: the following join no
   longer claims the resources, and another member can get them immediately. That join waits for
   every earlier commit of the resources. A revocation can complete in parts, so that a slow stop
   delays nothing else. After `LossHandled`, never report a resource that was lost while it was
   being stopped: it may have been granted and revoked again. The host must bound each stop, because
   a member waits for it forever, and the group with it. A resource that is not stopped in time is
   lost for the application and then reported as stopped.
6. Hand out nothing after `member.hold_until_ms`, whatever the session knows so far: after a freeze
   of the process the clock shows it first. A later step may extend that time; the remaining
   resources then continue where they were.
7. Store `KeepIdentity` where only the next process of this member finds it, with `Session.leads`
   and `next_round_in_ms`, and give all three to `new_session` there: no other member would start
   the round that a leader owes. They need not be on disk before the next effect: the group refuses
   an outdated identity, which costs one join.
8. Before each step, give `with_rate` the measured rate of the application, if there is one:
   `drain-time` assigns more to fast members. Exclude idle time from the measurement.
9. Run `BeginWarmups` and `CancelWarmups` on the application's thread as well, in order with the
   notices of duty 5; a loss does not make them void. Give `WarmedUp` when the application says that
   it is warm, and `WarmupFailed` if its callback raised. Give `WarmSetDeclared` before
   `SubscriptionChanged` if the application takes part in warm-ups. A revoked resource that is not
   stopped in time has no state to keep: give `WarmupFailed` before it is reported as stopped.
10. If `step` raises anything but `LocalProtocolError`, which is a bug, end the membership with
   `fail`: a member that missed an event would wait forever for requests that it believes to be on
   their way.
"""

from coopgroup.core.session.balancing import CheckLags, LagsChecked
from coopgroup.core.session.deciding import (
    DecideRound,
    DecisionMade,
    LeaderContext,
    RebalanceLags,
)
from coopgroup.core.session.overdue import overdue_claims
from coopgroup.core.session.own_rounds import LookOver, SeenTopics
from coopgroup.core.session.state import (
    LagWatch,
    OwedRound,
    Session,
    new_session,
    smoothed_rate,
    with_rate,
)
from coopgroup.core.session.stepping import (
    SessionEffect,
    SessionEvent,
    backing_off,
    fail,
    next_round_in_ms,
    session_deadline_ms,
    step,
)

__all__ = [
    "CheckLags",
    "DecideRound",
    "DecisionMade",
    "LagWatch",
    "LagsChecked",
    "LeaderContext",
    "LookOver",
    "OwedRound",
    "RebalanceLags",
    "SeenTopics",
    "Session",
    "SessionEffect",
    "SessionEvent",
    "backing_off",
    "fail",
    "new_session",
    "next_round_in_ms",
    "overdue_claims",
    "session_deadline_ms",
    "smoothed_rate",
    "step",
    "with_rate",
]
