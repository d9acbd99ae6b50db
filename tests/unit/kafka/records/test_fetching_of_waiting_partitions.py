"""librdkafka gets explicit offsets only. A partition without an offset waits, but not forever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    TopicPartition,
)

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.kafka.records.record_buffer import RecordBuffer
from coopgroup.kafka.rpc.questions import CommittedOffset
from tests.support.inner import inner
from tests.unit.kafka.fakes import FakeCoordinator, FakeLibrdkafka, starts
from tests.unit.kafka.test_consumer_delivery_interruption import PLACES_MAX, interrupt, strike

HELD = ResourceSet({"t": [0, 1]})
ZERO = TopicPartition("t", 0)


class _Noting(FakeLibrdkafka):
    """Record the assigned partitions unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.assigned: list[TopicPartition] = []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned += partitions
        super().incremental_assign(partitions)


def silent(reset: str = "earliest") -> tuple[Fetching, _Noting, FakeCoordinator]:
    """Return parts whose coordinator does not answer by itself."""
    coordinator, librdkafka = FakeCoordinator(is_silent=True), _Noting()
    return Fetching(librdkafka, starts(coordinator, reset)), librdkafka, coordinator


def answer(coordinator: FakeCoordinator) -> None:
    """Answer all pending requests, including those that an answer causes."""
    coordinator.is_silent = False
    for request, hear in coordinator.waiting:
        hear(coordinator.answer(request))
    coordinator.waiting.clear()


def begin(reset: str, found: CommittedOffset) -> tuple[Fetching, _Noting]:
    fetching, librdkafka, coordinator = silent(reset)
    coordinator.committed["t", 0], coordinator.logs["t", 0] = found, (3, 9)
    fetching.begin([ZERO])
    answer(coordinator)
    fetching.begin_known()
    return fetching, librdkafka


@pytest.mark.parametrize(
    ("reset", "found", "begins"),
    [
        ("earliest", CommittedOffset(-1), (3, None, None)),
        ("latest", CommittedOffset(-1), (9, None, None)),
        ("latest", CommittedOffset(7, 3, "note"), (7, 3, "note")),
    ],
)
def test_partition_begins_at_its_commit_or_as_auto_offset_reset_says(
    reset: str, found: CommittedOffset, begins: tuple[int, int | None, str | None]
) -> None:
    """With the epoch librdkafka detects a truncated log (KIP-320)."""
    (one,) = begin(reset, found)[1].assigned
    assert (one.offset, one.leader_epoch, one.metadata) == begins


def test_without_a_commit_where_that_is_an_error_the_application_gets_it() -> None:
    fetching, librdkafka = begin("error", CommittedOffset(-1))
    (event,) = fetching.record_buffer.ready
    error = event.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert error.str() == "no previously committed offset available: Local: No offset stored"
    assert (event.topic(), event.partition(), event.value()) == ("t", 0, error.str().encode())
    assert (librdkafka.assigned, fetching.begun) == ([], ResourceSet({"t": [0]}))
    fetching.seek(TopicPartition("t", 0, 12))
    assert [one.offset for one in librdkafka.assigned] == [12]


def test_a_refused_partition_is_told_once_and_begins_when_it_may() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fetching, librdkafka = begin("earliest", CommittedOffset(-1, error_code=code))
    (event,) = fetching.record_buffer.ready
    error = event.error()
    assert error is not None
    assert (error.code(), "topic t [0]: Broker: Topic auth" in error.str()) == (code, True)
    fetching.starts.lookup.ask([("t", 0)])
    fetching.begin_known()
    assert len(fetching.record_buffer.ready) == 1
    coordinator: Any = fetching.starts.lookup.transport
    coordinator.committed["t", 0] = CommittedOffset(4)
    fetching.starts.lookup.ask([("t", 0)])
    fetching.begin_known()
    assert [one.offset for one in librdkafka.assigned] == [4]


@pytest.mark.parametrize("offset", [OFFSET_INVALID, OFFSET_STORED])
def test_a_partition_waits_while_others_flow(offset: int) -> None:
    fetching, librdkafka, coordinator = silent()
    fetching.begin([TopicPartition("t", 0, offset), TopicPartition("t", 1, 50)])
    assert librdkafka.calls == [("assign", [(1, 50)])]
    assert (fetching.fetched, fetching.begun) == (ResourceSet({"t": [1]}), HELD)
    assert fetching.is_about_to_begin
    (position,) = fetching.positions([ZERO])
    assert (position.offset, position.error) == (OFFSET_INVALID, None)
    coordinator.committed["t", 0] = CommittedOffset(3)
    answer(coordinator)
    fetching.begin_known()
    assert librdkafka.calls[1:] == [("assign", [(0, 3)])]
    assert (fetching.fetched, fetching.is_about_to_begin) == (HELD, False)


