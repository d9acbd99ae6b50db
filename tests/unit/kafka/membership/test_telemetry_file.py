"""The telemetry file: its own thread, a bounded queue, rotation, and disks that fail."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership import telemetry_file
from coopgroup.kafka.membership.telemetry_file import TelemetryFile
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.telemetry import Envelope, ResourcesStarted
from tests.support.by_hand import Hand

WAIT_S = 60.0  # of a wait that an event ends
# Appends 300 records to a file that several processes share.
WRITER = """
import sys
from coopgroup.kafka.membership import telemetry_file
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import ResourcesStarted

telemetry_file._BYTES_MAX, telemetry_file._BACKUPS = 20_000, 100
sink = TelemetrySink("g", sys.argv[1])
for number in range(300):
    record = ResourcesStarted(resources=ResourceSet({"t": [number]}))
    sink.write(record, member_id=sys.argv[2], generation=1)
sink.close()
"""


class Warned(list[tuple[str, dict[str, Any]]]):
    """Record the warnings of a file."""

    def __call__(self, event: str, **fields: object) -> None:
        self.append((event, fields))

    def fields(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self if name == event]


def put(file: TelemetryFile, *numbers: int) -> None:
    for number in numbers:
        record = ResourcesStarted(resources=ResourceSet({"t": [number]}))
        file.put(Envelope(at_ms=number, group="g", member="m", generation=1, record=record))


def numbers(*paths: Path) -> list[int]:
    texts = [path.read_text() for path in paths]
    assert all(text.endswith("\n") or not text for text in texts)
    return [json.loads(line)["at_ms"] for text in texts for line in text.splitlines()]


@contextmanager
def opened(
    path: Path, warned: Warned | None = None, /, capacity: int = 10_000
) -> Iterator[TelemetryFile]:
    told = Warned() if warned is None else warned
    file = TelemetryFile(path, told, capacity=capacity)
    try:
        yield file
    finally:
        file.close()


def refusal(path: Path) -> str:
    """Return the reason for refusing a path, which the one line of the error ends with."""
    with pytest.raises(ConfigurationError) as caught:
        TelemetrySink("g", str(path))
    said = f"coopgroup.telemetry.file: got {str(path)!r}, expected a file to write ("
    assert str(caught.value).startswith(said)
    return str(caught.value).removeprefix(said).removesuffix(")")


def test_disk_that_hangs_holds_up_no_thread_that_writes_telemetry(
    hand: Hand, tmp_path: Path
) -> None:
    """Heartbeats continue, and the consumer can be closed."""
    warned, path = Warned(), tmp_path / "t.jsonl"
    hand.is_held = lambda _: True
    with opened(path, warned, capacity=10) as file:
        put(file, *range(100))
        assert file.dropped == 90
    assert [one["path"] for one in warned.fields("telemetry_file_hangs")] == [str(path)]


def refuse(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


class Disk:
    """Free bytes of a disk; a larger write is truncated and then refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.refused = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, content: bytes) -> int:
        if self.room <= 0:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, content[: self.room])
        self.room -= written
        return written


