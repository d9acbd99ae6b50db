"""`MemberProbe`: reads the health of one member, for any thread.

Theory of operation. The member is a frozen value, so reading it needs no lock. librdkafka is
different: a call from a second thread can wait for ever (`records.fetching`). So positions and log
ends are read on the application's thread, at its next `poll`. A reading requests the next sample
and uses the last one. An application that does not poll delivers no sample, and `since_poll_s`
already tells.

Rule of this file: a reading never waits, and never raises.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Protocol

from attrs import define, field, frozen

from coopgroup.core.member.events import Woken
from coopgroup.core.member.parts import Warmups
from coopgroup.core.member.retrying import told_retries
from coopgroup.core.member.transitions import AT_WORK, SETTLED, MemberState
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.progress import LastProgress, PartitionSample
from coopgroup.kafka.health.value import GroupLoad, Health, StuckPartition
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.commit_meter import CommitMeter

_FAILED_WITHOUT_WORDS = "the group refused this member"


@frozen(kw_only=True)
class WorkSample:
    """The work of the application.

    Attributes:
        at_s: time of the partitions below.
        owned: what the application holds.
        revoking: what it still stops.
        revoking_s: duration of the longest stop, in seconds.
        partitions: the samples; empty for named resources.
        stuck: what is known to be stuck without a comparison.
        failure: why the group refused this member, "" if it did not.
    """

    at_s: float = 0.0
    owned: ResourceSet = EMPTY
    revoking: ResourceSet = EMPTY
    revoking_s: float = 0.0
    partitions: Mapping[tuple[str, int], PartitionSample] = field(factory=dict)
    stuck: tuple[StuckPartition, ...] = ()
    failure: str = ""


class WorkProbe(Protocol):
    """Reads the work of an application; any thread calls, and no call waits."""

    def read(self) -> WorkSample:
        """Return the last sample, and request the next one."""
        ...

    def look_up_ends(self, quiet: list[tuple[str, int]]) -> None:
        """Look up the log end offsets of partitions without progress, in the background."""
        ...

    def commit_meter(self) -> CommitMeter | None:
        """Return what counts the commits; None if this application commits no offsets."""
        ...


@define(eq=False)
class MemberProbe:
    """The health of one member.

    Attributes:
        driver: its membership.
        work: its application.
    """

    driver: GroupDriver
    work: WorkProbe
    _progress: LastProgress = field(factory=LastProgress, init=False)
    _noted_s: float = field(default=-math.inf, init=False)
    # Since when the member has not been settled, and the generation at that time.
    _unsettled: tuple[float, int] | None = field(default=None, init=False)
    # When the thread was last asked to react.
    _asked_s: float | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def commit_meter(self) -> CommitMeter | None:
        """Return what counts the commits; None for named resources."""
        return self.work.commit_meter()

    def read(self) -> Health:
        """Return the health of this moment."""
        now, driver, sample = now_s(), self.driver, self.work.read()
        member = driver.member
        with self._lock:
            if sample.at_s > self._noted_s:
                self._progress.note(sample.at_s, sample.partitions)
                self._noted_s = sample.at_s
            stuck = sample.stuck + self._progress.stuck(sample.at_s, sample.partitions)
            quiet = self._progress.quiet_since(sample.at_s - QUIET_S)
            rebalancing_s = self._rebalancing_s(now, member.state, member.claim_generation)
            thread_silent_s = self._thread_silent_s(now)
        if quiet:
            self.work.look_up_ends(quiet)
        config, last = member.config, member.last_assignment
        unread_ms = last.unreadable_since_ms
        restoring, standing_by = _warmups(member.next_join.warmups)
        return Health(
            group_id=config.group_id,
            client_id=driver.settings.connection.client_id,
            instance_id=config.instance_id or "",
            member_id=member.member_id,
            generation=member.claim_generation,
            state=member.state.value,
            is_joined=member.claim_generation != NO_GENERATION and member.state in AT_WORK,
            leads=driver.leads,
            broker_assigns=member.round.by_broker,
            unreadable=last.error,
            unreadable_s=now - unread_ms / 1000 if unread_ms is not None else 0.0,
            failure=sample.failure
            or (_FAILED_WITHOUT_WORDS if member.state is MemberState.FAILED else ""),
            owned=sample.owned,
            revoking=sample.revoking,
            revoking_s=sample.revoking_s,
            lease_s=driver.lease_until_s - now,
            since_poll_s=_since_poll_s(driver, now),
            session_timeout_s=config.session_timeout_ms / 1000,
            max_poll_interval_s=driver.settings.max_poll_interval_ms / 1000,
            rebalancing_s=rebalancing_s,
            coordinator_silent_s=_coordinator_silent_s(driver, now),
            thread_silent_s=thread_silent_s,
            lags={key: one.lag for key, one in sample.partitions.items() if one.lag is not None},
            stuck=stuck,
            warmups=restoring,
            standbys=standing_by,
            retried=told_retries(member, round(now * 1000)),
            overdue_claims=driver.overdue_claims,
        )

    def load(self) -> GroupLoad | None:
        """Look up the work of the whole group; None unless this member leads it.

        This call waits for brokers, unlike `read`.

        Raises:
            Exception: the cluster did not answer in time.
        """
        driver = self.driver
        request, seen = driver.leader.request, driver.leader.seen.partitions
        if not driver.leads or request is None or not seen:
            return None
        lags = driver.lookup.lags(seen)
        own_id, own_rate = driver.member.member_id, driver.meter.rate_per_s
        # The own rate is of this moment; the rates of other members are of their last joins.
        rates = [
            own_rate if one.member_id == own_id and own_rate else one.consumption_rate_per_s
            for one in request.claims
        ]
        arrivals = lags.arrivals_per_s
        return GroupLoad(
            members=len(request.claims),
            partitions=len(seen),
            lag=int(lags.values.sum()),
            arrivals_per_s=None if arrivals is None else float(arrivals.sum()),
            rates_per_s=tuple(one for one in rates if one),
        )

    def _rebalancing_s(self, now: float, state: MemberState, generation: int) -> float:
        if state in SETTLED or state not in AT_WORK | {MemberState.LOSING}:
            self._unsettled = None
            return 0.0
        # Another generation: the member was settled between two readings.
        if self._unsettled is None or self._unsettled[1] != generation:
            self._unsettled = now, generation
        return now - self._unsettled[0]

    def _thread_silent_s(self, now: float) -> float:
        if not self.driver.is_running:
            self._asked_s = None
            return 0.0
        if self._asked_s is not None and self.driver.late.looked_at_s < self._asked_s:
            return now - self._asked_s
        self._asked_s = now
        self.driver.post(Woken())
        return 0.0


QUIET_S = 30.0
"""How long a partition makes no progress before its log end is looked up by another client."""


def _coordinator_silent_s(driver: GroupDriver, now: float) -> float:
    heard_at_ms = driver.member.heard_at_ms
    return now - heard_at_ms / 1000 if heard_at_ms else math.inf


def _since_poll_s(driver: GroupDriver, now: float) -> float:
    """Return the time outside of `poll`, in seconds; it counts only while the member is at work."""
    if driver.member.state not in AT_WORK | {MemberState.LOSING}:
        return 0.0
    return max(0.0, now - driver.polled_at_s)


def _warmups(warmups: Warmups | None) -> tuple[int, int]:
    """Return the number of warm-ups being restored, and of those that are warm."""
    if warmups is None:
        return 0, 0
    wanted = warmups.wanted - warmups.failed
    return len(wanted - warmups.warm), len(wanted & warmups.warm)
