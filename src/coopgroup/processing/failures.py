"""What happens to a record whose handler raised an exception: retry, skip, dead letter, or stop."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import field, frozen
from confluent_kafka import Message

from coopgroup.errors import ConfigurationError


@frozen(kw_only=True)
class Failure:
    """A handler raised an exception.

    Attributes:
        message: the record.
        error: the exception.
        attempt: how often this record was tried, 1 for the first time.
    """

    message: Message
    error: Exception
    attempt: int


@frozen
class Stop:
    """Stop processing: `process` finishes the other records in flight and raises `ProcessingError`.

    The offset of the record is not committed, so it is handled again after a restart.
    """


@frozen
class Skip:
    """Go on as if the record had been handled. The log has an event for each skipped record."""


@frozen
class DeadLetter:
    """Send the record to a topic for failed records, and go on when the broker has it.

    Key, value, headers and timestamp stay. Headers are added that name the place of the record and
    the error: `coopgroup.topic`, `coopgroup.partition`, `coopgroup.offset`, `coopgroup.group`,
    `coopgroup.error`. They replace headers of the record that begin with `coopgroup.`. The text of
    the error has at most 4,000 bytes.

    A letter that is refused as too large is sent again: alone in its batch, then without the text
    of the error, then without key, value and headers of the record. `coopgroup.left_out` names the
    missing parts, and the log has `dead_letter_shortened`. If the broker refuses the record for
    another reason, or does not answer, processing stops.

    Args:
        producer: a `confluent_kafka.Producer`; the application closes it.
        topic: name of the topic.
        timeout_ms: how long to wait for the broker.
    """

    producer: Any
    topic: str
    timeout_ms: int = field(default=30_000, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not callable(getattr(self.producer, "produce", None)):
            raise ConfigurationError("producer", self.producer, "a confluent_kafka.Producer")
        if not isinstance(self.topic, str) or not self.topic:
            raise ConfigurationError("topic", self.topic, "the name of a topic")
        check_count("timeout_ms", self.timeout_ms)


Outcome: TypeAlias = "Stop | Skip | DeadLetter"


@frozen(kw_only=True)
class Retry:
    """Try again after a pause, which doubles each time; then do something else.

    Records of the same lane wait meanwhile; all others go on.

    Args:
        attempts: how often a record is tried in all, at least 2.
        backoff_ms: pause before the second attempt.
        backoff_max_ms: longest pause.
        otherwise: what to do after the last attempt.
    """

    attempts: int = 5
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    otherwise: Outcome = Stop()

    def __attrs_post_init__(self) -> None:
        check_count("attempts", self.attempts, 2)
        check_count("backoff_ms", self.backoff_ms)
        check_count("backoff_max_ms", self.backoff_max_ms)
        if not isinstance(self.otherwise, (Stop, Skip, DeadLetter)):
            raise ConfigurationError("otherwise", self.otherwise, _AN_OUTCOME)

    def pause_ms(self, attempt: int) -> int:
        """Return the pause after a failed attempt, which counts from 1."""
        doubled = self.backoff_ms * math.pow(2, min(attempt - 1, 64))
        return round(min(doubled, self.backoff_max_ms))


OnError: TypeAlias = "Outcome | Retry | Callable[[Failure], Outcome | Retry]"

_AN_OUTCOME = "Stop(), Skip() or DeadLetter(producer, topic)"


def check_on_error(on_error: object) -> None:
    """Refuse what is no answer to a failure.

    Raises:
        ConfigurationError: neither an answer nor a plain function of one argument.
    """
    if isinstance(on_error, (Stop, Skip, DeadLetter, Retry)):
        return
    if not callable(on_error):
        raise ConfigurationError("on_error", on_error, f"Retry(…), {_AN_OUTCOME}, or a callable")
    if any(map(inspect.iscoroutinefunction, (on_error, type(on_error).__call__))):
        raise ConfigurationError("on_error", on_error, "a plain function, not a coroutine function")
    try:
        signature = inspect.signature(on_error)
    except ValueError:  # some functions of C have none
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigurationError(
            "on_error", on_error, "a function of one argument, the Failure"
        ) from None


def decide(on_error: OnError, failure: Failure) -> Outcome | Retry:
    """Return what to do with a failed record; `Retry` means that another attempt is due.

    Raises:
        Exception: raised by a callable of the application.
    """
    answer: Any = on_error
    if not isinstance(answer, (Stop, Skip, DeadLetter, Retry)):
        answer = answer(failure)
        if not isinstance(answer, (Stop, Skip, DeadLetter, Retry)):
            raise ConfigurationError("result of on_error", answer, f"Retry(…), {_AN_OUTCOME}")
    if isinstance(answer, Retry) and failure.attempt >= answer.attempts:
        return answer.otherwise
    return answer


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse an option that is not a whole number, or is too small.

    Raises:
        ConfigurationError: it is refused.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(name, value, f"a whole number from {least}")
