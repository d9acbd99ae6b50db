"""`coopgroup plan` with every policy: several lines, each with the state of the last answer."""

import io
import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from coopgroup.cli.formats.plan_input import Defaults
from coopgroup.cli.plan import answer_lines

T1 = 60_000
OUTPUT_FIELDS = {"target", "members", "lost", "created", "waiting", "state", "events"}


@attrs.define
class Caller:
    """A caller of `coopgroup plan` that keeps the state between lines."""

    policy: object
    topics: Mapping[str, object] = attrs.field(factory=lambda: {"T": [1, 2, 3, 4]})
    generation: int = 0
    state: object = None
    answer: dict[str, Any] = attrs.field(factory=dict)

    def ask(
        self, now_ms: int, owned: Mapping[str, list[int]], **fields: Mapping[str, object]
    ) -> dict[str, Any]:
        """Ask for a round and return the assignments; `fields` adds member fields."""
        members = {
            member: {"topics": ["T"], "owned": {"T": claims}, "generation": self.generation}
            | dict(fields.get(member, {}))
            for member, claims in owned.items()
        }
        line = {
            "topics": self.topics,
            "members": members,
            "policy": self.policy,
            "generation": self.generation,
            "now_ms": now_ms,
            "state": self.state,
        }
        self.answer = answered(line)
        assert set(self.answer) - {"held"} == OUTPUT_FIELDS
        self.generation += 1
        self.state = self.answer["state"]
        return {
            member: (
                row["assigned"].get("T", []),
                row["revoked"],
                row["scheduled_rebalance_timeout_ms"],
            )
            for member, row in self.answer["members"].items()
        }


def answered(line: Mapping[str, object]) -> dict[str, Any]:
    written = io.BytesIO()
    answer_lines([json.dumps(line).encode()], written, Defaults(assignor="sticky", policy="simple"))
    (answer,) = (json.loads(row) for row in written.getvalue().splitlines())
    assert isinstance(answer, dict)
    return answer


def test_deferred_when_a_member_bounces_is_as_in_the_document() -> None:
    """Design II, "Member bounces"; then the member leaves permanently."""
    caller = Caller({"name": "deferred", "scheduled_rebalance_timeout_ms": T1})
    caller.ask(0, {"A": [1], "B": [2], "C": [3], "D": [4]})
    waiting = caller.ask(5, {"A": [1], "B": [2], "C": [3]})
    assert waiting == {"A": ([1], None, T1), "B": ([2], None, T1), "C": ([3], None, T1)}
    assert (caller.answer["lost"], caller.answer["waiting"]) == ({"T": [4]}, {})
    assert "4" not in json.dumps(caller.answer["target"])
    back = caller.ask(1_005, {"A": [1], "B": [2], "C": [3], "D'": []})
    assert back == {"A": ([1], None, 0), "B": ([2], None, 0), "C": ([3], None, 0)} | {
        "D'": ([4], None, 0)
    }
    assert caller.answer["lost"] == {}
    caller.ask(2_005, {"A": [1], "B": [2], "C": [3], "D'": [4]})
    gone = caller.ask(3_005, {"A": [1], "B": [2], "C": [3]})
    assert gone["A"] == ([1], None, T1)
    after = caller.ask(3_005 + T1, {"A": [1], "B": [2], "C": [3]})
    assert after == {"A": ([1, 4], None, 0), "B": ([2], None, 0), "C": ([3], None, 0)}


@pytest.mark.parametrize(("remaining", "timeout_ms"), [(None, T1), (17_000, 17_000), (0, 0)])
def test_deferred_when_the_leader_is_another_one_goes_by_what_members_know(
    remaining: int | None, timeout_ms: int
) -> None:
    caller = Caller("deferred")
    told = caller.ask(
        9, {"A": [1], "B": [2], "C": [3]}, B={"remaining_delay_ms": remaining}, C={"rack": None}
    )
    assert {delay for _, _, delay in told.values()} == {timeout_ms}
    assert caller.answer["lost"] == ({"T": [4]} if timeout_ms else {})
    assert sum(len(assigned) for assigned, _, _ in told.values()) == (3 if timeout_ms else 4)


def test_deferred_when_a_static_owner_is_expected_serves_a_stranger_from_the_rest() -> None:
    """The new static member E is additional. The next quiet round sends the remaining delay."""
    topics = {"T": 8}
    caller = Caller("deferred", topics)
    static = {member: {"instance_id": f"pod-{member}"} for member in "ABCDE"}
    owned = {"A": [0, 1], "B": [2, 3], "C": [4, 5], "D": [6, 7]}
    caller.ask(0, owned, **static)
    del owned["D"]
    caller.ask(0, owned, **static)
    told = caller.ask(100, owned | {"E": []}, **static)
    (stopping,) = [member for member, (_, revoked, _) in told.items() if revoked]
    moved = told[stopping][1]["T"]
    assert {delay for _, _, delay in told.values()} == {0}
    assert (caller.answer["waiting"], caller.answer["lost"]) == ({"T": moved}, {"T": [6, 7]})
    owned[stopping] = told[stopping][0]
    told = caller.ask(200, owned | {"E": []}, **static)
    assert told["E"] == (moved, None, T1 - 200)
    back = {"instance_id": "pod-D"}
    told = caller.ask(300, owned | {"E": moved, "new": []}, **static, new=back)
    assert (told["new"][0], caller.answer["lost"]) == ([6, 7], {})


