"""Deliberate bugs of warm-ups that the swarm with warm-ups must find.

Each stands beside a seed of `draw_warm` whose run finds it.
"""

from typing import Final

from tests.support.mutants import Mutant

# fmt: off
WARM_MUTANTS: Final = (
    # --- the member
    (51, Mutant("a warm set is kept without a wish", "member.warming:take_warmups",
                "warm=before.warm & wanted,", "warm=before.warm,")),
    (164, Mutant("a cancelled warm-up stays begun", "member.warming:take_warmups",
                 "begun=(before.begun & wanted) | begin,", "begun=before.begun | begin,")),
    (260, Mutant("a failed warm-up counts as warm", "member.warming:_take_failed",
                "warm=before.warm - failed,", "warm=before.warm | failed,")),
    # --- the leader
    (30, Mutant("moves do not wait for their warm-ups", "policies.warmth:Warmth.waits_for",
               "moves &= self.is_cold(receiver) &", "moves &= False &")),
    (6, Mutant("limits of members do not count", "policies.standbys:Slots.fill",
               "rank < self.left_of[members]", "rank >= 0")),
    (1, Mutant("a standby is missing", "policies.standbys:Standbys.added",
               "missing = self._missing(kept)", "missing = self._missing(kept) - 1")),
    # --- resources that belong together
    (2, Mutant("bundles are not formed", "policies.bundles:bundles_of",
               "if label is None:", "if True:")),
    (2, Mutant("parts go with other bundles", "policies.bundles:opened_plan",
               "wanted = plan.assigned[bundle_of]", "wanted = plan.assigned[bundle_of[::-1]]")),
    (2, Mutant("no round follows a stop", "policies.bundles:opened_plan",
               "follow_up = follow_up or bool((waits & unclaimed.withheld).any())",
               "follow_up = False")),
)
# fmt: on
