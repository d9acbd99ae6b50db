"""The state of a group, read from logs that are still being written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coopgroup.testing.trial.recording import EventLog, RowLog
from coopgroup.testing.trial.watch import GroupWatch


def rows_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.records"


def watch_of(folder: Path, *names: str, partitions: int = 2) -> GroupWatch:
    watch = GroupWatch(partition_count=partitions)
    for name in names:
        watch.add(name, rows_path(folder, name), folder / f"{name}.events")
    return watch


def hand_out(folder: Path, name: str, *partitions: int, offset: int = 0) -> None:
    """Let a new process of that name hand out a record of each partition, now."""
    log = RowLog(rows_path(folder, name))
    for partition in partitions:
        log.append(time.monotonic_ns(), 0, offset, partition)
    log.close()


def living(folder: Path, *names: str) -> frozenset[Path]:
    """The record logs of these processes."""
    return frozenset(rows_path(folder, name) for name in names)


@pytest.mark.parametrize(
    ("partitions", "alive", "fair", "is_settled"),
    [
        ({"m1": [0], "m2": [1]}, ("m1", "m2"), True, True),
        ({"m1": [0], "m2": [1]}, ("m1",), False, False),
        ({"m1": [0, 1]}, ("m1", "m2"), True, False),
        ({"m1": [0, 1]}, ("m1", "m2"), False, True),
    ],
    ids=["each flows", "an owner is dead", "one has nothing", "one has nothing, which is allowed"],
)
def test_group_is_settled_when_all_partitions_flow_to_the_living(
    tmp_path: Path,
    partitions: dict[str, list[int]],
    alive: tuple[str, ...],
    *,
    fair: bool,
    is_settled: bool,
) -> None:
    watch = watch_of(tmp_path, "m1", "m2")
    for name, some in partitions.items():
        hand_out(tmp_path, name, *some)
    assert watch.is_settled(living(tmp_path, *alive), quiet_s=0.0, fair=fair) == is_settled


def test_is_settled_when_a_callback_ran_just_now_is_false(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, "m1")
    hand_out(tmp_path, "m1", 0, 1)
    events = EventLog(tmp_path / "m1.events")
    events.write("assigned", partitions=[0, 1])
    events.close()
    assert not watch.is_settled(living(tmp_path, "m1"), quiet_s=60.0, fair=True)


def test_refresh_when_events_came_knows_owners_positions_and_news(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, "m1", partitions=4)
    events = EventLog(tmp_path / "m1.events")
    events.write("assigned", partitions=[0, 1, 3])
    events.write("committed", took_ms=1.0, positions=[[0, 7], [3, 2]], reason=None)
    events.write("commit_failed", took_ms=1.0, positions=[[0, 9]], reason="no")
    events.write("revoked", partitions=[1])
    events.write("lost", partitions=[3])
    events.close()
    watch.refresh()
    (log,) = watch.logs
    assert (log.owned, log.state) == ({0}, "lost")
    assert watch.committed.tolist() == [7, 0, 0, 2]
    assert [(member, event.name) for member, event in watch.news] == [
        ("m1", "assigned"),
        ("m1", "revoked"),
        ("m1", "lost"),
    ]
