"""Returns of members, from states that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup.pipeline.episodes.returns import CAME, GONE, RETURN_MS_MAX, SIZE, with_returns

MINUTE_MS = 60_000
Found = dict[str, tuple[str, str | None]]


def steps_of(*states: tuple[int, str], quiet_ms: int = 0) -> list[dict[str, Any]]:
    """Return the steps of a life, from the time and the members of each state.

    A member is "ID@HOST", and "ID@HOST/STATIC" or "ID@HOST=IDENTITY" with a proof.
    """
    steps: list[dict[str, Any]] = []
    before: set[str] = set()
    for number, (at_ms, members) in enumerate(states, 1):
        place = {"life": 0, "state": number, "at_ms": at_ms, "gone_ms": at_ms}
        present = set(members.split())
        kinds = [(GONE, before - present)]
        kinds += [(CAME, present - before)] if number > 1 else []
        for kind, names in kinds:
            for name in names:
                rest, _, identity = name.partition("=")
                rest, _, static = rest.partition("/")
                member_id, _, host = rest.partition("@")
                who = {"member_id": member_id, "instance_id": static or None}
                who |= {"client_id": "app", "client_host": host, "identity": identity or None}
                steps.append({**place, **who, "step": kind})
        size = {"member_id": None, "member_count": len(present)}
        steps.append({**place, **size, "step": SIZE})
        before = present
    return steps


def returns(*states: tuple[int, str]) -> Found:
    """Return how each absent member returned, and under which member id."""
    rows = with_returns(reversed(steps_of(*states)))
    return {row["member_id"]: (row["returned_as"], row.get("returned_member_id")) for row in rows}


NEVER = ("never", None)


CASES = {
    "the same client and host returns to a smaller group": (
        "1 a@h k@k, 2 k@k, 3 k@k b@h -> a client_and_host b"
    ),
    "another host": "1 a@h k@k, 2 k@k, 3 k@k b@other -> a never",
    "the group was never smaller": "1 a@h k@k, 2 b@h k@k -> a never",
    "the newcomer joined before the other left": ("1 a@h k@k, 2 a@h k@k b@h, 3 k@k b@h -> a never"),
    "a newcomer ends the absence whose place it takes": (
        "1 a@h k@k, 2 b@h k@k, 3 k@k, 4 c@h k@k -> a never, b client_and_host c"
    ),
    "a killed member whose successor joined before its session ended stays away": (
        "1 a@h k@k, 2 a@h k@k b@h, 3 k@k b@h, 4 k@k, 5 k@k c@h, 6 k@k c@h d@h"
        " -> a never, b client_and_host c"
    ),
    "the twin that came before is no successor": (
        "1 a@h k@k, 2 a@h b@h k@k, 3 a@h k@k, 4 a@h c@h k@k -> b client_and_host c"
    ),
    "an hour is short enough": (
        f"1 a@h k@k, 2 k@k, {2 + RETURN_MS_MAX} k@k b@h -> a client_and_host b"
    ),
    "but no more": f"1 a@h k@k, 2 k@k, {3 + RETURN_MS_MAX} k@k b@h -> a never",
    "a static id has no limit, and may have another host": (
        f"1 a@h/s k@k, 2 k@k, {9 * RETURN_MS_MAX} k@k b@other/s -> a static_id b"
    ),
    "a name in telemetry is a proof": "1 a@h=pod-1 k@k, 2 k@k b@h=pod-1 -> a telemetry b",
    "another name in telemetry proves another process": (
        "1 a@h=pod-1 k@k, 2 k@k, 3 k@k b@h=pod-2 -> a never"
    ),
    "a static member does not return as a dynamic one": (
        "1 a@h/s k@k, 2 k@k, 3 k@k b@h -> a never"
    ),
    "the first of two twins returns first": (
        "1 a@h b@h k@k, 2 b@h k@k, 3 k@k, 4 c@h k@k, 5 c@h d@h k@k"
        " -> a client_and_host c, b client_and_host d"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_returns(case: str) -> None:
    """Times in ms and members of each state; then the proof and the new id of who was gone."""
    states, expected = case.split(" -> ")
    steps = [state.split(maxsplit=1) for state in states.split(", ")]
    found = returns(*((int(at_ms), members) for at_ms, members in steps))
    assert [" ".join(filter(None, [gone, *found[gone]])) for gone in sorted(found)] == [
        *expected.split(", ")
    ]


@pytest.mark.parametrize("hosts", [1, 6, 7])
def test_no_member_returns_in_rollouts_that_start_a_pod_before_they_stop_one(hosts: int) -> None:
    """26 rollouts of six pods with `maxSurge: 1`; the nodes are many, or a single one."""
    present, number, now_ms = [f"p{place}@{place % hosts}" for place in range(6)], 6, 0
    states = [(now_ms, " ".join(present))]
    for _ in range(26):
        now_ms += 30 * MINUTE_MS
        for _ in range(6):
            present.append(f"p{number}@{number % hosts}")
            number += 1
            states.append((now_ms, " ".join(present)))
            present.pop(0)
            states.append((now_ms + 10_000, " ".join(present)))
            now_ms += 34_000
    found = returns(*states)
    assert len(found) == 156
    assert {*found.values()} == {NEVER}


def test_members_return_one_after_the_other_in_a_rollout_that_stops_a_pod_first() -> None:
    present, now_ms = [f"p{place}@{place}" for place in range(6)], 0
    states = [(now_ms, " ".join(present))]
    for round_number in range(1, 4):
        now_ms += 30 * MINUTE_MS
        for place in range(6):
            present.pop(0)
            states.append((now_ms, " ".join(present)))
            present.append(f"p{6 * round_number + place}@{place}")
            now_ms += 34_000
            states.append((now_ms, " ".join(present)))
            now_ms += 1_000
    found = returns(*states)
    assert len(found) == 18
    assert {kind for kind, _ in found.values()} == {"client_and_host"}
