"""`read_warm_spans`: which client was restoring, or warm for, which resource, and how it ended.

A *span* is the time of one warm-up or standby: a client prepares a resource of another owner. It
has up to three times: its begin, the time when the state is complete (warm), and its end.

A client that was killed writes no end. Its spans end with its process, if the records tell of
processes. Otherwise they end with the first round without the client after its last record.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from operator import attrgetter

from attrs import define, evolve, field, frozen

from coopgroup.core.model.resource_set import Resource
from coopgroup.core.telemetry.codec import Envelope
from coopgroup.core.telemetry.records import (
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    RoundDecided,
    WarmupsChanged,
)

__all__ = ["WarmEnd", "WarmSpan", "read_warm_spans"]

_RECORDS_OF_PROCESSES = (ProcessStarted, ProcessEnded, ProcessPaused, ProcessResumed)


class WarmEnd(enum.StrEnum):
    """How a span ended."""

    MOVED = "moved"
    CANCELLED = "cancelled"
    FAILED = "failed"
    ENDED = "ended"
    """Its process ended."""
    OPEN = "open"
    """It lasts until the end of the history."""


@frozen(kw_only=True)
class WarmSpan:
    """The time of one warm-up or standby of a resource.

    Attributes:
        client: name of the process; its member id if the process has no name.
        warm_ms: when the state was complete; None if it never was.
    """

    resource: Resource
    client: str
    begin_ms: int
    warm_ms: int | None
    end_ms: int
    end: WarmEnd

    @property
    def is_restore(self) -> bool:
        """Whether the client had to restore the state; False if it had it from the beginning."""
        return self.warm_ms is None or self.warm_ms > self.begin_ms


@define
class _Client:
    """The open spans of a client.

    Attributes:
        member: its last member id.
        is_hosted: whether records tell of its process, so that its silence means nothing.
    """

    name: str
    member: str = ""
    last_ms: int = 0
    is_hosted: bool = False
    open: dict[Resource, WarmSpan] = field(factory=dict)

    def take(self, at_ms: int, record: WarmupsChanged) -> Iterator[WarmSpan]:
        """Read a record and yield the spans that it ends."""
        for resource in record.begun:
            if resource not in self.open:
                self.open[resource] = self._begun(resource, at_ms)
        for resource in record.warm:
            span = self.open.get(resource) or self._begun(resource, at_ms)
            if span.warm_ms is None:
                self.open[resource] = evolve(span, warm_ms=at_ms)
        for resources, how in (
            (record.moved, WarmEnd.MOVED),
            (record.cancelled, WarmEnd.CANCELLED),
            (record.failed, WarmEnd.FAILED),
        ):
            yield from self.end(at_ms, how, resources)

    def end(
        self, at_ms: int, how: WarmEnd, resources: Iterable[Resource] | None = None
    ) -> Iterator[WarmSpan]:
        """End some or all open spans, and yield them."""
        for resource in tuple(self.open) if resources is None else resources:
            span = self.open.pop(resource, None)
            if span is not None:
                yield evolve(span, end_ms=at_ms, end=how)

    def _begun(self, resource: Resource, at_ms: int) -> WarmSpan:
        return WarmSpan(
            resource=resource,
            client=self.name,
            begin_ms=at_ms,
            warm_ms=None,
            end_ms=at_ms,
            end=WarmEnd.OPEN,
        )


def read_warm_spans(
    envelopes: Iterable[Envelope], *, until_ms: int | None = None
) -> tuple[WarmSpan, ...]:
    """Derive the spans from telemetry, sorted by begin, then by client and resource.

    Args:
        envelopes: of one group, in any order; envelopes with the same time in the order of writing.
        until_ms: end of the history: later records are ignored, and open spans end there. None for
            the time of the last record.
    """
    history = sorted(envelopes, key=attrgetter("at_ms"))
    if not any(isinstance(one.record, WarmupsChanged) for one in history):
        return ()
    last_ms = history[-1].at_ms if until_ms is None else until_ms
    clients: dict[str, _Client] = {}
    spans: list[WarmSpan] = []
    for one in history:
        name = one.client or one.member
        if one.at_ms > last_ms or not name:
            continue
        client = clients.setdefault(name, _Client(name))
        client.last_ms, client.member = one.at_ms, one.member or client.member
        client.is_hosted |= isinstance(one.record, _RECORDS_OF_PROCESSES)
        if isinstance(one.record, WarmupsChanged):
            spans += client.take(one.at_ms, one.record)
        elif isinstance(one.record, ProcessStarted | ProcessEnded):
            spans += client.end(one.at_ms, WarmEnd.ENDED)
    for client in clients.values():
        gone_ms = None if client.is_hosted or not client.open else _gone_ms(client, history)
        if gone_ms is None or gone_ms > last_ms:
            spans += client.end(last_ms, WarmEnd.OPEN)
        else:
            spans += client.end(gone_ms, WarmEnd.ENDED)
    return tuple(sorted(spans, key=lambda span: (span.begin_ms, span.client, span.resource)))


def _gone_ms(client: _Client, history: Iterable[Envelope]) -> int | None:
    """Return the time of the first round without a silent client; None without such a round."""
    return next(
        (
            one.at_ms
            for one in history
            if one.at_ms > client.last_ms
            and isinstance(one.record, RoundDecided)
            and client.member not in one.record.members
        ),
        None,
    )
