"""A deterministic host of the core: the same group in virtual time, from one seed.

    from coopgroup.simulator import Scenario, simulate

    run = simulate(scenario, policy="deferred", seed=7)

It runs the session, the member, the leader, the policies and the assignors of production. It models
the group coordinator (`coordinator` lists what it lacks), the network, processes and applications,
and the data plane. Public names are imported on first use.
"""

from typing import TYPE_CHECKING

from coopgroup.late_names import late_names

if TYPE_CHECKING:
    from coopgroup.core.member.config import GroupProtocol
    from coopgroup.core.telemetry.ledger import LagHistory
    from coopgroup.simulator.measures import Measures
    from coopgroup.simulator.run import Run, simulate
    from coopgroup.simulator.scenario import (
        LEADER,
        AddPartitions,
        Bell,
        Capacity,
        Choice,
        Client,
        Close,
        CoordinatorLost,
        CoordinatorMoved,
        Cost,
        Crash,
        CreateTopic,
        Cut,
        DeleteTopic,
        Event,
        Flap,
        Group,
        HandOver,
        How,
        Identity,
        MemberSet,
        Network,
        Pause,
        Rate,
        RollingRestart,
        Scale,
        Scenario,
        Shares,
        Span,
        Topic,
        Weight,
    )
    from coopgroup.simulator.scenario.file import read_scenario
    from coopgroup.simulator.world import Violation

__all__ = [
    "LEADER",
    "AddPartitions",
    "Bell",
    "Capacity",
    "Choice",
    "Client",
    "Close",
    "CoordinatorLost",
    "CoordinatorMoved",
    "Cost",
    "Crash",
    "CreateTopic",
    "Cut",
    "DeleteTopic",
    "Event",
    "Flap",
    "Group",
    "GroupProtocol",
    "HandOver",
    "How",
    "Identity",
    "LagHistory",
    "Measures",
    "MemberSet",
    "Network",
    "Pause",
    "Rate",
    "RollingRestart",
    "Run",
    "Scale",
    "Scenario",
    "Shares",
    "Span",
    "Topic",
    "Violation",
    "Weight",
    "read_scenario",
    "simulate",
]

if not TYPE_CHECKING:  # type checkers see only the imports above
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "coopgroup.core.member.config": ("GroupProtocol",),
            "coopgroup.core.telemetry.ledger": ("LagHistory",),
            "coopgroup.simulator.measures": ("Measures",),
            "coopgroup.simulator.run": ("Run", "simulate"),
            "coopgroup.simulator.scenario": (
                "LEADER",
                "AddPartitions",
                "Bell",
                "Capacity",
                "Choice",
                "Client",
                "Close",
                "CoordinatorLost",
                "CoordinatorMoved",
                "Cost",
                "Crash",
                "CreateTopic",
                "Cut",
                "DeleteTopic",
                "Event",
                "Flap",
                "Group",
                "HandOver",
                "How",
                "Identity",
                "MemberSet",
                "Network",
                "Pause",
                "Rate",
                "RollingRestart",
                "Scale",
                "Scenario",
                "Shares",
                "Span",
                "Topic",
                "Weight",
            ),
            "coopgroup.simulator.scenario.file": ("read_scenario",),
            "coopgroup.simulator.world": ("Violation",),
        },
    )
