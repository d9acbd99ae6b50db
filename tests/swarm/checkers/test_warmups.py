"""Checkers of warm-ups: limits, and planned moves to cold members."""

import attrs
import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.telemetry.records import EndCause
from coopgroup.policies import Warmup
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MembershipLost,
    ProcessEnded,
    RoundDecided,
    RoundRefused,
    StateChanged,
    WarmupsChanged,
)
from tests.swarm.checkers.warmups import WarmSets, check_warmups
from tests.unit.simulator.checkers.rows import T0, T01, T1, envelope, led

OPTION = Warmup(max_concurrent=2, per_member=1, timeout_ms=1_000)


def moved(
    revoked: ResourceSet = EMPTY,
    granted: ResourceSet = EMPTY,
    members: tuple[str, ...] = ("a", "b"),
) -> RoundDecided:
    return led(members, revoked=revoked, waiting=revoked, granted=granted)


def received(gained: ResourceSet = EMPTY, *, leader: bool = True) -> AssignmentReceived:
    """Return an assignment; one of a leader shows that its round was heard."""
    return AssignmentReceived(leader=leader, gained=gained)


def settled(client: str, generation: int = 2) -> list[Envelope]:
    """Return two assignments, so that the leader knows the warm set."""
    return [envelope(0, number, received(), client) for number in (generation - 1, generation)]


def messages(rows: list[Envelope], option: Warmup = OPTION) -> list[str]:
    return [one.message for one in check_warmups(rows, option, with_moves=True)]


def test_member_that_runs_too_many_is_broken() -> None:
    begun = envelope(1, 2, WarmupsChanged(begun=T01))
    assert messages([*settled("a"), begun]) == ["a runs 2, more than 1"]
    warm = envelope(0, 2, WarmupsChanged(begun=T0, warm=T0))
    assert messages([*settled("a"), warm, envelope(1, 2, WarmupsChanged(begun=T1))]) == []


@pytest.mark.parametrize("end", ["warm", "moved", "cancelled", "failed"])
def test_warm_up_that_ended_does_not_count(end: str) -> None:
    ends = {end: T0}
    rows = [
        envelope(1, 2, WarmupsChanged(begun=T0)),
        envelope(2, 2, WarmupsChanged(**ends)),  # type: ignore[arg-type]
        envelope(3, 2, WarmupsChanged(begun=T1)),
    ]
    assert messages([*settled("a"), *rows]) == []


def test_group_that_runs_too_many_is_broken() -> None:
    option = Warmup(max_concurrent=1, per_member=1, timeout_ms=1_000)
    rows = [*settled("a"), *settled("b"), envelope(1, 2, moved())]
    rows += [envelope(2, 2, WarmupsChanged(begun=T0), client) for client in ("a", "b")]
    rows.append(envelope(3, 3, moved()))
    assert messages(rows, option) == ["2 run in generation 2, more than 1"]
    rows[-2] = envelope(2, 2, ProcessEnded(cause=EndCause.CRASHED), "b")
    assert messages(rows, option) == []


def move(warmup: WarmupsChanged | None, assigned_ms: int = 100) -> list[Envelope]:
    """T-0 moves in two rounds of one leader to b, which was told to warm it up before."""
    rows = [envelope(0, 2, moved()), *settled("b")]
    if warmup is not None:
        rows.append(envelope(1, 2, warmup, "b"))
    return [
        *rows,
        envelope(assigned_ms - 2, 3, moved(revoked=T0)),
        envelope(assigned_ms - 2, 3, received(), "b"),
        envelope(assigned_ms - 1, 4, moved(granted=T0)),
        envelope(assigned_ms, 4, received(T0), "b"),
    ]


def test_planned_move_to_a_cold_member_is_broken() -> None:
    expected = ["Resource(name='T', index=0) moves to b, which is cold"]
    assert messages(move(None)) == expected
    assert messages(move(WarmupsChanged(begun=T0))) == expected
    assert messages(move(WarmupsChanged(begun=T0), 900)) == expected


TOLD = AssignmentReceived(leader=True, revoked=T0)
OTHERS = moved(revoked=T0, members=("a", "b", "c"))
REFUSED, LOST = RoundRefused(violations=("x",)), MembershipLost(resources=T1, cause="lease expired")


