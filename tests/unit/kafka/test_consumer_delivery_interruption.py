"""A signal at any point of the hand-out neither loses nor repeats a record.

Signal handlers run between two steps of the interpreter: at the entry of a function and after a
call of C code. A profiler is called at the same points, so a test can interrupt at each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.kafka.records.decoding import Decoder, Deserializers
from tests.unit.kafka.fakes import record
from tests.unit.kafka.notice_stage import BOTH, Stage, delivery_of, owning

if TYPE_CHECKING:
    from types import FrameType

RECORDS = 5
PLACES_MAX = 2_000
STRUCK = {
    "consumer.py",
    "decoding.py",
    "fetching.py",
    "pump.py",
    "record_buffer.py",
    "work_meter.py",
}
LIBRDKAFKA = {"consume", "poll", "incremental_assign", "pause", "send"}

Ask = Callable[[CooperativeConsumer], list[Any]]
Handler = Callable[[CooperativeConsumer], None]


def shell_of(stage: Stage) -> CooperativeConsumer:
    """Return a consumer with only the parts that hand out records."""
    consumer = CooperativeConsumer.__new__(CooperativeConsumer)
    parts: dict[str, Any] = {
        "_ready": stage.fetching.record_buffer.ready,
        "_fetching": stage.fetching,
        "_driver": stage.driver,
        "_inbox": stage.driver.inbox,
        "_committing": stage.committing,
        "_delivery": stage.delivery,
        "_closed": False,
        "_parts": SimpleNamespace(subscription=SimpleNamespace(is_empty=False)),
    }
    vars(consumer).update(parts)
    return consumer


def decoding_shell_of(stage: Stage) -> CooperativeConsumer:
    """Return the same with a deserializer, which must see each record as bytes."""
    decoder = Decoder(Deserializers(key=None, value=lambda data, _: data.decode()))
    consumer = shell_of(stage)
    vars(consumer).update({"_ready": (), "_delivery": delivery_of(stage, decoder)})
    return consumer


def strike(
    consumer: CooperativeConsumer,
    ask: Ask,
    place: int,
    handler: Handler,
    struck: AbstractSet[str] = STRUCK,
) -> Any:  # noqa: ANN401  (a list, or None)
    """Run the handler at a point; return the records handed out, or None without such a point."""
    places = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal places
        name = Path(frame.f_code.co_filename).name
        given = event == "return" and name == "fakes.py" and frame.f_code.co_name in LIBRDKAFKA
        if given or (event in {"call", "c_return"} and name in struck):
            places += 1
            if places == place:
                sys.setprofile(None)
                handler(consumer)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        handed = ask(consumer)
    except KeyboardInterrupt:
        handed = []
    finally:
        sys.setprofile(before)
    return handed if places >= place else None


def interrupt(_: CooperativeConsumer) -> None:
    raise KeyboardInterrupt


def polled(consumer: CooperativeConsumer) -> list[Any]:
    """Return one record of `poll`."""
    message = consumer.poll(0)
    return [] if message is None else [message]


def iterated(consumer: CooperativeConsumer) -> list[Any]:
    """Return one record of an unfinished iteration."""
    vars(consumer)["iterator"] = iterator = iter(consumer)
    return [next(iterator)]


def rest(consumer: CooperativeConsumer) -> list[Any]:
    messages: list[Any] = []
    while found := polled(consumer):
        messages += found
    return messages


ASKS: dict[str, Ask] = {
    "poll": polled,
    "iterate": iterated,
    "consume some": lambda consumer: consumer.consume(2, 0),
    "consume as many as there are": lambda consumer: consumer.consume(RECORDS, 0),
    "consume more than there are": lambda consumer: consumer.consume(2 * RECORDS, 0),
}


def _records_when_a_signal_strikes_are_handed_out_once_and_none_is_committed_before(
    name: str, fetched_before: int, shell: Callable[[Stage], CooperativeConsumer]
) -> None:
    for place in range(1, PLACES_MAX):
        stage = owning(*(record(0, offset) for offset in range(RECORDS)))
        consumer = shell(stage)
        before = polled(consumer) if fetched_before else []
        committed: list[int] = []

        def close(
            _: CooperativeConsumer, stage: Stage = stage, told: list[int] = committed
        ) -> None:
            due = stage.committing.store.due(BOTH)
            told += [one.offset for one in due if one.partition == 0]  # the other has no record
            raise KeyboardInterrupt

        handed = strike(consumer, ASKS[name], place, close)
        if handed is None:
            assert place > 2
            return
        assert handed == []
        assert committed in ([], [len(before)]), f"at place {place}"
        found = (*before, *rest(consumer))
        assert [one.offset() for one in found] == [*range(RECORDS)], f"at place {place}"
        value = b"v" if shell is shell_of else "v"
        assert {one.value() for one in found} == {value}, f"at place {place}"
    pytest.fail("it never ends")


def test_records_when_a_signal_strikes_are_handed_out_once_and_none_is_committed_before(
    subtests: pytest.Subtests,
) -> None:
    """A handler that closes the consumer and ends the process commits no record too many."""
    for fetched_before, name, shell in product([0, 1], ASKS, [shell_of, decoding_shell_of]):
        with subtests.test(fetched_before=fetched_before, name=name, shell=shell):
            _records_when_a_signal_strikes_are_handed_out_once_and_none_is_committed_before(
                name, fetched_before, shell
            )
