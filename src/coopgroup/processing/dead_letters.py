"""Send a failed record to a topic for failed records.

A dead letter that cannot be sent would stop processing at each restart. If a letter is too
large, a smaller form of it is sent. A header names the parts that were left out.

A broker refuses a whole batch of the producer. So the first repetition is the whole letter, alone:
the letter may fit, and only its batch was too large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException

from coopgroup.processing.error_text import error_text, type_and_text
from coopgroup.processing.failures import DeadLetter, Failure

_TIMESTAMP_NOT_AVAILABLE = 0
_TOO_LARGE: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_OURS: Final = "coopgroup."


@frozen
class _Form:
    """A form of a dead letter.

    Attributes:
        left_out: parts that it lacks, as its header names them.
        has_record: whether it has key, value and headers of the record.
        error_bytes_max: maximum size of the error's text, 0 for no text.
        is_alone: no other letter may be in its batch.
    """

    left_out: str
    has_record: bool
    error_bytes_max: int
    is_alone: bool = True


_FORMS: Final = (
    _Form("", has_record=True, error_bytes_max=4_000, is_alone=False),
    _Form("", has_record=True, error_bytes_max=4_000),
    _Form("error", has_record=True, error_bytes_max=0),
    _Form("key, value, headers", has_record=False, error_bytes_max=200),
)
"""Forms of a letter, until the broker takes one."""


@define(eq=False)
class Way:
    """The way of the letters to the broker: side by side, or one alone. For any thread."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _on_it: int = field(default=0, init=False)
    _wanted_alone: int = field(default=0, init=False)

    @contextmanager
    def wanted(self, *, is_alone: bool) -> Iterator[None]:
        """Hold back all other letters while a letter wants to be alone, or is alone."""
        with self._lock:
            self._wanted_alone += is_alone
        try:
            yield
        finally:
            with self._lock:
                self._wanted_alone -= is_alone

    def enter(self, *, is_alone: bool) -> bool:
        """Return whether a letter may go now; if so, `leave` follows."""
        with self._lock:
            is_free = not (self._on_it if is_alone else self._wanted_alone)
            self._on_it += is_free
            return is_free

    def leave(self) -> None:
        """Note the end of a letter: its answer has come, or its sender has gone."""
        with self._lock:
            self._on_it -= 1


def deliver(
    letter: DeadLetter, failure: Failure, group_id: str, now_s: Callable[[], float], way: Way
) -> Generator[Any, None, str]:
    """Send a failed record; yield the producer each time the caller must call its `poll`.

    Args:
        letter: where to send it.
        failure: the record and its error.
        group_id: name of the group.
        now_s: the clock.
        way: the way of all letters of this run.

    Returns:
        The parts that the letter lacks, "" for none, as soon as the broker has it.

    Raises:
        KafkaException: the producer or the broker refuses the record, or no answer came in time.
    """
    error: KafkaError | None = None
    for form in _FORMS:
        with way.wanted(is_alone=form.is_alone):
            while not way.enter(is_alone=form.is_alone):
                yield letter.producer
            try:
                error = yield from _answer(letter, _arguments(failure, group_id, form), now_s)
            finally:
                way.leave()
        if error is None:
            return form.left_out
        if error.code() not in _TOO_LARGE:
            break
    raise KafkaException(error)


def _answer(
    letter: DeadLetter, arguments: dict[str, Any], now_s: Callable[[], float]
) -> Generator[Any, None, KafkaError | None]:
    """Send a record, and return the error of the producer or the broker."""
    until_s = now_s() + letter.timeout_ms / 1000
    answers: list[KafkaError | None] = []
    is_queued = False
    while not answers and now_s() < until_s:
        if not is_queued:
            try:
                letter.producer.produce(
                    letter.topic, **arguments, on_delivery=lambda error, _: answers.append(error)
                )
                is_queued = True
            except BufferError:
                pass  # the queue of the producer is full
            except KafkaException as refused:
                error: KafkaError = refused.args[0]
                return error
        yield letter.producer
    if not answers:
        text = f"no answer for a dead letter to {letter.topic!r}"
        return KafkaError(KafkaError._TIMED_OUT, text)
    return answers[0]


def _arguments(failure: Failure, group_id: str, form: _Form) -> dict[str, Any]:
    message = failure.message
    kind, timestamp_ms = message.timestamp()
    return {
        "key": message.key() if form.has_record else None,
        "value": message.value() if form.has_record else None,
        "headers": _headers(failure, group_id, form),
        **({} if kind == _TIMESTAMP_NOT_AVAILABLE else {"timestamp": timestamp_ms}),
    }


def _headers(failure: Failure, group_id: str, form: _Form) -> list[tuple[str, bytes | str | None]]:
    message = failure.message
    own = {
        "topic": str(message.topic()),
        "partition": str(message.partition()),
        "offset": str(message.offset()),
        "group": group_id,
        "error": error_text(failure.error, form.error_bytes_max, type_and_text)
        if form.error_bytes_max
        else "",
        "left_out": form.left_out,
    }
    return [
        *(_headers_of_the_record(message.headers()) if form.has_record else ()),
        *((f"{_OURS}{name}", text.encode()) for name, text in own.items() if text),
    ]


def _headers_of_the_record(given: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the headers of a record, without those of the dead letter that it may be."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return ((name, value) for name, value in pairs if not name.startswith(_OURS))
