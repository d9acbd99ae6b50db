"""What a page needs from a run; `coopgroup.simulator.Run` provides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import Envelope

__all__ = ["LagSamples", "PlayedRun", "PlayedScenario", "Violated"]

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]


class LagSamples(Protocol):
    """Lags of all resources at some times."""

    @property
    def times_ms(self) -> Int64Array:
        """Times: int64, shape (S,), ascending."""
        ...

    @property
    def lags(self) -> Int64Array | Float64Array:
        """Lag in records: shape (S, R), NaN where it is unknown."""
        ...

    @property
    def resources(self) -> ResourceSet:
        """The R resources."""
        ...


class Violated(Protocol):
    """A violation that a checker found."""

    @property
    def checker(self) -> str:
        """Name of the checker."""
        ...

    @property
    def at_ms(self) -> int:
        """Time on the clock of the records."""
        ...

    @property
    def message(self) -> str:
        """The violation in words."""
        ...


class PlayedScenario(Protocol):
    """The scenario of a run."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    @property
    def description(self) -> str:
        """Purpose of the scenario; may be empty."""
        ...

    @property
    def move_ms(self) -> float:
        """Price of a move to a process without the state."""
        ...

    @property
    def returns_pay(self) -> bool:
        """Whether a process that returns to a partition pays as much."""
        ...


class PlayedRun(Protocol):
    """One run of a scenario."""

    @property
    def scenario(self) -> PlayedScenario:
        """The played scenario."""
        ...

    @property
    def policy(self) -> str:
        """Name of the policy."""
        ...

    @property
    def assignor(self) -> str:
        """Name of the assignor."""
        ...

    @property
    def seed(self) -> int:
        """Seed that repeats the run."""
        ...

    @property
    def telemetry(self) -> Sequence[Envelope]:
        """All records, in order of time."""
        ...

    @property
    def violations(self) -> Sequence[Violated]:
        """Violations that checkers found."""
        ...

    @property
    def lag(self) -> LagSamples:
        """Lag over time."""
        ...

    @property
    def begin_ms(self) -> int:
        """Begin of the window that the measures cover."""
        ...

    @property
    def measures(self) -> object:
        """An attrs value of numbers."""
        ...
