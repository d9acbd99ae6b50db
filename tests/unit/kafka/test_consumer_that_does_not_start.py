"""A consumer or a group that cannot start its threads leaves none behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.groups import CooperativeGroup
from coopgroup.kafka.membership.identity import take_slot
from tests.unit.kafka.one_member_group import fail

WAIT_S = 60.0
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def descriptors() -> dict[str, str]:
    """Return the open descriptors of this process, but not the one that lists them."""
    found: dict[str, str] = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            found[path.name] = str(path.readlink())
        except FileNotFoundError:
            continue
    return found


def make_consumer(folder: Path) -> None:
    CooperativeConsumer(
        NOBODY
        | {
            "log_level": 0,
            "coopgroup.state.dir": str(folder),
            "coopgroup.telemetry.file": str(folder / "telemetry"),
        }
    )


def make_group(folder: Path) -> None:
    CooperativeGroup(
        NOBODY | {"coopgroup.state.dir": str(folder)},
        catalogue=[("a", 0)],
        start=lambda _: None,
        stop=lambda _: None,
    ).join()


@pytest.mark.parametrize("failing", ["no thread", "a signal"])
@pytest.mark.parametrize(
    ("make", "thread_name"),
    [
        (make_consumer, "coopgroup-transport-"),
        (make_consumer, "coopgroup-g"),
        (make_group, "coopgroup-transport-"),
        (make_group, "coopgroup-g"),
        (make_group, "coopgroup-catalogue"),
    ],
)
def test_a_thread_that_does_not_start_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    make: Callable[[Path], None],
    thread_name: str,
    failing: str,
) -> None:
    gc.collect()
    threads, open_before = set(threading.enumerate()), descriptors()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if not thread.name.startswith(thread_name):
            start(thread)
            return
        if failing == "a signal":
            start(thread)
            raise KeyboardInterrupt("in start")
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises((RuntimeError, KeyboardInterrupt), match="start"):
            make(tmp_path)
    for thread in set(threading.enumerate()) - threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    gc.collect()
    left = {name: one for name, one in descriptors().items() if open_before.get(name) != one}
    assert not left
    slot = take_slot(str(tmp_path), "g", fail)
    slot.release()
    assert slot.path.name.endswith(".0.json")
