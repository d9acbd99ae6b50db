"""The identity of a member outlives its process: the group's thread saves and restores it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import attrs
import pytest

from coopgroup.core.member import KeptIdentity
from coopgroup.core.member.events import LeaveRequested
from coopgroup.core.model.group_api import (
    GroupRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.core.protocol.digests import (
    names_digest,
    resources_digest,
)
from coopgroup.core.session import LookOver, SeenTopics
from coopgroup.kafka.membership.identity import IdentitySlot, take_slot
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.protocol import Assignment, encode_assignment
from coopgroup.telemetry import StateChanged
from tests.support.by_hand import Hand
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
)

MEMBER = KeptIdentity(member_id="m", generation=1, topics=("orders",))
STORED = encode_assignment(Assignment(assigned=ORDERS, revoked=None))


def keep(folder: Path, seen: SeenTopics | None, in_ms: int | None = None) -> None:
    """Write the identity of an earlier life."""
    slot = take_slot(str(folder), "g", fail)
    slot.keep(MEMBER, seen, in_ms)
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


def settled(joins: list[str]) -> Callable[[GroupRequest], Outcome]:
    """Answer as a group that waits for a member, and note the reasons of joins."""

    def answer(request: GroupRequest) -> Outcome:
        if isinstance(request, JoinGroupRequest):
            joins.append(request.reason)
            return attrs.evolve(cast("JoinGroupAnswer", usual_answer(request)), generation=2)
        if isinstance(request, SyncGroupRequest) and not request.assignments:
            assert (request.member_id, request.generation) == ("m", 1)
            return SyncGroupAnswer(error_code=0, assignment=STORED)
        return None

    return answer


@pytest.mark.parametrize("seen", [None, SEEN], ids=["follower", "leader"])
def test_driver_comes_back_as_who_was_kept(
    hand: Hand, tmp_path: Path, seen: SeenTopics | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends no join. A leader keeps watching its topics until another member leads."""
    keep(tmp_path, seen)
    told = list[tuple[object, str]]()
    monkeypatch.setattr(
        TelemetrySink,
        "write",
        lambda _, record, *, member_id, **__: told.append((record, member_id)),
    )
    with running(hand, take_slot(str(tmp_path), "g", fail), STATE) as (driver, group):
        group.override = settled([])
        assert not driver.leads
        subscribe(hand, driver)
        assert JoinGroupRequest not in group.requests
        assert (driver.member.member_id, driver.member.generation) == ("m", 1)
        assert driver.leads is (seen is not None)
        assert driver.leader.seen == (seen or SeenTopics())
        # The ledger of work takes this record for the return of a killed process.
        changes = [(one.before, name) for one, name in told if isinstance(one, StateChanged)]
        assert changes[0] == ("unsubscribed", "m")
        driver.post(LeaveRequested(reason="closed"))
        hand.run()
        assert driver.has_left
        assert not driver.leads


@pytest.mark.parametrize("for_good", [None, False, True])
def test_driver_keeps_who_the_member_is_unless_it_leaves_permanently(
    hand: Hand, driver_with_slot: tuple[DriverAndGroup, IdentitySlot], for_good: bool | None
) -> None:
    """The member sends a leave. Otherwise the group keeps its place until the session timeout."""
    (driver, group), slot = driver_with_slot
    subscribe(hand, driver)
    assert driver.leader.seen == SEEN
    if for_good is not None:
        driver.leave("closed", for_good=for_good)
        hand.run()
    assert driver.has_left is (for_good is not None)
    assert (LeaveGroupRequest in group.requests) is bool(for_good)
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    again.release()
    assert again.path == slot.path
    assert (again.kept, again.seen) == ((None, None) if for_good else (MEMBER, SEEN))


@pytest.mark.parametrize("in_ms", [None, 60])
def test_driver_that_comes_back_asks_for_the_round_that_its_policy_wanted(
    hand: Hand, tmp_path: Path, in_ms: int | None
) -> None:
    """The round is requested once, and stays on file until then: no other member knows of it."""
    keep(tmp_path, SEEN, in_ms)
    joins: list[str] = []
    slot = take_slot(str(tmp_path), "g", fail)
    with running(hand, slot, STATE) as (driver, group):
        group.override = settled(joins)
        subscribe(hand, driver)
        slot.release()
        again = take_slot(str(tmp_path), "g", fail)
        again.release()
        assert (again.next_round_in_ms is None) is (in_ms is None)
        assert 0 <= (again.next_round_in_ms or 0) <= (in_ms or 0)
        hand.advance((in_ms or 100) / 1000 - 0.001)
        assert joins == []
        hand.advance(0.1)
        assert joins == ([] if in_ms is None else ["a deadline of the policy has come"])
        assert driver.member.claim_generation == (1 if in_ms is None else 2)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    looked = list[object]()
    monkeypatch.setattr(RoundLeader, "look_over", lambda _, duty: looked.append(duty))
    return looked


@pytest.mark.parametrize("shared", [None, resources_digest(ORDERS)])
def test_leader_that_came_back_looks_over_what_was_noted_for_it(
    hand: Hand, driver_and_group: DriverAndGroup, looked: list[object], shared: int | None
) -> None:
    """The leader checks once it has its assignment: the note is in the assignment."""
    driver, group = driver_and_group
    topics = names_digest(("orders",))
    noted = Assignment(assigned=ORDERS, topics_digest=topics, shared_digest=shared)
    group.override = keeping_the_round(encode_assignment(noted))
    subscribe(hand, driver)
    (duty,) = looked
    assert isinstance(duty, LookOver)
    assert (driver.leads, duty.shared_digest, duty.has_digests) == (True, shared, True)
