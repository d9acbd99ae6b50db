"""Spans of warm-ups and standbys, from records made by hand."""

from collections.abc import Iterable
from typing import Any

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.telemetry import (
    EndCause,
    Envelope,
    ProcessEnded,
    ProcessStarted,
    Record,
    RoundDecided,
    WarmEnd,
    WarmSpan,
    WarmupsChanged,
    read_ledger,
)


def wrote(at_ms: int, client: str, record: Record) -> Envelope:
    of = {"group": "g", "member": f"{client}-id", "client": client}
    return Envelope(at_ms=at_ms, generation=1, record=record, **of)


def changed(at_ms: int, client: str, **changes: list[int] | str) -> Envelope:
    """Return a record with indices of topic t."""
    sets: dict[str, Any] = {
        name: value if isinstance(value, str) else ResourceSet({"t": value})
        for name, value in changes.items()
    }
    return wrote(at_ms, client, WarmupsChanged(**sets))


def span(
    index: int, client: str, begin_ms: int, warm_ms: int | None, end_ms: int, end: WarmEnd
) -> WarmSpan:
    return WarmSpan(
        resource=Resource("t", index),
        client=client,
        begin_ms=begin_ms,
        warm_ms=warm_ms,
        end_ms=end_ms,
        end=end,
    )


def spans_of(records: Iterable[Envelope], until_ms: int | None = None) -> tuple[WarmSpan, ...]:
    return read_ledger(records, until_ms=until_ms).warm_spans


def test_warm_up_begins_becomes_warm_and_moves() -> None:
    records = [
        changed(10, "a", begun=[0, 1]),
        changed(40, "a", warm=[0]),
        changed(50, "a", moved=[0, 1]),
    ]
    assert spans_of(records) == (
        span(0, "a", 10, 40, 50, WarmEnd.MOVED),
        span(1, "a", 10, None, 50, WarmEnd.MOVED),
    )


def test_one_record_can_end_some_and_begin_others() -> None:
    records = [
        changed(10, "a", begun=[0, 1]),
        changed(20, "a", begun=[2], cancelled=[0]),
        changed(30, "a", failed=[1], error="disk full"),
        wrote(60, "b", ProcessStarted()),
    ]
    assert spans_of(reversed(records)) == (
        span(0, "a", 10, None, 20, WarmEnd.CANCELLED),
        span(1, "a", 10, None, 30, WarmEnd.FAILED),
        span(2, "a", 20, None, 60, WarmEnd.OPEN),
    )


def test_state_that_was_kept_or_found_is_no_restore() -> None:
    kept = read_ledger(
        [changed(10, "a", begun=[0], warm=[0]), changed(20, "a", moved=[0])]
    ).warm_spans
    found = spans_of([changed(5, "a", warm=[0]), changed(10, "a", begun=[0])])
    assert kept == (span(0, "a", 10, 10, 20, WarmEnd.MOVED),)
    assert found == (span(0, "a", 5, 5, 10, WarmEnd.OPEN),)
    assert not any(one.is_restore for one in (*kept, *found))
    assert span(0, "a", 10, 11, 20, WarmEnd.MOVED).is_restore
    assert span(0, "a", 10, None, 20, WarmEnd.MOVED).is_restore


def test_spans_end_with_their_process() -> None:
    records = [
        wrote(0, "a", ProcessStarted()),
        changed(10, "a", begun=[0]),
        wrote(20, "a", ProcessEnded(cause=EndCause.CRASHED)),
        wrote(30, "a", ProcessStarted()),
        changed(40, "a", cancelled=[0]),  # of the new process: nothing is open
    ]
    assert spans_of(records) == (span(0, "a", 10, None, 20, WarmEnd.ENDED),)


def test_client_that_fell_silent_ends_with_the_first_of_the_last_rounds_without_it() -> None:
    def led(at_ms: int, *members: str) -> Envelope:
        ids = tuple(f"{one}-id" for one in members)
        return wrote(at_ms, "a", RoundDecided(policy="simple", assignor="sticky", members=ids))

    records = [changed(10, "a", begun=[0]), changed(10, "b", begun=[1]), led(15, "a")]
    later = [led(20, "a", "b"), led(30, "a"), led(40, "a")]
    assert spans_of([*records, *later]) == (
        span(0, "a", 10, None, 40, WarmEnd.OPEN),
        span(1, "b", 10, None, 30, WarmEnd.ENDED),
    )
    back = changed(35, "b", warm=[1])  # it had only missed a round
    assert spans_of([*records, *later, back])[1] == span(1, "b", 10, 35, 40, WarmEnd.ENDED)


def test_history_can_end_early() -> None:
    records = [changed(10, "a", begun=[0]), changed(90, "a", moved=[0])]
    assert spans_of(records, until_ms=50) == (span(0, "a", 10, None, 50, WarmEnd.OPEN),)
