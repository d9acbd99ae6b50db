"""Groups of named resources on a real broker: several members of this process."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define, field
from confluent_kafka import Producer

from coopgroup import Catalogue, CooperativeGroup
from coopgroup.core.model import Resource
from coopgroup.telemetry import ResourcesStarted
from coopgroup.testing import KafkaCluster
from tests.architecture.tree import ROOT
from tests.support.live_group import read_telemetry, unique
from tests.support.waiting import wait_for

WAIT_S: Final = 60.0
HEAVY_S: Final = 2.0
CONNECTORS = {"light": 3, "heavy": 1}
ALL = sorted((name, index) for name, count in CONNECTORS.items() for index in range(-1, count))


@define(eq=False)
class Member:
    """A member, the log of its callbacks, and its own view of the catalogue.

    Attributes:
        calls: (callback, resource, when it returned).
        heavy_s: how long a heavy resource takes to stop.
    """

    catalogue: object
    group: CooperativeGroup = field(init=False)
    calls: list[tuple[str, tuple[str, int], float]] = field(factory=list)
    heavy_s: float = 0.0

    def call(self, action: str, resource: Resource) -> None:
        if action == "stop" and resource.name == "heavy":
            time.sleep(self.heavy_s)
        self.calls.append((action, resource, time.monotonic()))

    def runs(self, resource: tuple[str, int]) -> bool:
        calls = [action for action, what, _ in tuple(self.calls) if what == resource]
        return calls[-1:] == ["start"]

    def when(self, action: str, resource: tuple[str, int]) -> list[float]:
        return [at_s for done, what, at_s in self.calls if (done, what) == (action, resource)]


@define(eq=False)
class Crew:
    """Members of one group; `catalogue` is that of new members."""

    cluster: KafkaCluster
    folder: Path
    catalogue: object = field(factory=lambda: Catalogue.of_connectors(CONNECTORS, version=1))
    group_id: str = field(factory=lambda: unique("group"))
    members: dict[str, Member] = field(factory=dict)

    def add(self, name: str, **settings: Any) -> Member:  # noqa: ANN401  (keys with _ for .)
        member = self.members[name] = Member(catalogue=self.catalogue)
        more = {key.replace("_", "."): value for key, value in settings.items()}
        member.group = CooperativeGroup(
            {
                **self.cluster.client_config(),
                "group.id": self.group_id,
                "client.id": name,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 250,
                "coopgroup.telemetry.file": str(self.folder / f"{name}.jsonl"),
                **more,
            },
            catalogue=lambda: member.catalogue,
            start=lambda one: member.call("start", one),
            stop=lambda one: member.call("stop", one),
        )
        member.group.join()
        return member

    def shared(self, wanted: list[tuple[str, int]]) -> bool:
        """Return whether exactly these resources run, each once, and every member has some."""
        members = tuple(self.members.values())
        held = [(member, one) for member in members for one in member.group.held()]
        run = sorted(tuple(one) for member, one in held if member.runs(one))
        return run == sorted(wanted) and {id(one) for one, _ in held} == set(map(id, members))


@pytest.fixture
def crew(
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    own_threads: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Crew]:
    monkeypatch.setattr("coopgroup.groups.group._REFRESH_MS", 200)
    made = Crew(kafka_cluster, tmp_path)
    yield made
    for member in made.members.values():
        member.heavy_s = 0.0
        member.group.close()
    wait_for(lambda: own_threads() == [], "all threads end")


def test_light_ones_move_while_a_heavy_one_flushes(crew: Crew) -> None:
    """The new member works on them long before the heavy resource has stopped."""
    first = crew.add("a")
    wait_for(lambda: crew.shared(ALL), "the first has all", WAIT_S)
    first.heavy_s = HEAVY_S
    second = crew.add("b")
    wait_for(lambda: len(second.when("start", ("heavy", -1))) == 1, "the heavy one moves", WAIT_S)
    flushed_s = first.when("stop", ("heavy", -1))[0]
    light = [what for done, what, at_s in second.calls if done == "start" and at_s < flushed_s]
    assert light
    assert all(name == "light" for name, _ in light)
    wait_for(lambda: crew.shared(ALL), "all are shared", WAIT_S)
    assert [index for name, index in second.group.held() if index == -1] == [-1]

    def started() -> list[tuple[str, int]]:
        records = read_telemetry(crew.folder / "b.jsonl")
        started = [one.record for one in records if isinstance(one.record, ResourcesStarted)]
        return sorted((one.name, one.index) for record in started for one in record.resources)

    # Another thread writes the file.
    wait_for(lambda: started() == sorted(map(tuple, second.group.held())), "the records", WAIT_S)
    tokens = {second.group.token(one) for one in second.group.held()}
    assert all(token is not None and token > 1 for token in tokens)
    assert second.group.generation > 1


def test_tasks_come_and_go_while_the_rest_goes_on(crew: Crew) -> None:
    """The leader starts a round immediately; a follower reminds a leader that does not."""
    first, second = crew.add("a"), crew.add("b")
    wait_for(lambda: crew.shared(ALL), "all are shared", WAIT_S)
    wait_for(lambda: first.group.leads or second.group.leads, "somebody leads", WAIT_S)
    calls = len(first.calls) + len(second.calls)
    changed = Catalogue.of_connectors({"light": 1, "heavy": 1, "new": 1}, version=2)
    leader, follower = (first, second) if first.group.leads else (second, first)
    follower.catalogue = changed
    time.sleep(0.5)
    assert crew.shared(ALL)  # only the leader's catalogue counts
    later = threading.Timer(1.0, lambda: setattr(leader, "catalogue", changed))
    later.start()
    wanted = [("heavy", -1), ("heavy", 0), ("light", -1), ("light", 0), ("new", -1), ("new", 0)]
    wait_for(lambda: crew.shared(wanted), "the new list is shared", WAIT_S)
    later.join()
    # A resource is not held while it stops.
    gone = (("light", 1), ("light", 2))
    wait_for(
        lambda: all(first.when("stop", one) or second.when("stop", one) for one in gone),
        "the others stop",
        WAIT_S,
    )
    assert len(first.calls) + len(second.calls) >= calls + 4
    crew.catalogue = changed


@pytest.mark.parametrize("number", range(7))
def test_example_of_the_page_runs(kafka_cluster: KafkaCluster, number: int) -> None:
    """Unchanged except for broker and group; the test supplies the reader's functions."""
    page = (ROOT / "docs" / "groups.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 7
    heard: list[str] = []
    done = threading.Event()

    def note(word: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            heard.append(word)
            done.set()

        return call

    def later(word: str) -> Callable[..., Any]:
        async def call(*_: object) -> None:
            await asyncio.sleep(0)
            note(word)()

        return call

    def wait() -> None:
        assert done.wait(WAIT_S)
        time.sleep(0.5)

    def piece(token: int) -> None:
        heard.append(f"token {token}")
        names["leadership"].close()

    verbs = {
        "work": ("start", "stop", "abandon"),
        "scheduling": ("start", "stop"),
        "store": ("start", "stop", "restore", "delete"),
    }
    names: dict[str, Any] = {
        **{f"{verb}_{noun}": note(verb) for noun, some in verbs.items() for verb in some},
        "read_plan": lambda: {"tasks": {"orders": 2}, "version": 1},
        "stores_on_disk": list,
        "begin_bot": later("start"),
        "end_bot": later("stop"),
        "wait_for_shutdown": wait,
        "do_a_piece": piece,
    }
    (group_id,) = re.findall(r'"group.id": "(\w+)"', blocks[number])
    code = blocks[number].replace(f'"{group_id}"', f'"{unique(group_id)}"')
    code = code.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    if "CatalogueTopic" in code:
        topic = unique("report-definitions")
        code = code.replace("report-definitions", topic)
        kafka_cluster.create_topic(topic, 1, config={"cleanup.policy": "compact"})
        producer = Producer(kafka_cluster.client_config())
        producer.produce(topic, key="berlin", value='{"each": "hour"}')
        assert producer.flush(WAIT_S) == 0
    exec(compile(code, "groups.md", "exec"), names)  # noqa: S102 - our own page
    assert set(heard) == ({"token 1"} if "do_a_piece" in code else {"start", "stop"})


def test_static_leader_that_comes_back_shares_what_changed(crew: Crew) -> None:
    """Its join starts no round, and no round has shared the changes that it reads."""
    crew.catalogue = Catalogue.of([("a", 0)])
    first = crew.add("w", group_instance_id="w1", session_timeout_ms=10_000)
    wait_for(lambda: crew.shared([("a", 0)]), "the first life has it", WAIT_S)
    first.group.close()
    crew.catalogue = Catalogue.of([("a", 0), ("b", 0)])
    crew.add("w", group_instance_id="w1", session_timeout_ms=10_000)
    wait_for(lambda: crew.shared([("a", 0), ("b", 0)]), "the second life has both", WAIT_S)
