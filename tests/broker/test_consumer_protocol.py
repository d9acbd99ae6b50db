"""`group.protocol=consumer`: whole consumers whose partitions the broker assigns (KIP-848).

Regular heartbeats are 15 s apart here. So a test that is faster shows that the bell works.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.core.model import group_api as api
from coopgroup.integrations.faststream import KafkaBroker
from coopgroup.kafka.config.keys import BELL_TOPIC
from coopgroup.processing import process
from coopgroup.telemetry import MembershipLost, RequestRefused
from coopgroup.testing import KafkaCluster
from tests.support.coordinators import move_coordinator
from tests.support.live_group import Crew, produce, unique
from tests.support.mixed_group import PARTITIONS, MixedGroup
from tests.support.raw_consumers import RawConsumer, Wire
from tests.support.waiting import WAIT_S_MAX, wait_for

# Without the bell, a new member gets nothing before its own second heartbeat.
BELL_S_MAX = 12.0
PAUSE_MS_MAX = 1_000.0


@pytest.fixture
def mixed(consumer_cluster: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    with MixedGroup(consumer_cluster, None, tmp_path) as group:
        yield group


@pytest.fixture
def crew(consumer_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Crew]:
    with Crew(consumer_cluster, tmp_path, protocol="consumer") as made:
        yield made


@pytest.fixture
def topic(consumer_cluster: KafkaCluster) -> str:
    name = unique("kip848")
    consumer_cluster.create_topic(name, 4)
    return name


@pytest.fixture
def wire(consumer_cluster: KafkaCluster) -> Iterator[Wire]:
    with Wire(consumer_cluster) as made:
        yield made


def config_of(crew: Crew) -> dict[str, Any]:
    return {
        **crew.cluster.client_config(),
        "group.id": crew.group_id,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }


def beat_often(wire: Wire, group_id: str) -> None:
    """Make heartbeats frequent, because no ring tells what happens in a test."""
    wire.set_group(group_id, session_timeout_ms=10_000, heartbeat_interval_ms=300)


def places(crew: Crew) -> list[tuple[Any, Any]]:
    """Return (partition, offset) of each record that the members got."""
    return sorted(
        (one.partition(), one.offset()) for told in crew.messages.values() for one in told
    )


# --- the life of a group -------------------------------------------------------------------------


def test_members_come_and_go_while_what_stays_never_stops(mixed: MixedGroup) -> None:
    mixed.consumer("a")
    mixed.settle("a")
    began_s = time.monotonic()
    mixed.consumer("b")
    mixed.settle("a", "b")
    assert len(mixed.ledger.given_up_between("a", began_s, time.monotonic())) == PARTITIONS // 2
    assert mixed.ledger.first_taken("b", began_s) - began_s < BELL_S_MAX
    assert len(mixed.ledger.held_throughout("a", began_s)) == PARTITIONS // 2
    for partition in mixed.ledger.held_throughout("a", began_s):
        pause_ms = mixed.ledger.pause_ms("a", partition, began_s, time.monotonic())
        assert pause_ms < PAUSE_MS_MAX
    mixed.consumer("c")
    mixed.settle("a", "b", "c")
    began_s = time.monotonic()
    mixed.stop("c")
    mixed.settle("a", "b")
    mixed.check_kept(began_s, "a", "b")
    mixed.stop("b")
    mixed.consumer("b")
    mixed.settle("a", "b")
    assert time.monotonic() - began_s < BELL_S_MAX
    mixed.finish()
    assert (mixed.ledger.repeated(), mixed.ledger.lost) == (0, [])


def test_member_of_librdkafka_joins_and_leaves(mixed: MixedGroup, wire: Wire) -> None:
    """It hears no bell."""
    beat_often(wire, mixed.group_id)
    mixed.consumer("a")
    mixed.consumer("b")
    mixed.settle("a", "b")
    began_s = time.monotonic()
    mixed.kip848("k")
    mixed.settle("a", "b", "k")
    mixed.stop("b")
    mixed.settle("a", "k")
    mixed.stop("k")
    mixed.settle("a")
    assert mixed.ledger.held_throughout("a", began_s)
    mixed.finish()
    assert (mixed.ledger.repeated(), mixed.ledger.lost) == (0, [])


def test_asyncio_and_threads_share_a_group(crew: Crew, topic: str) -> None:
    """A coroutine of the loop reads half of the partitions, `poll` the others."""
    produce(crew.cluster, topic, [50] * 4)
    config = config_of(crew)
    loop_got: list[tuple[int, int]] = []
    over = threading.Event()

    async def read() -> None:
        async with AsyncCooperativeConsumer(config, topic) as consumer:
            while not over.is_set():
                for records in (await consumer.getmany(timeout=0.05)).values():
                    loop_got.extend((one.partition, one.offset) for one in records)

    reader = threading.Thread(target=asyncio.run, args=(read(),))
    reader.start()
    try:
        wait_for(lambda: len(loop_got) == 200, "the loop reads all")
        crew.add("a").subscribe([topic])
        crew.until(lambda: crew.counts() == [2], "half of it", BELL_S_MAX)
        produce(crew.cluster, topic, [50] * 4)
        crew.until(lambda: len(loop_got) + len(places(crew)) == 400, "all records")
    finally:
        over.set()
        reader.join()
    crew.until(lambda: crew.counts() == [4], "all of it", BELL_S_MAX)
    found = sorted(loop_got + places(crew))
    assert found == [(partition, offset) for partition in range(4) for offset in range(100)]


def test_process_handles_each_record_once_in_a_changing_group(crew: Crew, topic: str) -> None:
    produce(crew.cluster, topic, [200] * 4)
    handled: list[tuple[int, int]] = []
    stops = [threading.Event() for _ in range(2)]

    def handle(record: Any) -> None:  # noqa: ANN401  (confluent_kafka's message)
        time.sleep(0.002)
        handled.append((record.partition(), record.offset()))

    def work(consumer: CooperativeConsumer, stop: threading.Event) -> None:
        with consumer:
            consumer.subscribe([topic])
            process(consumer, handle, stop=stop)

    members = [crew.add(name) for name in "ab"]
    crew.members.clear()
    threads = [threading.Thread(target=work, args=one) for one in zip(members, stops, strict=True)]
    threads[0].start()
    wait_for(lambda: len(handled) > 100, "the first one works")
    threads[1].start()
    wait_for(lambda: len(members[1].assignment()) == 2, "both work", BELL_S_MAX)
    stops[0].set()
    threads[0].join()
    wait_for(lambda: len(handled) >= 800, "all records")
    stops[1].set()
    threads[1].join()
    assert sorted(handled) == [(number, offset) for number in range(4) for offset in range(200)]


RUNNER = """
import json, os, signal, sys
from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.processing import run

