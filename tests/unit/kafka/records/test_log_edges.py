"""Ends of logs are asked for at their leaders until they are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from coopgroup.core.member.effects import GrantResources
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.log_edges import LogEdges
from coopgroup.kafka.records.offset_lookup import EdgeOffset
from coopgroup.kafka.rpc.questions import (
    CommittedOffset,
    FindLogOffsets,
    FindTopics,
    FoundTopic,
    LogOffset,
)
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.unit.kafka.fakes import HERE, LOST, THERE, FakeCoordinator, HandTransport, starts

A, B = ("t", 0), ("t", 1)
NOT_LEADER = 6
BOTH = {A: OFFSET_END, B: OFFSET_BEGINNING}


@define
class Stage:
    """A search that a test answers by hand."""

    transport: HandTransport = field(factory=HandTransport)
    found: dict[tuple[str, int], int] = field(factory=dict)
    reasons: list[str] = field(factory=list)
    unwanted: set[tuple[str, int]] = field(factory=set)

    def find(self, wanted: dict[tuple[str, int], int]) -> None:
        edges = LogEdges(cast("GroupTransport", self.transport), 1_000, reads_committed=True)
        edges.find(
            wanted, lambda one: one not in self.unwanted, self.found.update, self.reasons.append
        )

    def answer_topics(self, *leaders: Any) -> None:  # noqa: ANN401
        known = {index: one for index, one in enumerate(leaders) if one is not None}
        self.transport.answer(FindTopics, {"t": FoundTopic(0, len(leaders), known)})

    def answer(self, **offsets: LogOffset) -> tuple[dict[tuple[str, int], int], Any]:
        answer = {("t", int(name[1:])): one for name, one in offsets.items()}
        request, node = self.transport.answer(FindLogOffsets, answer)
        assert request.reads_committed
        return dict(request.timestamps), node


def test_each_leader_is_asked_for_its_partitions() -> None:
    stage = Stage()
    stage.find(BOTH)
    stage.answer_topics(HERE, THERE)
    assert stage.answer(p0=LogOffset(0, 7)) == ({A: -1}, HERE)
    assert stage.answer(p1=LogOffset(0, 2)) == ({B: -2}, THERE)
    assert (stage.found, stage.transport.requests) == ({A: 7, B: 2}, [])


@pytest.mark.parametrize(
    "fail",
    [
        lambda stage: stage.transport.answer(FindTopics, LOST),
        lambda stage: stage.answer_topics(None),
        lambda stage: stage.transport.answer(FindTopics, {"t": FoundTopic(3, 0)}),
        lambda stage: (stage.answer_topics(HERE), stage.transport.answer(FindLogOffsets, LOST)),
        lambda stage: (
            stage.answer_topics(HERE),
            stage.answer(p0=LogOffset(NOT_LEADER, -1)),
        ),
        lambda stage: (stage.answer_topics(HERE), stage.answer(p0=LogOffset(0, -1))),
        lambda stage: (stage.answer_topics(HERE), stage.answer()),
    ],
)
def test_a_partition_without_an_answer_is_asked_for_again(fail: Callable[[Stage], object]) -> None:
    stage = Stage()
    stage.find({A: OFFSET_END})
    waits = []
    for _ in range(6):
        fail(stage)
        waits.append(round(stage.transport.run(), 1))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert len(stage.reasons) == 6
    stage.answer_topics(THERE)
    stage.answer(p0=LogOffset(0, 5))
    assert (stage.found, stage.transport.actions) == ({A: 5}, [])


def test_a_partition_waits_for_no_other_leader_and_is_dropped_when_nobody_wants_it() -> None:
    stage = Stage()
    stage.find(BOTH)
    stage.answer_topics(None, HERE)
    assert stage.answer(p1=LogOffset(0, 2)) == ({B: -2}, HERE)
    assert stage.found == {B: 2}
    stage.unwanted.add(A)
    stage.transport.run()
    assert (stage.transport.requests, stage.transport.actions) == ([], [])


def test_many_topics_are_asked_for_in_several_requests() -> None:
    stage = Stage()
    stage.find({(f"t{number:04}", 0): OFFSET_END for number in range(2_500)})
    assert [len(one[1].names) for one in stage.transport.requests] == [1_000, 1_000, 500]


# --- in the look-up of committed offsets ----------------------------------------------------------


@pytest.mark.parametrize(("reset", "offset"), [("latest", 9), ("earliest", 3)])
def test_a_partition_without_a_commit_begins_at_a_number(reset: str, offset: int) -> None:
    coordinator = FakeCoordinator(committed={B: CommittedOffset(5)}, logs={A: (3, 9), B: (3, 9)})
    made = starts(coordinator, reset)
    made.hear(GrantResources(resources=ResourceSet({"t": [0, 1]})))
    assert made.lookup.found([A, B]) == {A: EdgeOffset(offset), B: CommittedOffset(5)}


def test_the_end_of_before_does_not_count_after_a_commit_of_the_application() -> None:
    """Its `on_assign` commits an offset while the end of the log is looked up."""
    coordinator = FakeCoordinator(logs={A: (3, 9)})
    made = starts(coordinator, "latest")
    made.want([A])
    held = made.lookup.hold([A])
    coordinator.committed[A] = CommittedOffset(4)
    made.lookup.release(held)
    assert made.lookup.found([A]) == {A: CommittedOffset(4)}


def test_an_end_that_the_application_asked_for_counts_in_spite_of_a_commit() -> None:
    coordinator = FakeCoordinator(committed={A: CommittedOffset(5)}, logs={A: (3, 9)})
    made = starts(coordinator, "latest")
    made.want_edges({A: OFFSET_BEGINNING})
    assert made.lookup.hold([A]) == ()
    answers = made.look([A])
    assert [one.offset for one in answers.begin] == [3]
    made.settle(answers)
    assert made.lookup.is_idle


def test_an_answer_about_an_earlier_assignment_is_ignored() -> None:
    coordinator = FakeCoordinator(logs={A: (3, 9)})
    made = starts(coordinator, "latest")
    coordinator.is_silent = True
    made.want([A])
    for _ in range(3):  # the coordinator, the commit, the leader: the last answer comes too late
        request, hear = coordinator.waiting.pop(0)
        hear(coordinator.answer(request))
    ((request, hear),) = coordinator.waiting
    made.drop([A])
    hear(coordinator.answer(request))
    assert (made.lookup.found([A]), made.lookup.is_idle) == ({}, True)
