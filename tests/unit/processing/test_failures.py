"""What is done with a failed record."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.processing import Failure, Retry, Skip, Stop
from coopgroup.processing.failures import check_on_error, decide


def failure(attempt: int) -> Failure:
    message: Any = None
    return Failure(message=message, error=ValueError(), attempt=attempt)


def test_pauses_double_up_to_the_longest() -> None:
    retry = Retry(backoff_ms=100, backoff_max_ms=500)
    assert [retry.pause_ms(attempt) for attempt in (1, 2, 3, 4, 10_000)] == [
        100,
        200,
        400,
        500,
        500,
    ]


def test_callable_may_answer_with_a_retry() -> None:
    retry = Retry(attempts=2)
    assert decide(lambda _: retry, failure(1)) is retry
    assert decide(lambda _: retry, failure(2)) == Stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 1}, "attempts: got 1, expected a whole number from 2"),
        ({"attempts": "3"}, "attempts: got '3', expected a whole number from 2"),
        ({"backoff_ms": 0}, "backoff_ms: got 0, expected a whole number from 1"),
        ({"otherwise": Retry()}, "otherwise: got Retry("),
    ],
)
def test_wrong_retry_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Retry(**options)
    assert str(caught.value).startswith(message)


async def _coroutine(_: Failure) -> Skip:
    return Skip()


class _CoroutineObject:
    async def __call__(self, _: Failure) -> Skip:
        return Skip()


@pytest.mark.parametrize(
    ("on_error", "message"),
    [
        (_coroutine, "a plain function, not a coroutine function"),
        (_CoroutineObject(), "a plain function, not a coroutine function"),
        (lambda message, error: Skip(), "a function of one argument, the Failure"),
        (Skip, "a function of one argument, the Failure"),
    ],
)
def test_function_that_cannot_answer_is_refused_at_the_start(
    on_error: object, message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_on_error(on_error)
    assert str(caught.value) == f"on_error: got {on_error!r}, expected {message}"


def test_function_of_one_argument_may_answer() -> None:
    check_on_error(lambda failure: Skip())
    check_on_error(lambda failure, more=1: Skip())
