"""Work: every way in which work begins and ends."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.records import (
    AssignmentReceived,
    EndCause,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
)
from coopgroup.telemetry import Envelope, Ledger, Record, StopReason, read_ledger

STATE = StateChanged(before="stable", after="joining", cause="heartbeat")


def wrote(at_ms: int, client: str, record: Record, member: str = "") -> Envelope:
    return Envelope(
        at_ms=at_ms, group="g", member=member, generation=1, record=record, client=client
    )


def started(at_ms: int, client: str, *indices: int) -> Envelope:
    return wrote(at_ms, client, ResourcesStarted(resources=ResourceSet({"t": indices})))


def stopped(at_ms: int, client: str, *indices: int) -> Envelope:
    resources = ResourceSet({"t": indices})
    return wrote(at_ms, client, ResourcesStopped(resources=resources, reason=StopReason.REVOKED))


def rows(ledger: Ledger) -> list[tuple[int, str, int, int]]:
    """Index, client, begin and end of each interval."""
    resources = list(ledger.resources)
    return [
        (resources[resource].index, ledger.clients[owner], start, end)
        for resource, owner, start, end in zip(
            ledger.work.resource.tolist(),
            ledger.work.owner.tolist(),
            ledger.work.start_ms.tolist(),
            ledger.work.end_ms.tolist(),
            strict=True,
        )
    ]


def test_a_crash_that_nobody_wrote_down_is_over_when_a_successor_starts() -> None:
    """Real consumers write nothing about their processes."""
    ledger = read_ledger(
        [started(0, "a", 0, 1), started(40, "b", 0), stopped(50, "b", 0), started(60, "c", 0)]
    )
    assert rows(ledger) == [
        (0, "a", 0, 40),
        (0, "b", 40, 50),
        (1, "a", 0, 60),
    ]


def test_a_live_owner_beside_another_one_is_seen() -> None:
    heard = [started(0, "a", 0), started(40, "b", 0), wrote(60, "a", STATE)]
    assert rows(read_ledger(heard)) == [(0, "a", 0, 60), (0, "b", 40, 60)]
    known = [wrote(0, "a", ProcessStarted()), started(0, "a", 0), started(40, "b", 0)]
    assert rows(read_ledger(known, until_ms=90)) == [(0, "a", 0, 90), (0, "b", 40, 90)]


def test_member_id_stands_for_a_process_without_name() -> None:
    record = ResourcesStarted(resources=ResourceSet({"t": [0]}))
    ledger = read_ledger(
        [wrote(0, "", record, "m-1"), wrote(5, "", record), wrote(9, "x", STATE, "m-2")]
    )
    assert ledger.clients == ("m-1",)
    assert rows(ledger) == [(0, "m-1", 0, 9)]


def test_resources_include_those_that_only_a_leader_knows() -> None:
    led = RoundDecided(
        policy="deferred", assignor="sticky", members=("m",), lost=ResourceSet({"u": [3]})
    )
    ledger = read_ledger([started(0, "a", 0), wrote(5, "a", led)])
    assert list(ledger.resources) == [("t", 0), ("u", 3)]


# --- real consumers: their processes write nothing when they are killed or frozen -----------------


def decided(at_ms: int, *members: str, **sets: list[int]) -> Envelope:
    named: dict[str, Any] = {name: ResourceSet({"t": indices}) for name, indices in sets.items()}
    record = RoundDecided(policy="deferred", assignor="sticky", members=members, **named)
    return wrote(at_ms, "", record, members[0])


def by(member: str, at_ms: int, record: Record) -> Envelope:
    return wrote(at_ms, "", record, member)


def joined(at_ms: int, member: str, *indices: int) -> list[Envelope]:
    """Return the records of a member with a session of 30 ms that starts to work."""
    received = AssignmentReceived(leader=False, session_timeout_ms=30)
    begun = ResourcesStarted(resources=ResourceSet({"t": indices}))
    return [by(member, at_ms, received), by(member, at_ms, begun)]


def gaps(ledger: Ledger) -> list[tuple[int, int, int]]:
    """Index, begin and end of each time without an owner."""
    spans = ledger.gaps
    resources = list(ledger.resources)
    return [
        (resources[resource].index, start, end)
        for resource, start, end in zip(
            spans.resource.tolist(), spans.start_ms.tolist(), spans.end_ms.tolist(), strict=True
        )
    ]


def test_work_of_a_killed_member_ends_a_session_before_the_round_without_it() -> None:
    """The delay of the policy was shown as work of the dead member."""
    records = [
        decided(0, "a", "b", granted=[0, 1]),
        *joined(0, "a", 0),
        *joined(0, "b", 1),
        decided(100, "a", lost=[1]),
        decided(200, "a", granted=[1]),
        *joined(210, "a", 1),
    ]
    ledger = read_ledger(records, until_ms=300)
    assert rows(ledger) == [(0, "a", 0, 300), (1, "b", 0, 70), (1, "a", 210, 300)]
    assert gaps(ledger) == [(1, 70, 210)]
    unsure = ledger.unsure
    assert (unsure.start_ms.tolist(), unsure.end_ms.tolist()) == ([70], [100])
    assert ledger.clients[unsure.owner[0]] == "b"


def test_killed_member_that_returns_under_its_id_was_away() -> None:
    """No round shows it: the group waits for the member, which keeps its identity on a disk."""
    back = StateChanged(before="unsubscribed", after="joining", cause="subscribed")
    heard = [
        *joined(0, "a", 0),
        by("a", 70, STATE),
        by("a", 100, back),
        by("a", 101, ResourcesStarted(resources=ResourceSet({"t": [0]}))),
    ]
    ledger = read_ledger(heard, until_ms=200)
    assert rows(ledger) == [(0, "a", 0, 70), (0, "a", 101, 200)]
    assert (ledger.unsure.start_ms.tolist(), ledger.unsure.end_ms.tolist()) == ([70], [100])


def test_member_that_only_missed_a_round_still_works() -> None:
    records = [*joined(0, "a", 0), *joined(0, "b", 1), decided(50, "a"), decided(60, "a", "b")]
    ledger = read_ledger(records, until_ms=90)
    assert rows(ledger) == [(0, "a", 0, 90), (1, "b", 0, 90)]
    assert not ledger.unsure.owner.size


def test_work_of_a_silent_member_never_ends_before_its_last_record() -> None:
    records = [*joined(0, "a", 0), *joined(80, "b", 1), decided(100, "a")]
    ledger = read_ledger(records)
    assert rows(ledger) == [(0, "a", 0, 100)]
    assert ledger.unsure.start_ms.tolist() == [80]


def test_work_of_a_frozen_member_ends_with_its_lease() -> None:
    """It writes when it continues, after the next owner has begun."""
    lost = MembershipLost(resources=ResourceSet({"t": [1]}), cause="lease", since_lease_ms=75)
    records = [
        *joined(0, "a", 0),
        *joined(0, "b", 1),
        decided(60, "a", granted=[1]),
        *joined(65, "a", 1),
        by("b", 120, lost),
    ]
    ledger = read_ledger(records)
    assert rows(ledger) == [(0, "a", 0, 120), (1, "b", 0, 45), (1, "a", 65, 120)]
    assert not ledger.doubles.other.size


def test_work_when_the_member_gets_a_new_id_ends_with_the_loss() -> None:
    """The application stops after the member has forgotten the id under which it started."""
    resources = ResourceSet({"t": [0]})
    stop = ResourcesStopped(resources=resources, reason=StopReason.LOST)
    loss = MembershipLost(resources=resources, cause="Heartbeat answered UNKNOWN_MEMBER_ID")
    named = [*joined(0, "a", 0), by("a", 50, loss), wrote(52, "", stop), by("a-2", 90, STATE)]
    assert rows(read_ledger(named)) == [(0, "a", 0, 50)]
    kept = [*joined(0, "a", 0), by("a", 50, loss), by("a", 52, stop), by("a", 90, STATE)]
    assert rows(read_ledger(kept)) == [(0, "a", 0, 52)]


def test_resource_when_deleted_is_not_out_of_service() -> None:
    stop = ResourcesStopped(resources=ResourceSet({"t": [0]}), reason=StopReason.REVOKED)
    records = [
        decided(0, "a", granted=[0, 1]),
        *joined(10, "a", 0),
        decided(20, "a", gone=[0, 1]),
        by("a", 25, stop),
        decided(60, "a", granted=[0]),
        *joined(70, "a", 0),
    ]
    assert gaps(read_ledger(records, until_ms=90)) == [(0, 0, 10), (0, 60, 70), (1, 0, 20)]


# --- against a reader that plays the history moment by moment -------------------------------------

OF_A_PROCESS: dict[str, Record] = {
    "begin": ProcessStarted(),
    "end": ProcessEnded(cause=EndCause.CRASHED),
    "pause": ProcessPaused(),
    "resume": ProcessResumed(),
}
MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["start", "stop", *OF_A_PROCESS]),
        st.sets(st.integers(0, 2), min_size=1),
    ),
    max_size=25,
)


def envelope_of(moment: tuple[int, str, str, set[int]]) -> Envelope:
    at_ms, client, action, indices = moment
    if action in {"start", "stop"}:
        return (started if action == "start" else stopped)(at_ms, client, *indices)
    return wrote(at_ms, client, OF_A_PROCESS[action])


def played(
    moments: list[tuple[int, str, str, set[int]]], until_ms: int
) -> set[tuple[int, int, int]]:
    """Return (index, client number, ms) of each full ms in which a client works on an index."""
    found = set()
    held: dict[str, set[int]] = {"a": set(), "b": set()}
    frozen = {"a": False, "b": False}
    ordered = sorted(moments, key=lambda moment: moment[0])
    for now_ms in range(until_ms):
        for at_ms, client, action, indices in ordered:
            if at_ms != now_ms:
                continue
            if action == "start":
                held[client] |= indices
            elif action == "stop":
                held[client] -= indices
            else:
                frozen[client] = action == "pause"
                if action in {"begin", "end"}:
                    held[client] = set()
        found |= {
            (index, number, now_ms)
            for number, client in enumerate("ab")
            for index in held[client]
            if not frozen[client]
        }
    return found


@given(MOMENTS)
def test_intervals_when_cut_into_moments_are_what_was_played(
    moments: list[tuple[int, str, str, set[int]]],
) -> None:
    begun = [(0, "a", "begin", {0}), (0, "b", "begin", {0}), *moments]
    ledger = read_ledger([envelope_of(moment) for moment in begun], until_ms=12)
    cut = [
        (index, "ab".index(client), ms)
        for index, client, start, end in rows(ledger)
        for ms in range(start, end)
    ]
    assert len(cut) == len(set(cut))
    assert set(cut) == played(begun, 12)


def worked(at_ms: int, client: str, member: str, *indices: int) -> Envelope:
    return wrote(at_ms, client, ResourcesStarted(resources=ResourceSet({"t": indices})), member)


def test_members_of_one_name_at_the_same_time_are_several_processes() -> None:
    """The default name is the host's, and a host can run several members."""
    heard = [
        worked(0, "host", "m-1", 0),
        worked(10, "host", "m-2", 1),
        worked(20, "host", "m-1", 2),
    ]
    stop = ResourcesStopped(resources=ResourceSet({"t": [0, 1, 2]}), reason=StopReason.REVOKED)
    ledger = read_ledger([*heard, wrote(30, "host", stop, "m-1"), wrote(40, "host", stop, "m-2")])
    assert rows(ledger) == [(0, "m-1", 0, 30), (1, "m-2", 10, 40), (2, "m-1", 20, 30)]


def test_process_that_returns_under_its_name_begins_anew() -> None:
    """It was killed: its earlier work ended without a record."""
    heard = [worked(0, "host", "m-1", 0, 1), worked(90, "host", "m-2", 1)]
    assert rows(read_ledger(heard, until_ms=100)) == [
        (0, "host", 0, 90),
        (1, "host", 0, 90),
        (1, "host", 90, 100),
    ]
