"""The warm-ups of a member that shares named resources: `warm`, `cool`, and what follows.

Theory of operation. For each warm-up there is one entry with a wish of the group and a state. After
each change of either, the next step follows from both:

    a callback is in progress   wait for it: two callbacks of a resource never run concurrently
    its work has not ended      wait for it: after a loss, `start` or `lost` may be in progress
    wanted, and cold            `warm`; when it returns, tell the group that the resource is warm
    not wanted, and warm        `cool`
    assigned                    forget the entry: `start` finds the state

A `warm` that raises ends its warm-up: the member is cold for the resource, and the group continues.
It is not repeated, because another member can warm up instead. All functions here run under the
lock of `work`, except the callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, TypeAlias

from attrs import define, field

from coopgroup.core.member.events import WarmedUp, WarmupFailed
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.errors import one_line
from coopgroup.groups.callbacks import ResourceCallback, failure_of
from coopgroup.groups.catalogue import GroupResource

Reporter: TypeAlias = Callable[[Resource, str, BaseException], object]
# Urgency of a job: ending comes before starting, and starting before warming up.
_COOL: Final = 1
_WARM: Final = 3


@define(eq=False)
class _WarmUp:
    """One resource.

    Attributes:
        is_wanted: whether the group wants the warm-up.
        is_warm: whether the application has the state.
        is_busy: whether a callback is in progress.
        is_assigned: whether the resource was assigned while a callback was in progress.
    """

    is_wanted: bool = True
    is_warm: bool = False
    is_busy: bool = False
    is_assigned: bool = False


@define(eq=False)
class ResourceWarmth:
    """The warm-ups of one member.

    Attributes:
        warm: restores the state of a resource; None if the application takes no part.
        cool: deletes the state of a resource.
        is_worked_on: returns whether the work on a resource has not ended.
        submit: runs a call on a thread, by urgency.
        changing: the lock of the work.
        post: gives a report to the group's thread.
        report: reports a callback that raised.
        idle: called when the last callback of an assigned resource has returned.
        described: returns a resource with its definition, for a callback.
    """

    warm: ResourceCallback | None
    cool: ResourceCallback | None
    is_worked_on: Callable[[Resource], bool]
    submit: Callable[[int, Callable[[], None]], object]
    changing: AbstractContextManager[object]
    post: Callable[[WarmedUp | WarmupFailed], None]
    report: Reporter
    idle: Callable[[Resource], None]
    described: Callable[[Resource], GroupResource]
    _entries: dict[Resource, _WarmUp] = field(factory=dict, init=False)

    def is_busy(self, resource: Resource) -> bool:
        """Return whether `warm` or `cool` of a resource is in progress."""
        entry = self._entries.get(resource)
        return entry is not None and entry.is_busy

    def begin(self, resources: ResourceSet) -> None:
        """Warm up resources."""
        for resource in resources:
            entry = self._entries.setdefault(resource, _WarmUp())
            entry.is_wanted, entry.is_warm, entry.is_assigned = True, False, False
            self._go_on(resource, entry)

    def cancel(self, resources: ResourceSet) -> None:
        """End warm-ups, also of state that was found before the member joined."""
        for resource in resources:
            entry = self._entries.setdefault(resource, _WarmUp(is_warm=True))
            entry.is_wanted = False
            self._go_on(resource, entry)

    def leave_to_work(self, resources: ResourceSet) -> None:
        """Forget resources that are assigned; a callback in progress delays their start."""
        for resource in resources:
            entry = self._entries.get(resource)
            if entry is not None:
                entry.is_assigned = True
                self._go_on(resource, entry)

    def go_on(self, resource: Resource) -> None:
        """Continue after the end of the work on a resource."""
        entry = self._entries.get(resource)
        if entry is not None:
            self._go_on(resource, entry)

    def _go_on(self, resource: Resource, entry: _WarmUp) -> None:
        if entry.is_busy:
            return
        if entry.is_assigned:
            del self._entries[resource]
            self.idle(resource)
        elif self.is_worked_on(resource):
            return  # `go_on` continues
        elif entry.is_wanted and not entry.is_warm:
            self._begin(resource, entry, "warm")
        elif not entry.is_wanted and entry.is_warm:
            self._begin(resource, entry, "cool")
        elif not entry.is_wanted:
            del self._entries[resource]

    def _begin(self, resource: Resource, entry: _WarmUp, action: str) -> None:
        entry.is_busy = True
        urgency = _WARM if action == "warm" else _COOL
        self.submit(urgency, partial(self._run, resource, entry, action))

    def _run(self, resource: Resource, entry: _WarmUp, action: str) -> None:
        callback = self.warm if action == "warm" else self.cool
        failure = None if callback is None else failure_of(callback, self.described(resource))
        words = "" if failure is None else one_line(failure)  # this runs the application's code
        with self.changing:
            entry.is_busy = False
            entry.is_warm = action == "warm" and failure is None
            if failure is not None:
                self.report(resource, action, failure)
            self._tell(resource, entry, action, words)
            self._go_on(resource, entry)

    def _tell(self, resource: Resource, entry: _WarmUp, action: str, words: str) -> None:
        if action != "warm" or not entry.is_wanted:
            return
        resources = ResourceSet.from_pairs([resource])
        if entry.is_warm:
            self.post(WarmedUp(resources=resources))
        else:
            entry.is_wanted = False
            self.post(WarmupFailed(resources=resources, error=words))
