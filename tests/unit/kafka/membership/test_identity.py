"""Slots of a state directory: which consumer takes which slot, their content, and refused files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import define, field

from coopgroup.core.member import KeptIdentity
from coopgroup.core.member.effects import SelfReport
from coopgroup.core.model import ResourceSet
from coopgroup.core.session import SeenTopics
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.identity import IdentitySlot, slot_path, take_slot
from tests.unit.kafka.one_member_group import WAIT_S

ANNA = KeptIdentity(member_id="anna-1", generation=7, topics=("bills", "orders"))
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
from coopgroup.core.member import KeptIdentity
slot = take_slot(sys.argv[1], "g", print)
slot.keep(KeptIdentity(member_id="parent", generation=1, topics=()))
assert slot.flush(10)
if os.fork():
    os.wait()  # until it is killed
own = take_slot(sys.argv[1], "g", print)
print(own.path.name, own.kept, os.getpid(), flush=True)
sys.stdin.read()
"""


@define
class Folder:
    """A state directory; its slots are released with the test."""

    path: Path
    warned: list[str] = field(factory=list)
    taken: list[IdentitySlot] = field(factory=list)

    def warn(self, event: str, **fields: object) -> None:
        self.warned.append(f"{event} {fields}")

    def take(self, group: str = "g") -> IdentitySlot:
        self.taken.append(take_slot(str(self.path), group, self.warn))
        return self.taken[-1]

    def again(self, slot: IdentitySlot) -> IdentitySlot:
        """Release a slot, and take one."""
        slot.release()
        return self.take()

    def slot(self, number: int) -> Path:
        return slot_path(str(self.path), "g", number)

    def said(self) -> str:
        """Return the only warning."""
        (said,) = self.warned
        self.warned.clear()
        return said

    def refusal(self, path: Path | None = None) -> str:
        """Return the reason for refusing a directory; no lock stays held."""
        folder = path or self.path
        with pytest.raises(ConfigurationError) as caught:
            take_slot(str(folder), "g", self.warn)
        said = str(caught.value)
        beginning = f"coopgroup.state.dir: got {str(folder)!r}, expected a directory for files that"
        assert said.startswith(f"{beginning} can be written and locked (")
        assert "\n" not in said
        return said.partition("locked (")[2].removesuffix(")")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Return a state directory about which nothing is warned."""
    folder = Folder(tmp_path / "state")
    folder.path.mkdir(mode=0o700)
    yield folder
    for slot in folder.taken:
        slot.release()
    assert folder.warned == []


# --- content ------------------------------------------------------------------------------------


def seen_of(*topics: str, **partitions: Iterable[int]) -> SeenTopics:
    return SeenTopics(topics=topics, partitions=ResourceSet(partitions))


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
    folder: Folder, seen: SeenTopics, in_ms: int | None
) -> None:
    first = folder.take()
    first.keep(ANNA, seen, in_ms)
    second = folder.again(first)
    assert (second.kept, second.seen, second.next_round_in_ms) == (ANNA, seen, in_ms)


@pytest.mark.parametrize("indices", [[1, 2], [0, 2], [-1, 1], [-2, -1, 0]])
def test_slot_leaves_out_what_a_leader_saw_in_part(folder: Folder, indices: list[int]) -> None:
    """A topic with a gap was not seen completely."""
    first = folder.take()
    first.keep(ANNA, seen_of("t", t=indices))
    second = folder.again(first)
    assert (second.kept, second.seen) == (ANNA, None)


WRITTEN = (
    b'{"version": 1, "group": "g", "member_id": "anna-1", "generation": 7, '
    b'"topics": ["bills", "orders"], "protocol": "", '
    b'"report": {"rack": null, "traits": {}, "declines": false}, '
    b'"seen": null, "next_round_in_ms": null, "checksum": 3333773819}\n'
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
        (changed(version=2), "version 2"),
        (changed(group="h"), "of group h"),
    ],
)
def test_slot_that_is_damaged_or_of_others_is_empty_and_warns(
    folder: Folder, content: bytes, reason: str
) -> None:
    folder.slot(0).write_bytes(content)
    slot = folder.take()
    assert (slot.path, slot.kept) == (folder.slot(0), None)
    said = folder.said()
    assert said.startswith("identity_unreadable")
    assert str(slot.path) in said
    assert reason in said
    slot.keep(ANNA)
    assert folder.again(slot).kept == ANNA


def test_slot_is_written_in_this_format(folder: Folder) -> None:
    """Other releases of coopgroup will read it. The rest of a longer old line is ignored."""
    slot = folder.take()
    slot.keep(ANNA)
    slot.release()
    assert slot.path.read_bytes() == WRITTEN
    assert slot.path.stat().st_mode & 0o777 == 0o600
    slot.path.write_bytes(WRITTEN + b'ers"]}\n')
    assert folder.take().kept == ANNA


@pytest.mark.parametrize(
    "told",
    [
        {"protocol": "range"},
        {"report": SelfReport(declines=True)},
        {"report": SelfReport(rack="a", traits={"gpu": [1]})},
    ],
)
def test_whole_identity_is_kept(folder: Folder, told: dict[str, Any]) -> None:
    identity = KeptIdentity(member_id="m", generation=3, topics=("T",), **told)
    slot = folder.take()
    slot.keep(identity)
    assert folder.again(slot).kept == identity


@pytest.mark.parametrize("broken_at", [0, 50, 75])
def test_write_that_is_cut_off_leaves_no_identity_at_all(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, broken_at: int
) -> None:
    """A mixture of two identities is always wrong; a write of 0 bytes leaves the old identity."""
    slot = folder.take()
    slot.keep(ANNA)
    assert slot.flush(WAIT_S)
    whole = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if offset >= broken_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, content[:broken_at], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        slot.keep(attrs.evolve(ANNA, member_id="carl-1", generation=8))
        slot.release()
    assert "No space left" in folder.said()
    assert folder.take().kept == (None if broken_at else ANNA)
    if broken_at:
        assert "identity_unreadable" in folder.said()


def test_identity_that_is_too_large_is_not_written(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coopgroup.kafka.membership.identity._BYTES_MAX", 100)
    slot = folder.take()
    slot.keep(ANNA)
    slot.release()
    assert "large" in folder.said()
    assert slot.path.read_bytes() == b""


# --- who takes which slot -----------------------------------------------------------------------


def program(text: str, folder: Folder) -> subprocess.Popen[str]:
    given = [sys.executable, "-c", text, str(folder.path)]
    return subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with SIGKILL."""
    process.kill()
    process.communicate(timeout=30)


