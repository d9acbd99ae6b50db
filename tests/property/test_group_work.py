"""Work on resources under any order of grants, revocations, losses and failing callbacks."""

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
from coopgroup.core.member.events import LossHandled, RevocationCompleted
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.work import Callbacks, ResourceWork, WorkLimits

RESOURCES = (Resource("a", -1), Resource("a", 0), Resource("b", 0))
CATALOGUE = Catalogue.of(RESOURCES)
STEPS_MAX = 30
FAILURES_MAX = 5


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
    """

    dice: random.Random
    owned: dict[Resource, int] = field(factory=dict)
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
            callbacks=Callbacks(start=self.start, stop=self.stop, lost=self.lost, on_error=None),
            limits=WorkLimits(stop_s=1e9, retry_s=0.0, retry_max_s=0.0),
            pool=cast("Any", self),
            write=lambda _: None,
            warn=lambda *_, **__: None,
            known=lambda: CATALOGUE,
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
        else:
            assert event == LossHandled()

    def remind(self, _at_s: float) -> None:
        """Ignore the call: time does not matter here."""

    def submit(self, call: Callable[[], None], *, urgency: int) -> None:
        self.calls.append(call)

    # --- as the application -----------------------------------------------------------------------

    def start(self, resource: Resource) -> None:
        """Check that nothing runs twice, nor without a grant."""
        token = self.work.token(resource)
        assert resource not in self.revoking
        assert resource not in self.running
        assert token is not None
        assert token == self.owned[resource]
        self._call(resource)
        self.running[resource] = token

    def stop(self, resource: Resource) -> None:
        """Check that the resource is revoked."""
        assert resource in self.revoking
        assert resource in self.running
        self._call(resource)
        del self.running[resource]

    def lost(self, resource: Resource) -> None:
        """Check that the grant of the running resource has ended."""
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
        what = self.dice.choice(["grant", "revoke", "lose", "call", "call"])
        if what == "call":
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
            self.work.put(GrantResources(resources=resources))
        else:
            self.revoking |= chosen
            self.work.put(RevokeResources(resources=resources))

    def _lose(self) -> None:
        lost = ResourceSet.from_pairs(self.owned)
        self.owned.clear()
        self.revoking.clear()
        self.work.put(LoseResources(resources=lost, cause="lease expired"))
        assert not self.work.held()


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_work_under_any_order_of_events_never_runs_twice_and_comes_to_rest(
    seed: int,
) -> None:
    """After any failures and events, exactly the owned resources run at the end."""
    play = Play(random.Random(seed))
    while play.steps < STEPS_MAX:
        play.steps += 1
        play.happen()
        assert set(play.work.held()) <= play.owned.keys() - play.revoking
    play.failures = FAILURES_MAX
    while play.calls:
        play.calls.pop(0)()
    assert play.running == play.owned
    assert play.revoking == set()
    assert set(play.work.held()) == play.running.keys()
