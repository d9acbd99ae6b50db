"""Ownership intervals: every way in which work begins and ends."""

from hypothesis import given
from hypothesis import strategies as st

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.records import (
    EndCause,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
)
from coopgroup.telemetry import Envelope, Ownership, Record, StopReason, read_ownership

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


def rows(ownership: Ownership) -> list[tuple[int, str, int, int]]:
    """Index, client, begin and end of each interval."""
    resources = list(ownership.resources)
    return [
        (resources[resource].index, ownership.clients[owner], start, end)
        for resource, owner, start, end in zip(
            ownership.resource.tolist(),
            ownership.owner.tolist(),
            ownership.start_ms.tolist(),
            ownership.end_ms.tolist(),
            strict=True,
        )
    ]


def test_a_crash_that_nobody_wrote_down_is_over_when_a_successor_starts() -> None:
    """Real consumers write nothing about their processes."""
    ownership = read_ownership(
        [started(0, "a", 0, 1), started(40, "b", 0), stopped(50, "b", 0), started(60, "c", 0)]
    )
    assert rows(ownership) == [
        (0, "a", 0, 40),
        (0, "b", 40, 50),
        (1, "a", 0, 60),
    ]


def test_a_live_owner_beside_another_one_is_seen() -> None:
    heard = [started(0, "a", 0), started(40, "b", 0), wrote(60, "a", STATE)]
    assert rows(read_ownership(heard)) == [(0, "a", 0, 60), (0, "b", 40, 60)]
    known = [wrote(0, "a", ProcessStarted()), started(0, "a", 0), started(40, "b", 0)]
    assert rows(read_ownership(known, until_ms=90)) == [(0, "a", 0, 90), (0, "b", 40, 90)]


def test_member_id_stands_for_a_process_without_name() -> None:
    record = ResourcesStarted(resources=ResourceSet({"t": [0]}))
    ownership = read_ownership(
        [wrote(0, "", record, "m-1"), wrote(5, "", record), wrote(9, "x", STATE, "m-2")]
    )
    assert ownership.clients == ("m-1", "x")
    assert rows(ownership) == [(0, "m-1", 0, 9)]


def test_resources_include_those_that_only_a_leader_knows() -> None:
    led = RoundDecided(
        policy="deferred", assignor="sticky", members=("m",), lost=ResourceSet({"u": [3]})
    )
    ownership = read_ownership([started(0, "a", 0), wrote(5, "a", led)])
    assert list(ownership.resources) == [("t", 0), ("u", 3)]


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
    ownership = read_ownership([envelope_of(moment) for moment in begun], until_ms=12)
    cut = [
        (index, "ab".index(client), ms)
        for index, client, start, end in rows(ownership)
        for ms in range(start, end)
    ]
    assert len(cut) == len(set(cut))
    assert set(cut) == played(begun, 12)
