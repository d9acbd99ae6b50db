"""Slots of a state directory: which consumer takes which slot, and their content."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from coopgroup import CooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.identity import IdentitySlot, slot_path, take_slot
from coopgroup.member import KeptIdentity
from coopgroup.model import ResourceSet
from coopgroup.session import SeenTopics
from tests.unit.kafka.one_member_group import WAIT_S
from tests.unit.kafka.slots import ANNA, take

BERT = KeptIdentity(member_id="bert-1", generation=2**31 - 1, topics=())


def seen_of(*topics: str, **partitions: Iterable[int]) -> SeenTopics:
    return SeenTopics(topics=topics, partitions=ResourceSet(partitions))


# Holds a slot until its input ends; prints the slot and its content.
HOLDER = """
import sys
from coopgroup.kafka.membership.identity import take_slot
slot = take_slot(sys.argv[1], "g", print)
print(slot.path.name, slot.kept, flush=True)
sys.stdin.read()
"""
# A process that forks and dies; its child keeps all inherited descriptors.
FORKER = """
import os, sys
from coopgroup.kafka.membership.identity import take_slot
from coopgroup.member import KeptIdentity
slot = take_slot(sys.argv[1], "g", print)
slot.keep(KeptIdentity(member_id="parent", generation=1, topics=()))
assert slot.flush(10)
if os.fork():
    os.wait()  # until it is killed
