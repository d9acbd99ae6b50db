"""A topic that the brokers hide, and moments for which they were asked."""

from __future__ import annotations

import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import PipelineError
from coopgroup.pipeline import ends
from coopgroup.pipeline.ends import Asked, Brokers


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
        Brokers(config={"bootstrap.servers": "b"}).source("t", "no group has committed")
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