def test_consumers_of_one_process_take_a_slot_each(folder: Folder) -> None:
    """POSIX locks do not separate them; and the release of one slot keeps the others locked."""
    threads = [threading.Thread(target=folder.take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({slot.path for slot in folder.taken}) == 8
    released = folder.taken[1]
    released.keep(ANNA)
    released.release()
    other = program(HOLDER, folder)
    assert line_of(other) == f"{released.path.name} {ANNA}"
    end(other)
    last = folder.take()
    assert (last.path, last.kept) == (released.path, ANNA)


def test_slot_of_a_process_that_lives_is_never_taken(folder: Folder) -> None:
    first, second = program(HOLDER, folder), program(HOLDER, folder)
    names = {line_of(first).split()[0], line_of(second).split()[0]}
    assert len(names | {folder.take().path.name}) == 3
    end(first)
    assert folder.take().path.name in names
    end(second)


def test_slot_with_a_kept_identity_is_taken_first(folder: Folder) -> None:
    """If another member had left before, the process would otherwise rejoin as a new member."""
    three = [folder.take() for _ in range(3)]
    three[2].keep(ANNA)
    for slot in three:
        slot.release()
    taken = [folder.take() for _ in range(2)]
    assert [(one.path, one.kept) for one in taken] == [(three[2].path, ANNA), (three[0].path, None)]


def test_fork_neither_keeps_the_slot_of_its_parent_nor_writes_into_it(folder: Folder) -> None:
    parent = program(FORKER, folder)
    name, kept, pid = line_of(parent).split()
    assert (name, kept) == (folder.slot(1).name, "None")
    assert int(pid) != parent.pid
    parent.kill()
    parent.wait(30)
    slot = folder.take()
    assert slot.path == folder.slot(0)
    assert slot.kept == KeptIdentity(member_id="parent", generation=1, topics=())
    for pipe in (parent.stdin, parent.stdout):
        assert pipe is not None
        pipe.close()  # ends the child


def test_groups_do_not_share_slots(folder: Folder) -> None:
    names = ["g", "G", "a/b", "a_b", "..", "\0", "\ud800", "ä", "a" * 300, "a" * 301]
    slots = [folder.take(name) for name in names]
    assert len({slot.path.name.lower() for slot in slots}) == len(names)
    assert all(slot.path.parent == folder.path for slot in slots)
    for slot in slots:
        slot.keep(ANNA)
        slot.release()
    assert [folder.take(name).kept for name in names] == [ANNA] * len(names)


def test_slots_of_one_group_have_an_end(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with that many consumers on one host has made a mistake."""
    monkeypatch.setattr("coopgroup.kafka.membership.identity._SLOTS_MAX", 2)
    first, _ = folder.take(), folder.take()
    with pytest.raises(ConfigurationError, match="it has the 2 files that a group may have"):
        folder.take()
    assert folder.again(first).path == first.path


# --- refused directories and files --------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o722])
@pytest.mark.parametrize("below", ["", "mine", "mine/of", "of/mine"])
def test_directory_at_or_below_one_that_all_users_may_write_to_is_refused(
    folder: Folder, mode: int, below: str
) -> None:
    """All users could put another directory in its place. The sticky bit of /tmp forbids that."""
    mine = folder.path / "mine"
    mine.mkdir()
    folder.path.chmod(mode)
    said = f"{folder.path} can be written by all users, its mode is {mode:04o}: chmod o-w"
    assert folder.refusal(folder.path / below) == said
    assert ([*folder.path.iterdir()], [*mine.iterdir()]) == ([mine], [])
    folder.path.chmod(0o1777)
    if below:
        take_slot(str(folder.path / below), "g", folder.warn).release()


@pytest.mark.parametrize("mode", [0o1777, 0o770])
def test_directory_that_other_users_may_write_to_is_refused(folder: Folder, mode: int) -> None:
    """Other users could make two processes one member. A new folder inside it gets a safe mode."""
    folder.path.chmod(mode)
    remedy = "name a folder inside it, which is made safely"
    said = f"it can be written by other users, its mode is {mode:04o}: {remedy}"
    assert folder.refusal() == said
    assert list(folder.path.iterdir()) == []
    inside = folder.path / "of" / "mine"
    take_slot(str(inside), "g", folder.warn).release()
    assert inside.stat().st_mode & 0o777 == 0o700
    folder.path.chmod(0o755)  # others may read it
    folder.take()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_and_file_of_another_user_are_refused(folder: Folder, tmp_path: Path) -> None:
    """Their owner can write to them, whatever the mode."""
    theirs, path = tmp_path / "theirs", folder.slot(0)
    theirs.mkdir(mode=0o700)
    path.touch(0o600)
    for one in (theirs, path):
        os.chown(one, 12_345, -1)
    assert folder.refusal(theirs).startswith("it belongs to user 12345: ")
    assert folder.refusal() == f"{path.name} belongs to user 12345: delete it"


@pytest.mark.parametrize("below", ["", "/", "/state", "/state/of/mine"])
def test_directory_at_or_below_a_symbolic_link_is_refused(
    folder: Folder, tmp_path: Path, below: str
) -> None:
    """The maker of the link may let it lead elsewhere. A trailing slash would follow it."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{link} is a symbolic link: name its target"):
        take_slot(f"{link}{below}", "g", folder.warn)
    assert [*folder.path.iterdir(), *tmp_path.glob("*.json")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a volume")
def test_directory_in_a_volume_of_a_pod_is_made(tmp_path: Path) -> None:
    """Kubernetes makes an emptyDir with the mode 0777, and the owner root."""
    program = f"""
from coopgroup.kafka.membership.identity import take_slot
print(take_slot({str(tmp_path / "of" / "mine")!r}, "g", print).path.parent)
"""
    mount = f'mount -t tmpfs -o mode=2777 none {tmp_path} && exec {sys.executable} -c "$PROGRAM"'
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PROGRAM": program},
    )
    assert said.stdout.split() == [str(tmp_path / "of" / "mine")]


def test_directory_may_have_a_relative_path(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for path in ("../state", "./inside/it"):
        take_slot(path, "g", folder.warn).release()
    assert sorted(one.name for one in tmp_path.rglob("*.json")) == [folder.slot(0).name] * 2


def writable(mode: int) -> Callable[[Path, Path], None]:
    def make(path: Path, _: Path) -> None:
        path.touch(mode=0o600)
        path.chmod(mode)

    return make


LINK, FOREIGN = "is a symbolic link: delete it", "is no file of its own: delete it"
WRITABLE = "can be written by other users, its mode is {}: delete it"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path, precious: path.symlink_to(precious), LINK),
        (lambda path, _: path.symlink_to("absent"), LINK),
        (lambda path, precious: path.hardlink_to(precious), FOREIGN),
        (lambda path, _: os.mkfifo(path), FOREIGN),
        (writable(0o606), WRITABLE.format("0606")),
        (writable(0o660), WRITABLE.format("0660")),
        (lambda path, _: path.mkdir(), "Is a directory"),
    ],
)
def test_file_that_others_could_change_is_refused_and_stays_as_it_is(
    folder: Folder, tmp_path: Path, number: int, make: Callable[[Path, Path], object], reason: str
) -> None:
    """A slot that was found free before is let go; the next attempt would find it locked."""
    precious, path = tmp_path / "precious", folder.slot(number)
    precious.write_text("precious")
    if number:
        folder.take().release()
    make(path, precious)
    assert folder.refusal() in {f"{path.name} {reason}", reason}
    assert (precious.read_text(), (folder.path / "absent").exists()) == ("precious", False)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
    assert folder.take().path == folder.slot(0)


