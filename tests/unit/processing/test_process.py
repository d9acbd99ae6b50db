"""Arguments of `process` that are refused, and how `run` ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.processing import process, run
from coopgroup.processing.running import StopSignal, Timing
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


@pytest.mark.parametrize(("protocol", "hands_over"), [("classic", True), ("consumer", False)])
@pytest.mark.parametrize("kind", [CooperativeConsumer, AsyncCooperativeConsumer])
def test_run_hands_over_if_the_group_has_a_leader(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], protocol: str, *, hands_over: bool
) -> None:
    """`hand_over` raises an error where the broker assigns, and SIGTERM would end in it."""
    seen: list[Timing] = []

    def refuse(stop: StopSignal, timeout_ms: int, *, hands_over: bool) -> None:
        seen.append(Timing(stop, timeout_ms, hands_over))
        raise RuntimeError("enough")

    monkeypatch.setitem(run.__globals__, "Timing", refuse)
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": protocol}
    consumer = kind(config)
    with pytest.raises(RuntimeError, match="enough"):
        run(consumer, ["t"], print)
    closed = consumer.close()
    if kind is AsyncCooperativeConsumer:
        closed.close()  # it was never started
    assert [one.hands_over for one in seen] == [hands_over]