config, topic, kind = json.loads(sys.argv[1]), *sys.argv[2:]

def handle(record):
    print(record.offset() if kind == "threads" else record.offset, flush=True)

async def handle_later(record):
    handle(record)

if kind == "threads":
    run(CooperativeConsumer(config), [topic], handle)
else:
    run(AsyncCooperativeConsumer(config), [topic], handle_later)
print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", ["threads", pytest.param("tasks", marks=pytest.mark.verify)])
def test_run_ends_properly_at_sigterm(crew: Crew, topic: str, kind: str) -> None:
    """There is no hand-over without a leader: the member commits and leaves."""
    produce(crew.cluster, topic, [1, 0, 0, 0])
    config = json.dumps(config_of(crew))
    command = [sys.executable, "-c", RUNNER, config, topic, kind]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "0\n"
        running.send_signal(signal.SIGTERM)
        said, errors = running.communicate(timeout=WAIT_S_MAX)
    assert (running.returncode, said, errors) == (0, "ended\n", "")
    crew.add("a").subscribe([topic])
    crew.until(lambda: crew.counts() == [4], "its partitions", BELL_S_MAX)
    assert crew.committed(topic, 1) == [1]


def test_faststream_reads_and_ends(crew: Crew, topic: str) -> None:
    """FastStream passes settings of the classic protocol that the application did not choose."""
    produce(crew.cluster, topic, [5] * 4)
    broker = KafkaBroker(
        crew.cluster.bootstrap_servers, config={"group.protocol": "consumer"}, logger=None
    )
    handled: list[int] = []

    @broker.subscriber(topic, group_id=crew.group_id, auto_offset_reset="earliest")
    async def handle(number: int) -> None:
        handled.append(number)

    async def play() -> None:
        async with broker:
            await broker.start()
            async with asyncio.timeout(30):
                while len(handled) < 20:  # noqa: ASYNC110 - fails in time
                    await asyncio.sleep(0.02)

    asyncio.run(play())
    crew.add("a").subscribe([topic])
    crew.until(lambda: crew.counts() == [4], "its partitions", BELL_S_MAX)
    assert crew.committed(topic, 4) == [5] * 4
    assert crew.messages["a"] == []