slot.keep(KeptIdentity(member_id="child", generation=2, topics=()))
slot.release()
own = take_slot(sys.argv[1], "g", print)
print(own.path.name, own.kept, os.getpid(), flush=True)
sys.stdin.read()
"""


def program(text: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process that has two pipes."""
    given = [sys.executable, "-c", text, str(folder)]
    return subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with SIGKILL."""
    process.kill()
    process.communicate(timeout=30)


@pytest.fixture
def again(tmp_path: Path, slots: list[IdentitySlot]) -> Callable[..., IdentitySlot]:
    """Return what takes a slot until the end of the test, first letting go of another one."""

    def take_again(former: IdentitySlot | None = None) -> IdentitySlot:
        if former is not None:
            former.release()
        slots.append(take(tmp_path))
        return slots[-1]

    return take_again


Take = Callable[..., IdentitySlot]


def test_slot_is_empty_when_nobody_had_it(tmp_path: Path, slots: list[IdentitySlot]) -> None:
    folder = tmp_path / "of" / "mine"
    slots.append(take(folder))
    assert slots[0].kept is None
    assert list(folder.iterdir()) == [slots[0].path]


@pytest.mark.parametrize("identity", [ANNA, BERT, None])
def test_slot_gives_back_what_was_kept_in_it(again: Take, identity: KeptIdentity | None) -> None:
    first = again()
    first.keep(KeptIdentity(member_id="m" * 99, generation=1, topics=("t" * 249,)))
    first.keep(identity)
    second = again(first)
    assert (second.path, second.kept) == (first.path, identity)


@pytest.mark.parametrize(
    ("seen", "in_ms"),
    [
        (SeenTopics(), None),
        (SeenTopics(), 0),
        (SeenTopics(), 700),
        (seen_of("bills", "orders", orders=range(12)), None),
        (seen_of("a", "b", a=[-1], b=range(-1, 4)), None),
    ],
)
def test_slot_gives_back_what_a_leader_saw_and_when_it_was_to_ask_for_a_round(
    again: Take, seen: SeenTopics, in_ms: int | None
) -> None:
    first = again()
    first.keep(ANNA, seen, in_ms)
    second = again(first)
    assert (second.kept, second.seen, second.next_round_in_ms) == (ANNA, seen, in_ms)


@pytest.mark.parametrize("indices", [[1, 2], [0, 2], [-1, 1], [-2, -1, 0]])
def test_slot_leaves_out_what_a_leader_saw_in_part(again: Take, indices: list[int]) -> None:
    """A topic with a gap was not seen completely."""
    first = again()
    first.keep(ANNA, seen_of("t", t=indices))
    second = again(first)
    assert (second.kept, second.seen) == (ANNA, None)


def test_consumers_of_one_process_take_a_slot_each(
    tmp_path: Path, slots: list[IdentitySlot], again: Take
) -> None:
    """POSIX locks do not separate them; and the release of one slot keeps the others locked."""
    threads = [threading.Thread(target=again) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({slot.path for slot in slots}) == 8
    slots[1].keep(ANNA)
    slots[1].release()
    other = program(HOLDER, tmp_path)
    assert line_of(other) == f"{slots[1].path.name} {ANNA}"
    end(other)
    last = again()
    assert (last.path, last.kept) == (slots[1].path, ANNA)


def test_slot_of_a_process_that_lives_is_never_taken(tmp_path: Path, again: Take) -> None:
    first, second = program(HOLDER, tmp_path), program(HOLDER, tmp_path)
    names = {line_of(first).split()[0], line_of(second).split()[0]}
    assert len(names | {again().path.name}) == 3
    end(first)
    assert again().path.name in names
    end(second)


def test_slot_with_a_kept_identity_is_taken_first(again: Take) -> None:
    """If another member had left before, the process would otherwise rejoin as a new member."""
    three = [again() for _ in range(3)]
    three[2].keep(ANNA)
    for slot in three:
        slot.release()
    taken = [again() for _ in range(2)]
    assert [(one.path, one.kept) for one in taken] == [(three[2].path, ANNA), (three[0].path, None)]


def test_fork_neither_keeps_the_slot_of_its_parent_nor_writes_into_it(
    tmp_path: Path, again: Take
) -> None:
    parent = program(FORKER, tmp_path)
    name, kept, pid = line_of(parent).split()
    assert (name, kept) == (slot_path(str(tmp_path), "g", 1).name, "None")
    assert int(pid) != parent.pid
    parent.kill()
    parent.wait(30)
    slot = again()
    assert slot.path == slot_path(str(tmp_path), "g", 0)
    assert slot.kept == KeptIdentity(member_id="parent", generation=1, topics=())
    for pipe in (parent.stdin, parent.stdout):
        assert pipe is not None
        pipe.close()  # ends the child


def test_groups_do_not_share_slots(tmp_path: Path, slots: list[IdentitySlot]) -> None:
    names = ["g", "G", "a/b", "a_b", "..", "\0", "\ud800", "ä", "a" * 300, "a" * 301]
    slots += [take(tmp_path, name) for name in names]
    assert len({slot.path.name.lower() for slot in slots}) == len(names)
    assert all(slot.path.parent == tmp_path for slot in slots)
    for slot in slots:
        slot.keep(ANNA)
        slot.release()
    slots += [take(tmp_path, name) for name in names]
    assert [slot.kept for slot in slots[len(names) :]] == [ANNA] * len(names)


def test_slot_that_was_released_is_not_written_any_more(again: Take) -> None:
    """Another consumer may own the slot by then; a second release is harmless."""
    first = again()
    first.release()
    second = again(first)
    first.keep(ANNA)
    first.release()
    third = again(second)
    assert (third.path, third.kept) == (first.path, None)


def test_slots_of_one_group_have_an_end(
    tmp_path: Path, again: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with that many consumers on one host has made a mistake."""
    monkeypatch.setattr("coopgroup.kafka.membership.identity._SLOTS_MAX", 2)
    first, _ = again(), again()
    with pytest.raises(ConfigurationError, match="it has the 2 files that a group may have"):
        take(tmp_path)
    assert again(first).path == first.path


# --- the consumer ---------------------------------------------------------------------------------


def consumer(folder: Path, **more: Any) -> CooperativeConsumer:  # noqa: ANN401  (configuration)
    """Return a consumer that reaches no broker."""
    state = {"coopgroup.state.dir": str(folder), "bootstrap.servers": "127.0.0.1:1"}
    return CooperativeConsumer(state | {"group.id": "g", "log_level": 0} | more)


