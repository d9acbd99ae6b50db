"""`Session`: one member and its duty as a leader, still without clock, thread or socket.

The Kafka driver hosts sessions, a simulator can; no host knows more of the group protocol
than this module says. The host's duties, in this order:

1. Give every event to `step` with the monotonic time, and carry out the effects in order.
2. Wake the session (`Woken`) at `session_deadline_ms`; while `backing_off`, a little later by
   chance, so that a group does not come back in lockstep.
3. Answer every `Send` with exactly one `Answered` or `RequestFailed`.
4. For `LeadRound`, where it delays nobody and with a time limit: `read_members`, look up metadata
   and lags, `lead_round`, and give `RoundLed`; when the limit is over, `lead_round` without
   metadata. Members that cannot be read are None; the round is answered all the same. After a
   round that was refused (`RoundLed.led.refused`) give `RejoinRequested` a while later: what it
   could not place has no owner until then.
   For `CheckLags`, likewise: look up the lags of its resources, `check_lags`, and give
   `LagsChecked`. One look at a time, and none beside a round that is being decided: a look that
   fails, or is left out, need not be answered.
5. Run `GrantResources`, `RevokeResources` and `LoseResources` on the application's thread in the
   order given. A revocation is complete when the callback has returned and the offsets are
   committed, or at least asked for; only then give `RevocationCompleted`, for the join that follows
   no longer claims the resources, and another member may have them at once. That join waits for
   every commit of the resources that was asked for before. A revocation may complete in parts:
   what is slow to stop then holds back nothing else. What was lost while it was being stopped
   must not be reported after `LossHandled`: it may have been granted and revoked anew. A stop
   has an end, which is for the host to see to: a member waits for it for ever, and the group with
   it. What is not stopped in time is lost for the application, and then reported as stopped.
6. Hand nothing out once `member.hold_until_ms` has passed, whatever the session has been told
   so far: after a pause of the process the clock knows it first. A later step may put that time
   off again; what is held then goes on where it stood.
7. Keep what `KeepIdentity` says where the next life of the process finds it and no other process
   does, and give it to `new_member` there. It need not be on disk before the next effect: what is
   older is refused by the group, and costs a join. Beside it, what `next_round_in_ms` says, for the
   `OwedRound` of the next life: nobody else would ask for that round.
8. Give `with_rate` what it measures of the application before each step, if it measures anything:
   `drain-time` gives more to members that work faster. Time without work is not to be in it.
9. When `step` raises anything but `LocalProtocolError`, which is a bug, end the membership with
   `fail`: a member that missed an event would wait for ever for what it takes to be on its way.
"""

from coopgroup.session.balancing import CheckLags, LagsChecked, LagWatch, check_lags
from coopgroup.session.deciding import LeadRound, RoundLed, lead_round, one_line
from coopgroup.session.hosted import (
    OwedRound,
    Session,
    SessionEffect,
    SessionEvent,
    backing_off,
    fail,
    next_round_in_ms,
    session_deadline_ms,
    step,
)
from coopgroup.session.measuring import smoothed_rate, with_rate

__all__ = [
    "CheckLags",
    "LagWatch",
    "LagsChecked",
    "LeadRound",
    "OwedRound",
    "RoundLed",
    "Session",
    "SessionEffect",
    "SessionEvent",
    "backing_off",
    "check_lags",
    "fail",
    "lead_round",
    "next_round_in_ms",
    "one_line",
    "session_deadline_ms",
    "smoothed_rate",
    "step",
    "with_rate",
]
