"""The application around a consumer; a scripted consumer replaces the real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from attrs import define, evolve, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.testing.trial import worker as worker_module
from coopgroup.testing.trial.recording import Event, EventReader, RowReader
from coopgroup.testing.trial.spec import WorkerSpec
from coopgroup.testing.trial.worker import PRODUCED, Worker, has_ended
from tests.support.by_hand import by_hand
from tests.support.fake_records import FakeRecord

REBALANCING = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


def record(topic: str, partition: int, offset: int, payload: bytes = b"") -> FakeRecord:
    return FakeRecord(of=topic, number=partition, at=offset, its_value=payload)


@define
class PaperConsumer:
    """Play a script: each step is a record, or an action with the worker's callbacks."""

    steps: list[FakeRecord | Callable[[PaperConsumer], None] | None]
    when_empty: Callable[[], None]
    callbacks: dict[str, Callable[..., None]] = field(factory=dict)
    committed: list[list[tuple[str, int, int]]] = field(factory=list)
    refuses: list[BaseException] = field(factory=list)
    is_closed: bool = False
    can_put_off: bool = False
    finished: list[list[tuple[str, int]]] = field(factory=list)

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = {**callbacks}

    def poll(self, timeout: float) -> FakeRecord | None:
        if not self.steps:
            self.when_empty()
            return None
        step = self.steps.pop(0)
        if step is None or isinstance(step, FakeRecord):
            return step
        step(self)
        return None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if self.refuses:
            raise self.refuses.pop(0)
        self.committed.append([(part.topic, part.partition, part.offset) for part in offsets])
        return offsets

    def revoke_later(self, partitions: list[TopicPartition]) -> bool:
        """Return whether the partitions may stop later."""
        return self.can_put_off

    def finish_revoke(self, partitions: list[TopicPartition]) -> None:
        self.finished.append([(part.topic, part.partition) for part in partitions])

    def close(self) -> None:
        self.is_closed = True

    def tell(self, callback: str, *partitions: tuple[str, int]) -> None:
        self.callbacks[callback](self, [TopicPartition(*partition) for partition in partitions])