def test_writing_starts_again_when_the_disk_has_room(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = Warned()
    path = tmp_path / "t.jsonl"
    disk = Disk(monkeypatch, 250)
    with opened(path, warned, capacity=6) as file:
        put(file, *range(5))
        hand.advance(0.3)
        assert disk.refused == 2
        put(file, *range(5, 30))
        dropped = file.dropped
        assert dropped > 10
        disk.room = 1_000_000
        hand.advance(5.0)
        assert warned.fields("telemetry_file_writable")
        put(file, 100)
    assert numbers(path) == [*range(30 - dropped), 100]
    [refusal] = warned.fields("telemetry_file_unwritable")
    assert refusal == {"path": str(path), "error": "[Errno 28] No space left on device"}
    assert warned.fields("telemetry_file_writable") == [{"path": str(path), "dropped": dropped}]


def test_close_on_a_full_disk_leaves_whole_lines_and_ends_in_time(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = Warned()
    path = tmp_path / "t.jsonl"
    disk = Disk(monkeypatch, 250)
    with opened(path, warned) as file:
        put(file, *range(1_000))
        hand.run()
        assert disk.refused == 1
    assert numbers(path) == list(range(1_000 - file.dropped))
    assert len(warned.fields("telemetry_file_unwritable")) == 1
    assert warned.fields("telemetry_dropped")[-1]["records"] == file.dropped > 990


def test_oldest_of_the_rotated_files_are_lost(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_file, "_BYTES_MAX", 1_000)
    path = tmp_path / "t.jsonl"
    with opened(path) as file:
        put(file, *range(100))
    kept = [*(Path(f"{path}.{number}") for number in (4, 3, 2, 1)), path]
    assert {*tmp_path.iterdir()} == {*kept}
    assert max(one.stat().st_size for one in kept) <= 1_000
    found = numbers(*kept)
    assert found == list(range(found[0], 100))
    assert found[0] > 0


def test_folder_in_which_nothing_can_be_renamed_costs_the_rotation_only(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member, which can, rotates all the same."""
    monkeypatch.setattr(telemetry_file, "_BYTES_MAX", 300)
    warned, path = Warned(), tmp_path / "t.jsonl"
    with opened(path, warned) as cannot, opened(path) as can:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            put(cannot, *range(10))
            assert cannot.flush(WAIT_S)
        assert numbers(path) == list(range(10))
        assert len(warned.fields("telemetry_file_not_rotated")) == 1
        put(can, 10)
        assert can.flush(WAIT_S)
        assert numbers(path) == [10]


@pytest.mark.parametrize("take_away", [lambda path: path.rename(f"{path}-old"), Path.unlink])
def test_file_that_something_else_rotates_is_made_anew(
    hand: Hand, tmp_path: Path, take_away: Callable[[Path], object]
) -> None:
    path = tmp_path / "t.jsonl"
    with opened(path) as file:
        put(file, 0)
        assert file.flush(WAIT_S)
        take_away(path)
        put(file, 1)
        assert file.flush(WAIT_S)
        assert numbers(path) == [1]


def test_processes_that_share_a_file_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"m{one}"]) for one in range(3)
    ]
    assert [one.wait(60) for one in writers] == [0, 0, 0]
    # A member that opens the file in the middle of another's write begins a new line. Readers skip
    # empty lines.
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines if line]
    assert len(list(tmp_path.iterdir())) > 3
    found = sorted((row["member"], row["resources"]["t"][0]) for row in rows)
    assert found == [(f"m{one}", number) for one in range(3) for number in range(300)]


@pytest.mark.parametrize("room", [0, 1, 2, 20, 1_000_000])
def test_torn_line_of_a_killed_process_spoils_no_other(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The disk may be full as the next process begins."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"schema": 1, "at')
    disk = Disk(monkeypatch, room)
    with opened(path) as file:
        put(file, 7)
        hand.advance(0.1)
        assert disk.refused == (2 if room < 1_000 else 0)
        disk.room = 1_000_000
    torn, line = path.read_text().splitlines()
    assert (torn, json.loads(line)["at_ms"]) == ('{"schema": 1, "at', 7)


def test_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It names topics, members and hosts."""
    path, umask = tmp_path / "t.jsonl", os.umask(0)
    try:
        with opened(path):
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(umask)


@pytest.mark.parametrize("is_there", [True, False])
def test_link_is_refused_and_its_target_stays(tmp_path: Path, is_there: bool) -> None:
    """A rotation would rename the target, which may be a file of somebody else."""
    target, link = tmp_path / "target", tmp_path / "link"
    if is_there:
        target.write_text("precious")
    link.symlink_to(target)
    assert refusal(link) == "it is a symbolic link: name its target"
    assert target.exists() == is_there
    assert not is_there or target.read_text() == "precious"


def test_link_that_takes_the_place_of_the_file_is_not_followed(hand: Hand, tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "t.jsonl"
    target.write_text("precious")
    warned = Warned()
    with opened(path, warned) as file:
        path.unlink()
        path.symlink_to(target)
        put(file, 1)
        hand.run()
        path.unlink()
        hand.advance(0.1)
    assert target.read_text() == "precious"
    assert numbers(path) == [1]
    assert "symbolic link" in warned.fields("telemetry_file_unwritable")[0]["error"]


def test_link_is_not_followed_when_it_leads_to_the_file_itself(hand: Hand, tmp_path: Path) -> None:
    path, moved = tmp_path / "t.jsonl", tmp_path / "moved"
    with opened(path, Warned()) as file:
        path.rename(moved)
        path.symlink_to(moved)
        put(file, 1)
        hand.run()
        assert moved.read_text() == ""


def test_standard_output_is_no_file_to_rotate(tmp_path: Path) -> None:
    """`/dev/stdout` is a link of the system, and may lead to a file of the supervisor."""
    program = f"import sys; sys.argv[1:] = ['/dev/stdout', 'm']\n{WRITER}"
    log = tmp_path / "log"
    with log.open("w") as out:
        subprocess.run([sys.executable, "-c", program], check=True, stdout=out)
    assert sorted(tmp_path.iterdir()) == [log]
    assert numbers(log) != []


def test_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    """The constructor would wait for a reader for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "it is a pipe without a reader"


def test_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent" / "telemetry.jsonl") == "No such file or directory"


def test_pipe_with_a_reader_gets_whole_lines(hand: Hand, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with opened(pipe) as file:
            put(file, 1, 2)
            hand.run()
            assert file._descriptor is not None  # noqa: SLF001 - how it was opened
            assert os.get_blocking(file._descriptor)  # noqa: SLF001 - likewise
        assert len(os.read(reader, 65_536).splitlines()) == 2
    finally:
        os.close(reader)


def test_writer_that_a_signal_hid_as_it_started_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers would tear each other's lines, and `close` would end only one of them."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    path = tmp_path / "telemetry"
    with opened(path) as file:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                put(file, 0)
        put(file, *range(1, 50))
    assert [one for one in threading.enumerate() if one.name == "coopgroup-telemetry"] == []
    assert numbers(path) == [*range(50)]
