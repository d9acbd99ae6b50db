"""`Costs`: the times to stop, to commit and to restore each resource."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import define, field, setters

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.simulator.scenario import Cost, Span
from coopgroup.simulator.world.drawing import between


@define(eq=False)
class Costs:
    """Draws times.

    Attributes:
        costs: rules of the scenario; at most one without resources, for all other resources.
        slow: share of resources with a slow stop, drawn each time.
    """

    dice: random.Random
    # Frozen: the fields below are read from it once, so a later change would do nothing.
    costs: tuple[Cost, ...] = field(default=(), on_setattr=setters.frozen)
    slow: float = 0.0
    slow_ms: Span = field(factory=lambda: Span(0, 0))
    _named: tuple[Cost, ...] = field(init=False)
    _other: Cost = field(init=False)
    # Who worked on each resource last; only filled if a cost distinguishes returns.
    _last_worker: dict[Resource, str] = field(factory=dict)
    _tells_returns: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._named = tuple(cost for cost in self.costs if cost.resources is not None)
        others = (cost for cost in self.costs if cost.resources is None)
        self._other = next(others, Cost())
        self._tells_returns = any(cost.return_ms is not None for cost in self.costs)

    def note_work(self, resources: ResourceSet, process: str) -> None:
        """Note that a process works on resources: it pays less if it returns to them."""
        if self._tells_returns:
            self._last_worker.update(dict.fromkeys(resources, process))

    def to_stop(self, resources: ResourceSet) -> list[tuple[int, ResourceSet]]:
        """Group resources by the time from revocation to commit, ascending."""
        groups: dict[int, list[ResourceSet]] = {}
        for cost, part in self._by_cost(resources):
            for stop_ms, some in self._draw(cost.stop_ms, part, may_be_slow=True):
                for commit_ms, few in self._draw(cost.commit_ms, some):
                    groups.setdefault(stop_ms + commit_ms, []).append(few)
        return _joined(groups)

    def to_restore(
        self, resources: ResourceSet, process: str = "", *, is_warm: bool = False
    ) -> list[tuple[int, ResourceSet]]:
        """Group resources by the time from assignment to the first record, ascending.

        Args:
            resources: the resources.
            process: name of the process that restores them.
            is_warm: whether their state is local already.
        """
        groups: dict[int, list[ResourceSet]] = {}
        for cost, part in self._by_cost(resources):
            back = self._returned(part, process) if cost.return_ms is not None else EMPTY
            for span, some in (
                (cost.return_ms or cost.restore_ms, back),
                (cost.restore_ms, part - back),
            ):
                for restore_ms, few in self._draw(cost.warm_restore_ms if is_warm else span, some):
                    if few:
                        groups.setdefault(restore_ms, []).append(few)
        return _joined(groups)

    def _returned(self, resources: ResourceSet, process: str) -> ResourceSet:
        return ResourceSet.from_pairs(
            one for one in resources if self._last_worker.get(one) == process
        )

    def _by_cost(self, resources: ResourceSet) -> Iterator[tuple[Cost, ResourceSet]]:
        rest = resources
        for cost in self._named:
            part = rest & cost.resources if cost.resources is not None else rest
            if part:
                rest -= part
                yield cost, part
        if rest:
            yield self._other, rest

    def _draw(
        self, span: Span, resources: ResourceSet, *, may_be_slow: bool = False
    ) -> list[tuple[int, ResourceSet]]:
        slow = self.slow if may_be_slow else 0.0
        if span.low == span.high and not slow:
            return [(span.low, resources)]
        drawn: dict[int, list[tuple[str, int]]] = {}
        for resource in resources:
            chosen = self.slow_ms if slow and self.dice.random() < slow else span
            drawn.setdefault(between(self.dice, chosen.low, chosen.high), []).append(resource)
        return [(time_ms, ResourceSet.from_pairs(drawn[time_ms])) for time_ms in sorted(drawn)]


def _joined(groups: dict[int, list[ResourceSet]]) -> list[tuple[int, ResourceSet]]:
    return [(time_ms, ResourceSet.union_all(groups[time_ms])) for time_ms in sorted(groups)]
