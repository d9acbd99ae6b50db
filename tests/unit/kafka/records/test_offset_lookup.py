"""Committed offsets are fetched until they are known, even if the coordinator moves."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import KafkaException

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
)
from coopgroup.kafka.records.offset_lookup import EdgeOffset, OffsetLookup, read_offsets
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import CommittedOffset, FetchOffsetsAnswer, FetchOffsetsRequest
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.unit.kafka.fakes import HERE, THERE, FakeCoordinator

A, B = ("t", 0), ("t", 1)
FIVE, SEVEN = CommittedOffset(5), CommittedOffset(7)


@define
class Stage:
    """A look-up, its coordinator and a clock."""

    at_s: float = 100.0
    told: Coordinator | None = None
    changes: list[float] = field(factory=list)
    coordinator: FakeCoordinator = field(
        factory=lambda: FakeCoordinator(committed={A: FIVE, B: SEVEN})
    )
    lookup: OffsetLookup = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.lookup = OffsetLookup(
            cast("GroupTransport", self.coordinator),
            "g",
            require_stable=True,
            timeout_ms=1_000,
            changed=lambda: self.changes.append(self.at_s),
            known_coordinator=lambda: self.told,
            persists=True,
        )

    @property
    def asked(self) -> list[tuple[str, int | None]]:
        return [
            ("find" if isinstance(one, FindCoordinatorRequest) else "fetch", node)
            for one, node in self.coordinator.requests
        ]

    def take(
        self, partitions: list[tuple[str, int]]
    ) -> dict[tuple[str, int], CommittedOffset | EdgeOffset]:
        found = self.lookup.found(partitions)
        self.lookup.forget(found)
        return found

    def advance(self, by_s: float) -> float:
        self.at_s += by_s
        return self.lookup.advance()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a look-up at 100 s."""
    made = Stage()
    monkeypatch.setattr("coopgroup.kafka.records.offset_lookup.now_s", lambda: made.at_s)
    return made


def test_all_partitions_are_asked_for_in_one_request(stage: Stage) -> None:
    stage.told = HERE
    stage.lookup.ask([B, A])
    request = FetchOffsetsRequest(group_id="g", partitions=(A, B), require_stable=True)
    assert stage.coordinator.requests == [(request, 1)]
    assert stage.take([A, B]) == {A: FIVE, B: SEVEN}
    assert (stage.lookup.is_idle, len(stage.changes)) == (True, 1)
    assert stage.lookup.advance() == math.inf


@pytest.mark.parametrize(
    "failure",
    [
        *(
            TransportFailure(kind=one, message="gone")
            for one in FailureKind
            if one is not FailureKind.UNSUPPORTED
        ),
        FetchOffsetsAnswer(error_code=ErrorCode.NOT_COORDINATOR, offsets={}),
        FetchOffsetsAnswer(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, offsets={}),
        FetchOffsetsAnswer(
            error_code=0,
            offsets={A: CommittedOffset(-1, error_code=ErrorCode.NOT_COORDINATOR)},
        ),
    ],
)
def test_a_coordinator_that_moved_is_followed(stage: Stage, failure: Any) -> None:  # noqa: ANN401
    stage.told = THERE
    stage.coordinator.override = lambda _: failure if stage.asked[-1] == ("fetch", 2) else None
    stage.lookup.ask([A])
    stage.advance(1.0)
    assert stage.asked == [("fetch", 2), ("find", None), ("fetch", 1)]
    assert stage.take([A]) == {A: FIVE}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ],
)
def test_a_coordinator_that_cannot_say_yet_is_asked_again(stage: Stage, code: int) -> None:
    stage.told = HERE
    stage.coordinator.code = code
    stage.lookup.ask([A])
    waits = []
    for _ in range(7):
        wait_s = stage.lookup.advance() - stage.at_s
        assert stage.advance(wait_s - 0.001) > stage.at_s
        stage.advance(0.002)
        waits.append(round(wait_s, 1))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    stage.coordinator.code = 0
    stage.advance(1.0)
    assert stage.take([A]) == {A: FIVE}


