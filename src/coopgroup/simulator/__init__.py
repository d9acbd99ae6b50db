"""A deterministic host of the core: the same group in virtual time, from one seed."""

from coopgroup.simulator.scenario import Scenario

__all__ = ["Scenario"]
