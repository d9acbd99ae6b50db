"""Look up the catalogue, for the leader of a group of named resources.

Rules of this file: a catalogue never goes back to an older version. If another member has seen a
newer version, the leader waits briefly for it; if it does not come, the round moves nothing. Kafka
Connect does the same: its members compare how far they have read their configuration. If the
catalogue cannot be read, the last known one counts.

`CatalogueWatcher` notices a changed catalogue, and causes a round that shares its resources. The
leader requests a round immediately. Other members first give the leader time to see the change by
itself. They request a round only if none of their joins has carried the version since. The first
join of a static member may begin no round, so that the leader does not see the version in it
(KIP-345).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs
import numpy as np
from attrs import define, field

from coopgroup.core.leader import Lags, RoundRequest, TopicMetadata, read_members
from coopgroup.core.member import Member
from coopgroup.core.member.events import CatalogueSeen, RejoinRequested, SubscriptionChanged
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.resource_set import Int64Array
from coopgroup.core.protocol.assignment import with_catalogue_version
from coopgroup.core.session import DecisionMade
from coopgroup.core.telemetry.causes import Cause
from coopgroup.errors import one_line
from coopgroup.groups.catalogue import EVERYTHING, INDEX_MIN, Catalogue, Weights
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.trouble import Trouble
from coopgroup.worker import Worker

# Time between two reads of a leader with an outdated catalogue.
_LOOK_AGAIN_S: Final = 0.05
# After this time, a version that only one member has seen is ignored. By mistake or on purpose,
# that member could otherwise stop every round of the group.
_ALONE_S_MAX: Final = 60.0


@define(eq=False)
class CatalogueLookup:
    """Reads the application's catalogue, one read at a time.

    Attributes:
        source: returns the catalogue; called on threads of the group. The argument is the newest
            version that another member has told, or None.
        timeout_ms: how long a leader with an outdated catalogue waits.
        known: the newest catalogue that was read; a fixed one is known before.
        led: the catalogue of the last round led here; None before the first.
        on_read: called after each read that changed the known catalogue.
    """

    source: Callable[[int | None], object]
    timeout_ms: int
    warn: Callable[..., None]
    known: Catalogue | None = None
    led: Catalogue | None = field(default=None, init=False)
    on_read: Callable[[], None] = field(default=lambda: None, init=False)
    _passed_on: ResourceSet = field(default=EMPTY, init=False)
    _newest_seen: int | None = field(default=None, init=False)
    # Since when only one member says that the catalogue is outdated; None otherwise.
    _alone_since_s: float | None = field(default=None, init=False)
    # Version of the last older catalogue in a warning; () before.
    _passed_over: tuple[int | None, ...] = field(default=(), init=False)
    _one_look: threading.Lock = field(factory=threading.Lock, init=False)
    _closed: threading.Event = field(factory=threading.Event, init=False)
    _trouble: Trouble = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = Trouble(self.warn, "catalogue_unavailable", "catalogue_available")

    def look(self, told: int | None = None) -> Catalogue | None:
        """Read the catalogue; return the known one if it cannot be read or is older.

        Args:
            told: version that another member has seen.
        """
        if not self._one_look.acquire(timeout=self.timeout_ms / 1000):
            self._trouble.fail(at_once=True, error="an earlier look has not ended yet")
            return self.known
        before = self.known
        try:
            found = Catalogue.read(self.source(told))
            self._take(found)
        except BaseException as error:  # noqa: BLE001 -- the application's own; SystemExit, too
            self._trouble.fail(at_once=True, error=one_line(error))
        else:
            self._trouble.succeed()
        finally:
            self._one_look.release()
        if self.known is not before:
            self.on_read()
        return self.known

    def _take(self, found: Catalogue) -> None:
        known = self.known
        if known is None or not found.is_behind(known.version):
            self.known = found
        elif (found.version,) != self._passed_over:
            self._passed_over = (found.version,)
            said = f"version {found.version} found, {known.version} known: not shared"
            self.warn("catalogue_is_older", error=said)

    def read(self, members: Sequence[JoinedMember]) -> RoundRequest:
        """Decode the members' subscriptions; replace the subscription to everything by names."""
        request = read_members(members, index_min=INDEX_MIN)
        seen = sorted(
            one.catalogue_version for one in request.claims if one.catalogue_version is not None
        )
        self._newest_seen = max(seen, default=None)
        self._catch_up()
        self._pass_over_one(seen)
        self._passed_on = request.passed_on
        # Include the claimed names: if the catalogue is unavailable, all members keep their
        # resources.
        names = {name for claim in request.claims for name in claim.owned.names}
        names.update(() if self.known is None else self.known.resources.names)
        topics = tuple(sorted(names))
        claims = tuple(
            attrs.evolve(claim, topics=topics) if EVERYTHING in claim.topics else claim
            for claim in request.claims
        )
        return attrs.evolve(request, claims=claims, topics=topics)

    def _pass_over_one(self, seen: Sequence[int]) -> None:
        """Stop waiting for a version that only one member has named for a long time."""
        known = self.known
        ahead = [one for one in seen if known is not None and known.is_behind(one)]
        if len(ahead) != 1:
            self._alone_since_s = None
            return
        if self._alone_since_s is None:
            self._alone_since_s = now_s()
        if now_s() - self._alone_since_s >= _ALONE_S_MAX:
            self._newest_seen = max(seen[:-1], default=None)
            said = f"version {ahead[0]} is known to one member only: passed over"
            self.warn("catalogue_version_unconfirmed", error=said)

    def metadata(self, topics: Iterable[str]) -> TopicMetadata:  # noqa: ARG002 - all or nothing
        """Return the resources of the catalogue, without those that are passed on.

        Raises:
            LookupError: the catalogue is unknown, or another member has seen a newer one.
        """
        catalogue = self.known
        if catalogue is None:
            raise LookupError("the catalogue could not be read so far")
        if catalogue.is_behind(self._newest_seen):
            raise LookupError(
                f"the catalogue here has version {catalogue.version}, "
                f"another member has seen {self._newest_seen}"
            )
        self.led = catalogue
        shared = catalogue.resources - self._passed_on
        weights = _weights(catalogue)[catalogue.resources.positions(shared)]
        return TopicMetadata(resources=shared, weights=weights)

    def lags(self, resources: ResourceSet) -> Lags:  # noqa: ARG002 - those of the same catalogue
        """Return the weights in place of lags, for assignors that read lags.

        Raises:
            LookupError: the catalogue is unknown.
        """
        if self.led is None:
            raise LookupError("the catalogue could not be read so far")
        return Lags(resources=self.led.resources, values=_weights(self.led))

    def complete(self, outcome: DecisionMade) -> DecisionMade:
        """Add the version of the catalogue, so that members start nothing that they do not know."""
        version = None if self.led is None else self.led.version
        if version is None:
            return outcome
        assignments = tuple(
            (member_id, with_catalogue_version(content, version))
            for member_id, content in outcome.decision.assignments
        )
        return attrs.evolve(
            outcome, decision=attrs.evolve(outcome.decision, assignments=assignments)
        )

    def close(self) -> None:
        """Stop waiting for a newer catalogue."""
        self._closed.set()

    def _catch_up(self) -> None:
        deadline_s = now_s() + self.timeout_ms / 1000
        catalogue = self.look(self._newest_seen)
        while (
            (catalogue is None or catalogue.is_behind(self._newest_seen))
            and now_s() < deadline_s
            and not self._closed.wait(_LOOK_AGAIN_S)
        ):
            catalogue = self.look(self._newest_seen)


