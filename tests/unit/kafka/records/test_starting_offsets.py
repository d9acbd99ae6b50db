"""Offsets are fetched when the assignment arrives, and an earlier answer never counts."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup.core.member.effects import GrantResources, LoseResources
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.rpc.questions import CommittedOffset, FetchOffsetsRequest
from tests.unit.kafka.fakes import FakeCoordinator, starts

HELD = ResourceSet({"t": [0, 1]})
A, B = ("t", 0), ("t", 1)


def inbox_of(coordinator: FakeCoordinator) -> tuple[ApplicationInbox, Any]:
    made = starts(coordinator)
    return ApplicationInbox(starts=made), made


def fetches(coordinator: FakeCoordinator) -> list[Any]:
    requests = (one for one, _ in coordinator.requests)
    return [one.partitions for one in requests if isinstance(one, FetchOffsetsRequest)]


def test_one_request_leaves_with_the_grant() -> None:
    coordinator = FakeCoordinator(committed={A: CommittedOffset(5)})
    inbox, made = inbox_of(coordinator)
    inbox.put(GrantResources(resources=HELD))
    assert fetches(coordinator) == [(A, B)]
    made.want([A, B])
    answers = made.look([A, B])
    assert [(one.partition, one.offset) for one in answers.begin] == [(0, 5), (1, 0)]
    assert (answers.events, fetches(coordinator)) == ({}, [(A, B)])


def test_a_partition_that_was_lost_and_came_back_begins_where_its_owner_was() -> None:
    """The application polls only after the return: the first answer is too old."""
    coordinator = FakeCoordinator(committed={A: CommittedOffset(5)})
    inbox, made = inbox_of(coordinator)
    for notice in (GrantResources(resources=HELD), LoseResources(resources=HELD, cause="fenced")):
        inbox.put(notice)
    assert made.lookup.is_idle
    coordinator.committed[A] = CommittedOffset(50)
    inbox.put(GrantResources(resources=HELD))
    made.want([A])
    assert [one.offset for one in made.look([A]).begin] == [50]


def test_a_long_wait_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    for module in ("offset_lookup", "starting_offsets"):
        monkeypatch.setattr(f"coopgroup.kafka.records.{module}.now_s", lambda: clock[0])
    made = starts(FakeCoordinator(is_silent=True))
    said: list[tuple[str, dict[str, Any]]] = []
    made.warn = lambda event, **fields: said.append((event, fields))
    made.want([A])
    assert made.pause_s() == 5.0
    clock[0] = 105.0
    for _ in range(2):
        made.pause_s()
    assert said == [
        (
            "committed_offsets_unavailable",
            {"error": "no answer yet", "waiting": {"t": [0]}, "count": 1},
        )
    ]
    made.want([("many", number) for number in range(5_000)])
    clock[0] = 110.0
    made.pause_s()
    assert (said[1][1]["waiting"], said[1][1]["count"]) == ({"many": [*range(10)]}, 5_000)
