"""What a consumer that nobody closed leaves behind: nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

from coopgroup.kafka.dropping import WhenDropped, end_when_dropped
from coopgroup.member import MemberState
from tests.unit.kafka.fakes import FakeDriver


class Owner:
    """The consumer that it is all about; part of a cycle, as the real one."""

    def __init__(self) -> None:
        self.itself = self


@define
class LeftDriver(FakeDriver):
    """One that can be stopped.

    Attributes:
        parts: where that is noted.
    """

    parts: Any = None

    def stop(self) -> None:
        """As the real one."""
        self.parts.told.append("driver")


@define
class Parts:
    """Everything else that is left of a consumer; notes in which order it ends.

    Attributes:
        driver: of the group.
        told: what was closed, in order.
        duties: what the watcher's thread has to do at its end.
    """

    driver: LeftDriver = field(init=False)
    told: list[str] = field(factory=list)
    duties: list[Callable[[], None]] = field(factory=list)

    def finish(self, duty: Callable[[], None]) -> None:
        """As the watcher."""
        self.duties.append(duty)

    def __attrs_post_init__(self) -> None:
        """The driver is in the group."""
        self.driver = LeftDriver(parts=self)
        self.driver.member.state = MemberState.STABLE

    def release(self) -> None:
        """As the slot."""
        self.told.append("slot")

    def close(self) -> None:
        """As the sink."""
        self.told.append("sink")


def owned(parts: Parts) -> tuple[Owner, WhenDropped]:
    """A consumer with these parts."""
    owner = Owner()
    anything: Any = parts
    return owner, end_when_dropped(owner, anything.driver, anything, anything, anything)


def test_consumer_when_dropped_leaves_its_group_and_ends_everything() -> None:
    """In the collector's thread it only leaves; what waits is the watcher's last duty."""
    parts = Parts()
    owner, _ = owned(parts)
    del owner
    gc.collect()
    assert parts.driver.left == [("consumer dropped", True)]
    (duty,) = parts.duties
    assert parts.told == []
    ending = threading.Thread(target=duty)
    ending.start()
    ending.join(0.1)
    assert parts.told == []  # the group is still being left
    parts.driver.member.state = MemberState.UNSUBSCRIBED
    ending.join(5)
    assert parts.told == ["driver", "slot", "sink"]


def test_consumer_when_dropped_and_the_group_does_not_let_go_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is gone does not keep threads for ever."""
    monkeypatch.setattr("coopgroup.kafka.dropping._LEAVE_TIMEOUT_S", 0.01)
    parts = Parts()
    owner, _ = owned(parts)
    del owner
    gc.collect()
    parts.duties[0]()
    assert parts.told == ["driver", "slot", "sink"]


def test_consumer_when_closed_is_done() -> None:
    """Whoever closes it detaches it."""
    parts = Parts()
    owner, when_dropped = owned(parts)
    when_dropped.detach()
    del owner
    gc.collect()
    assert (parts.driver.left, parts.duties) == ([], [])


def test_consumer_when_dropped_in_a_forked_child_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The membership is that of the parent."""
    parts = Parts()
    owner, _ = owned(parts)
    monkeypatch.setattr("os.getpid", lambda: -1)
    del owner
    gc.collect()
    assert (parts.driver.left, parts.duties) == ([], [])
