"""Work on resources, turned by hand, with a group that only listens.

A callback that is in progress is a test's function: what the test does in it happens meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, field

from coopgroup.core.member.effects import GrantResources, LoseResources, RevokeResources
from coopgroup.core.member.events import RevocationCompleted
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.groups.callbacks import Callbacks, WorkFailure
from coopgroup.groups.catalogue import Catalogue, GroupResource
from coopgroup.groups.work import ResourceWork, WorkLimits
from coopgroup.telemetry import Record, ResourcesStarted, ResourcesStopped
from coopgroup.worker import Worker
from tests.support.by_hand import Hand

STOP_S, RETRY_S = 60.0, 1.0
LIMIT_S = 60.0  # of a join; only a deadlock reaches it
LIGHT, HEAVY = Resource("light", 0), Resource("heavy", -1)
BOTH = ResourceSet.from_pairs([LIGHT, HEAVY])
ONLY_LIGHT, ONLY_HEAVY = ResourceSet.from_pairs([LIGHT]), ResourceSet.from_pairs([HEAVY])
REVOKE_HEAVY = RevokeResources(resources=ONLY_HEAVY)
LOSE_HEAVY = LoseResources(resources=ONLY_HEAVY, cause="lease expired")


@define(eq=False)
class Bench:
    """Work whose group follows the test.

    Attributes:
        calls: callbacks in the order of their calls.
        during: functions of the test that run inside a callback, once.
        failures: exceptions that callbacks raise, once per list entry.
        broken: exceptions of `during`, such as failed assertions.
        warned: names of warnings.
        dropped: counts of `reports_dropped`.
        reports_max: how many reports may wait.
        given: arguments of the callbacks, in the same order as `calls`.
        looks: how often the work wanted to read the catalogue.
        reported: errors that `on_error` received.
        reminder_s: time at which the work wants to be woken.
    """

    hand: Hand
    calls: list[tuple[str, Resource]] = field(factory=list)
    during: dict[tuple[str, Resource], Callable[[], None]] = field(factory=dict)
    failures: dict[tuple[str, Resource], list[BaseException]] = field(factory=dict)
    broken: list[BaseException] = field(factory=list)
    posted: list[Any] = field(factory=list)
    written: list[Record] = field(factory=list)
    warned: list[str] = field(factory=list)
    dropped: list[int] = field(factory=list)
    reports_max: int = 10_000
    reported: list[WorkFailure] = field(factory=list)
    member: Any = field(
        factory=lambda: SimpleNamespace(claim_generation=3, last_assignment=LastAssignment())
    )
    catalogue: Catalogue | None = field(factory=lambda: Catalogue.of(BOTH))
    looks: int = 0
    given: list[GroupResource] = field(factory=list)
    has_on_change: bool = False
    has_warm: bool = True
    lease_until_s: float = math.inf
    reminder_s: float = math.inf
    _reminded_s: float = field(default=math.inf, init=False)
    work: ResourceWork = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.work = ResourceWork(
            callbacks=Callbacks(
                start=lambda one: self.call("start", one),
                stop=lambda one: self.call("stop", one),
                lost=lambda one: self.call("lost", one),
                on_error=self.reported.append,
                change=(lambda one: self.call("change", one)) if self.has_on_change else None,
                warm=(lambda one: self.call("warm", one)) if self.has_warm else None,
                cool=(lambda one: self.call("cool", one)) if self.has_warm else None,
            ),
            limits=WorkLimits(
                stop_s=STOP_S,
                retry_s=RETRY_S,
                retry_max_s=2 * RETRY_S,
                reports_max=self.reports_max,
            ),
            pool=Worker("bench", 8),
            reports=Worker("reports"),
            write=self.written.append,
            warn=self.warn,
            known=lambda: self.catalogue,
            look_soon=self.look,
        )
        self.work.driver = cast("Any", self)

    def warn(self, event: str, **fields: Any) -> None:  # noqa: ANN401  (numbers, texts)
        self.warned.append(event)
        if event == "reports_dropped":
            self.dropped.append(fields["reports"])

    def post(self, event: object) -> None:
        self.posted.append(event)

    def remind(self, at_s: float) -> None:
        self.reminder_s = at_s

    def look(self) -> None:
        self.looks += 1

    def read(self, catalogue: Catalogue) -> None:
        """Let the member read a new catalogue."""
        self.catalogue = catalogue
        self.work.take_catalogue()
        self.hand.run()

    def call(self, action: str, resource: GroupResource) -> None:
        """Run as a callback: record the call, then do or raise what the test demands."""
        self.calls.append((action, resource))
        self.given.append(resource)
        try:
            self.during.pop((action, resource), lambda: None)()
        except BaseException as error:
            self.broken.append(error)
            raise
        failures = self.failures.get((action, resource))
        if failures:
            raise failures.pop(0)

    def put(self, notice: Any) -> None:  # noqa: ANN401  (one of many effects)
        self.work.put(notice)
        self.hand.run()

    def grant(self, resources: ResourceSet = BOTH) -> None:
        self.put(GrantResources(resources=resources))

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake the work as its driver does: once for each wanted time."""
        until_s = self.hand.now_s + seconds
        while self.reminder_s <= until_s and self.reminder_s != self._reminded_s:
            self.hand.advance(max(0.0, self.reminder_s - self.hand.now_s))
            self._reminded_s = self.reminder_s
            self.work.wake()
            self.hand.run()
        self.hand.advance(until_s - self.hand.now_s)

    def started(self) -> set[Resource]:
        records = [one for one in self.written if isinstance(one, ResourcesStarted)]
        return {resource for record in records for resource in record.resources}

    def stops(self) -> list[tuple[Resource, str]]:
        records = [one for one in self.written if isinstance(one, ResourcesStopped)]
        return [(resource, one.reason) for one in records for resource in one.resources]

    def given_up(self) -> list[Resource]:
        """Return the resources that were reported to the group as stopped."""
        completed = [one for one in self.posted if isinstance(one, RevocationCompleted)]
        return [resource for one in completed for resource in one.resources]

    def check(self) -> None:
        """Raise what went wrong inside a callback, where the work catches all exceptions."""
        for error in self.broken:
            raise error
        assert self.during == {}

    def actions(self, resource: Resource = HEAVY) -> list[str]:
        return [action for action, one in self.calls if one == resource]
