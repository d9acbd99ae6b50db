"""What a page needs to know of a run: `coopgroup.simulator.Run` has it, and so may others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from coopgroup.model import ResourceSet
from coopgroup.telemetry import Envelope

__all__ = ["LagSamples", "PlayedRun", "PlayedScenario", "Violated"]

Int64Array: TypeAlias = npt.NDArray[np.int64]


class LagSamples(Protocol):
    """Lags of all resources at some moments."""

    @property
    def times_ms(self) -> Int64Array:
        """When: int64, shape (S,), ascending."""
        ...

    @property
    def lags(self) -> Int64Array:
        """Lag in records: int64, shape (S, R)."""
        ...

    @property
    def resources(self) -> ResourceSet:
        """The R resources."""
        ...


class Violated(Protocol):
    """Something that a checker found."""

    @property
    def checker(self) -> str:
        """Who found it."""
        ...

    @property
    def at_ms(self) -> int:
        """When, on the clock of the records."""
        ...

    @property
    def message(self) -> str:
        """What is wrong."""
        ...


class PlayedScenario(Protocol):
    """What was played."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    @property
    def description(self) -> str:
        """What it shows, for people; may be empty."""
        ...


class PlayedRun(Protocol):
    """One run of a scenario."""

    @property
    def scenario(self) -> PlayedScenario:
        """What was played."""
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
        """What it can be repeated with."""
        ...

    @property
    def telemetry(self) -> Sequence[Envelope]:
        """All records, in order of time."""
        ...

    @property
    def violations(self) -> Sequence[Violated]:
        """What checkers found."""
        ...

    @property
    def lag(self) -> LagSamples:
        """Lag over time."""
        ...

    @property
    def measures(self) -> object:
        """An attrs value of numbers."""
        ...