def test_file_system_without_locks_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes could be one member on such a file system."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", no_locks)
        assert folder.refusal() == "No locks available"
    folder.take()


# --- signals, disks that hang, and no threads ---------------------------------------------------


def test_release_when_a_signal_strikes_while_a_slot_is_taken_does_not_wait_for_itself(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, lock = folder.take("first"), fcntl.lockf

    def interrupted(descriptor: int, command: int) -> None:
        lock(descriptor, command)
        first.release()  # the signal handler closes another consumer

    monkeypatch.setattr(fcntl, "lockf", interrupted)
    taker = threading.Thread(target=folder.take, args=("second",), daemon=True)
    taker.start()
    taker.join(5.0)
    assert not taker.is_alive()
    assert folder.take("first").path == first.path


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
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's thread would send no heartbeat meanwhile."""
    slot, disk = folder.take(), HungDisk(monkeypatch)
    for generation in range(100):
        slot.keep(attrs.evolve(ANNA, generation=generation))
    assert disk.hangs.wait(WAIT_S)
    assert not slot.flush(0.0)
    disk.works.set()
    again = folder.again(slot)
    assert (again.path, again.kept) == (slot.path, attrs.evolve(ANNA, generation=99))


def test_release_when_the_disk_hangs_ends_and_frees_the_slot_after_the_last_write(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that is free before its last write would give the identity to its next holder."""
    slot, disk = folder.take(), HungDisk(monkeypatch)
    slot.keep(ANNA)
    assert disk.hangs.wait(WAIT_S)
    slot.release(0.05)
    slot.keep(None)
    assert "has not answered for 0.05 s" in folder.said()
    assert folder.take().path != slot.path
    disk.works.set()
    slot.release(WAIT_S)
    again = folder.take()
    assert (again.path, again.kept) == (slot.path, ANNA)


def test_release_ends_the_thread_that_writes(
    folder: Folder, own_threads: Callable[[], list[str]]
) -> None:
    """It would stay idle for seconds after the consumer is closed."""
    slot = folder.take()
    slot.keep(ANNA)
    slot.release()
    assert own_threads() == []


def test_identity_without_a_free_thread_is_written_at_the_release(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    slot = folder.take()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        slot.keep(ANNA)
        slot.release()
    assert ["new thread" in one for one in folder.warned] == [True, True]
    folder.warned.clear()
    assert folder.take().kept == ANNA
