"""Notices a changed catalogue, and causes a round that shares its resources.

Rules of this file: the leader requests a round immediately. Other members first give the leader
time to see the change by itself. They request a round only if none of their joins has carried the
version since. The first join of a static member may begin no round, so that the leader does not see
the version in it (KIP-345).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, field

from coopgroup.core.member import Member
from coopgroup.core.member.events import CatalogueSeen, RejoinRequested, SubscriptionChanged
from coopgroup.core.model import ResourceSet
from coopgroup.groups.catalogue import EVERYTHING, Catalogue
from coopgroup.groups.lookup import CatalogueLookup
from coopgroup.kafka.clock import now_s
from coopgroup.worker import Worker

__all__ = ["CatalogueWatcher"]

_STOP_TIMEOUT_S: Final = 2.0
# How many reads the leader may be behind before other members request a round.
_PATIENCE_LOOKS: Final = 3
_NO_GENERATION: Final = -1


@define(eq=False)
class CatalogueWatcher:
    """Reads the catalogue in jobs, one at a time; joins the group after the first read.

    Attributes:
        shared: returns the resources of that round; kept from an earlier process before the first.
    """

    lookup: CatalogueLookup
    refresh_ms: int
    member: Callable[[], Member]
    leads: Callable[[], bool]
    shared: Callable[[], ResourceSet]
    post: Callable[[CatalogueSeen | RejoinRequested | SubscriptionChanged], None]
    _worker: Worker = field(factory=lambda: Worker("coopgroup-catalogue"), init=False)
    _started: bool = field(default=False, init=False)
    _stopped: bool = field(default=False, init=False)
    _is_wanted: bool = field(default=False, init=False)
    _asked_for: Catalogue | None = field(default=None, init=False)
    _said: int | None = field(default=None, init=False)
    _unsaid_since_s: float | None = field(default=None, init=False)
    _first_generation: int = field(default=_NO_GENERATION, init=False)

    def start(self) -> None:
        """Begin to read."""
        self._worker.submit(self._first)
        self._started = True

    def look_soon(self) -> None:
        """Read the catalogue immediately, from any thread."""
        if self._started and not self._is_wanted:
            self._is_wanted = True
            self._worker.submit(self._look)

    def stop(self) -> None:
        """End the reads; wait briefly if one runs the application's code."""
        self._stopped = True
        self.lookup.close()
        self._worker.close(_STOP_TIMEOUT_S)

    def _first(self) -> None:
        self._say(self.lookup.look())
        if not self._stopped:
            self.post(SubscriptionChanged(topics=(EVERYTHING,)))
        self._look_later()

    def _look_later(self) -> None:
        self._worker.submit(self._look_again, after_s=self.refresh_ms / 1000)

    def _look_again(self) -> None:
        self._look()
        self._look_later()

    def _look(self) -> None:
        self._is_wanted = False
        if self._stopped:
            return
        catalogue = self.lookup.look()
        self._say(catalogue)
        if catalogue is not None:
            self._ask(catalogue)

    def _say(self, catalogue: Catalogue | None) -> None:
        if catalogue is not None and catalogue.version != self._said:
            self._said = catalogue.version
            self.post(CatalogueSeen(version=catalogue.version))

    def _ask(self, catalogue: Catalogue) -> None:
        """Request a round if the group shares other resources than the catalogue's."""
        if self.leads():
            if not self._is_shared(catalogue) and catalogue != self._asked_for:
                self._asked_for = catalogue
                self.post(RejoinRequested(reason="the catalogue changed"))
            return
        if catalogue.version is None or self._is_told(catalogue.version):
            self._unsaid_since_s = None
            return
        if self._unsaid_since_s is None:
            self._unsaid_since_s = now_s()
        elif now_s() - self._unsaid_since_s >= _PATIENCE_LOOKS * self.refresh_ms / 1000:
            self._unsaid_since_s = None
            self.post(RejoinRequested(reason="a newer catalogue than the group's"))

    def _is_told(self, version: int) -> bool:
        """Return whether this member has reported a version to the leader of a round."""
        member = self.member()
        if self._first_generation == _NO_GENERATION:
            self._first_generation = member.claim_generation
        may_be_unheard = (
            member.config.instance_id is not None
            and member.claim_generation == self._first_generation
        )
        return version == member.last_join.catalogue_version and not may_be_unheard

    def _is_shared(self, catalogue: Catalogue) -> bool:
        led = self.lookup.led
        return catalogue.resources == self.shared() if led is None else catalogue == led
