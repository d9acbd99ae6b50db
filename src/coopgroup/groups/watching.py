"""Notices a changed catalogue, and causes a round that shares its resources.

Rules of this file: the leader requests a round immediately. Other members first give the leader
time to see the change by itself. They request a round only if none of their joins has carried the
version since. The first join of a static member may begin no round, so that the leader does not see
the version in it (KIP-345).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from attrs import define, field

from coopgroup.groups.catalogue import EVERYTHING, Catalogue
from coopgroup.groups.lookup import CatalogueLookup
from coopgroup.kafka.clock import now_s
from coopgroup.member import Member
from coopgroup.member.events import CatalogueSeen, RejoinRequested, SubscriptionChanged
from coopgroup.model import ResourceSet

__all__ = ["CatalogueWatcher"]

_STOP_TIMEOUT_S: Final = 2.0
# How many reads the leader may be behind before other members request a round.
_PATIENCE_LOOKS: Final = 3
_NO_GENERATION: Final = -1


@define(eq=False)
class CatalogueWatcher:
    """Reads the catalogue on a separate thread; joins the group after the first read.

    Attributes:
        shared: returns the resources of that round; kept from an earlier process before the first.
    """

    lookup: CatalogueLookup
    refresh_ms: int
    member: Callable[[], Member]
    leads: Callable[[], bool]
    shared: Callable[[], ResourceSet]
    post: Callable[[CatalogueSeen | RejoinRequested | SubscriptionChanged], None]
    _wanted: threading.Event = field(factory=threading.Event, init=False)
    _stopped: bool = field(default=False, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _asked_for: Catalogue | None = field(default=None, init=False)
    _said: int | None = field(default=None, init=False)
    _unsaid_since_s: float | None = field(default=None, init=False)
    _first_generation: int = field(default=_NO_GENERATION, init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="coopgroup-catalogue", daemon=True)
        self._thread.start()

    def look_soon(self) -> None:
        """Read the catalogue immediately, from any thread."""
        self._wanted.set()

    def stop(self) -> None:
        """End the thread; wait briefly if it runs the application's code."""
        self._stopped = True
        self.lookup.close()
        self._wanted.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not thread.is_alive():
            return  # a thread that could not start has nothing to wait for
        thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        self._say(self.lookup.look())
        if not self._stopped:
            self.post(SubscriptionChanged(topics=(EVERYTHING,)))
        while True:
            self._wanted.wait(self.refresh_ms / 1000)
            self._wanted.clear()
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
