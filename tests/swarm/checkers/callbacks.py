"""The oracle of callbacks: what the application of a consumer must see, and what it must not.

Each host of the swarm tells it the notices of the group, the calls of the application and the
answers to the group. It objects immediately, to:

- a call for a lost partition, except `on_lost`; without `on_lost`, `on_revoke` has its role;
- an `on_assign` of a partition that the application has, or that the group has not assigned;
- an `on_revoke` of a partition whose `on_assign` was not called;
- work that begins before its `on_assign` has ended, or without fetching;
- an answer to a revocation that comes twice, too early, too late, without a commit, or after the
  group was left;
- an answer to a loss that comes before `on_lost` has ended;
- a notice without its callback, and a stop that was given up before its `on_revoke` began,
  without `on_lost`;
- a commit of lost partitions;
- partitions that are owned, fetched or uncommitted after a close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from attrs import define, field

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import LossHandled, RevocationCompleted, WarmupFailed
from coopgroup.core.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from coopgroup.core.model import Resource
    from coopgroup.core.session import SessionEvent
    from coopgroup.kafka.callbacks.pending_revocations import PutOff
    from coopgroup.kafka.membership.ports import Notice

_TICK_MS: Final = 50


@define(eq=False)
class Call:
    """One call of a callback.

    Attributes:
        awake_ms: how long an `on_revoke` runs, without pauses of the process.
    """

    name: str
    resources: ResourceSet
    at_ms: int
    is_of_close: bool
    awake_ms: int = 0


@define(eq=False, kw_only=True)
class CallbackOracle:
    """Watches one application.

    Attributes:
        limit_ms: `max.poll.interval.ms`.
        later: calls a function after some time; pauses of the process do not count.
        hears_losses: whether the application has `on_lost`.
        warms_up: whether it takes part in warm-ups.
        is_serial: whether callbacks run one after the other.
        fetched: returns the partitions whose records the application gets.
        held: returns the partitions that the host counts as owned.
        stopping: returns the partitions of these whose stop is put off.
        owned: assigned by the group, not given up, not lost.
        lost: lost, and not assigned since.
        pending: revoked and not answered, with the time of each.
    """

    limit_ms: int
    now_ms: Callable[[], int]
    object_to: Callable[[str], None]
    later: Callable[..., None]
    hears_losses: bool
    warms_up: bool = False
    is_serial: bool = True
    fetched: Callable[[], ResourceSet] = lambda: EMPTY
    held: Callable[[], ResourceSet] = lambda: EMPTY
    stopping: Callable[[], ResourceSet] = lambda: EMPTY
    owned: ResourceSet = EMPTY
    lost: ResourceSet = EMPTY
    pending: dict[Resource, int] = field(factory=dict)
    _calls: list[Call] = field(factory=list)
    _has: ResourceSet = EMPTY  # `on_assign` was called
    _stopped: ResourceSet = EMPTY  # `on_revoke` was called
    _stop_ms: dict[Resource, int] = field(factory=dict)  # when that was
    _late: ResourceSet = EMPTY  # not stopped in time, and given up
    _unheard: ResourceSet = EMPTY  # lost, and the application does not know
    _heard: ResourceSet = EMPTY  # the application was told that they are lost
    _lost_stops: dict[Resource, PutOff] = field(factory=dict)  # put off, and lost meanwhile
    # Given up while `on_revoke` waits, and the time of that: the application must hear of a loss.
    _untold: dict[Resource, int] = field(factory=dict)
    _committed: ResourceSet = EMPTY
    _cold: ResourceSet = EMPTY
    _unwarmed: dict[Resource, int] = field(factory=dict)  # to warm up, since when
    _put_off: dict[Resource, PutOff] = field(factory=dict)
    _is_losing: bool = False
    _has_left: bool = False
    _is_closing: bool = False
    _before: set[Resource] = field(factory=set)  # revoked before the close, and not yet stopped
    _unheard_before: ResourceSet = EMPTY

    @property
    def stops(self) -> ResourceSet:
        """Partitions whose `on_revoke` runs now."""
        return self._in_calls("on_revoke")

    def _in_calls(self, name: str) -> ResourceSet:
        return ResourceSet.union_all(
            [EMPTY, *(one.resources for one in self._calls if one.name == name)]
        )

    def _must_be_empty(self, resources: ResourceSet, words: str) -> None:
        if resources:
            self.object_to(f"{words} {resources.to_dict()}")

    # --- the group ----------------------------------------------------------------------------

    def told(self, notice: Notice) -> None:
        """Hear a notice of the group."""
        self._has_left = False
        match notice:
            case GrantResources(resources=some):
                self.owned |= some
                self.lost -= some
                self._forget(some)
            case RevokeResources(resources=some):
                self.pending |= dict.fromkeys(some, self.now_ms())
            case LoseResources():
                # A stop that has ended is being committed. On one thread, so is one that runs.
                ends = self._stopped - ResourceSet.from_pairs(self._put_off)
                ends = ends if self.is_serial else ends - self.stops
                self._unheard |= (self.owned & self._has) - ends - self._heard
                self.lost |= self.owned
                self.owned, self._is_losing = EMPTY, True
                self.pending.clear()
                self._lost_stops, self._put_off = self._put_off, {}
            case BeginWarmups(resources=some):
                self._unwarmed |= dict.fromkeys(some, self.now_ms())
            case CancelWarmups(resources=some):
                self._warm_up_no_longer(some)
            case _:
                pass

    def _warm_up_no_longer(self, some: ResourceSet) -> None:
        for one in some:
            self._unwarmed.pop(one, None)

    def _forget(self, some: ResourceSet) -> None:
        self._has -= some
        self._stopped -= some
        self._committed -= some
        self._cold -= some
        self._unheard -= some
        self._heard -= some
        self._late -= some
        for one in some:
            self._put_off.pop(one, None)
            self._stop_ms.pop(one, None)
            self._untold.pop(one, None)

    def posted(self, event: SessionEvent) -> None:
        """Hear an answer to the group."""
        if self._has_left and isinstance(event, RevocationCompleted | LossHandled):
            self.object_to(f"answers {event} after it has left the group")
        match event:
            case WarmupFailed(resources=some):
                self._cold |= some
            case LossHandled():
                self._end_loss()
            case RevocationCompleted(resources=some):
                self._complete(some)
            case _:
                pass

    def _end_loss(self) -> None:
        if not self._is_losing:
            self.object_to("answers a loss that is none")
        self._is_losing = False
        self._lost_stops.clear()
        self._must_be_empty(self._unheard, "answers the loss, and has not called back for")
        self._must_be_empty(self.lost & self.held(), "answers the loss, and owns")
        self._must_be_empty(self.lost & self.fetched(), "answers the loss, and fetches")
        self._must_be_empty(self._in_calls("on_lost"), "answers the loss inside on_lost of")

    def _complete(self, some: ResourceSet) -> None:
        if self._is_losing and not some & self.owned:
            return  # its callback ran during the loss, which the group knows
        pending = ResourceSet.from_pairs(self.pending)
        self._must_be_empty(some - pending, "answers twice, or what was not revoked:")
        late = self._overdue(some)
        self._must_be_empty(some & self.fetched(), "gives up, and fetches")
        self._must_be_empty(some & self.held(), "gives up, and owns")
        self._must_be_empty((some & self.stops) - late, "gives up inside on_revoke")
        unstopped = (some & self._has) - self._stopped
        held_up = unstopped & late if self._calls and not self.is_serial else EMPTY
        self._must_be_empty(unstopped - held_up, "gives up without on_revoke")
        self._untold |= dict.fromkeys(held_up, self.now_ms())
        put_off = ResourceSet.from_pairs(self._put_off)
        self._must_be_empty((some & put_off) - late, "gives up before finish_revoke")
        self._must_be_empty((some & self._has) - self._committed - late, "commits not before")
        if self.warms_up:
            hangs = some & put_off & late
            self._must_be_empty(hangs - self._cold, "keeps warm what was not stopped:")
        self._late |= some & late
        self.owned -= some
        self._before -= {*some}  # a revocation that comes after the close began may go unanswered
        for one in some:
            self.pending.pop(one, None)
            self._put_off.pop(one, None)

    def _overdue(self, some: ResourceSet) -> ResourceSet:
        by_ms = self.now_ms() - self.limit_ms + 1
        return ResourceSet.from_pairs(one for one in some if self._stop_ms.get(one, by_ms) <= by_ms)

    # --- the application ----------------------------------------------------------------------

    def called(self, name: str, resources: ResourceSet) -> Call:
        """Note the begin of a callback."""
        call = Call(name, resources, self.now_ms(), self._is_closing)
        if self.is_serial and self._calls and not call.is_of_close:
            self.object_to(f"calls {name} inside {self._calls[-1].name}")
        match name:
            case "on_assign":
                self._must_be_empty(resources - self.owned, "is assigned, and does not own,")
                self._must_be_empty(resources & self._has, "is assigned what it has,")
                self._has |= resources
            case "on_revoke" if self.hears_losses or not resources <= self._ended:
                lost = self.lost | self._late | self._heard
                self._must_be_empty(resources & lost, "stops, and has lost,")
                self._must_be_empty(resources - self._has, "stops, and was not assigned,")
                self._must_be_empty(resources & self._stopped, "stops twice")
                self._stopped |= resources
                self.stop_begins(resources - ResourceSet.from_pairs(self._stop_ms))
            case "on_lost" | "on_revoke":
                kept = resources - self._ended - self._held_up
                self._must_be_empty(kept, "loses, and has not lost,")
                if self.is_serial:
                    hangs = ResourceSet.from_pairs(self._put_off)
                    ended = resources - self.lost - hangs
                    self._must_be_empty(ended, "loses, and has stopped,")
                self._unheard -= resources
                self._heard |= resources
                for one in resources:
                    self._untold.pop(one, None)
            case "on_warmup":
                self._warm_up_no_longer(resources)
            case _:
                pass
        self._calls.append(call)
        if name == "on_revoke":
            self.later(_TICK_MS, self._tick, call)
        return call

    def _tick(self, call: Call) -> None:
        if call in self._calls:
            call.awake_ms += _TICK_MS
            self.later(_TICK_MS, self._tick, call)

    @property
    def _ended(self) -> ResourceSet:
        return self.lost | self._late | self._overdue(self._stopped & self.owned)

    @property
    def _held_up(self) -> ResourceSet:
        """Owned partitions whose `on_revoke` has waited for earlier callbacks for too long."""
        if self.is_serial:
            return EMPTY
        return self._overdue(self.owned & ResourceSet.from_pairs(self._stop_ms))

    def stop_begins(self, resources: ResourceSet) -> None:
        """Note that the time of a stop begins; else it begins with `on_revoke`."""
        self._stop_ms |= dict.fromkeys(resources, self.now_ms())

    def returned(self, call: Call) -> None:
        """Note the end of a callback; nothing waits for a stop that takes much too long."""
        self._calls.remove(call)
        if call.name == "on_revoke" and call.awake_ms > 2 * self.limit_ms:
            same = (one for one in call.resources if self._stop_ms.get(one, math.inf) <= call.at_ms)
            kept = ResourceSet.from_pairs(same) & self.held()
            self._must_be_empty(kept, "waits for a stop that hangs, of")

    def stops_end(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Note that parts of `on_revoke` have ended."""
        ended = ResourceSet.from_pairs(partitions)
        for one in self._calls:
            if one.name == "on_revoke":
                one.resources -= ended

    def begins(self, resources: ResourceSet) -> None:
        """Note that partitions are fetched."""
        self._must_be_empty(resources - self.owned - self.lost, "fetches, and does not own,")
        self._must_be_empty(resources if self._has_left else EMPTY, "fetches after its close")

    def started(self, resources: ResourceSet) -> None:
        """Note that the application says that it works on partitions."""
        self._must_be_empty(resources - self._has, "works without on_assign on")
        self._must_be_empty(resources & self._in_calls("on_assign"), "works before on_assign ends")
        self._must_be_empty(resources - self.fetched(), "works, and does not fetch,")

    def commits(self, resources: ResourceSet) -> None:
        """Note the last commit of partitions."""
        self._must_be_empty(resources & self._in_calls("on_lost"), "commits what is lost,")
        self._committed |= resources

    def puts_off(self, token: PutOff) -> None:
        """Note that a stop goes on."""
        if self._calls and self._calls[-1].is_of_close:
            self._must_be_empty(token.resources, "puts off in a close")
        self._put_off |= dict.fromkeys(token.resources, token)

    def finishes(self, token: PutOff) -> None:
        """Note that such a stop has ended; that of an earlier stop changes nothing."""
        for one in token.resources:
            if self._put_off.get(one) is token:
                del self._put_off[one]
        if self.is_serial:  # the stop ends before the loss is served, like one that runs
            same = (one for one in token.resources if self._lost_stops.get(one) is token)
            self._unheard -= ResourceSet.from_pairs(same)

    def served(self, since_ms: int) -> None:
        """Check after a poll that began at this time and raised no exception."""
        self._must_be_empty(ResourceSet.from_pairs(self._put_off) & self.fetched(), "fetches on")
        if self.is_serial:
            cold = (one for one, told_ms in self._unwarmed.items() if told_ms < since_ms)
            self._must_be_empty(ResourceSet.from_pairs(cold), "does not warm up")
        by_ms = since_ms - self.limit_ms - 1  # a reminder is rounded up, and may follow the poll
        untold = (one for one, gave_up_ms in self._untold.items() if gave_up_ms < since_ms)
        self._must_be_empty(ResourceSet.from_pairs(untold), "gave up, and never tells of")
        late = (one for one in self.pending if self._stop_ms.get(one, since_ms) < by_ms)
        self._must_be_empty(ResourceSet.from_pairs(late), "has not stopped in time, and keeps")

    def is_late(self, resources: ResourceSet) -> bool:
        """Return whether a stop of partitions is over its time."""
        return bool(self._overdue(resources & ResourceSet.from_pairs(self.pending)))

    def closes(self) -> None:
        """Note that the application closes its consumer, or unsubscribes."""
        self._is_closing = True
        self._before = {*self.pending} - {*self.stopping()} - {*self.stops} - {*self._stop_ms}
        self._unheard_before = self._unheard - self._in_calls("on_lost")

    def closed(self) -> None:
        """Check the end of a close."""
        self._is_closing = False
        late = self._overdue(self.owned & self._has)
        self._must_be_empty(self.held() | self.fetched(), "works after its close on")
        untold = (self._unheard_before & self._unheard) | (self._unheard - self._stopped)
        self._must_be_empty(untold, "closes, and never tells of")
        ignored = ResourceSet.from_pairs(self._before & self.pending.keys())
        self._must_be_empty(ignored, "closes, and ignores the revocation of")
        before = self.owned & self._has
        # With asyncio, `on_revoke` waits for earlier callbacks of its partitions. If these take too
        # long, the partitions are lost instead.
        held_up = EMPTY if self.is_serial else late
        self._must_be_empty(before - self._stopped - held_up, "closes without on_revoke for")
        self._must_be_empty(before - self._committed - late, "closes without a commit of")
        self._forget(self.owned)
        self._late |= late
        # After a loss during a close, the application hears `on_revoke` of the close instead.
        self._unheard = EMPTY
        self.owned, self._is_losing, self._has_left = EMPTY, False, True
        self.pending.clear()
        self._unwarmed.clear()
