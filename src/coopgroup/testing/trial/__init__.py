"""Trials: groups of consumer processes on a broker, measured by the records that they hand out.

`controller` plays a trial with groups (`group`) of `processes`. These run `worker` and `producer`,
and log with `recording`. `analysis` computes facts from the logs. `scenarios` contains the events
of the headline benchmark.
"""

from coopgroup.testing.trial.analysis import Facts, TrialLog, Window, measure
from coopgroup.testing.trial.controller import Trial
from coopgroup.testing.trial.group import Group
from coopgroup.testing.trial.processes import TrialError
from coopgroup.testing.trial.spec import KINDS

__all__ = ["KINDS", "Facts", "Group", "Trial", "TrialError", "TrialLog", "Window", "measure"]
