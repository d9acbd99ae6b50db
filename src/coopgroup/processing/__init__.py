"""Handle records side by side, and commit only what has been handled.

`process` takes a consumer and a handler; `run` is a whole process with its signals.
"""

from coopgroup.errors import ProcessingError
from coopgroup.processing.failures import DeadLetter, Failure, Retry, Skip, Stop
from coopgroup.processing.process import process, run
from coopgroup.processing.running import StopSignal
from coopgroup.processing.scheduler import Limits

__all__ = [
    "DeadLetter",
    "Failure",
    "Limits",
    "ProcessingError",
    "Retry",
    "Skip",
    "Stop",
    "StopSignal",
    "process",
    "run",
]