@pytest.mark.parametrize(
    ("change", "place", "kept_from"),
    [
        (envelope(98, 3, OTHERS), 3, 4),
        (envelope(98, 3, REFUSED), 3, 3),
        (envelope(98, 3, moved(revoked=T0), "b"), 3, 4),
        (envelope(0, 2, moved(revoked=T0)), 0, 1),
        (envelope(98, 3, received(leader=False), "b"), 4, 5),
        (envelope(98, 3, LOST), 4, 4),
        (None, 4, 5),
        (envelope(98, 3, TOLD, "b"), 4, 5),
    ],
    ids=[
        "its members changed",
        "its leader could not read everything",
        "another leader decided",
        "an earlier round revoked it, whose receiver may have gone",
        "its warm-up began in a round that no member received",
        "it was lost in between",
        "its receiver missed a round",
        "it returns to the member that gave it up, because its next owner left",
    ],
)
def test_resource_that_moves_for_another_reason_is_left_out(
    change: Envelope | None, place: int, kept_from: int
) -> None:
    rows = move(None)
    changes = [] if change is None else [change]
    assert messages([*rows[:place], *changes, *rows[kept_from:]]) == []


def test_planned_move_is_allowed_if_warm_or_late() -> None:
    assert messages(move(WarmupsChanged(warm=T0))) == []
    rows = move(WarmupsChanged(begun=T0), 1_002)
    assert messages(rows) == []


def test_time_of_a_slow_leaders_warm_up_begins_when_it_began_to_lead() -> None:
    rows = move(WarmupsChanged(begun=T0), 902)
    rows[0] = envelope(200, 2, moved())
    rows[3] = envelope(203, 2, WarmupsChanged(begun=T0), "b")
    assert len(messages(rows)) == 1
    leads = StateChanged(before="joining", after="leading", cause="joined")
    assert len(messages([envelope(0, 2, leads), *rows])) == 1
    assert messages([envelope(-100, 2, leads), *rows]) == []


def test_resource_that_two_members_have_received_is_left_out() -> None:
    """A late join claims it from its owner, so the leader revokes a claim that nobody holds."""
    for second, count in ((T0, 0), (EMPTY, 1)):
        heard = [
            Envelope(
                at_ms=0,
                group="g",
                member=name,
                generation=2,
                record=AssignmentReceived(leader=False, kept=kept),
                client=name,
            )
            for name, kept in (("a", T0), ("c", second))
        ]
        rows = move(WarmupsChanged(begun=T0))
        for number, one in enumerate(rows):
            if isinstance(one.record, RoundDecided):
                record = attrs.evolve(one.record, members=("a", "c"))
                rows[number] = attrs.evolve(one, record=record)
        assert len(messages([*heard, *rows])) == count


def test_warm_up_that_failed_after_the_decision_is_left_out() -> None:
    rows = move(WarmupsChanged(warm=T0))
    failed = envelope(98, 3, WarmupsChanged(failed=T0), "b")
    assert messages([*rows[:6], failed, *rows[6:]]) == []
    cold = move(WarmupsChanged(begun=T0))
    declined = [*cold[:6], failed, *cold[6:]]
    assert messages(declined) == [], "it moves without a wait if there is no other choice"


@pytest.mark.parametrize("ends", ["leaving", "losing"])
def test_warm_sets_are_those_of_members(ends: str) -> None:
    """Regression: warm 3500004534."""
    sets = WarmSets()
    sets.take(envelope(1, 1, WarmupsChanged(warm=T0)))
    sets.take(envelope(1, 1, WarmupsChanged(warm=T1), "b"))
    assert sets.everywhere() == T01
    sets.take(envelope(2, 1, StateChanged(before="stable", after=ends, cause=""), "b"))
    sets.take(envelope(2, 1, WarmupsChanged(cancelled=T1), "b"))
    assert sets.everywhere() == T0
    assert sets.everywhere(("m",)) == T01, "its leader reads its last join"
    sets.take(envelope(2, 1, ProcessEnded(cause=EndCause.CLOSED), "b"))
    assert sets.everywhere() == T0
    assert sets.everywhere(("m",)) == T01  # still a member of the round


def test_warm_sets_know_what_a_leader_cannot_know_yet() -> None:
    """Regressions: warm 1037007057, and warm 1040005260 for the process without a member id."""
    sets = WarmSets()
    sets.take(envelope(1, 1, WarmupsChanged(warm=T0)))
    sets.take(envelope(2, 1, WarmupsChanged(failed=T0)))
    assert sets.everywhere() == T0, "its join had said that it is warm"
    sets.take(attrs.evolve(envelope(3, -1, WarmupsChanged(warm=T1), "b"), member=""))
    ended = envelope(4, -1, ProcessEnded(cause=EndCause.CRASHED), "b")
    sets.take(attrs.evolve(ended, member=""))
    assert sets.everywhere(("m",)) == T0
    assert sets.everywhere(("m", "of-b")) == T01, "its join was still on its way"