@pytest.fixture
def spec(tmp_path: Path) -> WorkerSpec:
    """A worker that never commits by the clock."""
    return WorkerSpec(
        kind="eager",
        name="m1",
        group_id="billing",
        topics=("a", "b"),
        partitions_per_topic=4,
        log_path=str(tmp_path / "m1"),
        client_config={},
        commit_interval_ms=0,
    )


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input that said `go` and stays open; yields its writing end."""
    reading, writing = os.pipe()
    os.write(writing, b"go\n")
    with os.fdopen(reading) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        yield writing
    os.close(writing)


Play: TypeAlias = "Callable[..., PaperConsumer]"


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, spec: WorkerSpec, pipe: int) -> Play:
    """Play the steps of a script with a worker; return the consumer."""

    def played(
        *steps: FakeRecord | Callable[[PaperConsumer], None] | None,
        refuses: tuple[BaseException, ...] = (),
        can_put_off: bool = False,
        **changed: Any,  # noqa: ANN401 - any field of the specification
    ) -> PaperConsumer:
        running = Worker(evolve(spec, **changed))
        consumer = PaperConsumer(
            [*steps],
            lambda: running.stop(15, None),
            refuses=[*refuses],
            can_put_off=can_put_off,
        )
        monkeypatch.setattr(worker_module, "build_consumer", lambda _spec: consumer)
        running.run()
        return consumer

    return played


def telling(callback: str, *partitions: tuple[str, int]) -> Callable[[PaperConsumer], None]:
    """Return the step in which the consumer calls a callback of the worker."""
    return lambda consumer: consumer.tell(callback, *partitions)


def events_of(spec: WorkerSpec) -> list[Event]:
    return EventReader(Path(f"{spec.log_path}.events")).read_new()


def test_worker_when_records_come_writes_each_down(play: Play, spec: WorkerSpec) -> None:
    """Each row has the partition (numbered over all topics), the production time and the spell."""
    play(
        record("a", 1, 5, PRODUCED.pack(77)),
        telling("on_assign", ("b", 2)),
        record("b", 2, 9, b"short"),
        None,
        record("b", 2, 10),
    )
    rows = RowReader(Path(f"{spec.log_path}.records")).read_new()
    assert rows[["produced_ns", "offset", "partition", "spell"]].tolist() == [
        (77, 5, 1, 0),
        (0, 9, 6, 1),
        (0, 10, 6, 1),
    ]


def test_worker_when_revoked_commits_only_what_it_gives_up(play: Play, spec: WorkerSpec) -> None:
    """The position is the offset after the last record; it is committed once."""
    consumer = play(
        telling("on_assign", ("a", 0), ("b", 1)),
        record("a", 0, 5),
        record("b", 1, 8),
        telling("on_revoke", ("a", 0)),
        telling("on_revoke", ("a", 0)),
    )
    assert consumer.committed == [[("a", 0, 6)]]
    assert consumer.is_closed
    names = "ready started assigned revoking committed revoked revoking revoked closing closed"
    assert [event.name for event in events_of(spec)] == names.split()


@pytest.mark.parametrize("can_put_off", [True, False])
def test_worker_when_something_heavy_is_revoked_gives_up_the_rest_first(
    play: Play, spec: WorkerSpec, *, can_put_off: bool
) -> None:
    def given_up() -> list[object]:
        return [one.fields["partitions"] for one in events_of(spec) if one.name == "revoked"]

    with by_hand() as hand:
        consumer = play(
            telling("on_assign", ("a", 0), ("a", 1)),
            record("a", 0, 5),
            record("a", 1, 8),
            telling("on_revoke", ("a", 0), ("a", 1)),
            lambda _consumer: hand.advance(0.02),
            can_put_off=can_put_off,
            heavy_partitions=(0,),
            heavy_stop_ms=20,
        )
    if can_put_off:
        assert consumer.committed == [[("a", 1, 9)], [("a", 0, 6)]]
        assert (consumer.finished, given_up()) == ([[("a", 0)]], [[1], [0]])
    else:
        assert consumer.committed == [[("a", 0, 6), ("a", 1, 9)]]
        assert (consumer.finished, given_up()) == ([], [[0, 1]])


def test_worker_when_lost_commits_nothing(play: Play, spec: WorkerSpec) -> None:
    """Another member may own the partition already."""
    consumer = play(
        record("a", 0, 5),
        telling("on_lost", ("a", 0)),
        telling("on_revoke", ("a", 0)),
    )
    assert consumer.committed == []


def test_worker_when_time_has_come_commits_every_position(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(1.0)
    monkeypatch.setattr(
        worker_module,
        "time",
        SimpleNamespace(monotonic=lambda: next(ticks), monotonic_ns=lambda: 0),
    )
    records = record("a", 0, 5), record("b", 3, 1)
    consumer = play(*records, commit_interval_ms=1)
    assert consumer.committed[-1] == [("a", 0, 6), ("b", 3, 2)]


def test_worker_when_a_commit_fails_says_why_and_goes_on(play: Play, spec: WorkerSpec) -> None:
    play(
        record("a", 0, 5),
        telling("on_revoke", ("a", 0)),
        refuses=(KafkaException(REBALANCING),),
    )
    (failed,) = [event for event in events_of(spec) if event.name == "commit_failed"]
    assert failed.fields["positions"] == [[0, 6]]
    assert "REBALANCE_IN_PROGRESS" in str(failed.fields["reason"])


def test_worker_when_asked_to_fail_raises_in_the_first_callbacks(
    play: Play, spec: WorkerSpec
) -> None:
    def assign_twice(consumer: PaperConsumer) -> None:
        with pytest.raises(RuntimeError, match="on_assign fails"):
            consumer.tell("on_assign", ("a", 0))
        consumer.tell("on_assign", ("a", 0))

    play(assign_twice, assign_failures=1)
    assert [event.name for event in events_of(spec)].count("assigned") == 2


def test_worker_when_its_input_ends_before_go_never_joins(
    monkeypatch: pytest.MonkeyPatch, spec: WorkerSpec
) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        Worker(spec).run()
    assert [event.name for event in events_of(spec)] == ["ready"]


def test_has_ended_when_the_other_end_closes_turns_true() -> None:
    """A worker learns in this way that its controller has died."""
    reading, writing = os.pipe()
    assert not has_ended(reading)
    os.close(writing)
    assert has_ended(reading)
    os.close(reading)