def test_a_partition_in_an_open_transaction_waits_alone(stage: Stage) -> None:
    """UNSTABLE_OFFSET_COMMIT (KIP-447) concerns one partition: the other one begins."""
    stage.told = HERE
    unstable = CommittedOffset(-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stage.coordinator.committed[A] = unstable
    stage.lookup.ask([A, B])
    assert stage.take([A, B]) == {B: SEVEN}
    stage.coordinator.committed[A] = FIVE
    stage.advance(0.1)
    assert stage.coordinator.requests[-1][0].partitions == (A,)
    assert stage.take([A, B]) == {A: FIVE}


@pytest.mark.parametrize("of_the_group", [True, False])
def test_a_refusal_is_told_and_asked_about_again_later(stage: Stage, *, of_the_group: bool) -> None:
    """Rights may be granted while the consumer owns the partition."""
    stage.told = HERE
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if of_the_group:
        stage.coordinator.code = code
    else:
        stage.coordinator.committed[A] = CommittedOffset(-1, error_code=code)
    stage.lookup.ask([A])
    assert stage.take([A])[A].error_code == code
    stage.coordinator.code, stage.coordinator.committed[A] = 0, FIVE
    stage.advance(9.9)
    assert stage.take([A]) == {}
    stage.advance(0.2)
    assert stage.take([A]) == {A: FIVE}


def test_a_group_that_is_not_there_has_committed_nothing(stage: Stage) -> None:
    stage.told = HERE
    stage.coordinator.code = ErrorCode.GROUP_ID_NOT_FOUND
    stage.lookup.ask([A])
    assert stage.take([A]) == {A: CommittedOffset(-1)}
    assert stage.lookup.is_idle


def test_an_answer_to_an_earlier_question_does_not_count(stage: Stage) -> None:
    """The partition was lost and returned; its owner in between may have committed."""
    stage.told, stage.coordinator.is_silent = HERE, True
    stage.lookup.ask([A])
    stage.lookup.drop([A])
    stage.lookup.ask([A])
    (_, first), (request, second) = stage.coordinator.waiting
    first(FetchOffsetsAnswer(error_code=0, offsets={A: CommittedOffset(1)}))
    assert stage.take([A]) == {}
    second(stage.coordinator.answer(request))
    assert stage.take([A]) == {A: FIVE}


def test_a_question_at_a_frozen_broker_follows_the_member(stage: Stage) -> None:
    """The member's heartbeats find the new coordinator long before the request times out."""
    stage.told, stage.coordinator.is_silent = HERE, True
    stage.lookup.ask([A])
    stage.told, stage.coordinator.is_silent = THERE, False
    stage.advance(3.0)
    assert stage.asked == [("fetch", 1), ("fetch", 2)]
    assert stage.take([A]) == {A: FIVE}


def test_an_offset_is_read_after_the_commits_that_were_under_way(stage: Stage) -> None:
    """`on_assign` may commit a starting offset, twice: the last one counts."""
    stage.told = HERE
    stage.lookup.ask([A, B])
    first, second = stage.lookup.hold([A, ("u", 0)]), stage.lookup.hold([A])
    assert (first, second) == ((A,), (A,))
    stage.coordinator.committed[A] = CommittedOffset(9)
    stage.lookup.release(first)
    assert stage.take([A, B]) == {B: SEVEN}
    stage.lookup.release(second)
    assert stage.take([A]) == {A: CommittedOffset(9)}


def test_a_closed_transport_is_a_failure_and_no_error(stage: Stage) -> None:
    stage.told = HERE
    closed = TransportFailure(kind=FailureKind.DISCONNECTED, message="the transport is not running")
    stage.coordinator.override = lambda _: closed
    stage.lookup.ask([A])
    assert (stage.take([A]), stage.lookup.reason) == ({}, "the transport is not running")


# --- for callers who wait -------------------------------------------------------------------------


def _read(coordinator: FakeCoordinator, **more: Any) -> dict[Any, Any]:  # noqa: ANN401
    return dict(
        read_offsets(
            cast("GroupTransport", coordinator),
            "g",
            [B, A],
            **{"timeout_s": 5, "request_timeout_ms": 9, **more},
        )
    )


def test_read_offsets_waits_for_all() -> None:
    coordinator = FakeCoordinator(committed={A: FIVE})
    failures = [FetchOffsetsAnswer(error_code=ErrorCode.NOT_COORDINATOR, offsets={})] * 2
    coordinator.override = lambda request: (
        failures.pop() if failures and isinstance(request, FetchOffsetsRequest) else None
    )
    assert _read(coordinator) == {A: FIVE, B: CommittedOffset(-1)}


@pytest.mark.parametrize("find_is_refused", [False, True])
def test_read_offsets_when_refused_says_so(*, find_is_refused: bool) -> None:
    """FindCoordinator is refused without the right to describe the group."""
    coordinator = FakeCoordinator(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if find_is_refused:
        coordinator.override = lambda _: FindCoordinatorAnswer(
            error_code=coordinator.code, error_message="", coordinator=None
        )
    with pytest.raises(KafkaException, match="Group authorization failed"):
        _read(coordinator)
