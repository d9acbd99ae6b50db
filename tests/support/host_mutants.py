"""Deliberate bugs of the code between the group and the application of a consumer.

The kinds `polled` and `looped` of the swarm must find them. `REVERTED` are bugs that this code had,
and `PROCESSING` those of `process`, for `processed` and `tasked`.
"""

from typing import Final

from tests.support.mutants import Mutant

_L: Final = "kafka.callbacks.listener:GroupListener."
_I: Final = "kafka.callbacks.application_inbox:ApplicationInbox."
_P: Final = "kafka.callbacks.pending_revocations:PendingRevocations."
_A: Final = "aio.callbacks:LoopCallbacks."

# fmt: off
HOST_MUTANTS: Final = (
    # --- a revocation
    Mutant("complete after the group was left", _L + "_complete",
           "if resources and membership == self._given_up:", "if resources:"),
    Mutant("put-off parts completed at once", _L + "_obey",
           "self._complete(notice.resources - self.owned, membership)",
           "self._complete(notice.resources, membership)"),
    Mutant("no commit before giving up", _L + "_end_stop",
           "self._hand_on(rest, reason, began_s, limit_s)", "self._drop(rest, reason, began_s)"),
    Mutant("completed before it is stopped", _L + "_obey",
           "self._stop(fresh, StopReason.REVOKED)",
           "self.driver.post(RevocationCompleted(resources=notice.resources)); "
           "self._stop(fresh, StopReason.REVOKED)"),
    # --- stops that are put off
    Mutant("no commit at finish", _L + "_finish",
           "self._hand_on(done, StopReason.REVOKED, now_s(), None)",
           "self._drop(done, StopReason.REVOKED, now_s())"),
    Mutant("put-off parts go on being fetched", _L + "_stop_later",
           'later, "application")', 'EMPTY, "application")'),
    Mutant("finish of an earlier stop counts", _L + "_finish",
           "done = self._pending.still_of(stopped)", "done = stopped.resources & self.stopping"),
    Mutant("finish of what was lost is told", _L + "_finish",
           "done = self._pending.still_of(stopped)", "done = stopped.resources"),
    Mutant("numbers of stops do not grow", _P + "begin",
           "self._number += 1", "self._number = 1"),
    Mutant("end of a stop not noted", _L + "_drop",
           "self._pending.end(resources)", "pass"),
    Mutant("no reminder of put-off stops", _L + "_stop_later",
           "self.driver.remind(self._pending.due_at_s)", "pass"),
    Mutant("overdue never completed", _L + "_look_at_slow",
           "self._complete(overdue, membership)", "pass"),
    Mutant("overdue at half of the time", _P + "take_late",
           "if now_s >= stop.began_s + self.limit_s]",
           "if now_s >= stop.began_s + self.limit_s / 2]"),
    Mutant("overdue stays warm", _L + "lose_overdue",
           'self.driver.post(WarmupFailed(resources=overdue, error="not stopped in time"))',
           "pass"),
    # --- a loss
    Mutant("lost partitions stay owned", _L + "_lose",
           "self._drop(lost & self.owned, StopReason.LOST, began_s)", "pass"),
    Mutant("loss voids no notice", _I + "_add",
           "self.keep(FailMember, BeginWarmups, CancelWarmups)", "pass"),
    Mutant("loss voids warm-ups", _I + "_add",
           "self.keep(FailMember, BeginWarmups, CancelWarmups)", "self.keep(FailMember)"),
    Mutant("LossHandled never told", _L + "_obey",
           "self.driver.post(LossHandled())", "pass"),
    Mutant("LossHandled before on_lost", _L + "_obey",
           "self._lose((notice",
           "self.driver.post(LossHandled()); self._lose((notice"),
    Mutant("a loss calls on_revoke", _L + "_lose",
           "self._call(own.on_lost or own.on_revoke, lost)", "self._call(own.on_revoke, lost)"),
    # --- a close
    Mutant("begins what was lost in on_assign", _L + "_grant",
           "self._begin(resources & self.owned)", "self._begin(resources)"),
    Mutant("close serves no last notices", _L + "_give_up",
           "self.serve_last()", "pass"),
    Mutant("close forgets what is put off", _L + "_give_up",
           "self._finish_busy(busy)", "pass"),
    Mutant("close leaves the rest", _L + "_give_up",
           "self._stop(rest, StopReason.CLOSED)", "pass"),
    Mutant("stops are put off in a close", _L + "_stop",
           "self._later = EMPTY if reason is StopReason.REVOKED and not self._giving_up else None",
           "self._later = EMPTY"),
)
REVERTED: Final = (
    Mutant("a stop that hangs holds up the polling thread", _A + "lose",
           "not self.listener.is_overdue and ", ""),
    Mutant("work is told before on_assign has ended", _L + "_begin",
           "resources - ResourceSet.from_pairs(self.fetching.held)", "resources"),
    Mutant("an overdue stop took no time", _L + "_drop",
           "for since_s, some in parts:",
           "for since_s, some in [(began_s, resources)]:"),
    Mutant("a close in on_lost commits", _L + "_finish_busy",
           "self._drop(lost, StopReason.LOST, now_s())", "pass"),
    Mutant("a close waits for a stop that runs", _A + "wait_for_stops",
           "all(one.began_s < now_s() - self._limit_s for one in self._stops)",
           "not self._stops"),
    Mutant("a close waits for its stops", _A + "_run_now",
           "math.inf if is_urgent else now_s() + self._limit_s", "math.inf"),
)
PROCESSING: Final = (
    Mutant("positions count while a stop goes on", "processing.attachment:Attachment._restore",
           "committing.store.stored_only = listener.stopping", "pass"),
    Mutant("processing that begins is overtaken", "processing.attachment:Attachment._restore",
           "committing.commit_due(listener.owned)",
           "listener.serve_calls(); committing.commit_due(listener.owned)"),
)
FOUND_BY: Final = {
    "complete after the group was left": ("polled", 13),
    "put-off parts completed at once": ("looped", 0),
    "no commit before giving up": ("polled", 0),
    "completed before it is stopped": ("polled", 0),
    "no commit at finish": ("looped", 0),
    "put-off parts go on being fetched": ("polled", 1),
    "finish of what was lost is told": ("looped", 0),
    "end of a stop not noted": ("looped", 0),
    "overdue never completed": ("polled", 10),
    "overdue at half of the time": ("polled", 10),
    "lost partitions stay owned": ("looped", 1),
    "LossHandled never told": ("looped", 1),
    "LossHandled before on_lost": ("looped", 1),
    "a loss calls on_revoke": ("looped", 1),
    "begins what was lost in on_assign": ("polled", 14),
    "close forgets what is put off": ("polled", 13),
    "close leaves the rest": ("polled", 0),
    "stops are put off in a close": ("looped", 0),
    "a stop that hangs holds up the polling thread": ("looped", 31),
    "work is told before on_assign has ended": ("looped", 0),
    "an overdue stop took no time": ("polled", 10),
    "numbers of stops do not grow": ("polled", 12),
    "finish of an earlier stop counts": ("polled", 59),
    "overdue stays warm": ("polled", 42),
    "a close waits for a stop that runs": ("looped", 123),
    "a close waits for its stops": ("looped", 31),
    "a close in on_lost commits": ("polled", 101),
    "positions count while a stop goes on": ("processed", 56),
    "processing that begins is overtaken": ("tasked", 1),
}
"""Kind and seed of a run that finds each bug."""
# fmt: on
