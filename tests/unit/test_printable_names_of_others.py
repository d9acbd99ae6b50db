"""Names that others choose cannot clear a terminal, forge a line, or run in a page."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import MagicMock

import pytest
from attrs import evolve
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.cli import app, consume, group, telemetry
from coopgroup.cli.pipeline import advise, sql
from coopgroup.errors import ConfigurationError, PipelineError
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.pipeline.advice.view import view_of
from coopgroup.telemetry import to_json
from tests.unit.pipeline.advices import made_advice
from tests.unit.report.histories import rolling_bounce
from tests.unit.watch.views import MEMBERS, view

HOSTILE = (
    "\x1b[2J\x1b[H",
    "a\nnext: nothing left to do",
    "a\r\x9b2K\x7f",
    "\u202eevil\u2028\x85",
    "<script>alert(1)</script>",
    "[red]a[/red]",
)


class Reader:
    """A group, and a topic of telemetry, whose names are all the same."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self) -> Any:  # noqa: ANN401  (a view)
        name = self.name
        members = (evolve(MEMBERS[0], client_id=name, host=name), *MEMBERS[1:])
        members = (members[0], evolve(members[1], instance_id=name, member_id=name))
        found = evolve(view(owners=("m-a", name, name), members=members), telemetry_error=name)
        return evolve(found, group=name, assignor=name)

    def read_to_end(self) -> Iterator[bytes]:
        yield json.dumps({"member": self.name}, ensure_ascii=False).encode()
        yield self.name.encode()


def describe(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    @contextmanager
    def opened(*_: object) -> Iterator[Reader]:
        yield Reader(name)

    patch.setattr(group, "opened_reader", opened)
    return ["group", "describe", "g"]


def describe_json(name: str, patch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    return [*describe(name, patch, folder), "--json"]


def migrate(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    member = DescribedMember(member_id=name, client_id=name, client_host=name, metadata=b"")
    found = DescribedGroup(
        error_code=0,
        state="Stable",
        protocol_type="consumer",
        protocol_name=name,
        members=(member,),
    )
    answer = SimpleNamespace(
        describe=lambda _: (None, found),
        describe_consumers=lambda _: (None, ConsumerGroup(error_code=69)),
        close=lambda: None,
    )
    patch.setattr(group, "GroupDescriber", lambda *_: answer)
    return ["group", "migrate", "g", "--check"]


def read_telemetry(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    patch.setattr(telemetry, "TelemetryReader", lambda *_: Reader(name))
    return ["telemetry", "read"]


def written(name: str, folder: Path) -> str:
    rows = [to_json(evolve(one, group=name, client=name)) for one in rolling_bounce(6, 2)]
    lines = [
        *map(json.dumps, rows),
        json.dumps({**rows[0], "kind": name, "schema": name}),
        json.dumps(name),
    ]
    (folder / "told").write_text("\n".join(lines))
    return str(folder / "told")


def report(name: str, _: pytest.MonkeyPatch, folder: Path) -> list[str]:
    return ["report", written(name, folder), "-o", str(folder / "page.html")]


def report_of_two_groups(name: str, _: pytest.MonkeyPatch, folder: Path) -> list[str]:
    (folder / "more").write_text(json.dumps(to_json(rolling_bounce(6, 2)[0])))
    return ["report", written(name, folder), str(folder / "more")]


class Consumer:
    """A consumer that the broker and librdkafka tell such names."""

    def __init__(self, configuration: Mapping[str, Any], name: str) -> None:
        self.name, self.tell = name, configuration["error_cb"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def subscribe(self, _: list[str], on_assign: Callable[..., None], **_others: object) -> None:
        on_assign(self, [TopicPartition(self.name, 1)])
        self.tell(KafkaError(KafkaError._TRANSPORT, self.name))

    def poll(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, self.name))

    def memberid(self) -> str:
        return self.name


def consumed(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    patch.setattr(consume, "CooperativeConsumer", lambda given, **_: Consumer(given, name))
    return ["consume", "orders", "--group", "g"]


def refusal(error: Exception, patch: pytest.MonkeyPatch) -> list[str]:
    def refuse(**_: object) -> None:
        raise error

    patch.setattr(app.app, "main", refuse)
    return ["plan"]


def pipeline_error(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    return refusal(PipelineError(f"there is no group {name}"), patch)


def configuration_error(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    return refusal(ConfigurationError("--group", None, f"one of {name}"), patch)


def advice(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    given = made_advice()
    history = evolve(given.history, group=name, notes=(name,))
    view = view_of(evolve(given, history=history))
    patch.setattr(app.app, "main", lambda **_: advise._print(name, view))  # noqa: SLF001
    return []


def rows_of_sql(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    rows = [(json.dumps({"client": name}, ensure_ascii=False),)]
    found: Any = SimpleNamespace(select=lambda _: SimpleNamespace(toLocalIterator=lambda: rows))
    patch.setattr("pyspark.sql.functions.to_json", lambda *_: None)
    patch.setattr("pyspark.sql.functions.struct", lambda *_: None)
    patch.setattr(app.app, "main", lambda **_: sql._print_json(found))  # noqa: SLF001
    return []


def table_of_sql(name: str, patch: pytest.MonkeyPatch, _: Path) -> list[str]:
    frame = MagicMock(columns=("member",), dtypes=(("member", "string"),))
    texts = frame.toDF.return_value.select.return_value
    texts.limit.return_value.collect.return_value = [(name,)]
    patch.setattr(app.app, "main", lambda **_: sql._print(frame))  # noqa: SLF001
    return []


COMMANDS: tuple[Any, ...] = (
    describe,
    describe_json,
    migrate,
    read_telemetry,
    report,
    report_of_two_groups,
    consumed,
    pipeline_error,
    configuration_error,
    advice,
    rows_of_sql,
    table_of_sql,
)


def _no_name_reaches_the_terminal_raw(
    command: Any,  # noqa: ANN401 - a function that prepares one
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    folder = tmp_path / command.__name__ / str(HOSTILE.index(name))
    folder.mkdir(parents=True)
    said = []
    for given in ("a" * len(name), name):
        with monkeypatch.context() as patch:
            status = app.run(command(given, patch, folder))
        output = b"".join(capfdbinary.readouterr()).decode()
        said.append((status, len(output.splitlines()), output))
    (tame, lines, usual), (status, shown, output) = said
    assert (status, shown) == (tame, lines)
    assert usual
    assert all(line.isprintable() for line in output.split("\n"))
    assert not any("<script>alert" in page.read_text() for page in folder.glob("*.html"))


def test_no_name_reaches_the_terminal_raw(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    subtests: pytest.Subtests,
) -> None:
    for name, command in product(HOSTILE, COMMANDS):
        with subtests.test(name=name, command=command):
            _no_name_reaches_the_terminal_raw(command, name, monkeypatch, tmp_path, capfdbinary)
