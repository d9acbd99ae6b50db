"""Definitions in a compacted topic on a real broker, and starts that decline or fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from attrs import define, field
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coopgroup import (
    CatalogueTopic,
    CooperativeGroup,
    Decline,
    DeferredPolicy,
    GroupResource,
    StartFailed,
    WorkFailure,
)
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

WAIT_S: Final = 60.0


@define(eq=False)
class Member:
    """A member with the log of its callbacks: (callback, name, definition, reason).

    Attributes:
        refusals: exceptions that `start` raises, by name.
    """

    calls: list[tuple[str, str, Any, str]] = field(factory=list)
    failures: list[WorkFailure] = field(factory=list)
    refusals: dict[str, Exception] = field(factory=dict)
    group: CooperativeGroup = field(init=False)

    def start(self, resource: GroupResource) -> None:
        self.calls.append(("start", resource.name, resource.definition, ""))
        if resource.name in self.refusals:
            raise self.refusals[resource.name]

    def stop(self, resource: GroupResource) -> None:
        self.calls.append(("stop", resource.name, resource.definition, resource.reason))

    def runs(self) -> list[str]:
        """Return what has started, and is held: a resource is held before its start."""
        ended = {name: action != "start" for action, name, *_ in tuple(self.calls)}
        return [name for name in self.held() if not ended.get(name, True)]

    def held(self) -> list[str]:
        return [one.name for one in self.group.held()]


@define(eq=False)
class Crew:
    """Members of one group, whose definitions are in a topic."""

    cluster: KafkaCluster
    name: str = field(factory=lambda: unique("definitions"))
    members: list[Member] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.make_topic()

    def make_topic(self, cleanup: str = "compact") -> None:
        self.cluster.create_topic(self.name, partitions=1, config={"cleanup.policy": cleanup})

    def write(self, **definitions: object) -> None:
        producer = Producer(self.cluster.client_config())
        for name, one in definitions.items():
            producer.produce(self.name, key=name, value=None if one is None else json.dumps(one))
        assert producer.flush(WAIT_S) == 0

    def add(self, **refusals: Exception) -> Member:
        member = Member(refusals=dict(refusals))
        member.group = CooperativeGroup(
            {
                **self.cluster.client_config(),
                "group.id": self.name,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 250,
            },
            catalogue=CatalogueTopic(self.name),
            start=member.start,
            stop=member.stop,
            on_error=member.failures.append,
            policy=DeferredPolicy(scheduled_rebalance_timeout_ms=5_000),
        )
        member.group.join()
        self.members.append(member)
        return member

    def shared(self, *names: str) -> bool:
        """Return whether exactly these run, each once, and each member runs some."""
        held = [member.runs() for member in self.members]
        return sorted(name for one in held for name in one) == sorted(names) and all(held)


@pytest.fixture
def crew(
    kafka_cluster: KafkaCluster,
    own_threads: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Crew]:
    monkeypatch.setattr("coopgroup.groups.group._REFRESH_MS", 200)
    made = Crew(kafka_cluster)
    yield made
    for member in made.members:
        member.group.close()
    wait_for(lambda: own_threads() == [], "all threads end")


def test_definitions_come_from_a_topic_and_change_there(crew: Crew) -> None:
    crew.write(a={"x": 1}, b=2, c=3, d=4)
    first, second = crew.add(), crew.add()
    wait_for(lambda: crew.shared("a", "b", "c", "d"), "all are shared", WAIT_S)
    owner = first if "a" in first.held() else second
    count, generation = len(first.calls) + len(second.calls), first.group.generation
    crew.write(a={"x": 2})
    changed = [("stop", "a", {"x": 1}, "changed"), ("start", "a", {"x": 2}, "")]
    wait_for(lambda: owner.calls[-2:] == changed, "the definition changes", WAIT_S)
    assert len(first.calls) + len(second.calls) == count + 2
    assert first.group.generation == generation  # nothing to share
    crew.write(b=None, e=5)
    wait_for(lambda: crew.shared("a", "c", "d", "e"), "the list changes", WAIT_S)
    last = {("stop", "b", 2, "deleted"), ("start", "e", 5, "")}
    wait_for(
        lambda: last <= {one for one in [*first.calls, *second.calls] if one[1] in "be"},
        "the callbacks have run",
        WAIT_S,
    )
    crew.write(c=None)
    crew.write(c=3)
    wait_for(
        lambda: [*first.calls, *second.calls].count(("start", "c", 3, "")) == 2,
        "what was deleted and created starts again",
        WAIT_S,
    )
    assert not first.failures + second.failures


def test_declined_resource_moves_and_failed_one_stays(crew: Crew) -> None:
    crew.write(a=1, b=2, c=3, d=4)
    first = crew.add()
    wait_for(lambda: crew.shared("a", "b", "c", "d"), "the first has all", WAIT_S)
    picky = crew.add(
        **{name: Decline("not here", for_s=300.0) for name in "abc"}, d=StartFailed("never")
    )
    wait_for(lambda: bool(picky.failures), "the second is given something", WAIT_S)

    def has_settled() -> bool:
        held = sorted(first.held() + [one.name for one in picky.group.failed()])
        return held == ["a", "b", "c", "d"]

    wait_for(has_settled, "all others are back with the first", WAIT_S)
    started = [name for action, name, *_ in picky.calls if action == "start"]
    assert len(started) == len(set(started))  # no second try
    assert not [one for one in picky.calls if one[0] == "stop"]
    failed = picky.group.failed()
    picky.refusals.clear()
    for one in failed:
        assert picky.group.restart(one)
    wait_for(lambda: picky.held() == [one.name for one in failed], "it runs at last", WAIT_S)


def test_topic_that_is_made_again_is_read_from_its_beginning(crew: Crew) -> None:
    """Deleted resources ran on, and new ones never started."""
    crew.write(a=1, b=1, c=1, d=1)
    first, second = crew.add(), crew.add()
    wait_for(lambda: crew.shared("a", "b", "c", "d"), "all are shared", WAIT_S)
    crew.cluster.delete_topic(crew.name)
    time.sleep(1.0)  # some reads fail
    assert crew.shared("a", "b", "c", "d")
    crew.make_topic("compact,delete")  # the broker refuses DeleteRecords of a compacted topic
    crew.write(d=1, e=1, f=1, g=1)  # as many
    wait_for(lambda: crew.shared("d", "e", "f", "g"), "the new ones are shared", WAIT_S)
    calls = [*first.calls, *second.calls]
    assert {("stop", name, 1, "deleted") for name in "abc"} <= set(calls)

    # Who comes later counts the same versions, also as the leader.
    third = crew.add()
    wait_for(lambda: crew.shared("d", "e", "f", "g"), "the third has some", WAIT_S)
    for one in (first, second):
        one.group.hand_over(WAIT_S)
        one.group.close()
        crew.members.remove(one)
    crew.write(h=1, d=None)
    wait_for(lambda: crew.shared("e", "f", "g", "h"), "the third leads", WAIT_S)
    crew.add()
    wait_for(lambda: crew.shared("e", "f", "g", "h"), "a fourth one comes", WAIT_S)

    admin = AdminClient({**crew.cluster.client_config()})
    (deleted,) = admin.delete_records([TopicPartition(crew.name, 0, -1)]).values()
    deleted.result(WAIT_S)
    wait_for(lambda: not any(one.runs() for one in crew.members), "the list is empty", WAIT_S)
    assert not any(one.failures for one in (first, second, third))