def test_transactions_go_on_through_a_join(crew: Crew, topic: str) -> None:
    """Each batch commits its offsets with the current epoch, and no batch is lost or doubled."""
    produce(crew.cluster, topic, [40] * 4)
    config = crew.cluster.client_config()
    producer = Producer({**config, "transactional.id": unique("kip848")})
    producer.init_transactions(WAIT_S_MAX)
    manual = {"enable.auto.commit": False, "isolation.level": "read_committed"}
    a = crew.add("a", configuration=manual)
    a.subscribe([topic])
    out = unique("out")
    crew.cluster.create_topic(out, 1)

    def transform() -> None:
        messages = [one for one in a.consume(7, 0.05) if one.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for one in messages:
            producer.produce(out, f"{one.partition()}/{one.offset()}")
        offsets = a.position(a.assignment())
        known = [one for one in offsets if one.offset >= 0]
        producer.send_offsets_to_transaction(known, a.consumer_group_metadata(), WAIT_S_MAX)
        producer.commit_transaction(WAIT_S_MAX)
        done.extend(messages)

    done: list[Any] = []
    wait_for(lambda: len(done) > 20, "the first batches", poll=transform)
    del crew.members["a"]
    b = crew.add("b", configuration=manual)
    b.subscribe([topic])

    def both() -> None:
        transform()
        crew.poll()

    wait_for(lambda: len(b.assignment()) == 2, "the second member", BELL_S_MAX, both)
    wait_for(lambda: len(done) + len(crew.messages["b"]) >= 160, "all records", poll=both)
    produce(crew.cluster, topic, [5] * 4)
    wait_for(lambda: len(done) + len(crew.messages["b"]) >= 180, "new records", poll=both)
    a.close()
    read = [(one.partition(), one.offset()) for one in [*done, *crew.messages["b"]]]
    assert sorted(read) == [(number, offset) for number in range(4) for offset in range(45)]


# --- identities ----------------------------------------------------------------------------------

WORKER = """
import json, sys
from coopgroup import CooperativeConsumer

config, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer = CooperativeConsumer(config)
consumer.subscribe([topic], on_assign=lambda _, found: print(
    json.dumps([consumer.memberid(), sorted(one.partition for one in found)]), flush=True))
while True:
    consumer.poll(1)
"""


@contextmanager
def worker(crew: Crew, topic: str, **more: object) -> Iterator[tuple[Any, str, list[int]]]:
    """Start a member in a process of its own; yield it, its member id and first partitions."""
    config = {
        **config_of(crew),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    command = [sys.executable, "-c", WORKER, json.dumps(config), topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process_:
        assert process_.stdout is not None
        try:
            lines: list[str] = []
            reading = threading.Thread(
                target=lambda out=process_.stdout: lines.append(out.readline())
            )
            reading.start()
            crew.until(lambda: bool(lines), "the worker's partitions")
            member_id, partitions = json.loads(lines[0])
            yield process_, member_id, partitions
        finally:
            process_.kill()


def test_killed_process_returns_as_the_same_member(crew: Crew, topic: str, tmp_path: Path) -> None:
    """It returns long before its session ends, and the other member is told nothing."""
    told: list[object] = []
    a = crew.add("a")
    a.subscribe(
        [topic],
        on_assign=lambda _, found: told.append(("assign", len(found))),
        on_revoke=lambda _, found: told.append(("revoke", len(found))),
    )
    crew.until(lambda: crew.counts() == [4], "the first member")
    state = str(tmp_path / "state")
    with worker(crew, topic, coopgroup_state_dir=state) as (process_, member_id, partitions):
        assert len(partitions) == 2
        crew.until(lambda: crew.counts() == [2], "the share")
        crew.during(0.3)
        generation, before = crew.generation("a"), list(told)
        process_.send_signal(signal.SIGKILL)
        process_.wait()
    began_s = time.monotonic()
    with worker(crew, topic, coopgroup_state_dir=state) as (_, again, its):
        assert (again, its) == (member_id, partitions)
        assert time.monotonic() - began_s < 20
        crew.during(0.3)
        assert (crew.generation("a"), told) == (generation, before)


def test_closed_member_with_a_stored_identity_keeps_its_place(
    crew: Crew, topic: str, tmp_path: Path
) -> None:
    """`unsubscribe` gives it up: a later process with the same folder is a new member."""
    state = {"coopgroup.state.dir": str(tmp_path / "state")}
    crew.add("a").subscribe([topic])
    crew.add("b", configuration=state).subscribe([topic])
    crew.until(lambda: crew.share((topic, 4)), "both")
    member_id, held = crew.members["b"].memberid(), crew.held("b")
    crew.remove("b")
    crew.during(0.5)
    assert crew.counts() == [2]
    crew.add("b", configuration=state).subscribe([topic])
    crew.until(lambda: crew.share((topic, 4)), "both again", BELL_S_MAX)
    assert (crew.members["b"].memberid(), crew.held("b")) == (member_id, held)
    crew.members["b"].unsubscribe()
    crew.remove("b")
    crew.until(lambda: crew.counts() == [4], "the other one has all", BELL_S_MAX)
    crew.add("b", configuration=state).subscribe([topic])
    crew.until(lambda: crew.share((topic, 4)), "both once more", BELL_S_MAX)
    assert crew.members["b"].memberid() != member_id


def test_static_member_returns_to_its_partitions(crew: Crew, topic: str, wire: Wire) -> None:
    """Until then, the other member learns of nothing, though it asks often."""
    beat_often(wire, crew.group_id)
    static = {"group.instance.id": "one"}
    crew.add("a").subscribe([topic])
    crew.add("b", configuration=static).subscribe([topic])
    crew.until(lambda: crew.share((topic, 4)), "both")
    crew.during(0.5)
    held, kept, generation = crew.held("b"), crew.held("a"), crew.generation("a")
    crew.remove("b")
    crew.during(1.0)
    assert (crew.held("a"), crew.generation("a")) == (kept, generation)
    crew.add("c", configuration=static).subscribe([topic])
    crew.until(lambda: crew.held("c") == held, "the next process")
    crew.during(0.5)
    assert (crew.held("a"), crew.generation("a")) == (kept, generation)


def test_second_process_of_a_static_member_waits(crew: Crew, topic: str) -> None:
    """It does not fail, and does not remove the first one when it gives up."""
    static = {"group.instance.id": "one"}
    crew.add("a", configuration=static).subscribe([topic])
    crew.until(lambda: crew.counts() == [4], "the first one")

    def is_refused(name: str) -> bool:
        return len(crew.telemetry(name, RequestRefused)) >= 2

    for name in "bc":
        crew.add(name, configuration=static).subscribe([topic])
        crew.until(lambda name=name: is_refused(name), "refusals")  # type: ignore[misc]
        refusals = {one.error for one in crew.telemetry(name, RequestRefused)}
        assert refusals == {"UNRELEASED_INSTANCE_ID"}
        assert crew.held(name) == []
        if name == "b":
            crew.remove(name)
    assert len(crew.held("a")) == 4
    crew.remove("a")
    crew.until(lambda: crew.counts() == [4], "the second one", BELL_S_MAX)


def test_replaced_static_member_fails(crew: Crew, topic: str, wire: Wire) -> None:
    """As in the classic protocol: two processes with one id would exclude each other for ever."""
    consumer = crew.add("a", configuration={"group.instance.id": "one"})
    consumer.subscribe([topic])
    crew.until(lambda: crew.counts() == [4], "the first one")
    # A heartbeat between leave and join would lose the membership, and the next join would wait for
    # the session of the second one. So the looks after the first join come before.
    looked_s = time.monotonic() + 1.5
    crew.until(lambda: time.monotonic() > looked_s, "its last look")
    wire.find(crew.group_id)
    first = RawConsumer(wire, crew.group_id, (topic,), "one", member_id=str(consumer.memberid()))
    assert first.leave(for_now=True) == 0
    second = RawConsumer(wire, crew.group_id, (topic,), "one")
    assert second.beat(epoch=api.JOINS, owned=()).error_code == 0
    ring = Producer(crew.cluster.client_config())
    ring.produce(BELL_TOPIC, b"", crew.group_id)
    assert ring.flush(20.0) == 0
    with pytest.raises(KafkaException) as raised:
        crew.until(lambda: False, "the end of the first one", 20)
    assert raised.value.args[0].code() == KafkaError.FENCED_INSTANCE_ID
    assert raised.value.args[0].fatal()


# --- topics --------------------------------------------------------------------------------------


def test_topic_that_is_made_again_is_another_one(crew: Crew, topic: str) -> None:
    """All its partitions are given up, though some of them are assigned under the same name.

    The records of the new topic are read from their begin. The member hears of it from a ring.
    """
    produce(crew.cluster, topic, [20] * 4)
    told: list[tuple[str, int]] = []
    consumer = crew.add("a", configuration={"auto.commit.interval.ms": 100})

    def note(what: str) -> Any:  # noqa: ANN401  (a callback)
        return lambda _, found: told.append((what, len(found)))

    consumer.subscribe(
        [topic], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost")
    )
    crew.until(lambda: len(places(crew)) == 80, "the old records")
    crew.cluster.delete_topic(topic)
    crew.cluster.create_topic(topic, 4)
    produce(crew.cluster, topic, [10] * 4)
    crew.add("b", configuration={"auto.commit.interval.ms": 100}).subscribe([topic])
    crew.until(lambda: len(told) >= 3 and crew.share((topic, 4)), "the new topic")
    crew.until(lambda: len(places(crew)) >= 120, "the new records")
    crew.during(0.3)
    assert len(places(crew)) == 120
    assert told[:2] == [("assign", 4), ("revoke", 4)]
    crew.until(lambda: crew.committed(topic, 4) == [10] * 4, "the commits")


def test_new_partitions_and_new_topics_are_shared(crew: Crew, wire: Wire) -> None:
    """A missing topic, a pattern, more partitions: each is found without a restart."""
    beat_often(wire, crew.group_id)
    word = unique("kip848")
    cluster = crew.cluster
    cluster.create_topic(f"{word}-1", 2)
    for name in "ab":
        crew.add(name).subscribe([f"^{word}-[0-9]$", f"{word}-later"])
    crew.until(lambda: crew.share((f"{word}-1", 2)), "the first topic")
    cluster.create_topic(f"{word}-2", 4)
    crew.until(lambda: crew.share((f"{word}-1", 2), (f"{word}-2", 4)), "the pattern's second", 15)
    cluster.create_topic(f"{word}-later", 2)
    topics = [(f"{word}-1", 2), (f"{word}-2", 4), (f"{word}-later", 2)]
    crew.until(lambda: crew.share(*topics), "the missing topic", 15)
    cluster.add_partitions(f"{word}-2", 8)
    topics[1] = (f"{word}-2", 8)
    crew.until(lambda: crew.share(*topics), "more partitions", 15)
    assert crew.telemetry("a", MembershipLost) == []


def test_one_member_has_a_thousand_partitions(crew: Crew, wire: Wire) -> None:
    """And gives half of them to a second one. The coordinator learns of a wide topic late."""
    beat_often(wire, crew.group_id)
    topic = unique("wide")
    crew.cluster.create_topic(topic, 1_000)
    crew.add("a").subscribe([topic])
    crew.until(lambda: crew.counts() == [1_000], "all")
    crew.add("b").subscribe([topic])
    crew.until(lambda: crew.share((topic, 1_000)), "half of them each")
    crew.remove("a")
    crew.until(lambda: crew.counts() == [1_000], "all again")


# --- failures ------------------------------------------------------------------------------------


def test_application_that_does_not_poll_loses_its_partitions_and_returns(
    crew: Crew, topic: str
) -> None:
    """Its interval is also the rebalance timeout, and shorter than that of the heartbeats."""
    produce(crew.cluster, topic, [10] * 4)
    lost: list[int] = []
    stalled = crew.add("a", configuration={"max.poll.interval.ms": 2_000})
    stalled.subscribe([topic], on_lost=lambda _, found: lost.append(len(found)))
    crew.add("b").subscribe([topic])
    crew.until(lambda: crew.share((topic, 4)), "both")
    del crew.members["a"]
    crew.until(lambda: crew.counts() == [4], "the other one takes over", 2 + BELL_S_MAX)
    assert lost == []  # callbacks run in `poll`
    crew.members["a"] = stalled
    crew.until(lambda: crew.share((topic, 4)), "both again", BELL_S_MAX)
    assert lost == [2]
    assert [one.cause for one in crew.telemetry("a", MembershipLost)] == [
        "max.poll.interval.ms exceeded"
    ]


def until_more(mixed: MixedGroup, count: int) -> None:
    seen = len(mixed.ledger.handed)
    mixed.until(lambda: len(mixed.ledger.handed) > seen + count, "new records")


def story_of_a_coordinator(mixed: MixedGroup) -> None:
    """Check that no partition has moved and no record is missing or doubled."""
    shares = mixed.shares()
    mixed.settle("a", "b")
    assert mixed.shares() == shares
    mixed.consumer("c")
    mixed.settle("a", "b", "c")
    mixed.finish()
    assert (mixed.ledger.repeated(), mixed.ledger.lost) == (0, [])
    assert all(mixed.records(name, MembershipLost) == [] for name in "abc")


@pytest.mark.verify
def test_members_keep_all_while_the_coordinator_restarts(tmp_path: Path) -> None:
    with KafkaCluster() as cluster, MixedGroup(cluster, None, tmp_path) as mixed:
        mixed.consumer("a")
        mixed.consumer("b")
        mixed.settle("a", "b")
        began_s = time.monotonic()
        cluster.kill(1)
        cluster.start_broker(1)
        until_more(mixed, 100)
        assert mixed.ledger.given_up_between("a", began_s, time.monotonic()) == []
        story_of_a_coordinator(mixed)


@pytest.mark.verify
def test_members_keep_all_while_the_coordinator_moves(tmp_path: Path) -> None:
    with KafkaCluster(3) as cluster, MixedGroup(cluster, None, tmp_path) as mixed:
        mixed.consumer("a")
        mixed.consumer("b")
        mixed.settle("a", "b")
        began_s = time.monotonic()
        for _ in range(2):
            move_coordinator(cluster, mixed.group_id)
            until_more(mixed, 200)
        assert mixed.ledger.given_up_between("a", began_s, time.monotonic()) == []
        story_of_a_coordinator(mixed)
