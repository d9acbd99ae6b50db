"""The identity of a member outlives its process: the group's thread saves and restores it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import attrs
import pytest

from coopgroup.kafka.membership.identity import IdentitySlot, take_slot
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.leaving import has_left
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
from coopgroup.protocol.assignment_trailer import (
    AssignmentTrailer,
    names_digest,
    resources_digest,
    with_trailer,
)
from coopgroup.session import LookOver, SeenTopics
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import (
    ORDERS,
    SEEN,
    STATE,
    DriverAndGroup,
    Outcome,
    commit,
    fail,
    running,
    subscribe,
    usual_answer,
    warnings,
)

STORED = encode_assignment(Assignment(assigned=ORDERS, revoked=None))


def keep(folder: Path, seen: SeenTopics | None, in_ms: int | None = None) -> None:
    """Write the identity of an earlier life."""
    slot = take_slot(str(folder), "g", fail)
    slot.keep(KeptIdentity(member_id="m", generation=1, topics=("orders",)), seen, in_ms)
    slot.release()


def keeping_the_round(stored: bytes) -> Callable[[GroupRequest], Outcome]:
    """Answer a static leader that came back: the coordinator keeps the round (KIP-814)."""

    def answer(request: GroupRequest) -> Outcome:
        match request:
            case JoinGroupRequest():
                joined = usual_answer(request)
                assert isinstance(joined, JoinGroupAnswer)
                return attrs.evolve(joined, skip_assignment=True)
            case SyncGroupRequest():
                return SyncGroupAnswer(error_code=0, assignment=stored)
            case _:
                return None

    return answer


def test_driver_keeps_who_the_member_is(
    hand: Hand,
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot],
) -> None:
    (driver, _), slot = driver_with_slot
    subscribe(hand, driver)
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    kept = KeptIdentity(member_id="m", generation=1, topics=("orders",))
    assert (again.path, again.kept) == (slot.path, kept)
    assert again.seen == driver.leader.seen == SEEN
    again.release()


@pytest.mark.parametrize("seen", [None, SEEN], ids=["follower", "leader"])
def test_driver_comes_back_as_who_was_kept(
    hand: Hand, tmp_path: Path, seen: SeenTopics | None
) -> None:
    """It sends no join. A leader keeps watching its topics until another member leads."""
    keep(tmp_path, seen)

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, SyncGroupRequest):
            assert (request.member_id, request.generation) == ("m", 1)
            return SyncGroupAnswer(error_code=0, assignment=STORED)
        return None

    with running(hand, take_slot(str(tmp_path), "g", fail), STATE) as (driver, group):
        group.override = settled
        assert not driver.leads
        subscribe(hand, driver)
        assert JoinGroupRequest not in group.requests
        assert (driver.member.member_id, driver.member.generation) == ("m", 1)
        assert driver.leads is (seen is not None)
        assert driver.leader.seen == (seen or SeenTopics())
        driver.post(LeaveRequested(reason="closed"))
        hand.run()
        assert has_left(driver.member)
        assert not driver.leads


@pytest.mark.parametrize("for_good", [False, True])
def test_driver_that_leaves_permanently_keeps_no_identity(
    hand: Hand, driver_with_slot: tuple[DriverAndGroup, IdentitySlot], *, for_good: bool
) -> None:
    """The member sends a leave. Otherwise the group keeps its place until the session timeout."""
    (driver, group), slot = driver_with_slot
    subscribe(hand, driver)
    driver.leave("closed", for_good=for_good)
    hand.run()
    assert has_left(driver.member)
    assert (LeaveGroupRequest in group.requests) is for_good
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    again.release()
    assert (again.kept is None) is for_good


def test_driver_when_the_identity_cannot_be_written_only_warns(
    hand: Hand,
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (driver, _), slot = driver_with_slot

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    subscribe(hand, driver)
    hand.run()
    assert slot.flush(0.0)
    said = warnings(caplog)
    assert "identity_not_kept" in said
    assert str(slot.path) in said
    assert "No space left on device" in said


@pytest.mark.parametrize("in_ms", [None, 60])
def test_driver_that_comes_back_asks_for_the_round_that_its_policy_wanted(
    hand: Hand, tmp_path: Path, in_ms: int | None
) -> None:
    """The round is requested once, and stays on file until then: no other member knows of it."""
    keep(tmp_path, SEEN, in_ms)
    joins: list[str] = []

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, JoinGroupRequest):
            joins.append(request.reason)
            return attrs.evolve(cast("JoinGroupAnswer", usual_answer(request)), generation=2)
        if isinstance(request, SyncGroupRequest) and not request.assignments:
            return SyncGroupAnswer(error_code=0, assignment=STORED)
        return None

    slot = take_slot(str(tmp_path), "g", fail)
    with running(hand, slot, STATE) as (driver, group):
        group.override = settled
        subscribe(hand, driver)
        slot.release()
        again = take_slot(str(tmp_path), "g", fail)
        again.release()
        if in_ms is None:
            hand.advance(0.1)
            assert (joins, again.next_round_in_ms) == ([], None)
            return
        assert again.next_round_in_ms is not None
        assert 0 <= again.next_round_in_ms <= in_ms
        hand.advance(in_ms / 1000 - 0.001)
        assert joins == []
        hand.advance(0.1)
        assert driver.member.claim_generation == 2
        assert joins == ["a deadline of the policy has come"]


def test_leader_that_came_back_where_an_application_looks_has_shared_nothing(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its catalogue may differ from the shared one; the watcher requests the round."""
    looked = list[object]()

    with running(hand) as (driver, group):
        monkeypatch.setattr(RoundLeader, "look_over", lambda _, duty: looked.append(duty))
        driver.application = driver.inbox
        group.override = keeping_the_round(STORED)
        subscribe(hand, driver)
        assert (driver.leads, looked) == (True, [])
        assert driver.leader.seen == SeenTopics()


@pytest.mark.parametrize("shared", [None, resources_digest(ORDERS)])
def test_leader_that_came_back_looks_over_what_was_noted_for_it(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, shared: int | None
) -> None:
    """The leader checks once it has its assignment: the note is appended to the assignment."""
    looked = list[object]()
    note = AssignmentTrailer(topics=names_digest(("orders",)), shared=shared)

    with running(hand) as (driver, group):
        monkeypatch.setattr(RoundLeader, "look_over", lambda _, duty: looked.append(duty))
        group.override = keeping_the_round(with_trailer(STORED, note))
        subscribe(hand, driver)
        hand.run()
        assert bool(looked)
        (duty,) = looked
        assert isinstance(duty, LookOver)
        assert (driver.leads, duty.shared_digest, duty.has_trailers) == (True, shared, True)


def test_driver_answers_although_the_disk_of_its_identity_hangs(
    hand: Hand,
    driver_with_slot: tuple[DriverAndGroup, IdentitySlot],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that would wait for the disk is the one that sends the heartbeats."""
    (driver, _), _ = driver_with_slot
    hand.is_held = lambda job: job in hand.jobs("coopgroup-identity")
    subscribe(hand, driver)
    outcome = commit(driver)
    hand.run()
    assert outcome
    assert hand.jobs("coopgroup-identity")
    hand.is_held = lambda _: False
