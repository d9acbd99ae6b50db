"""Slots of a state directory: which consumer takes which slot, and their content."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.identity import IdentitySlot, slot_path
from coopgroup.member import KeptIdentity
from coopgroup.model import ResourceSet
from coopgroup.session import SeenTopics
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
