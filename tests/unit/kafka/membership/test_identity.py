"""Slots of a state directory: which consumer takes which slot, and their content."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.identity import IdentitySlot, slot_path
from coopgroup.member import KeptIdentity
from coopgroup.model import ResourceSet
from coopgroup.session import SeenTopics
from tests.support.programs import output_of
from tests.unit.kafka.slots import ANNA, take

BERT = KeptIdentity(member_id="bert-1", generation=2**31 - 1, topics=())
# Holds a slot until its input ends; prints the slot and its content.
HOLDER = """
import sys
from coopgroup.kafka.membership.identity import take_slot
slot = take_slot(sys.argv[1], sys.argv[2], print)
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


def held_by_a_process(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), "g"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with SIGKILL."""
    process.kill()
    process.communicate(timeout=30)


def test_slot_is_empty_when_nobody_had_it(tmp_path: Path, slots: list[IdentitySlot]) -> None:
    folder = tmp_path / "of" / "mine"
    slots.append(take(folder))
    assert slots[0].kept is None
    assert [one.name for one in folder.iterdir()] == [slots[0].path.name]


@pytest.mark.parametrize("identity", [ANNA, BERT])
def test_slot_gives_back_what_was_kept_in_it(
    tmp_path: Path, slots: list[IdentitySlot], identity: KeptIdentity
) -> None:
    first = take(tmp_path)
    first.keep(KeptIdentity(member_id="m" * 99, generation=1, topics=("t" * 249,)))
    first.keep(identity)
    first.release()
    slots.append(take(tmp_path))
    assert (slots[0].path, slots[0].kept) == (first.path, identity)


@pytest.mark.parametrize(
    "seen",
    [
        SeenTopics(),
        SeenTopics(topics=("bills", "orders"), partitions=ResourceSet({"orders": range(12)})),
        SeenTopics(topics=("a", "b"), partitions=ResourceSet({"a": [-1], "b": range(-1, 4)})),
    ],
)
def test_slot_gives_back_what_a_leader_saw(
    tmp_path: Path, slots: list[IdentitySlot], seen: SeenTopics
) -> None:
    first = take(tmp_path)
    first.keep(ANNA, seen)
    first.release()
    slots.append(take(tmp_path))
    assert (slots[0].kept, slots[0].seen) == (ANNA, seen)


@pytest.mark.parametrize("in_ms", [0, 700, None])
def test_slot_gives_back_when_a_leader_was_to_ask_for_a_round(
    tmp_path: Path, slots: list[IdentitySlot], in_ms: int | None
) -> None:
    first = take(tmp_path)
    first.keep(ANNA, SeenTopics(), in_ms)
    first.release()
    slots.append(take(tmp_path))
    assert (slots[0].kept, slots[0].seen, slots[0].next_round_in_ms) == (ANNA, SeenTopics(), in_ms)


@pytest.mark.parametrize("indices", [[1, 2], [0, 2], [-1, 1], [-2, -1, 0]])
def test_slot_leaves_out_what_a_leader_saw_in_part(
    tmp_path: Path, slots: list[IdentitySlot], indices: list[int]
) -> None:
    """A topic with a gap was not seen completely."""
    first = take(tmp_path)
    first.keep(ANNA, SeenTopics(topics=("t",), partitions=ResourceSet({"t": indices})))
    first.release()
    slots.append(take(tmp_path))
    assert (slots[0].kept, slots[0].seen) == (ANNA, None)


def test_slot_is_empty_when_nobody_is_kept_any_more(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    first = take(tmp_path)
    first.keep(ANNA)
    first.keep(None)
    first.release()
    slots.append(take(tmp_path))
    assert slots[0].kept is None


def test_consumers_of_one_process_take_a_slot_each(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    """POSIX locks do not separate them; and the release of one slot keeps the others locked."""
    slots += [take(tmp_path) for _ in range(3)]
    assert len({slot.path for slot in slots}) == 3
    slots[1].keep(ANNA)
    slots[1].release()
    other = held_by_a_process(tmp_path)
    assert line_of(other) == f"{slots[1].path.name} {ANNA}"
    end(other)
    slots.append(take(tmp_path))
    assert (slots[3].path, slots[3].kept) == (slots[1].path, ANNA)


def test_threads_take_a_slot_each(tmp_path: Path, slots: list[IdentitySlot]) -> None:
    threads = [threading.Thread(target=lambda: slots.append(take(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({slot.path for slot in slots}) == 8


def test_slot_of_a_process_that_lives_is_never_taken(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    first, second = held_by_a_process(tmp_path), held_by_a_process(tmp_path)
    names = {line_of(first).split()[0], line_of(second).split()[0]}
    slots.append(take(tmp_path))
    assert len(names | {slots[0].path.name}) == 3
    end(first)
    slots.append(take(tmp_path))
    assert slots[1].path.name in names
    end(second)


def test_slot_with_a_kept_identity_is_taken_first(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    """If another member had left before, the process would otherwise rejoin as a new member."""
    three = [take(tmp_path) for _ in range(3)]
    three[2].keep(ANNA)
    for slot in three:
        slot.release()
    slots.append(take(tmp_path))
    assert (slots[0].path, slots[0].kept) == (three[2].path, ANNA)
    slots.append(take(tmp_path))
    assert (slots[1].path, slots[1].kept) == (three[0].path, None)


def test_fork_neither_keeps_the_slot_of_its_parent_nor_writes_into_it(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    name, kept, pid = line_of(parent).split()
    assert (name, kept) == (slot_path(str(tmp_path), "g", 1).name, "None")
    assert int(pid) != parent.pid
    parent.kill()
    parent.wait(30)
    slots.append(take(tmp_path))
    assert slots[0].path == slot_path(str(tmp_path), "g", 0)
    assert slots[0].kept == KeptIdentity(member_id="parent", generation=1, topics=())
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
    again = [take(tmp_path, name) for name in names]
    slots += again
    assert [slot.kept for slot in again] == [ANNA] * len(names)


def test_slot_that_was_released_is_not_written_any_more(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    """Another consumer may own the slot by then; a second release is harmless."""
    first = take(tmp_path)
    first.release()
    first.release()
    slots.append(take(tmp_path))
    first.keep(ANNA)
    first.release()
    slots[0].release()
    slots.append(take(tmp_path))
    assert (slots[1].path, slots[1].kept) == (first.path, None)


def test_slots_of_one_group_have_an_end(
    tmp_path: Path, slots: list[IdentitySlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with that many consumers on one host has made a mistake."""
    monkeypatch.setattr("coopgroup.kafka.membership.identity._SLOTS_MAX", 2)
    slots += [take(tmp_path), take(tmp_path)]
    with pytest.raises(ConfigurationError, match="it has the 2 files that a group may have"):
        take(tmp_path)
    slots[0].release()
    slots.append(take(tmp_path))
    assert slots[2].path == slots[0].path


