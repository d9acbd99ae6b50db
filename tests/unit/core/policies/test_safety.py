"""The leader's two checks: for each rule, a plan or target that breaks only that rule."""

from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.core.model import GroupSnapshot, RoundPlan
from coopgroup.core.model.resource_set import BoolArray, Int32Array
from coopgroup.errors import AssignorError
from coopgroup.policies import check_target, violations
from tests.support.groups import claim, group_of, holder_of, unreadable

# A and B own two each, of generation 2. C is new. U has no subscriber.
FOUR = group_of(
    {"T": range(4), "U": [0]},
    claim("A", {"T": [0, 1]}, generation=2),
    claim("B", {"T": [2, 3]}, generation=2),
    claim("C"),
)
TWO = {"T": [0, 1]}
ONE_IS_STALE = group_of({"T": [0]}, claim("A", {"T": [0]}, generation=2), claim("B", {"T": [0]}))
ONE_IS_GONE = group_of({"T": [0]}, claim("A", {"T": [0, 9]}))
UNSUBSCRIBED = group_of(TWO, claim("A", TWO, topics=["U"]), claim("B"))
ONE_IS_FREE = group_of(TWO, claim("A", {"T": [0]}))
CONTESTED = group_of(TWO, claim("A", TWO), claim("B", TWO))
UNKNOWN = group_of(TWO, claim("A"), unreadable("X"))
NEW = group_of(TWO, claim("A"))
LISTS = ("waiting", "lost", "created", "waiting_for_members")


def _plan(group: GroupSnapshot, held: str, changes: dict[str, Any]) -> RoundPlan:
    """Return a plan in which "A01 B2" hold these partitions of T; lists name them as "T3"."""
    assigned = holder_of(
        group, {one[0]: {"T": [int(index) for index in one[1:]]} for one in held.split()}
    )
    lists = {name: _mask(group, changes.get(name, "")) for name in LISTS}
    usual = {"follow_up": True}
    return RoundPlan(target=assigned, assigned=assigned, **{**usual, **changes, **lists})


def _mask(group: GroupSnapshot, listed: str) -> BoolArray:
    pairs = {(listed[0], int(index)) for index in listed[1:]}
    return np.array([resource in pairs for resource in group.resources], dtype=np.bool_)


NO_ROUND = {"follow_up": False}
DELAY = {"rejoin_in_ms": 50, "follow_up": False}
AGAIN = {"waiting": "T3", "stopping": FOUR.claim_resources == 3}
UNTOLD = "revoked without a follow-up round: T-3"

