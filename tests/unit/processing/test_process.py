"""Arguments of `process` that are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.processing import process
from tests.support.fake_records import FakeConsumer


def test_consumer_without_commits_is_refused() -> None:
    consumer: Any = FakeConsumer()
    consumer.interval_ms = None
    with pytest.raises(
        ConfigurationError, match=r"enable\.auto\.commit: got 'false', expected true"
    ):
        process(consumer, print)


def test_consumer_without_a_subscription_is_refused() -> None:
    """It would wait for ever."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    with (
        CooperativeConsumer(config) as consumer,
        pytest.raises(ConfigurationError, match="expected one that is subscribed"),
    ):
        process(consumer, print)
    with pytest.raises(ConfigurationError, match="expected one that is subscribed"):
        asyncio.run(process(AsyncCooperativeConsumer(config), asyncio.sleep))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: got 0, expected a whole number from 1"),
        ({"stop_timeout_ms": True}, "stop_timeout_ms: got True, expected a whole number from 1"),
        ({"order": "keys"}, "order: got 'keys', expected 'partition', 'key' or 'none'"),
        ({"on_error": "skip"}, "on_error: got 'skip', expected Retry"),
    ],
)
def test_wrong_argument_is_refused(options: dict[str, Any], message: str) -> None:
    consumer: Any = FakeConsumer()
    with pytest.raises(ConfigurationError) as caught:
        process(consumer, print, **options)
    assert str(caught.value).startswith(message)
    assert consumer.interceptor is None
