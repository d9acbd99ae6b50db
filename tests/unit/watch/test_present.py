"""What members tell of this moment."""

import pytest
from attrs import evolve

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MemberReported,
    MembershipLost,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StopReason,
    WarmupsChanged,
    WithoutRoom,
    WorkFailed,
)
from coopgroup.watch.present import Present
from coopgroup.watch.rows import headline, partition_rows
from coopgroup.watch.values import GroupView, WarmupView
from tests.unit.watch.views import MEMBERS, view

AT_MS = view().at_ms
REPORT = MemberReported(
    state="stable", interval_ms=10_000, since_poll_ms=500, lease_ms=44_000, rate_per_s=9.5
)


def some(*numbers: int) -> ResourceSet:
    return ResourceSet({"orders": numbers})


def round_(**sets: ResourceSet | int) -> RoundDecided:
    return RoundDecided(policy="deferred", assignor="sticky", members=("m-a",), **sets)  # type: ignore[arg-type]


def present(*told: Record | tuple[str, Record]) -> Present:
    """Return what members told at time 0; records without a member are of the first."""
    found = Present()
    for one in told:
        member, record = one if isinstance(one, tuple) else ("m-a", one)
        found.note(
            Envelope(at_ms=AT_MS, group="billing", member=member, generation=4, record=record),
            AT_MS,
        )
    return found


def states(found: GroupView) -> list[tuple[str, str]]:
    return [(one.state, one.holder) for one in found.partitions]


def test_report_is_added_to_its_member() -> None:
    ours, other = present(REPORT).added_to(view(2.0)).members
    assert (ours.since_poll_s, ours.lease_s, ours.rate_per_s) == (0.5, 44.0, 9.5)
    assert (ours.report_age_s, ours.report_interval_s) == (2.0, 10.0)
    assert other == MEMBERS[1]


def test_revoked_partition_is_held_until_it_is_stopped() -> None:
    group = view(owners=("m-a", "", ""))
    revoked = AssignmentReceived(leader=False, revoked=some(1, 2))
    found = present(revoked, ResourcesStopped(resources=some(2), reason=StopReason.REVOKED))
    assert states(found.added_to(group)) == [("owned", ""), ("revoking", "m-a"), ("unowned", "")]


@pytest.mark.parametrize(
    ("member", "end"),
    [
        ("m-a", MembershipLost(resources=EMPTY, cause="lease expired")),
        ("m-a", REPORT),
        ("m-gone", WarmupsChanged()),
    ],
)
def test_member_that_is_gone_or_stops_nothing_any_more_holds_nothing(
    member: str, end: Record
) -> None:
    found = present((member, AssignmentReceived(leader=False, revoked=some(0))), (member, end))
    assert states(found.added_to(view(owners=("",), committed=(0,)))) == [("unowned", "")]


FAILED = WorkFailed(
    resources=some(0), action="start", error="StartFailed: no table", attempts=1, permanent=True
)


def test_start_that_failed_permanently_is_shown() -> None:
    shown = present(FAILED).added_to(evolve(view(), shares_resources=True))
    assert partition_rows(shown)[0][1] == "failed: StartFailed: no table"
    assert present(("m-b", FAILED)).added_to(view()).partitions[0].state == "owned"
    reported = evolve(REPORT, failed=some(0))
    for told in (FAILED, reported), (reported, FAILED):
        assert present(*told).added_to(view()).partitions[0].why == "StartFailed: no table"
    later = present(reported).added_to(view()).partitions[0]  # the failure itself is long ago
    assert (later.state, later.why) == ("failed", "")


@pytest.mark.parametrize(
    "end",
    [
        ResourcesStarted(resources=some(0)),
        AssignmentReceived(leader=False, revoked=some(0)),
        AssignmentReceived(leader=False, gained=some(0)),
        MembershipLost(resources=EMPTY, cause="lease expired"),
        evolve(FAILED, error="Decline: no GPU is free", permanent=False),
        REPORT,
    ],
)
def test_failed_start_is_over_after_another_step(end: Record) -> None:
    assert present(FAILED, end).added_to(view()).partitions[0].state == "owned"


