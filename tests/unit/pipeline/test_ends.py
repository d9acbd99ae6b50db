"""A topic that the brokers hide, and moments for which they were asked."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from coopgroup.errors import PipelineError
from coopgroup.pipeline import ends
from coopgroup.pipeline.ends import Asked, Cluster


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "the user has no right to describe topic t"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "there is no topic t: no group has committed"),
    ],
)
def test_a_topic_without_rights_is_not_called_missing(
    code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of topics have only those that the user may describe."""
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    admin = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(topics={}, cluster_id="c"),
        describe_topics=lambda *_, **__: {"t": answer},
    )
    monkeypatch.setattr(ends, "AdminClient", lambda _: admin)
    with pytest.raises(PipelineError) as raised:
        Cluster(config={"bootstrap.servers": "b"}).source("t", "no group has committed")
    assert str(raised.value) == said


EARLIER = Asked(every_ms=10, first_ms=20, last_ms=50)


@pytest.mark.parametrize(
    ("new", "joined"),
    [
        pytest.param(Asked(10, 40, 70), Asked(10, 20, 70), id="an overlap"),
        pytest.param(Asked(10, 60, 70), Asked(10, 20, 70), id="the next moments"),
        pytest.param(Asked(10, 30, 40), EARLIER, id="a part"),
        pytest.param(Asked(10, 0, 10), Asked(10, 0, 50), id="an earlier begin"),
        pytest.param(Asked(10, 70, 90), Asked(10, 70, 90), id="a gap"),
        pytest.param(Asked(15, 30, 60), Asked(15, 30, 60), id="another step"),
    ],
)
def test_moments_of_two_look_ups_are_joined_without_a_gap(new: Asked, joined: Asked) -> None:
    assert EARLIER.joined(new) == joined


@pytest.mark.parametrize(
    ("at_ms", "is_asked"), [(10, False), (20, True), (25, False), (50, True), (60, False)]
)
def test_only_moments_of_earlier_steps_were_asked(at_ms: int, is_asked: bool) -> None:
    assert EARLIER.has(at_ms) is is_asked


def test_brokers_are_asked_for_new_moments_of_each_topic_only() -> None:
    """A topic that was made again is asked for all moments. Without new ones, nothing is asked."""
    lives = {"orders": "a 2", "paid": "b 1"}
    asks: list[tuple[int | None, tuple[str, ...]]] = []
    notes: dict[str, Any] = {}

    class Numbers:
        def mapInArrow(self, look_up: Any, _: object) -> None:  # noqa: ANN401, N802
            asks[:] = look_up.args[0].keywords["asks"]

    tables: Any = SimpleNamespace(
        spark=SimpleNamespace(
            range=lambda *_: Numbers(), sparkContext=SimpleNamespace(defaultParallelism=1)
        ),
        version=lambda _: len(notes) - 1,
        noted=notes.get,
        note=lambda job, one: notes.update({job: json.loads(json.dumps(one))}),
        merge=lambda *_, **__: None,
    )
    brokers: Any = SimpleNamespace(lives=lambda _: lives)

    def asked(moments: range, until_ms: int) -> list[tuple[int | None, tuple[str, ...]]]:
        asks.clear()
        ends.write_ends(tables, brokers, ["orders", "paid"], moments, 99, until_ms)
        return [*asks]

    both = ("orders", "paid")
    first = asked(range(20, 40, 10), 45)
    assert first == [(None, both), (45, both), (20, both), (30, both)]
    assert asked(range(20, 40, 10), 45) == []
    assert asked(range(30, 60, 10), 65) == [(None, both), (65, both), (40, both), (50, both)]
    lives["paid"] = "c 1"
    assert asked(range(40, 60, 10), 65) == [(40, ("paid",)), (50, ("paid",))]


NOW_MS = time.time_ns() // 1_000_000
YEAR_2100_MS = 4_102_444_800_000


def test_ends_that_a_record_of_the_future_hides_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka finds the first record of a time or later: this one, at each moment before its time.

    The clock of a producer may be fast by seconds. A partition that vanishes has no row.
    """
    stamps = {0: NOW_MS, 1: NOW_MS + 50_000, 2: YEAR_2100_MS, 3: -1}
    gone = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def answers(asked: dict[TopicPartition, OffsetSpec], **_: object) -> dict[TopicPartition, Any]:
        found = {}
        for place, spec in asked.items():
            found[place] = Future[Any]()
            offset = {OffsetSpec.earliest(): 0, OffsetSpec.latest(): 9}.get(spec, 5)
            stamp = stamps.get(place.partition, -1)
            if place.partition == len(stamps):
                found[place].set_exception(gone)
            else:
                offset = -1 if offset == 5 and stamp < 0 else offset
                found[place].set_result(SimpleNamespace(offset=offset, timestamp=stamp))
        return found

    partitions = dict.fromkeys(range(len(stamps) + 1))
    admin = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(
            topics={"t": SimpleNamespace(partitions=partitions)}
        ),
        describe_topics=lambda *_, **__: {},
        list_offsets=answers,
    )
    monkeypatch.setattr(ends, "AdminClient", lambda _: admin)
    (rows,) = Cluster(config={}).ends(["t"], [NOW_MS - 99], None)
    assert [(row[1], row[3], row[4]) for row in rows] == [
        *((0, 0, 5), (1, 0, 5)),
        *((2, 0, None), (3, 0, 9)),
    ]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_other_errors_of_a_look_up_end_the_job(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: Future[Any] = Future()
    failed.set_exception(KafkaException(KafkaError(code)))
    admin = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(
            topics={"t": SimpleNamespace(partitions={0: None})}
        ),
        describe_topics=lambda *_, **__: {},
        list_offsets=lambda asked, **_: dict.fromkeys(asked, failed),
    )
    monkeypatch.setattr(ends, "AdminClient", lambda _: admin)
    with pytest.raises(PipelineError, match="offsets cannot be looked up"):
        [*Cluster(config={}).ends(["t"], [], 5)]
