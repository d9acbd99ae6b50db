"""Work on resources under any order of events and failures.

Grants, revocations and losses come in any order with changed definitions and failing callbacks.
Some starts are declined or fail permanently. Some grants come with a version of the catalogue that
this member has not read yet.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
from attrs import define, field
from hypothesis import given, settings

from coopgroup.core.member.effects import GrantResources, LoseResources, RevokeResources
from coopgroup.core.member.events import LossHandled, RevocationCompleted, StartsDeclined
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.errors import Decline, StartFailed
from coopgroup.groups.callbacks import Callbacks, ResourceCallback
from coopgroup.groups.catalogue import Catalogue, GroupResource
from coopgroup.groups.work import ResourceWork, WorkLimits

RESOURCES = (Resource("a", -1), Resource("a", 0), Resource("b", 0))
STEPS_MAX = 30
FAILURES_MAX = 5


def defined(version: int) -> Catalogue:
    """Return a catalogue whose resources all have the version as their definition."""
    return Catalogue.of(RESOURCES, version=version, definitions=dict.fromkeys(RESOURCES, version))


@define(eq=False)
class Play:
    """A group, an application and a thread pool in one; `dice` decides when calls run.

    Attributes:
        dice: choose the next event.
        owned: granted resources that are not taken back, with the generation of the grant.
        revoking: the part of `owned` that must stop.
        running: resources that the application runs, with the token of their start.
        calls: calls that wait for a thread.
        failures: how many callbacks have raised.
        following: definition that the application runs, by resource.
        declined: what the member tells its group.
        catalogue: what the member has read; its versions count its definitions.
        newest: version of the leader's catalogue.
        broken: failed checks of callbacks.
        has_on_change: whether the application follows a definition without a stop.
    """

    dice: random.Random
    has_on_change: bool
    following: dict[Resource, int] = field(factory=dict)
    declined: ResourceSet = field(factory=ResourceSet)
    broken: list[AssertionError] = field(factory=list)
    catalogue: Catalogue = field(factory=lambda: defined(1))
    newest: int = 1
    owned: dict[Resource, int] = field(factory=dict)
    granted_at: dict[Resource, int] = field(factory=dict)
    revoking: set[Resource] = field(factory=set)
    running: dict[Resource, int] = field(factory=dict)
    busy: set[Resource] = field(factory=set)
    calls: list[Callable[[], None]] = field(factory=list)
    failures: int = 0
    steps: int = 0
    member: Any = field(
        factory=lambda: SimpleNamespace(claim_generation=1, last_assignment=LastAssignment())
    )
    lease_until_s: float = math.inf
    work: ResourceWork = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.work = ResourceWork(
            callbacks=Callbacks(
                start=self.checked(self.start),
                stop=self.checked(self.stop),
                lost=self.checked(self.lost),
                on_error=None,
                change=self.checked(self.change) if self.has_on_change else None,
            ),
            limits=WorkLimits(stop_s=1e9, retry_s=0.0, retry_max_s=0.0, behind_s=1e9),
            pool=cast("Any", self),
            reports=cast("Any", SimpleNamespace(submit=lambda call, **_: call())),
            write=lambda _: None,
            warn=lambda *_, **__: None,
            known=lambda: self.catalogue,
            look_soon=lambda: None,
        )
        self.work.driver = cast("Any", self)

    # --- as the driver and the pool ---------------------------------------------------------------

    def post(self, event: object) -> None:
        """Receive the work's messages: the group may give away stopped resources."""
        if isinstance(event, RevocationCompleted):
            for resource in event.resources:
                assert resource in self.revoking
                assert resource not in self.running
                assert resource not in self.busy
                del self.owned[resource]
                self.revoking.discard(resource)
        elif isinstance(event, StartsDeclined):
            self.declined = event.resources
        else:
            assert event == LossHandled()

    def remind(self, _at_s: float) -> None:
        """Ignore the call: time does not matter here."""

    def submit(self, call: Callable[[], None], *, urgency: int) -> None:
        self.calls.append(call)

    # --- as the application -----------------------------------------------------------------------

    def checked(self, callback: Callable[[GroupResource], None]) -> ResourceCallback:
        """Keep failed checks: the work repeats a callback that raises."""

        def call(resource: GroupResource) -> None:
            try:
                callback(resource)
            except AssertionError as error:
                self.broken.append(error)
                raise

        return call

    def start(self, resource: GroupResource) -> None:
        """Check that nothing runs twice, nor without a grant, nor with an old definition."""
        token = self.work.token(resource)
        assert resource.definition == self.catalogue.version
        assert resource.definition >= self.granted_at[resource]
        assert resource not in self.declined
        assert resource not in self.revoking
        assert resource not in self.running
        assert token is not None
        assert token == self.owned[resource]
        self._call(resource)
        if self.failures < FAILURES_MAX and self.dice.random() < 0.4:
            self.failures += 1
            raise self.dice.choice([Decline("no", for_s=1e6), StartFailed("no")])
        self.running[resource] = token
        self.following[resource] = resource.definition

    def stop(self, resource: GroupResource) -> None:
        """Check that the resource is revoked, or was changed, and that the reason says which."""
        assert resource.definition == self.following[resource]
        if resource.reason == "changed":
            assert not self.has_on_change
            assert resource.definition != self.catalogue.version
        else:
            assert resource.reason == "moved"
            assert resource in self.revoking
        assert resource in self.running
        assert not self.work.holds(resource)
        self._call(resource)
        del self.running[resource]

    def change(self, resource: GroupResource) -> None:
        """Check that the definition is a new one, of a resource that runs on."""
        assert self.following[resource] != resource.definition == self.catalogue.version
        assert resource not in self.revoking
        self._call(resource)
        self.following[resource] = resource.definition

    def lost(self, resource: GroupResource) -> None:
        """Check that the grant of the running resource has ended."""
        assert resource.reason == "lost"
        assert self.running[resource] != self.owned.get(resource)
        self._call(resource)
        del self.running[resource]

    def _call(self, resource: Resource) -> None:
        assert resource not in self.busy, "two callbacks of one resource at once"
        self.busy.add(resource)
        self.happen()
        self.busy.discard(resource)
        if self.failures < FAILURES_MAX and self.dice.random() < 0.5:
            self.failures += 1
            raise ValueError("no")

    # --- what happens -----------------------------------------------------------------------------

    def happen(self) -> None:
        """Let a few events happen, in a callback or between callbacks."""
        for _ in range(self.dice.randint(0, 3)):
            if self.steps >= STEPS_MAX:
                return
            self.steps += 1
            self._one_thing()

    def _one_thing(self) -> None:
        what = self.dice.choice(
            ["grant", "revoke", "lose", "publish", "read", "restart", "call", "call", "call"]
        )
        if what == "publish":
            self.newest += 1
        elif what == "read":
            self.read()
        elif what == "restart":
            self.work.restart(self.dice.choice(RESOURCES))
        elif what == "call":
            if self.calls:
                place = self.dice.randrange(len(self.calls))
                self.calls.pop(place)()
        elif what == "lose":
            self._lose()
        else:
            among = [one for one in RESOURCES if one not in self.owned]
            if what == "revoke":
                among = sorted(self.owned.keys() - self.revoking)
            if among:
                chosen = set(self.dice.sample(among, self.dice.randint(1, len(among))))
                self._tell(what, chosen)

    def _tell(self, what: str, chosen: set[Resource]) -> None:
        resources = ResourceSet.from_pairs(chosen)
        if what == "grant":
            self.member.claim_generation += 1
            self.owned |= dict.fromkeys(chosen, self.member.claim_generation)
            self.granted_at |= dict.fromkeys(chosen, self.newest)
            self.member.last_assignment = LastAssignment(catalogue_version=self.newest)
            self.work.put(GrantResources(resources=resources))
        else:
            self.revoking |= chosen
            self.work.put(RevokeResources(resources=resources))

    def read(self) -> None:
        self.catalogue = defined(self.newest)
        self.work.take_catalogue()

    def _lose(self) -> None:
        lost = ResourceSet.from_pairs(self.owned)
        self.owned.clear()
        self.revoking.clear()
        self.work.put(LoseResources(resources=lost, cause="lease expired"))
        assert not self.work.held()


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), has_on_change=st.booleans())
def test_work_under_any_order_of_events_never_runs_twice_and_comes_to_rest(
    *, seed: int, has_on_change: bool
) -> None:
    """At the end the owned resources run with the newest definition, except those refused."""
    play = Play(random.Random(seed), has_on_change)
    while play.steps < STEPS_MAX:
        play.steps += 1
        play.happen()
        assert set(play.work.held()) <= play.owned.keys() - play.revoking
    play.failures = FAILURES_MAX
    play.read()
    while play.calls and not play.broken:
        play.calls.pop(0)()
    for error in play.broken:
        raise error
    refused = play.work.failed().keys() | {one for one in play.owned if one in play.declined}
    assert play.running == {one: at for one, at in play.owned.items() if one not in refused}
    assert {play.following[one] for one in play.running} <= {play.newest}
    assert play.revoking == set()
    assert set(play.work.held()) == play.running.keys()