def test_callback_that_is_not_a_start_does_not_end_a_failed_start() -> None:
    cool = evolve(FAILED, action="cool", permanent=False)
    assert present(FAILED, cool).added_to(view()).partitions[0].state == "failed"


def test_member_is_forgotten_a_minute_after_it_left() -> None:
    found = present(REPORT)
    found.added_to(view(59.0, members=MEMBERS[1:]))
    assert found.added_to(view(59.5)).members[0].lease_s == 44.0
    found.added_to(view(61.0, members=MEMBERS[1:]))
    assert found.added_to(view(61.5)).members[0].lease_s is None


def test_lost_partition_waits_until_the_delay_ends() -> None:
    group = view(owners=("m-a", "", ""))
    led = round_(lost=some(1), waiting=some(2), rejoin_in_ms=30_000)
    found = present(led)
    partitions = found.added_to(group).partitions
    assert [(one.state, one.until_ms) for one in partitions] == [
        ("owned", None),
        ("waiting", AT_MS + 30_000),
        ("waiting", None),
    ]
    later = Envelope(at_ms=AT_MS, group="billing", member="m-a", generation=5, record=round_())
    found.note(later, AT_MS)
    assert states(found.added_to(group))[1:] == [("unowned", ""), ("unowned", "")]


def test_partition_without_room_says_why_until_the_next_round() -> None:
    group = view(owners=("m-a", "", ""))
    reasons = ("all 2 that fit are full", "it fits no member")
    found = present(
        round_(),
        WithoutRoom(resources=some(0, 1), reasons=("it fits no member",)),
        WithoutRoom(resources=some(2), reasons=reasons),
    )
    shown = found.added_to(group)
    assert [(one.state, one.why) for one in shown.partitions] == [
        ("owned", ""),
        ("no room", "it fits no member"),
        ("no room", "; ".join(reasons)),
    ]
    assert partition_rows(shown)[2][1] == f"no room: {'; '.join(reasons)}"
    later = Envelope(at_ms=AT_MS, group="billing", member="m-a", generation=5, record=round_())
    found.note(later, AT_MS)
    assert states(found.added_to(group))[2] == ("unowned", "")


def test_group_of_resources_shows_its_leader_and_what_no_member_owns() -> None:
    group = evolve(view(owners=("m-a",), committed=(0,)), shares_resources=True)
    found = present(
        ("m-a", ResourcesStarted(resources=some(0, 1))),
        ("m-a", ResourcesStopped(resources=some(1), reason=StopReason.REVOKED)),
        round_(lost=some(1)),
        ("m-a", WithoutRoom(resources=some(3), reasons=("full",))),
    )
    shown = found.added_to(group)
    assert [(one.partition, one.owner, one.state, one.since_ms) for one in shown.partitions] == [
        (0, "m-a", "owned", AT_MS),
        (1, "", "waiting", None),
        (3, "", "no room", None),
    ]
    assert [one.leads for one in shown.members] == [True, False]
    assert "leader a" in headline(shown)
    assert [one.partition for one in found.added_to(view()).partitions] == [0, 1, 2]


def test_warmups_are_those_that_have_not_ended() -> None:
    began = WarmupsChanged(begun=some(0, 1, 2), warm=some(1))
    found = present(("m-b", began), ("m-b", WarmupsChanged(cancelled=some(2))))
    partitions = found.added_to(view()).partitions
    assert [one.warmups for one in partitions] == [
        (WarmupView(member="m-b", is_warm=False),),
        (WarmupView(member="m-b", is_warm=True),),
        (),
    ]


def test_report_replaces_warmups_that_began_before_the_first_look() -> None:
    report = evolve(REPORT, warm=some(2), revoking=some(0))
    found = present(WarmupsChanged(begun=some(1)), report)
    group = found.added_to(view(owners=("", "m-b", "m-b")))
    assert states(group)[0] == ("revoking", "m-a")
    assert [len(one.warmups) for one in group.partitions] == [0, 0, 1]
