"""The swarm with the code that users run: what all its kinds of applications share.

`named`, `polled` and `looped` replace the simulated application by the true code of a host. They
give it a port to its group, and threads and a clock in virtual time.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from attrs import define, field

from coopgroup.core.member.effects import BeginWarmups, CancelWarmups, RevokeResources
from coopgroup.simulator.host.application import Application
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.simulation import Simulation
from tests.swarm.strands import Strands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from coopgroup.core.model import ResourceSet
    from coopgroup.core.session import SessionEvent
    from coopgroup.kafka.membership.ports import Notice
    from coopgroup.simulator.host.local_state import LocalState
    from tests.swarm.runs import Faults, SwarmRun


@define(eq=False)
class Port:
    """The group as the code of a host knows it, in place of a `GroupDriver`."""

    process: Process
    wake: Callable[[], None] = lambda: None
    _remind_s: float = math.inf
    _reminded_s: float = math.inf

    @property
    def member(self) -> Any:  # noqa: ANN401 - as the driver's
        return self.process.session.member

    def post(self, event: SessionEvent) -> None:
        self.process.later(1, self.process.give, event)  # it goes to another thread

    def remind(self, at_s: float) -> None:
        if at_s != self._remind_s:
            self._remind_s = at_s
            if at_s < math.inf:
                at_ms = math.ceil(1_000 * at_s) - self.process.world.now_ms
                self.process.later(max(0, at_ms), self._remind, at_s)

    def _remind(self, at_s: float) -> None:
        if self.process.world.now_ms / 1_000 < at_s:  # by the rounding of a float
            self.process.later(1, self._remind, at_s)
        elif at_s == self._remind_s != self._reminded_s:
            self._reminded_s = at_s
            self.wake()


@define(kw_only=True, eq=False)
class TrueApplication(Application):
    """An application above the code of a host."""

    group: TrueSimulation

    def revoke(self, resources: ResourceSet) -> None:
        self._put(RevokeResources(resources=resources))

    def warm_up(self, resources: ResourceSet) -> None:
        self._put(BeginWarmups(resources=resources))

    def cancel_warmups(self, resources: ResourceSet) -> None:
        self._put(CancelWarmups(resources=resources))

    def _put(self, notice: Notice) -> None:
        """Tell the code of the host a notice of the group."""
        raise NotImplementedError

    @property
    def owner(self) -> Process:
        """The process."""
        return cast("Process", self.process)

    def sleep(self, for_ms: int) -> None:
        """Let time pass on the calling thread."""
        owner = self.owner
        self.group.strands.sleep(for_ms, lambda: owner.alive, lambda: owner.paused)

    def happens(self, fault: str) -> bool:
        """Return whether a fault of the run happens now."""
        share = 0.0 if self.group.is_calm else getattr(self.group.faults, fault)
        return bool(share) and self.process.world.dice(fault).random() < share

    def object_to(self, message: str, checker: str = "callbacks") -> None:
        """Report a violation while the process is alive."""
        if self.owner.alive:
            self.process.world.object_to(checker, f"{self.process.name} {message}")


@define(kw_only=True, eq=False)
class TrueSimulation(Simulation):
    """A group of such applications; `prepare` sets its fields.

    Attributes:
        application_class: the class of the applications.
        modules: modules whose clock is the simulation's.
        is_calm: whether all faults have ended.
    """

    application_class: ClassVar[type[TrueApplication]]
    modules: ClassVar[tuple[ModuleType, ...]]
    run_of: SwarmRun = field(init=False)
    strands: Strands = field(init=False)
    is_calm: bool = False

    def prepare(self, run: SwarmRun) -> None:
        """Prepare a run."""
        self.run_of = run
        self.strands = Strands(self.world)

    @property
    def faults(self) -> Faults:
        """The faults of the run."""
        return self.run_of.faults

    @property
    def hang_ms_max(self) -> int:
        """The longest time of a callback that hangs and ends."""
        return 0

    def heal(self) -> None:
        self.is_calm = True
        super().heal()

    def end(self) -> None:
        """End all threads."""
        self.strands.end()

    def _application(
        self,
        process: Any,  # noqa: ANN401 - a process
        capacity_per_s: float,
        state: LocalState,
    ) -> TrueApplication:
        return self.application_class(
            process=process,
            group=self,
            load=self.load,
            costs=self.costs,
            callback_ms=self.run_settings.callback_ms,
            commit_interval_ms=self.commit_interval_ms,
            capacity_per_s=capacity_per_s,
            state=state,
        )


@contextmanager
def virtual_time(simulation: Simulation) -> Iterator[None]:
    """Let the code of all processes read the simulation's clock, and end its threads."""
    if not isinstance(simulation, TrueSimulation):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for module in simulation.modules:
            clock = "now_s" if hasattr(module, "now_s") else "monotonic"
            patch.setattr(module, clock, lambda: simulation.world.now_ms / 1_000)
        try:
            yield
        finally:
            simulation.end()