def test_seek_begins_a_partition_that_waits() -> None:
    fetching, librdkafka, coordinator = silent()
    fetching.begin([ZERO])
    fetching.seek(ZERO)  # without an offset: ignored, as in librdkafka
    assert librdkafka.assigned == []
    fetching.seek(TopicPartition("t", 0, 9))
    answer(coordinator)
    fetching.begin_known()
    assert librdkafka.calls == [("assign", [(0, 9)])]


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_partition_that_is_given_up_while_it_waits_never_begins(*, is_paused: bool) -> None:
    """Otherwise librdkafka would remember the pause until the partition returns."""
    fetching, librdkafka, coordinator = silent()
    fetching.begin([ZERO])
    if is_paused:
        fetching.pause([ZERO], HELD, "application")
    fetching.end(ResourceSet({"t": [0]}))
    answer(coordinator)
    fetching.begin_known()
    assert librdkafka.assigned == []
    assert fetching.begun == ResourceSet()
    assert [name for name, _ in librdkafka.calls] == ["pause", "resume"] * is_paused


def test_partition_begins_after_a_signal_in_its_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fetching, librdkafka, coordinator = silent()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FakeLibrdkafka, "list_topics", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetching.begin([ZERO])
    answer(coordinator)
    fetching.begin_known()
    assert [name for name, _ in librdkafka.calls] == ["assign"]


STRUCK = {"fetching.py", "offset_lookup.py", "starting_offsets.py"}