# fmt: off
CASES: list[tuple[str, GroupSnapshot, str, dict[str, Any], list[str]]] = [
    ("nothing moves", FOUR, "A01 B23", NO_ROUND, []),
    ("a stop, and a round", FOUR, "A01 B2", {"waiting": "T3"}, []),
    ("b: a claim is ownership until it is given up (KAFKA-14639)", FOUR, "A01 B2 C3", {},
     ["granted while another member still claims it: T-3"]),
    ("b: the rightful owner may keep it", ONE_IS_STALE, "A0", {}, []),
    ("b: a stale claim counts too", ONE_IS_STALE, "B0", {},
     ["granted while another member still claims it: T-0"]),
    ("c: it does not exist", ONE_IS_GONE, "A09", {}, ["assigned though it is not assignable: T-9"]),
    ("c: not even an owner may keep what it does not subscribe to", UNSUBSCRIBED, "A01", {},
     ["assigned to a member that does not subscribe to it: T-0 and 1 more"]),
    ("d: no subscribed resource is silently dropped", FOUR, "A01 B2", {},
     ["dropped: neither assigned nor waiting nor lost: T-3"]),
    ("d: lost, until a delay ends", ONE_IS_FREE, "A0", {"lost": "T1", **DELAY}, []),
    ("d: claimed twice", CONTESTED, "", {}, []),
    ("d: perhaps owned by a member that cannot be read", UNKNOWN, "", {}, []),
    ("d: lost is unassigned", ONE_IS_FREE, "A01", {"lost": "T1"},
     ["called lost though it is assigned: T-1"]),
    ("d: lost is unclaimed", FOUR, "A01 B2", {"lost": "T3"},
     ["called lost though it is claimed: T-3"]),
    ("d: created is unclaimed", FOUR, "A01 B23", {"created": "T1"},
     ["called created though it is claimed: T-1"]),
    ("d: created is granted now", FOUR, "A01 B2", {"waiting": "T3", "created": "U0"},
     ["called created though it is not granted: U-0"]),
    ("e: a delay is sent only in a round without revocations", FOUR, "A01 B2",
     {"waiting": "T3", **DELAY}, ["revoked under a scheduled rejoin: T-3", UNTOLD]),
    ("e: with a delay, revocations are null", FOUR, "A01 B23", {**DELAY, "follow_up": True},
     ["rejoin in 50 ms though a follow-up round comes"]),
    ("e: a delay without a follow-up", FOUR, "A01 B23", DELAY, []),
    *((f"e: {ms} is no delay on the wire", FOUR, "A01 B23",
       {**DELAY, "rejoin_in_ms": ms}, [f"rejoin in {ms} ms, expected 1 to 2147483647"])
      for ms in (-1, 0, 2**31)),
    *((f"e: a loss that ends in {ms} ms, with the rejoin or after it", FOUR, "A01 B23",
       {**DELAY, "loss_ends_in_ms": ms}, [])
      for ms in (50, 2**31 - 1)),
    *((f"e: a loss that ends in {ms} ms, before the rejoin or after all times", FOUR, "A01 B23",
       {**DELAY, "loss_ends_in_ms": ms},
       [f"a loss ends in {ms} ms, expected 50 to 2147483647"])
      for ms in (-1, 49, 2**31)),
    ("e: a loss ends, and nobody rejoins", FOUR, "A01 B23", {**NO_ROUND, "loss_ends_in_ms": 50},
     ["a loss ends in 50 ms without a scheduled rejoin"]),
    ("f: a member that stops something rejoins, and so do all others", FOUR, "A01 B2",
     {"waiting": "T3", **NO_ROUND}, [UNTOLD]),
    ("f: told again, its claimant rejoins after the stop", FOUR, "A01 B2", {**AGAIN, **NO_ROUND},
     []),
    ("f: told again in a round with a follow-up", FOUR, "A01 B2", AGAIN, []),
    ("f: told again under a delay", FOUR, "A01 B2", {**AGAIN, **DELAY},
     ["revoked under a scheduled rejoin: T-3"]),
    ("f: one new revocation is enough", FOUR, "A01", {**AGAIN, "waiting": "T23", **NO_ROUND},
     ["revoked without a follow-up round: T-2"]),
    ("f: the revocations match the claims", FOUR, "A01 B23",
     {"stopping": FOUR.claim_resources == 1, **NO_ROUND},
     ["called stopping though its claimant keeps it: T-1"]),
    ("g: claimed twice in one generation, it is granted to no member", CONTESTED, "A0 B1", {},
     ["granted though two members claim it in one generation: T-0 and 1 more"]),
    ("h: the first members do not wait without end", NEW, "",
     {"waiting_for_members": "T01", **NO_ROUND}, ["put off though no round comes: T-0 and 1 more"]),
    ("h: they wait for a delay", NEW, "", {"waiting_for_members": "T01", **DELAY}, []),
    ("h: they wait for a round", NEW, "", {"waiting_for_members": "T01"}, []),
    ("h: a lost resource needs a round or a delay", ONE_IS_FREE, "A0", {"lost": "T1", **NO_ROUND},
     ["put off though no round comes: T-1"]),
    ("h: waiting for members is unassigned", ONE_IS_FREE, "A01",
     {"waiting_for_members": "T1"}, ["called waiting for members though it is assigned: T-1"]),
    ("h: waiting for members is unclaimed", FOUR, "A01 B2",
     {"waiting": "T3", "waiting_for_members": "T3"},
     ["called waiting for members though claimed: T-3"]),
    ("h: either lost or waiting for members", ONE_IS_FREE, "A0",
     {"waiting_for_members": "T1", "lost": "T1"},
     ["called both lost and waiting for members: T-1"]),
]
# fmt: on