# --- the consumer ---------------------------------------------------------------------------------


def consumer(folder: Path, **more: Any) -> CooperativeConsumer:  # noqa: ANN401  (configuration)
    """Return a consumer that reaches no broker."""
    state = {"coopgroup.state.dir": str(folder), "bootstrap.servers": "127.0.0.1:1"}
    return CooperativeConsumer(state | {"group.id": "g", "log_level": 0} | more)


def test_consumer_holds_a_slot_until_it_is_closed(
    tmp_path: Path, slots: list[IdentitySlot]
) -> None:
    with consumer(tmp_path), consumer(tmp_path):
        slots.append(take(tmp_path))
        assert slots[0].path == slot_path(str(tmp_path), "g", 2)
    slots.append(take(tmp_path))
    assert slots[1].path == slot_path(str(tmp_path), "g", 0)


def test_consumer_that_is_refused_holds_nothing(tmp_path: Path, slots: list[IdentitySlot]) -> None:
    with pytest.raises(ConfigurationError):
        consumer(tmp_path, **{"fetch.min.bytes": -4})
    slots.append(take(tmp_path))
    assert slots[0].path == slot_path(str(tmp_path), "g", 0)


def test_static_consumer_takes_no_slot(tmp_path: Path) -> None:
    """A static member proves its identity with its instance id."""
    with consumer(tmp_path, **{"group.instance.id": "one"}):
        assert list(tmp_path.iterdir()) == []


def test_programs_that_keep_nothing_make_no_files(tmp_path: Path) -> None:
    program = f"""
import os
os.chdir({str(tmp_path)!r})
from coopgroup import CooperativeConsumer
CooperativeConsumer({{"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}}).close()
print(os.listdir())
"""
    assert output_of(program) == "[]\n"
