"""A waiting commit always gets one outcome, even after another failure."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.events import CommitRequested, Offset
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.records.committing import Committing, read_committed
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.kafka.rpc.questions import CommittedOffset
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import FakeCoordinator, FakeDriver, starts

OFFSETS = (Offset("t", 0, 5),)
HELD = ResourceSet({"t": [0]})


class _Store:
    """Due offsets, and a record of the committed ones."""

    def __init__(self) -> None:
        self.noted: list[Offset] = []
        self.failure: Exception | None = None

    def due(self, _resources: ResourceSet) -> tuple[Offset, ...]:
        return OFFSETS

    def mark_committed(self, offsets: Iterable[Offset]) -> None:
        if self.failure is not None:
            raise self.failure
        self.noted.extend(offsets)


def _committing(driver: FakeDriver, store: object) -> Committing:
    group: Any = driver
    offsets: OffsetStore | Any = store
    return Committing(
        driver=group,
        store=offsets,
        starts=starts(),
        on_commit=None,
        interval_ms=1_000,
        write=lambda _: None,
    )


def test_commit_ends_although_its_outcome_cannot_be_noted() -> None:
    """Otherwise its caller would wait forever. The error surfaces on the group's thread."""
    driver, store = FakeDriver(code=None), _Store()
    store.failure = LookupError("a bug")
    heard: list[LookupError] = []

    def answered(commit_id: int) -> None:
        try:
            driver.waiting.pop(commit_id)((("t", 0, 0),))
        except LookupError as error:
            heard.append(error)

    driver.on_commit = answered
    _committing(driver, store).commit_now(OFFSETS)
    assert heard == [store.failure]


@pytest.mark.parametrize(("limit_s", "wait_ms"), [(None, None), (0.01, 10)])
def test_last_commit_tells_the_member_how_long_its_caller_waits(
    limit_s: float | None, wait_ms: int | None, hand: Hand
) -> None:
    driver, store = FakeDriver(code=ErrorCode.REQUEST_TIMED_OUT), _Store()
    _committing(driver, store).commit_last(HELD, limit_s)
    until_ms = None if wait_ms is None else round(hand.now_s * 1000) + wait_ms
    assert driver.posted == [CommitRequested(commit_id=1, offsets=OFFSETS, until_ms=until_ms)]
    assert store.noted == []


# --- `committed` returns the answers and the errors of confluent_kafka ----------------------------


ASKED = [TopicPartition("t", one, 99) for one in (1, 0, 2, 1)]


def read(coordinator: FakeCoordinator, asked: Any, timeout: Any = 5) -> list[TopicPartition]:  # noqa: ANN401
    """Call `committed` of a consumer that has not joined yet."""
    driver: Any = SimpleNamespace(
        transport=coordinator, member=SimpleNamespace(coordinator=None, member_id="")
    )
    settings = read_settings({"bootstrap.servers": "localhost:9092", "group.id": "g"})
    return read_committed(driver, settings, asked, timeout, lambda: False)


def test_partitions_come_back_as_they_were_asked_for() -> None:
    committed = {("t", 0): CommittedOffset(5, 3, "note"), ("t", 1): CommittedOffset(0, -1, "")}
    found = read(FakeCoordinator(committed=committed), ASKED)
    assert [
        (one.partition, one.offset, one.leader_epoch, one.metadata, one.error) for one in found
    ] == [
        (1, 0, None, None, None),
        (0, 5, 3, "note", None),
        (2, -1001, None, None, None),
        (1, 0, None, None, None),
    ]


def test_a_refused_partition_has_its_error() -> None:
    refused = CommittedOffset(-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one, other, *_ = read(FakeCoordinator(committed={("t", 1): refused}), ASKED)
    assert (one.offset, other.error) == (-1001, None)
    assert one.error is not None
    assert one.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_nothing_is_asked_for_no_partition() -> None:
    coordinator = FakeCoordinator()
    assert (read(coordinator, []), coordinator.requests) == ([], [])


@pytest.mark.parametrize(
    ("asked", "timeout"), [(1, 5), (None, 5), ((ASKED[0],), 5), ([1], 5), (ASKED, "x")]
)
def test_what_is_no_list_of_partitions_is_a_type_error(asked: object, timeout: object) -> None:
    with pytest.raises(TypeError):
        read(FakeCoordinator(), asked, timeout)


def test_a_coordinator_that_is_silent_ends_in_time() -> None:
    with pytest.raises(KafkaException, match="Failed to get committed offsets: Local: Timed out"):
        read(FakeCoordinator(is_silent=True), ASKED, 0.01)