def test_plan_breaks_the_rules_that_are_named(subtests: pytest.Subtests) -> None:
    """Rules (b) to (h) of the safety check."""
    for name, group, held, changes, broken in CASES:
        with subtests.test(name):
            assert list(violations(group, _plan(group, held, changes))) == broken


# fmt: off
MALFORMED: list[tuple[dict[str, Any], list[str]]] = [
    ({"assigned": np.zeros(4, dtype=np.int32)},
     ["assigned is int32 of shape (4,), expected int32 of shape (5,)"]),
    ({"target": np.zeros(5, dtype=np.int64)},
     ["target is int64 of shape (5,), expected int32 of shape (5,)"]),
    ({"target": [0] * 5}, ["target is a list, expected an array, int32 of shape (5,)"]),
    ({"assigned": np.array([0, 0, 1, 3, -1], dtype=np.int32)},
     ["assigned names member 3 of a group of 3"]),
    ({"assigned": np.array([0, 0, 1, 1, -2], dtype=np.int32)},
     ["assigned names member -2 of a group of 3"]),
    ({"lost": np.zeros(5, dtype=np.int8), "created": np.zeros(1, dtype=np.bool_)},
     ["lost is int8 of shape (5,), expected bool of shape (5,)",
      "created is bool of shape (1,), expected bool of shape (5,)"]),
    *(({field: np.zeros(size, dtype=np.bool_)},
       [f"{field} is bool of shape ({size},), expected bool of shape ({right},)"])
      for field, size, right in (("waiting_for_members", 4, 5), ("stopping", 5, 4),
                                 ("stopping", 0, 4))),
]
# fmt: on


@pytest.mark.parametrize(("changes", "broken"), MALFORMED)
def test_arrays_when_malformed_are_all_that_is_said(
    changes: dict[str, Any], broken: list[str]
) -> None:
    """Rule (a): shape, type and range of every array; one entry for each resource or claim."""
    plan = attrs.evolve(_plan(FOUR, "A01 B23", {}), **changes)
    assert list(violations(FOUR, plan)) == broken


def test_target_when_right_is_taken() -> None:
    check_target(FOUR, holder_of(FOUR, {"A": {"T": [0, 1]}, "C": {"T": [2, 3]}}))
    check_target(group_of({}), np.empty(0, dtype=np.int32))


def _numbers(*numbers: int) -> Int32Array:
    return np.array(numbers, dtype=np.int32)


# fmt: off
WRONG_TARGETS: list[tuple[Any, str]] = [
    (None, "target is a NoneType, expected an array, int32 of shape (3,)"),
    (_numbers(0, 0), "target is int32 of shape (2,), expected int32 of shape (3,)"),
    (np.zeros(3), "target is float64 of shape (3,), expected int32 of shape (3,)"),
    ([0, 0, -1], "target is a list, expected an array, int32 of shape (3,)"),
    (_numbers(0, 2, -1), "target names member 2 of a group of 2"),
    (_numbers(0, -2, -1), "target names member -2 of a group of 2"),
    (_numbers(0, 0, 0), "target places what is not assignable: T-9"),
    (_numbers(0, 1, -1), "target names a holder that does not subscribe: T-1"),
    (_numbers(-1, 0, -1), "target leaves out what is assignable and has a subscriber: T-0"),
]
# fmt: on


@pytest.mark.parametrize(("target", "reason"), WRONG_TARGETS)
def test_target_when_wrong_is_refused_with_the_reason(target: Int32Array, reason: str) -> None:
    group = group_of({"T": [0, 1]}, claim("A", {"T": [9]}), claim("B", topics=[]))
    with pytest.raises(AssignorError) as caught:
        check_target(group, target)
    assert str(caught.value) == reason
