"""No lock of coopgroup is held while the application's code runs.

That code may wait for another thread, and the other thread may call coopgroup. With a lock held,
both would wait forever. Here each callback lets another thread take every lock.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from attrs import define, field

from coopgroup import CooperativeConsumer, CooperativeGroup
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.model import Resource
from coopgroup.policies import SimplePolicy
from coopgroup.telemetry import Envelope
from coopgroup.testing import KafkaCluster
from tests.support.live_group import polling, produce, unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

WAIT_S: Final = 60.0
SESSION_MS: Final = 6_000
LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
# Turns are not locks: they serialise the calls of a plug-in or a catalogue. A
# thread waits for a turn only for a bounded time, and no public method needs a turn.
# And a thread that has begun keeps its claim for good; nobody waits for it.
TURNS: Final = {
    "CatalogueLookup._one_look",
    "GroupTransport._begun",
    "RoundLeader.turn",
    "TelemetryFile._begun",
    "_Round.once",
}
OF_A_CONSUMER: Final = {"on_assign", "on_revoke", "on_lost", "on_commit", "error_cb", "stats_cb"}
OF_THE_LEADER: Final = {"assign", "offer"}
OF_A_GROUP: Final = {"start", "stop", "lost", "on_error", "catalogue"}


def locks() -> Iterator[tuple[str, Any]]:
    """Return all locks of a coopgroup object, with their names."""
    for owner in gc.get_objects():
        kind = type(owner)
        # The module of some C types is a descriptor.
        if not str(getattr(kind, "__module__", "")).startswith("coopgroup."):
            continue
        names = {one.name for one in attrs.fields(kind)} if attrs.has(kind) else set()
        for name in names | set(getattr(owner, "__dict__", ())):
            value = getattr(owner, name, None)
            if isinstance(value, LOCKS):
                yield f"{kind.__name__}.{name}", value


@define(eq=False)
class Probe:
    """Records which callbacks ran, and which locks another thread could not take meanwhile."""

    ran: set[str] = field(factory=set)
    taken: set[tuple[str, str]] = field(factory=set)
    probed: set[str] = field(factory=set)

    def __call__(self, name: str) -> None:
        self.ran.add(name)
        prober = threading.Thread(target=self._look, args=(name,), daemon=True)
        prober.start()
        prober.join(WAIT_S)
        assert not prober.is_alive()

    def _look(self, name: str) -> None:
        for lock_name, lock in locks():
            self.probed.add(lock_name)
            if lock_name in TURNS:
                continue
            if lock.acquire(timeout=1):
                lock.release()
            else:
                self.taken.add((name, lock_name))

    def once(self, name: str) -> None:
        if name not in self.ran:
            self(name)


@define(eq=False)
class Plugins:
    probe: Probe
    assignor: Any = field(factory=StickyAssignor)
    policy: Any = field(factory=SimplePolicy)
    name: str = "sticky"
    needs_lags: bool = False

    def assign(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        self.probe.once("assign")
        return self.assignor.assign(*arguments, **more)

    def offer(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        self.probe.once("offer")
        return self.policy.offer(*arguments, **more)

    def stage(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        self.probe.once("offer")
        return self.policy.stage(*arguments, **more)


class Handler(logging.Handler):
    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def createLock(self) -> None:  # noqa: N802 -- logging's name of it
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        words = re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", record.getMessage())
        self.probe.once(f"log {words[0] if words else record.levelname}")


@pytest.fixture
def probe() -> Iterator[Probe]:
    """Return a probe that also receives the log lines; at the end it must have found nothing."""
    made = Probe()
    handler, log = Handler(made), logging.getLogger("coopgroup")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield made
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    assert made.taken == set()
    assert len(made.probed) >= 10  # the probe finds the locks
    assert any(name.startswith("log") for name in made.ran)
    assert any(name.startswith("listener") for name in made.ran)


def configuration(cluster: KafkaCluster, probe: Probe, group_id: str) -> dict[str, Any]:
    def listen(envelope: Envelope) -> None:
        probe.once(f"listener {type(envelope.record).__name__}")

    return {
        **cluster.client_config(),
        "group.id": group_id,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 200,
        "coopgroup.telemetry.listener": listen,
    }


def test_no_lock_is_held_over_a_callback_of_a_consumer(
    kafka_cluster: KafkaCluster, probe: Probe, tmp_path: Path
) -> None:
    topic = unique("locks")
    kafka_cluster.create_topic(topic, 4)
    produce(kafka_cluster, topic, [5, 5, 5, 5])
    shared: Mapping[str, Any] = configuration(kafka_cluster, probe, topic)
    plugins = Plugins(probe)
    made = [
        CooperativeConsumer(
            {
                **shared,
                "max.poll.interval.ms": SESSION_MS,
                "auto.offset.reset": "earliest",
                "coopgroup.state.dir": str(tmp_path / name),
                "coopgroup.telemetry.file": str(tmp_path / f"{name}.jsonl"),
                "statistics.interval.ms": 200,
                "on_commit": lambda *_: probe.once("on_commit"),
                "stats_cb": lambda _: probe.once("stats_cb"),
            },
            assignor=plugins,
            policy=plugins,
        )
        for name in "ab"
    ]
    first, second = made
    # No broker answers this consumer, so librdkafka is certain to report an error.
    made.append(
        CooperativeConsumer(
            {
                **shared,
                "bootstrap.servers": "127.0.0.1:1",
                "error_cb": lambda _: probe.once("error_cb"),
            }
        )
    )
    try:
        with polling(*made):
            for consumer in (first, second):
                consumer.subscribe(
                    [topic],
                    on_assign=lambda *_: probe.once("on_assign"),
                    on_revoke=lambda *_: probe.once("on_revoke"),
                    on_lost=lambda *_: probe.once("on_lost"),
                )
                wait_for(lambda: len(consumer.assignment()) >= 2, "joined")  # noqa: B023
            first.commit()
            wait_for(lambda: probe.ran >= OF_A_CONSUMER - {"on_lost"}, "called back")
        time.sleep(SESSION_MS / 1000 + 1)  # no poll: the partitions are lost
        wait_for(lambda: "on_lost" in probe.ran, "lost", poll=lambda: first.poll(0.1))
    finally:
        for consumer in made:
            consumer.close()
    assert probe.ran >= OF_A_CONSUMER | OF_THE_LEADER


def test_no_lock_is_held_over_a_callback_of_a_group(
    kafka_cluster: KafkaCluster, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coopgroup.groups.group._REFRESH_MS", 200)
    name = unique("locks")
    shared = {
        **configuration(kafka_cluster, probe, name),
        "coopgroup.stop.timeout.ms": SESSION_MS,
    }
    hangs = threading.Event()
    plugins = Plugins(probe)

    started: list[Resource] = []

    def fail_once(resource: Resource) -> None:
        if "start" not in probe.ran:
            probe("start")
            raise ZeroDivisionError
        started.append(resource)

    def hang(_: Resource) -> None:
        probe.once("stop")
        hangs.wait(WAIT_S)

    def catalogue() -> list[tuple[str, int]]:
        probe.once("catalogue")
        return [("one", 0), ("two", 0)]

    groups = [
        CooperativeGroup(
            shared,
            catalogue=catalogue,
            start=fail_once,
            stop=hang,
            lost=lambda _: probe.once("lost"),
            on_error=lambda _: probe.once("on_error"),
            policy=plugins,
            assignor=plugins,
        )
        for _ in range(2)
    ]
    try:
        groups[0].join()
        # A resource that has not started yet would move without a stop, and none would be lost.
        wait_for(lambda: len(started) == 2, "it works on all")
        groups[1].join()
        wait_for(lambda: "lost" in probe.ran, "a stop that takes too long is lost")
    finally:
        hangs.set()
        for group in groups:
            group.close()
    assert probe.ran >= OF_A_GROUP | OF_THE_LEADER
    assert {"listener ResourcesStarted", "listener ResourcesStopped"} <= probe.ran
    assert {"listener WorkFailed", "listener StateChanged"} <= probe.ran
    assert {"log stop_takes_long", "log stop_never_finished"} <= probe.ran
