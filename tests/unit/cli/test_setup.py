"""`coopgroup setup --group`: brokers that set the interval, and brokers that refuse."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.cli import app, setup

EXPECTED = (
    "expected a group of brokers that let you set consumer.assignment.interval.ms, "
    "as Kafka 4.3 does"
)


class Admin:
    """A cluster whose topics exist, and which answers each change of a group alike."""

    refusal: KafkaError | None = None

    def __init__(self, _: object) -> None:
        self.altered: list[Any] = []
        made.append(self)

    def create_topics(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
        exists = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
        return {one.topic: _done(exists) for one in topics}

    def incremental_alter_configs(
        self, resources: list[Any], **_: object
    ) -> dict[Any, Future[None]]:
        self.altered += resources
        refused = None if self.refusal is None else KafkaException(self.refusal)
        return {one: _done(refused) for one in resources}


made: list[Admin] = []


def _done(error: Exception | None) -> "Future[None]":
    future: Future[None] = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(setup, "AdminClient", Admin)


def test_interval_of_each_named_group_is_set_to_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["setup", "--group", "a", "--group", "b"]) == 0
    out = capsys.readouterr().out
    changes = [
        (resource.name, entry.name, entry.value)
        for resource in made[0].altered
        for entry in resource.incremental_configs
    ]
    assert changes == [(one, "consumer.assignment.interval.ms", "0") for one in "ab"]
    assert [line for line in out.splitlines() if " of group " in line] == [
        f"consumer.assignment.interval.ms of group {one} is 0" for one in "ab"
    ]
    rights = [line.split("User:NAME ")[1] for line in out.splitlines() if "--group" in line]
    assert rights == [f"--operation DescribeConfigs --group {one}" for one in "ab"]


def test_no_group_is_changed_unless_it_is_named() -> None:
    assert app.run(["setup"]) == 0
    assert made[0].altered == []


@pytest.mark.parametrize(
    ("code", "told", "said"),
    [
        (
            KafkaError.INVALID_CONFIG,
            "Unknown group config name: x",
            f"--group: got 'a', {EXPECTED} (Unknown group config name: x)",
        ),
        (KafkaError._TRANSPORT, "gone", "no broker answers at localhost:9092"),
    ],
)
def test_refusal_of_the_brokers_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    told: str,
    said: str,
) -> None:
    monkeypatch.setattr(Admin, "refusal", KafkaError(code, told))
    assert app.run(["setup", "--group", "a"]) > 0
    assert said in capsys.readouterr().err
