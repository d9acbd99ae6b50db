"""A waiting commit always gets one outcome, even after another failure."""

from collections.abc import Iterable
from typing import Any

from coopgroup.core.member.events import CommitRequested, CommitsAbandoned, Offset
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.committing import Codes, Committing
from coopgroup.kafka.records.offsets import OffsetStore
from tests.unit.kafka.fakes import FakeDriver, starts

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


def test_commit_when_nobody_waits_any_more_is_abandoned() -> None:
    driver, store = FakeDriver(code=None), _Store()
    _committing(driver, store).commit_last(HELD, 0.01)
    requested, abandoned = driver.posted
    assert isinstance(requested, CommitRequested)
    assert abandoned == CommitsAbandoned(commit_ids=frozenset({requested.commit_id}))
    late: Codes = (("t", 0, 0),)
    driver.waiting[requested.commit_id](late)
    assert store.noted == list(OFFSETS)
