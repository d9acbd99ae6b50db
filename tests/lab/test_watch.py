"""The state of a group, read from logs that are still being written."""

from __future__ import annotations

from pathlib import Path

from tests.lab.recording import EventLog
from tests.lab.watch import GroupWatch


def rows_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.records"


def watch_of(folder: Path, *names: str, partitions: int = 2) -> GroupWatch:
    watch = GroupWatch(partition_count=partitions)
    for name in names:
        watch.add(name, rows_path(folder, name), folder / f"{name}.events")
    return watch


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