def test_consumer_holds_a_slot_until_it_is_closed_or_refused(tmp_path: Path, again: Take) -> None:
    with consumer(tmp_path), consumer(tmp_path):
        assert again().path == slot_path(str(tmp_path), "g", 2)
    with pytest.raises(ConfigurationError):
        consumer(tmp_path, **{"fetch.min.bytes": -4})
    assert again().path == slot_path(str(tmp_path), "g", 0)


def test_static_consumer_takes_no_slot(tmp_path: Path) -> None:
    """A static member proves its identity with its instance id."""
    with consumer(tmp_path, **{"group.instance.id": "one"}):
        assert list(tmp_path.iterdir()) == []


def test_consumer_that_keeps_nothing_makes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    CooperativeConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    ).close()
    assert list(tmp_path.iterdir()) == []


# --- The files of a state directory --------------------------------------------------------------


class Warnings(list[str]):
    """Record warnings, one line each."""

    def __call__(self, event: str, **fields: object) -> None:
        self.append(f"{event} {fields}")


WRITTEN = (
    b'{"version": 1, "group": "g", "member_id": "anna-1", "generation": 7, '
    b'"topics": ["bills", "orders"], "seen": null, "checksum": 2187826640}\n'
)


def changed(**fields: object) -> bytes:
    """Return a written slot with other fields, and their checksum."""
    row = json.loads(WRITTEN) | fields
    del row["checksum"]
    checksum = zlib.crc32(json.dumps(row, sort_keys=True).encode())
    return json.dumps({"checksum": checksum} | row | fields).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\n", ""),
        (b"\0" * 200, ""),
        (b"\xff", ""),
        (b"[]", ""),
        (b"5", ""),
        (b'"x"', ""),
        (b"{}", ""),
        (b"[" * 100_000, ""),
        (WRITTEN[:50], ""),
        (WRITTEN[:-3], ""),
        (WRITTEN.replace(b"7,", b"8,"), "the checksum differs"),
        (changed(checksum=1), "the checksum differs"),
        (changed(version=9), "version 9"),
        (changed(group="h"), "of group h"),
    ],
)
def test_slot_that_is_damaged_or_of_others_is_empty_and_warns(
    tmp_path: Path, slots: list[IdentitySlot], content: bytes, reason: str
) -> None:
    path = slot_path(str(tmp_path), "g", 0)
    path.write_bytes(content)
    warnings = Warnings()
    slots.append(take_slot(str(tmp_path), "g", warnings))
    assert (slots[0].path, slots[0].kept) == (path, None)
    (said,) = warnings
    assert said.startswith("identity_unreadable")
    assert str(path) in said
    assert reason in said
    slots[0].keep(ANNA)
    slots[0].release()
    slots.append(take(tmp_path))
    assert slots[1].kept == ANNA


def test_slot_is_written_in_the_format_of_earlier_releases(tmp_path: Path) -> None:
    """Other releases of coopgroup read it. The rest of a longer old line is ignored."""
    slot = take(tmp_path)
    slot.keep(ANNA)
    slot.release()
    assert slot.path.read_bytes() == WRITTEN
    assert slot.path.stat().st_mode & 0o777 == 0o600
    slot.path.write_bytes(WRITTEN + b'ers"]}\n')
    again = take(tmp_path)
    again.release()
    assert again.kept == ANNA


@pytest.mark.parametrize("broken_at", [0, 50, 75])
def test_write_that_is_cut_off_leaves_no_identity_at_all(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch, broken_at: int
) -> None:
    """A mixture of two identities is always wrong; a write of 0 bytes leaves the old identity."""
    warnings = Warnings()
    slot = take_slot(str(tmp_path), "g", warnings)
    slot.keep(ANNA)
    assert slot.flush(WAIT_S)
    whole = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if offset >= broken_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, content[:broken_at], offset)

    monkeypatch.setattr(os, "pwrite", full)
    slot.keep(KeptIdentity(member_id="carl-1", generation=8, topics=("bills", "orders")))
    slot.release()
    monkeypatch.undo()
    assert ["No space left" in one for one in warnings] == [True]
    slots.append(take_slot(str(tmp_path), "g", Warnings()))
    assert slots[0].kept == (None if broken_at else ANNA)