def test_deferred_when_the_first_members_wait_grants_what_is_created_later() -> None:
    caller = Caller({"name": "deferred", "initial_delay_ms": 3_000})
    assert caller.ask(0, {"A": []}) == {"A": ([], None, 3_000)}
    assert (caller.answer["created"], caller.answer["waiting"]) == ({}, {})
    assert caller.answer["target"] == {"A": {"T": [1, 2, 3, 4]}}
    assert caller.answer["held"] == {"T": [1, 2, 3, 4]}
    assert caller.ask(1_000, {"A": [], "B": []})["B"] == ([], None, 2_000)
    told = caller.ask(3_000, {"A": [], "B": []})
    assert told == {"A": ([1, 3], None, 0), "B": ([2, 4], None, 0)}
    assert caller.answer["created"] == {"T": [1, 2, 3, 4]}
    assert "held" not in caller.answer


def test_incremental_when_a_member_joins_moves_by_the_ration_and_the_interval() -> None:
    caller = Caller(
        {"name": "incremental", "max_moves_per_round": 1, "move_interval_ms": 5_000}, {"T": 4}
    )
    told = caller.ask(0, {"A": [0, 1, 2, 3], "B": []})
    assert (told["A"][1], told["B"][1]) == ({"T": [1]}, {})
    assert caller.answer["waiting"] == {"T": [1, 3]}
    told = caller.ask(40, {"A": [0, 2, 3], "B": []})
    assert told == {"A": ([0, 2, 3], None, 4_960), "B": ([1], None, 4_960)}
    (left,) = caller.answer["waiting"]["T"]
    told = caller.ask(5_000, {"A": [0, 2, 3], "B": [1]})
    assert told["A"][1] == {"T": [left]}
    told = caller.ask(5_050, {"A": sorted({0, 2, 3} - {left}), "B": [1]})
    assert told["B"] == (sorted([1, left]), None, 0)
    assert caller.answer["waiting"] == {}


@pytest.mark.parametrize("policy", ["simple", "deferred", "incremental"])
def test_slow_stop_when_it_is_all_that_is_left_is_told_to_its_claimant_only(policy: str) -> None:
    """`revoked` is null for the other members, because they have no reason to rejoin."""
    caller = Caller(policy)
    caller.ask(0, {"A": [1, 4], "B": [2], "C": [3], "D": []})
    told = caller.ask(10, {"A": [1, 4], "B": [2], "C": [3], "D": []})
    assert told == {"A": ([1], {"T": [4]}, 0), "B": ([2], None, 0), "C": ([3], None, 0)} | {
        "D": ([], None, 0)
    }
    assert caller.answer["waiting"] == {"T": [4]}
    assert caller.answer["events"][0]["follow_up"] is False


def test_eager_when_anything_happens_assigns_the_target() -> None:
    caller = Caller("eager")
    caller.ask(0, {"A": [1, 4], "B": [2], "C": [3]})
    told = caller.ask(1, {"B": [2], "C": [3], "D": []})
    assert {row[1:] for row in told.values()} == {(None, 0)}
    assigned = {member: row["assigned"] for member, row in caller.answer["members"].items()}
    assert caller.answer["target"] == assigned
    assert (caller.answer["lost"], caller.answer["waiting"]) == ({}, {})
    contested = caller.ask(2, {"B": [1, 2], "C": [1, 3]})
    assert sorted(contested["B"][0] + contested["C"][0]) == [1, 2, 3, 4]


def test_delay_when_0_answers_as_simple_does() -> None:
    rows = []
    for policy in ("simple", {"name": "deferred", "scheduled_rebalance_timeout_ms": 0}):
        caller = Caller(policy)
        told = [caller.ask(0, {"A": [1, 4], "B": [2], "C": [3]})]
        told.append(caller.ask(5, {"A": [1, 4], "C": [3], "D": [], "E": []}))
        told.append(caller.ask(9, {"A": [1], "C": [3], "D": [2], "E": []}))
        rows.append(told)
    assert rows[0] == rows[1]


def test_topic_when_known_by_the_state_only_is_lost_and_otherwise_new() -> None:
    caller = Caller("deferred", {"T": 1})
    caller.ask(0, {"A": [], "B": [0]})
    state = caller.state
    assert caller.ask(1, {"A": []})["A"] == ([], None, T1)
    caller.state = None
    assert caller.ask(1, {"A": []})["A"] == ([0], None, 0)
    assert (caller.answer["created"], state is None) == ({"T": [0]}, False)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"name": "deferred", "scheduled_rebalance_timeout_ms": -1}, "scheduled_rebalance_timeout"),
        ({"name": "deferred", "initial_delay_ms": "5"}, "initial_delay_ms"),
        ({"name": "deferred", "max_moves_per_round": 1}, "max_moves_per_round"),
        ({"name": "incremental", "max_moves_per_round": 0}, "max_moves_per_round"),
        ({"name": "incremental", "move_interval_ms": 9}, "max_moves_per_round beside it"),
        ({"name": "incremental", "max_moves_per_round": True}, "max_moves_per_round"),
        ({"name": "eager", "delay": 1}, "no options at all"),
        ({"name": "simple", "initial_delay_ms": 1}, "one of warmup"),
    ],
)
def test_option_when_wrong_refuses_the_line_with_one_sentence(
    policy: dict[str, object], named: str
) -> None:
    row = answered({"id": "x", "topics": {"T": 1}, "members": {}, "policy": policy})
    assert set(row) == {"id", "error"}
    assert named in row["error"]


@pytest.mark.parametrize("policy", ["deferred", "eager", "incremental", "simple"])
def test_group_when_empty_has_an_empty_plan(policy: str) -> None:
    caller = Caller(policy)
    assert caller.ask(0, {}) == {}
    assert caller.ask(1, {}) == {}
    assert caller.ask(2, {"A": []})["A"][0] == [1, 2, 3, 4]
