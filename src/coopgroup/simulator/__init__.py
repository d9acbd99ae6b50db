"""A deterministic host of the core: the same group in virtual time, from one seed.

    from coopgroup.simulator import Scenario, simulate

    run = simulate(scenario, policy="deferred", seed=7)

It runs the session, the member, the leader, the policies and the assignors of production. It models
the group coordinator (`coordinator` lists what it lacks), the network, processes and applications,
and the data plane.
"""

from coopgroup.simulator.load import LagHistory
from coopgroup.simulator.run import Run, simulate
from coopgroup.simulator.scenario import Scenario
from coopgroup.simulator.scenario_file import read_scenario
from coopgroup.simulator.world import Violation

__all__ = ["LagHistory", "Run", "Scenario", "Violation", "read_scenario", "simulate"]
