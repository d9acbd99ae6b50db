"""The identity of a member outlives its process: the group's thread saves and restores it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import cast

import attrs
import pytest

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import has_left
from coopgroup.kafka.identity import IdentitySlot, take_slot
from coopgroup.kafka.leading import RoundLeader, SeenTopics
from coopgroup.member import KeptIdentity
from coopgroup.member.events import LeaveRequested
from coopgroup.model.group_api import (
    GroupRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.protocol import Assignment, encode_assignment
from coopgroup.protocol.notes import AssignmentNote, names_digest, resources_digest, with_note
from tests.unit.kafka.one_member_group import (
    ORDERS,
    SEEN,
    STATE,
    DriverAndGroup,
    Outcome,
    fail,
    running,
    subscribe,
    usual_answer,
    wait_until,
    warnings,
)


def test_driver_keeps_who_the_member_is(
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot],
) -> None:
    """The identity is saved after each completed round, and stays when the consumer closes."""
    (driver, _), slot = driver_with_slot
    subscribe(driver)
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    kept = KeptIdentity(member_id="m", generation=1, topics=("orders",))
    assert (again.path, again.kept) == (slot.path, kept)
    assert again.seen == driver.leader.seen == SEEN
    again.release()


@pytest.mark.parametrize("seen", [None, SEEN], ids=["follower", "leader"])
def test_driver_comes_back_as_who_was_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: SeenTopics | None
) -> None:
    """It sends no join. A leader keeps watching its topics until another member leads."""
    slot = take_slot(str(tmp_path), "g", fail)
    slot.keep(KeptIdentity(member_id="m", generation=1, topics=("orders",)), seen)
    slot.release()
    stored = encode_assignment(
        Assignment(assigned=ORDERS, revoked=None, scheduled_rebalance_timeout_ms=0)
    )

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, SyncGroupRequest):
            assert (request.member_id, request.generation) == ("m", 1)
            return SyncGroupAnswer(error_code=0, assignment=stored)
        return None

    with running(monkeypatch, take_slot(str(tmp_path), "g", fail), STATE) as (driver, group):
        group.override = settled
        assert not driver.leads
        subscribe(driver)
        assert JoinGroupRequest not in group.requests
        assert (driver.member.member_id, driver.member.generation) == ("m", 1)
        assert driver.leads is (seen is not None)
        assert driver.leader.seen == (seen or SeenTopics())
        driver.post(LeaveRequested(reason="closed"))
        wait_until(lambda: has_left(driver.member))
        assert not driver.leads


@pytest.mark.parametrize("for_good", [False, True])
def test_driver_that_leaves_for_good_keeps_nobody(
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot], *, for_good: bool
) -> None:
    """The member sends a leave. Otherwise the group keeps its place until the session timeout."""
    (driver, group), slot = driver_with_slot
    subscribe(driver)
    driver.leave("closed", for_good=for_good)
    wait_until(lambda: has_left(driver.member))
    assert (LeaveGroupRequest in group.requests) is for_good
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    again.release()
    assert (again.kept is None) is for_good


def test_driver_when_the_identity_cannot_be_written_only_warns(
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The member works; its next process joins as a new member."""
    (driver, _), slot = driver_with_slot

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    subscribe(driver)
    said = warnings(caplog)
    assert "identity_not_kept" in said
    assert str(slot.path) in said
    assert "No space left on device" in said


@pytest.mark.parametrize("in_ms", [None, 60])
def test_driver_that_comes_back_asks_for_the_round_that_its_policy_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_ms: int | None
) -> None:
    """The round is requested once, and stays on file until then: no other member knows of it."""
    slot = take_slot(str(tmp_path), "g", fail)
    slot.keep(KeptIdentity(member_id="m", generation=1, topics=("orders",)), SEEN, in_ms)
    slot.release()
    stored = encode_assignment(
        Assignment(assigned=ORDERS, revoked=None, scheduled_rebalance_timeout_ms=0)
    )
    joins: list[str] = []

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, JoinGroupRequest):
            joins.append(request.reason)
            return attrs.evolve(cast("JoinGroupAnswer", usual_answer(request)), generation=2)
        if isinstance(request, SyncGroupRequest) and not request.assignments:
            return SyncGroupAnswer(error_code=0, assignment=stored)
        return None

    slot = take_slot(str(tmp_path), "g", fail)
    began_s = now_s()
    with running(monkeypatch, slot, STATE) as (driver, group):
        group.override = settled
        subscribe(driver)
        slot.release()
        again = take_slot(str(tmp_path), "g", fail)
        again.release()
        if in_ms is None:
            time.sleep(0.1)
            assert (joins, again.next_round_in_ms) == ([], None)
            return
        assert again.next_round_in_ms is not None
        assert 0 <= again.next_round_in_ms <= in_ms
        wait_until(lambda: driver.member.claim_generation == 2)
        assert now_s() >= began_s + in_ms / 1000
        time.sleep(0.1)
        assert joins == ["a deadline of the policy has come"]


def test_leader_that_came_back_where_an_application_looks_has_shared_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its catalogue may differ from the shared one; the watcher requests the round."""
    looked = list[object]()

    def keep(request: GroupRequest) -> Outcome:
        match request:
            case JoinGroupRequest():
                answer = usual_answer(request)
                assert isinstance(answer, JoinGroupAnswer)
                return attrs.evolve(answer, skip_assignment=True)
            case SyncGroupRequest():
                kept = Assignment(assigned=ORDERS, revoked=None)
                return SyncGroupAnswer(error_code=0, assignment=encode_assignment(kept))
            case _:
                return None

    with running(monkeypatch) as (driver, group):
        monkeypatch.setattr(
            RoundLeader, "look_over", lambda _, *what, **_kinds: looked.append(what)
        )
        driver.application = driver.inbox
        group.override = keep
        subscribe(driver)
        assert (driver.leads, looked) == (True, [])
        assert driver.leader.seen == SeenTopics()


@pytest.mark.parametrize("shared", [None, resources_digest(ORDERS)])
def test_leader_that_came_back_looks_over_what_was_noted_for_it(
    monkeypatch: pytest.MonkeyPatch, shared: int | None
) -> None:
    """The leader checks once it has its assignment: the note is appended to the assignment."""
    looked = list[object]()
    content = encode_assignment(Assignment(assigned=ORDERS, revoked=None))
    note = AssignmentNote(topics=names_digest(("orders",)), shared=shared)

    def keep(request: GroupRequest) -> Outcome:
        match request:
            case JoinGroupRequest():
                answer = usual_answer(request)
                assert isinstance(answer, JoinGroupAnswer)
                return attrs.evolve(answer, skip_assignment=True)
            case SyncGroupRequest():
                return SyncGroupAnswer(error_code=0, assignment=with_note(content, note))
            case _:
                return None

    with running(monkeypatch) as (driver, group):
        monkeypatch.setattr(
            RoundLeader, "look_over", lambda _, *what, **kinds: looked.append((*what[1:], kinds))
        )
        group.override = keep
        subscribe(driver)
        wait_until(lambda: bool(looked))
        assert (driver.leads, looked) == (True, [(shared, {"has_notes": True})])