def test_identity_that_is_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coopgroup.kafka.membership.identity._BYTES_MAX", 100)
    warnings = Warnings()
    slot = take_slot(str(tmp_path), "g", warnings)
    slot.keep(ANNA)
    slot.release()
    assert ["large" in one for one in warnings] == [True]
    assert slot.path.read_bytes() == b""


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("/dev/null/state", "Not a directory"),
        ("/proc/state", "No such file or directory"),
    ],
)
def test_directory_that_cannot_be_used_is_refused_in_one_line(folder: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CooperativeConsumer(
            {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "coopgroup.state.dir": folder}
        )
    assert str(caught.value) == (
        f"coopgroup.state.dir: got {folder!r}, "
        f"expected a directory for files that can be written and locked ({reason})"
    )


def refusal(folder: Path) -> str:
    """Return the reason for refusing a directory; no lock stays held."""
    with pytest.raises(ConfigurationError) as caught:
        take(folder)
    said = str(caught.value)
    beginning = f"coopgroup.state.dir: got {str(folder)!r}, expected a directory for files that"
    assert said.startswith(f"{beginning} can be written and locked (")
    assert "\n" not in said
    return said.partition("locked (")[2].removesuffix(")")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722])
def test_directory_that_other_users_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """Other users could make two processes one member. A new folder inside it gets a safe mode."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    remedy = "name a folder inside it, which is made safely"
    assert refusal(folder) == (
        f"it can be written by other users, its mode is {mode:04o}: {remedy}"
    )
    assert list(folder.iterdir()) == []
    inside = folder / "mine"
    take(inside).release()
    assert inside.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)  # others may read it
    take(folder).release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_and_file_of_another_user_are_refused(tmp_path: Path) -> None:
    """Their owner can write to them, whatever the mode."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12_345, -1)
    assert refusal(theirs).startswith("it belongs to user 12345: ")
    mine.mkdir(mode=0o700)
    path = slot_path(str(mine), "g", 0)
    path.touch(0o600)
    os.chown(path, 12_345, -1)
    assert refusal(mine) == f"{path.name} belongs to user 12345: delete it"


def test_directory_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """A trailing slash would follow the link."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir(mode=0o700)
    link.symlink_to(target)
    assert refusal(link) == "it is a symbolic link"
    with pytest.raises(ConfigurationError, match="it is a symbolic link"):
        take_slot(f"{link}/", "g", print)
    assert list(target.iterdir()) == []


FOREIGN = "{} is no file of its own: delete it"
ODD_FILES: list[tuple[Callable[[Path, Path], object], str]] = [
    (lambda path, precious: path.symlink_to(precious), "{} is a symbolic link: delete it"),
    (lambda path, _: path.symlink_to("absent"), "{} is a symbolic link: delete it"),
    (lambda path, precious: path.hardlink_to(precious), FOREIGN),
    (lambda path, _: os.mkfifo(path), FOREIGN),
    (lambda path, _: path.mkdir(), "Is a directory"),
]


@pytest.mark.parametrize(("make", "reason"), ODD_FILES)
def test_file_that_is_a_link_is_refused_and_its_target_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path, Path], object], reason: str
) -> None:
    folder, precious = tmp_path / "state", tmp_path / "precious"
    folder.mkdir(mode=0o700)
    precious.write_text("precious")
    path = slot_path(str(folder), "g", 0)
    make(path, precious)
    assert refusal(folder) == reason.format(path.name)
    assert list(folder.iterdir()) == [path]
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("mode", [0o606, 0o660])
def test_file_that_other_users_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    slot = take(tmp_path)
    slot.keep(ANNA)
    slot.release()
    slot.path.chmod(mode)
    said = f"{slot.path.name} can be written by other users, its mode is {mode:04o}: delete it"
    assert refusal(tmp_path) == said


def test_slot_that_was_found_free_is_let_go_when_a_later_file_is_refused(tmp_path: Path) -> None:
    """The next attempt of the same process would find the slot locked."""
    first, second = (slot_path(str(tmp_path), "g", number) for number in (0, 1))
    take(tmp_path).release()
    second.symlink_to("anywhere")
    assert refusal(tmp_path) == f"{second.name} is a symbolic link: delete it"
    second.unlink()
    slot = take(tmp_path)
    slot.release()
    assert slot.path == first


def test_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes could be one member on such a file system."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", no_locks)
        assert refusal(tmp_path) == "No locks available"
    take(tmp_path).release()


def test_identity_of_another_protocol_is_kept_so_that_earlier_releases_pass_it_over(
    tmp_path: Path,
) -> None:
    """They would read the group's stored assignment as one of ours."""
    foreign = KeptIdentity(member_id="m", generation=3, topics=("T",), protocol="range")
    slot = take(tmp_path)
    slot.keep(foreign)
    slot.release()
    assert json.loads(slot.path.read_bytes())["version"] == 2
    again = take(tmp_path)
    again.release()
    assert again.kept == foreign


