"""`coopgroup plan` with every policy: several lines, each with the state of the last answer."""

import io
import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from coopgroup.cli.formats.plan_input import Defaults
from coopgroup.cli.plan import answer_lines

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
