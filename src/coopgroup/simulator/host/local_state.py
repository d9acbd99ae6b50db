"""`LocalState`: the state of resources that an application keeps on its process.

Only applications that take part in warm-ups, or whose state survives on a disk, have it. All others
restore each resource again.
"""

from __future__ import annotations

from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.resource_set import Resource


@define(kw_only=True, eq=False)
class LocalState:
    """State that is restored, or is being restored.

    Attributes:
        is_kept: whether there is any local state.
        on_disk: whether state survives a loss of the resource, and the end of the process.
        ready: resources with complete state, owned or not.
    """

    is_kept: bool = False
    on_disk: bool = False
    ready: ResourceSet = EMPTY
    _due_ms: dict[Resource, int] = field(factory=dict)

    @property
    def is_restoring(self) -> bool:
        """Whether a warm-up is under way."""
        return bool(self._due_ms)

    def complete(self, resources: ResourceSet) -> None:
        """Note that the state of resources is complete."""
        if self.is_kept:
            self.ready |= resources

    def drop(self, resources: ResourceSet) -> None:
        """Delete the state of resources, and end their warm-ups."""
        self.ready -= resources
        if self._due_ms:
            for resource in resources:
                self._due_ms.pop(resource, None)

    def begin(self, resources: ResourceSet, due_ms: int) -> None:
        """Begin to restore resources that other processes own."""
        self._due_ms.update(dict.fromkeys(resources, due_ms))

    def finish(self, resources: ResourceSet, due_ms: int) -> ResourceSet:
        """End the warm-ups that were begun for this time; return those not cancelled since."""
        done = [one for one in resources if self._due_ms.get(one) == due_ms]
        for resource in done:
            del self._due_ms[resource]
        restored = ResourceSet.from_pairs(done)
        self.complete(restored)
        return restored

    def take_restoring(self, resources: ResourceSet) -> dict[int, ResourceSet]:
        """End the warm-ups of resources; return these resources by the time of their end."""
        parts: dict[int, list[Resource]] = {}
        for resource in resources if self._due_ms else ():
            due_ms = self._due_ms.pop(resource, None)
            if due_ms is not None:
                parts.setdefault(due_ms, []).append(resource)
        return {due_ms: ResourceSet.from_pairs(some) for due_ms, some in sorted(parts.items())}