def test_release_when_a_signal_strikes_while_a_slot_is_taken_does_not_wait_for_itself(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = take(tmp_path, "first")
    lock = fcntl.lockf

    def interrupted(descriptor: int, command: int) -> None:
        lock(descriptor, command)
        first.release()  # the signal handler closes another consumer

    monkeypatch.setattr(fcntl, "lockf", interrupted)
    taker = threading.Thread(target=lambda: slots.append(take(tmp_path, "second")), daemon=True)
    taker.start()
    taker.join(5.0)
    assert not taker.is_alive()
    assert take(tmp_path, "first").path == first.path


class HungDisk:
    """A disk whose next write hangs until it is repaired."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.works = threading.Event(), threading.Event()
        self._write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        self.hangs.set()
        assert self.works.wait(WAIT_S)
        return self._write(descriptor, content, offset)


def test_keep_does_not_wait_for_a_disk_that_hangs_and_the_newest_identity_stays(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's thread would send no heartbeat meanwhile."""
    slot, disk = take(tmp_path), HungDisk(monkeypatch)
    for generation in range(100):
        slot.keep(attrs.evolve(ANNA, generation=generation))
    assert disk.hangs.wait(WAIT_S)
    assert not slot.flush(0.0)
    disk.works.set()
    slot.release()
    slots.append(take(tmp_path))
    assert slots[0].path == slot.path
    assert slots[0].kept == attrs.evolve(ANNA, generation=99)


def test_release_when_the_disk_hangs_ends_and_frees_the_slot_after_the_last_write(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that is free before its last write would give the identity to its next holder."""
    warnings = Warnings()
    slot, disk = take_slot(str(tmp_path), "g", warnings), HungDisk(monkeypatch)
    slot.keep(ANNA)
    assert disk.hangs.wait(WAIT_S)
    slot.release(0.05)
    slot.keep(None)
    assert ["has not answered for 0.05 s" in one for one in warnings] == [True]
    slots.append(take(tmp_path))
    assert slots[0].path != slot.path
    disk.works.set()
    assert slot.flush(WAIT_S)
    slots.append(take(tmp_path))
    assert (slots[1].path, slots[1].kept) == (slot.path, ANNA)


def test_identity_without_a_free_thread_is_written_at_the_release(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    warnings = Warnings()
    slot = take_slot(str(tmp_path), "g", warnings)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        slot.keep(ANNA)
        slot.release()
    assert ["new thread" in one for one in warnings] == [True, True]
    slots.append(take(tmp_path))
    assert slots[0].kept == ANNA