def strikes(at_least: int = 1) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yield functions that interrupt a call: the first one at its first place, and so on."""
    anything: Any = None
    is_struck = True

    def strike_at(place: int, call: Callable[[], None]) -> None:
        nonlocal is_struck

        def ask(_: object) -> list[Any]:
            call()
            return []

        is_struck = strike(anything, ask, place, interrupt, STRUCK) is not None

    for place in range(1, PLACES_MAX):
        yield partial(strike_at, place)
        if not is_struck:
            assert place > at_least
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("is_paused", [False, True])
def test_partition_begins_once_when_a_signal_strikes_as_its_offset_is_taken(
    *, is_paused: bool
) -> None:
    """The next call does the rest. librdkafka refuses a partition that it has already."""
    for struck in strikes(at_least=5):
        fetching, librdkafka, coordinator = silent()
        coordinator.committed["t", 0] = CommittedOffset(7)
        fetching.begin([ZERO, TopicPartition("t", 1)])
        answer(coordinator)
        if is_paused:
            fetching.pause([ZERO], HELD, "application")
        struck(fetching.begin_known)
        fetching.begin_known()
        places = [(one.partition, one.offset) for one in librdkafka.assigned]
        assert places == [(0, 7), (1, 0)]
        assert librdkafka.calls[-1][0] == ("pause" if is_paused else "assign")
        assert (fetching.fetched, fetching.waiting) == (HELD, frozenset())


def test_a_partition_is_asked_for_when_a_signal_strikes_as_it_begins() -> None:
    """A question that counts as asked but was not sent would never get its answer."""
    for struck in strikes():
        fetching, librdkafka, coordinator = silent()
        coordinator.committed["t", 0] = CommittedOffset(7)
        struck(partial(fetching.starts.want, [("t", 0)]))
        fetching.begin([ZERO])
        fetching.starts.pause_s()
        answer(coordinator)
        fetching.begin_known()
        assert [one.offset for one in librdkafka.assigned] == [7]


def test_begin_of_an_earlier_assignment_does_not_count_when_a_signal_interrupted_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first offset would be committed, although another member has committed more meanwhile."""
    fetching, _ = begin("earliest", CommittedOffset(-1))
    coordinator: Any = fetching.starts.lookup.transport
    coordinator.is_silent = True

    def interrupted(_self: object, _partitions: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RecordBuffer, "drop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetching.end(ResourceSet({"t": [0]}))
    fetching.begin([ZERO])
    assert fetching.begin_of(("t", 0)) is None
    assert OffsetStore(fetching, automatic=True).due(ResourceSet({"t": [0]})) == ()


@pytest.mark.parametrize("sought", [None, 7])
def test_held_partition_begins_when_it_is_released_where_seek_says(sought: int | None) -> None:
    fetching = Fetching(FakeLibrdkafka(), starts())
    held = fetching.hold([ZERO])
    assert (fetching.begun, fetching.fetched) == (ResourceSet({"t": [0]}), ResourceSet({}))
    assert fetching.positions([ZERO])[0].offset == OFFSET_INVALID
    if sought is not None:
        fetching.seek(TopicPartition("t", 0, sought))
    fetching.release(held)
    begins = 0 if sought is None else sought
    assert fetching.consumer.calls == [("assign", [(0, begins)])]
    assert fetching.held == {}


def test_held_partition_that_is_given_up_or_held_again_is_not_begun() -> None:
    """A callback of an earlier assignment must not begin the partition of a later one."""
    fetching = Fetching(FakeLibrdkafka(), starts())
    first = fetching.hold([ZERO])
    fetching.end(ResourceSet({"t": [0]}))
    fetching.release(first)
    second = fetching.hold([ZERO])
    fetching.release(first)
    assert fetching.consumer.calls == []
    fetching.release(second)
    assert fetching.fetched == ResourceSet({"t": [0]})


# --- the states of a partition ----------------------------------------------------------------

HOLD, BEGIN, BEGIN_AT, BEGIN_AT_END = "hold", "begin", "begin at 5", "begin at the end"
SEEK, SEEK_END = "seek 5", "seek the end"
RELEASE, KNOWN, END = "release", "begin_known", "end"
ANSWER, ANSWER_NONE = "an answer", "an answer without a commit"
STATES: dict[tuple[str, str], str] = {
    ("none", HOLD): "held",
    ("none", BEGIN): "waiting",
    ("none", BEGIN_AT): "fetched",
    ("none", BEGIN_AT_END): "waiting",
    ("none", KNOWN): "none",
    ("none", END): "none",
    ("held", HOLD): "held",
    ("held", KNOWN): "held",
    ("held", RELEASE): "waiting",
    ("held", SEEK): "held",
    ("held", SEEK_END): "held",
    ("held", END): "none",
    ("waiting", KNOWN): "waiting",
    ("waiting", ANSWER): "fetched",
    ("waiting", ANSWER_NONE): "stuck",
    ("waiting", SEEK): "fetched",
    ("waiting", SEEK_END): "waiting",
    ("waiting", END): "none",
    ("stuck", KNOWN): "stuck",
    ("stuck", SEEK): "fetched",
    ("stuck", SEEK_END): "waiting",
    ("stuck", END): "none",
    ("fetched", KNOWN): "fetched",
    ("fetched", SEEK): "fetched",
    ("fetched", SEEK_END): "waiting",
    ("fetched", END): "none",
}


def state_of(fetching: Fetching, key: tuple[str, int] = ("t", 0)) -> str:
    """Return the only state of a partition."""
    states = {
        "held": key in fetching.held,
        "waiting": key in fetching.waiting,
        "stuck": key in inner(fetching, "_stuck"),
        "fetched": key in fetching.fetched,
    }
    found = [name for name, is_so in states.items() if is_so]
    assert len(found) <= 1, found
    assert bool(found) == (key in fetching.begun)
    return found[0] if found else "none"


def _partition_is_in_one_state(before: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coopgroup.kafka.records.fetching._SEEK_S", 0.0)
    if before == "stuck":
        fetching = begin("error", CommittedOffset(-1))[0]
        coordinator: Any = fetching.starts.lookup.transport
        coordinator.is_silent = True
    else:
        fetching, _, coordinator = silent("error")
    held: list[TopicPartition] = []

    def hold() -> None:
        held.extend(fetching.hold([ZERO]))

    def hear(offset: int) -> None:
        coordinator.committed["t", 0] = CommittedOffset(offset)
        answer(coordinator)
        fetching.begin_known()

    five, end = TopicPartition("t", 0, 5), TopicPartition("t", 0, OFFSET_END)
    calls: dict[str, Callable[[], object]] = {
        HOLD: hold,
        BEGIN: lambda: fetching.begin([ZERO]),
        BEGIN_AT: lambda: fetching.begin([five]),
        BEGIN_AT_END: lambda: fetching.begin([end]),
        SEEK: lambda: fetching.seek(five),
        SEEK_END: lambda: fetching.seek(end),
        RELEASE: lambda: fetching.release(held),
        KNOWN: fetching.begin_known,
        ANSWER: lambda: hear(7),
        ANSWER_NONE: lambda: hear(-1),
        END: lambda: fetching.end(ResourceSet({"t": [0]})),
    }
    for one in {"held": [HOLD], "waiting": [BEGIN], "fetched": [BEGIN_AT]}.get(before, []):
        calls[one]()
    assert state_of(fetching) == before
    calls[call]()
    assert state_of(fetching) == STATES[before, call]


def test_partition_is_in_one_state(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Each row of the table: where a call takes a partition."""
    for before, call in STATES:
        with subtests.test(before=before, call=call):
            _partition_is_in_one_state(before, call, monkeypatch)