def _weights(catalogue: Catalogue) -> Int64Array:
    return np.array([weight for _, weight in catalogue.weights], dtype=np.int64)


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
    _asked_for: Weights | None = field(default=None, init=False)
    # The present list, and the first version in which this member saw it.
    _list: tuple[Weights | None, int | None] = field(default=(None, None), init=False)
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
        try:
            self._say(self.lookup.look())
        finally:  # `look` runs the application's code, as far as its log handlers
            if not self._stopped:
                self.post(SubscriptionChanged(topics=(EVERYTHING,)))
            self._look_later()

    def _look_later(self) -> None:
        self._worker.submit(self._look_again, after_s=self.refresh_ms / 1000)

    def _look_again(self) -> None:
        try:
            self._look()
        finally:
            self._look_later()

    def _look(self) -> None:
        self._is_wanted = False
        if self._stopped:
            return
        catalogue = self.lookup.look(self.member().last_assignment.catalogue_version)
        self._say(catalogue)
        if catalogue is not None:
            self._ask(catalogue)

    def _say(self, catalogue: Catalogue | None) -> None:
        if catalogue is None:
            return
        if catalogue.weights != self._list[0]:
            self._list = catalogue.weights, catalogue.version
        if catalogue.version != self._said:
            self._said = catalogue.version
            self.post(CatalogueSeen(version=catalogue.version))

    def _ask(self, catalogue: Catalogue) -> None:
        """Request a round if the group shares other resources than the catalogue's."""
        if self.leads():
            if self._is_shared(catalogue):
                self._asked_for = None  # the list may change, and come back
            elif catalogue.weights != self._asked_for:
                self._asked_for = catalogue.weights
                self.post(RejoinRequested(reason=Cause.CATALOGUE_CHANGED))
            return
        if catalogue.version is None or self._is_told(catalogue.version):
            self._unsaid_since_s = None
            return
        if self._unsaid_since_s is None:
            self._unsaid_since_s = now_s()
        elif now_s() - self._unsaid_since_s >= _PATIENCE_LOOKS * self.refresh_ms / 1000:
            self._unsaid_since_s = None
            self.post(RejoinRequested(reason=Cause.CATALOGUE_IS_NEWER))

    def _is_told(self, version: int) -> bool:
        """Return whether the leader of a round has heard of a version, or has shared its list."""
        member = self.member()
        if self._first_generation == _NO_GENERATION:
            self._first_generation = member.claim_generation
        may_be_unheard = (
            member.config.instance_id is not None
            and member.claim_generation == self._first_generation
        )
        if version == member.last_join.catalogue_version and not may_be_unheard:
            return True
        led, since = member.last_assignment.catalogue_version, self._list[1]
        return led is not None and since is not None and led >= since

    def _is_shared(self, catalogue: Catalogue) -> bool:
        led = self.lookup.led
        if led is None:
            return catalogue.resources == self.shared()
        return catalogue.weights == led.weights  # a changed definition needs no round
