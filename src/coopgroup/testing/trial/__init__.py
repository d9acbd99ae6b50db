"""Trials: groups of consumer processes on a broker, measured by the records that they hand out.

`controller` plays a trial with groups (`group`) of `processes`, `worker` and `producer` are what
these run, `recording` is what they leave behind, `analysis` makes facts of it, `scenarios` is what
the headline benchmark plays.
"""

from coopgroup.testing.trial.analysis import Facts, TrialLog, Window, measure
from coopgroup.testing.trial.controller import Trial
from coopgroup.testing.trial.group import Group
from coopgroup.testing.trial.processes import TrialError
from coopgroup.testing.trial.spec import KINDS

__all__ = ["KINDS", "Facts", "Group", "Trial", "TrialError", "TrialLog", "Window", "measure"]
