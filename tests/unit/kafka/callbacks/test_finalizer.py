"""A consumer that was dropped without `close` leaves no thread, slot or membership behind."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.kafka.callbacks.finalizer import Finalizer, finalize_when_dropped, keep_callbacks
from tests.unit.kafka.fakes import FakeDriver


class Owner:
    """The dropped consumer; part of a reference cycle, as the real one."""

    def __init__(self) -> None:
        self.itself = self


@define
class Parts:
    """The parts of a consumer; they record the order in which they end.

    Attributes:
        told: closed parts, in order.
        duties: duties of the watcher's thread at its end.
    """

    driver: Any = field(init=False)
    told: list[str] = field(factory=list)
    duties: list[Callable[[], None]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        told = self.told

        class LeftDriver(FakeDriver):
            def wait_left(self) -> bool:
                told.append("left")
                return True

            def stop(self) -> None:
                told.append("driver")

        self.driver = LeftDriver()

    def finish(self, duty: Callable[[], None]) -> None:
        self.duties.append(duty)

    def release(self) -> None:
        self.told.append("slot")

    def close(self) -> None:
        self.told.append("sink")


def drop(parts: Parts, before: Callable[[Finalizer], object] = lambda _: None) -> None:
    """Drop a consumer with these parts, after something happened."""
    owner, anything = Owner(), cast("Any", parts)
    before(finalize_when_dropped(owner, parts.driver, anything, anything, anything))
    del owner
    gc.collect()


def test_consumer_when_dropped_leaves_its_group_and_ends_everything() -> None:
    """The collector's thread only leaves the group; the watcher's last duty does the waiting."""
    parts = Parts()
    drop(parts)
    assert parts.driver.left == [("consumer dropped", True)]
    (duty,) = parts.duties
    assert parts.told == []
    duty()
    assert parts.told == ["left", "driver", "slot", "sink"]


@pytest.mark.parametrize("why", ["closed", "in a forked child"])
def test_consumer_that_is_dropped_later_says_nothing(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    parts = Parts()
    if why == "closed":
        drop(parts, lambda finalizer: finalizer.detach())
    else:
        drop(parts, lambda _: monkeypatch.setattr("os.getpid", lambda: -1))
    assert (parts.driver.left, parts.duties) == ([], [])


WAIT_S = 20.0
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "dropped", "log_level": 0}


class Application:
    """An object that owns a consumer and passes its own methods as callbacks."""

    def __init__(self, chosen: str, folder: Path) -> None:
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": self.token,
        }
        given: dict[str, dict[str, Any]] = {key: {key: self.hear} for key in KEYS}
        given |= {"logger": {"logger": self}, "oauth_cb": login, "listener": {}}
        given["all"] = {key: one for part in given.values() for key, one in part.items()}
        self.consumer = CooperativeConsumer(
            {
                **NOBODY,
                **given[chosen],
                "coopgroup.state.dir": str(folder / "state"),
                "coopgroup.telemetry.file": str(folder / "telemetry.jsonl"),
                "statistics.interval.ms": 100,
            }
        )
        listener = self.hear if chosen == "listener" else None
        self.consumer.subscribe(["t"], on_assign=listener, on_revoke=listener, on_lost=listener)

    def hear(self, *_: object) -> None:
        pass

    def log(self, *_: object, **__: object) -> None:
        pass

    def token(self, _: str) -> tuple[str, float]:
        return "token", time.time() + 3_600


KEYS = ("on_commit", "error_cb", "stats_cb", "throttle_cb", "coopgroup.telemetry.listener")
CHOICES = (*KEYS, "logger", "oauth_cb", "listener", "all")


def own_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if "dropped" in one.name]


def test_consumers_whose_callbacks_are_methods_of_their_owners_are_collected(
    tmp_path: Path,
) -> None:
    """Otherwise the group's threads would keep its partitions for the life of the process."""
    owners = {chosen: Application(chosen, tmp_path) for chosen in CHOICES}
    for owner in owners.values():
        owner.consumer.poll(0.1)
        # Notices that wait for a poll must not keep the consumer alive either.
        owner.consumer.commit(offsets=[TopicPartition("t", 0, 5)])
        owner.consumer.finish_revoke([TopicPartition("t", 0)])
    dropped = {chosen: weakref.ref(owner) for chosen, owner in owners.items()}
    assert own_threads()
    del owner, owners
    gc.collect()
    while running := own_threads():  # each thread may hold a consumer until it ends
        for thread in running:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        gc.collect()
    assert not any(one() for one in dropped.values())


def test_stand_in_for_a_callback_says_so_when_its_consumer_is_gone() -> None:
    configuration, kept = keep_callbacks({"oauth_cb": lambda _: ("token", 0.0), "error_cb": 5})
    assert configuration["oauth_cb"]("") == ("token", 0.0)
    assert configuration["error_cb"] == 5
    del kept
    gc.collect()
    with pytest.raises(RuntimeError, match="oauth_cb: its consumer was dropped"):
        configuration["oauth_cb"]("")


# --- an exception of a configuration callback is raised by `poll` ---------------------------------


def by_python(_: object) -> None:
    raise LookupError("no")


def by_c(_: object) -> None:
    int("x")


def by_exit(_: object) -> None:
    sys.exit(3)


def by_signal(_: object) -> None:
    """Raise SIGINT, even if the parent process ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def poll_on(consumer: CooperativeConsumer, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        consumer.consume(count, 0.05) if count > 1 else consumer.poll(0.05)


@pytest.mark.parametrize("key", ["error_cb", "stats_cb"])
@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize(
    ("callback", "expected", "message"),
    [
        (by_python, LookupError, "no"),
        (by_c, ValueError, "invalid literal for int() with base 10: 'x'"),
        (by_exit, SystemExit, "3"),
        (by_signal, KeyboardInterrupt, ""),
    ],
)
def test_callback_when_it_raises_is_heard_from_poll(
    key: str, count: int, callback: Callable[..., None], expected: type[BaseException], message: str
) -> None:
    raising: list[Any] = [callback]

    def once(event: object) -> None:
        if raising:
            raising.pop()(event)

    consumer = CooperativeConsumer({**NOBODY, key: once, "statistics.interval.ms": 20})
    with consumer, pytest.raises(expected) as caught:
        poll_on(consumer, count)
    assert str(caught.value) == message
