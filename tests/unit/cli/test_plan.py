"""`coopgroup plan`: one answer per line, the examples of the design document, streams."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from markdown_it import MarkdownIt

from coopgroup.assignors import StickyAssignor
from coopgroup.cli import app, plan_input
from coopgroup.cli.plan import answer_lines
from coopgroup.cli.plan_input import Defaults
from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.errors import InvariantViolationError
from coopgroup.policies import Offer, RoundContext, SimplePolicy, StagedRound

DEFAULTS = Defaults(assignor="sticky", policy="simple")
GOOD = b'{"id": "good", "topics": {"t": 1}, "members": {"m": {"topics": ["t"]}}}\n'


def answers(*lines: bytes) -> tuple[int, list[dict[str, Any]]]:
    written = io.BytesIO()
    status = answer_lines(lines, written, DEFAULTS)
    return status, [json.loads(line) for line in written.getvalue().splitlines()]


def answer(row: dict[str, Any]) -> dict[str, Any]:
    status, (only,) = answers(json.dumps(row).encode())
    assert status == 0
    return only


def told(assigned: list[int], revoked: list[int] | None) -> dict[str, Any]:
    return {
        "assigned": {"T": assigned} if assigned else {},
        "revoked": None if revoked is None else {"T": revoked} if revoked else {},
        "scheduled_rebalance_timeout_ms": 0,
    }


def design_round(owned: dict[str, list[int]], **fields: object) -> dict[str, Any]:
    """Return a round of the document's group: one topic T, partitions 1 to 4."""
    members = {
        member: {"topics": ["T"], "owned": {"T": claims}, "generation": 1}
        for member, claims in owned.items()
    }
    return answer({"topics": {"T": [1, 2, 3, 4]}, "members": members} | fields)


# --- the examples of Design I --------------------------------------------------------------------


def test_plan_when_a_member_joins_takes_two_rounds() -> None:
    """Design I, "Member joins".

    "Initial group and assignment: A(T1,T4), B(T2), C(T3). D(T) joins. Leader computes new
    assignment as: A(T1), B(T2), C(T3), D(T4) but sends assignment with revocation request:
    A(assigned:,revoked:T4), B(assigned:,revoked:), C(assigned:,revoked:),
    D(assigned:,revoked:)". Our `assigned` also lists the partitions that stay.
    """
    first = design_round({"A": [1, 4], "B": [2], "C": [3], "D": []})
    (moved,) = first["waiting"]["T"]
    (stays,) = {1, 4} - {moved}
    assert first["target"] == {"A": {"T": [stays]}, "B": {"T": [2]}, "C": {"T": [3]}} | {
        "D": {"T": [moved]}
    }
    assert first["members"] == {
        "A": told([stays], [moved]),
        "B": told([2], []),
        "C": told([3], []),
        "D": told([], []),
    }
    # "Members join with subscriptions: A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3),
    # D(T,assigned:). Leader computes new assignment as: ... D(assigned:T4,revoked:)"
    second = design_round({"A": [stays], "B": [2], "C": [3], "D": []}, state=first["state"])
    assert second["members"] == {
        "A": told([stays], None),
        "B": told([2], None),
        "C": told([3], None),
        "D": told([moved], None),
    }
    assert (second["waiting"], second["lost"], second["created"]) == ({}, {}, {})


# --- one answer ----------------------------------------------------------------------------------


def test_plan_when_a_line_names_assignor_and_policy_takes_these() -> None:
    row = answer(
        {
            "topics": {"t": 3},
            "lags": {"t": [100_000, 60_000, 50_000]},
            "members": {"C0": {"topics": ["t"]}, "C1": {"topics": ["t"]}},
            "assignor": {"name": "lag-aware", "scope": "topic"},
            "policy": {"name": "simple"},
        }
    )
    # KIP "Lag-based assignment", example: "C0 t0p0 100,000; C1 t0p1,t0p2 110,000"
    assert row["target"] == {"C0": {"t": [0]}, "C1": {"t": [1, 2]}}


# --- many lines ----------------------------------------------------------------------------------


def test_answer_lines_when_one_is_bad_answers_it_and_goes_on() -> None:
    twice = b'{"id": "twice", "now_ms": 1, "now_ms": 2}\n'
    status, rows = answers(b'{"id": "bad"}\n', b"\n", b'{"id": 3}\n', twice, GOOD)
    assert status == 2
    assert [row.get("id") for row in rows] == ["bad", None, None, "twice", "good"]
    assert ["error" in row for row in rows] == [True, True, True, True, False]
    assert [sorted(row) for row in rows[1:4]] == [["error"], ["error"], ["error", "id"]]
    assert rows[3]["error"] == "line: got 'now_ms', expected every key once in an object"


def test_answer_lines_when_a_round_is_refused_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong result of a built-in assignor is a bug: later lines are answered, the status is 1."""

    class Broken(StickyAssignor):
        def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
            raise ZeroDivisionError

    monkeypatch.setattr(plan_input, "choose_assignor", lambda given: Broken())
    written = io.BytesIO()
    with pytest.raises(InvariantViolationError, match=r"^2 rounds were refused"):
        answer_lines([GOOD, GOOD], written, DEFAULTS)
    rows = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [row["events"][0]["kind"] for row in rows] == ["round_refused"] * 2
    assert rows[0]["members"]["m"]["assigned"] == {}


# --- the command ---------------------------------------------------------------------------------


def test_command_when_given_options_takes_them_for_lines_without_a_policy(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "lines.json"
    file.write_bytes(GOOD)
    assert app.run(["plan", str(file), "--policy", "deferred:initial_delay_ms=900"]) == 0
    waits = json.loads(capfdbinary.readouterr().out)
    told = waits["members"]["m"]
    assert told["scheduled_rebalance_timeout_ms"] == 900
    assert waits["held"] == {"t": [0]}


def command_line(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "coopgroup", "plan", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )


def test_command_when_fed_line_by_line_answers_line_by_line() -> None:
    with command_line("-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        state = None
        for generation in range(3):
            row = json.loads(GOOD) | {"state": state, "generation": generation}
            process.stdin.write(json.dumps(row).encode() + b"\n")
            process.stdin.flush()
            state = json.loads(process.stdout.readline())["state"]
            assert state["generation"] == generation
        process.stdin.write(b"?")
        process.stdin.close()
        assert list(json.loads(process.stdout.readline())) == ["error"]
        assert process.wait(timeout=30) == 2


def test_command_when_nobody_reads_the_answers_stops_without_a_word() -> None:
    """`coopgroup plan | head -1` must not print a traceback."""
    with command_line() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(GOOD * 10)
        process.stdin.close()
        assert process.wait(timeout=30) == 141


def test_command_when_hash_seeds_differ_gives_the_same_bytes() -> None:
    members = {
        f"member-{number}": {
            "topics": [f"topic-{number % 5}", "common"],
            "owned": {"common": [number, number + 1], "gone": [number]},
            "generation": number % 3,
        }
        for number in range(20)
    }
    row = {"topics": {f"topic-{n}": 7 for n in range(5)} | {"common": 20}, "members": members}
    line = json.dumps(row).encode() + b"\n" + b'{"nonsense": 1, "more": 2}\n'
    outputs = []
    for seed in ("0", "1", "4242"):
        with command_line("-", PYTHONHASHSEED=seed) as process:
            outputs.append(process.communicate(line, timeout=60)[0])
    assert outputs[0].count(b"\n") == 2
    assert outputs == [outputs[0]] * 3


def test_documented_examples_are_what_the_command_answers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    blocks: dict[str, list[dict[str, Any]]] = {"json question": [], "json answer": []}
    for token in MarkdownIt().parse(page):
        if token.type == "fence" and token.info in blocks:
            blocks[token.info].append(json.loads(token.content))
    _, rows = answers(*(json.dumps(row).encode() for row in blocks["json question"]))
    assert len(rows) == 4
    shown = [
        {name: row[name] for name in documented}
        for row, documented in zip(rows, blocks["json answer"], strict=True)
    ]
    assert shown == blocks["json answer"]


# --- a policy's own memory ------------------------------------------------------------------------


class Counting:
    """Count the rounds in a memory of its own; subclasses choose its form."""

    name = "counting"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = SimplePolicy().stage(group, target, context, offer)
        return attrs.evolve(staged, memory=self.counted(context.memory))

    def counted(self, memory: Any) -> object:  # noqa: ANN401  (its own)
        return {"rounds": 1 if memory is None else memory["rounds"] + 1}


class CountingInATuple(Counting):
    def counted(self, memory: Any) -> object:  # noqa: ANN401
        return ("rounds", 1 if memory is None else memory[1] + 1)


class CountingInATupleOfJson(CountingInATuple):
    def memory_to_json(self, memory: tuple[str, int]) -> int:
        return memory[1]

    def memory_from_json(self, value: int) -> tuple[str, int]:
        return ("rounds", value + 0)


def counting(kind: type[Counting], **fields: object) -> dict[str, Any]:
    row = {"id": "c", "topics": {"t": 1}, "members": {"m": {"topics": ["t"]}}}
    status, (only,) = answers(
        json.dumps(row | {"policy": f"{kind.__module__}:{kind.__name__}"} | fields).encode()
    )
    assert status == (2 if "error" in only else 0)
    return only


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [(Counting, {"rounds": 1}, {"rounds": 2}), (CountingInATupleOfJson, 1, 2)],
)
def test_memory_of_a_policy_passes_through_the_answer(
    kind: type[Counting], first: object, second: object
) -> None:
    before = counting(kind)
    after = counting(kind, state=before["state"], memory=before["memory"])
    assert (before["memory"], after["memory"]) == (first, second)
    assert counting(kind, state=before["state"])["memory"] == first
    assert "memory" not in answer({"topics": {"t": 1}, "members": {"m": {"topics": ["t"]}}})


def test_memory_that_cannot_be_printed_or_read_is_refused() -> None:
    said = counting(CountingInATuple)
    assert said == {
        "id": "c",
        "error": "memory: got ('rounds', 1), expected a JSON value, or methods memory_to_json and "
        "memory_from_json of the policy",
    }
    state = counting(Counting)["state"]
    said = counting(CountingInATupleOfJson, state=state, memory="1")
    assert said["error"].startswith("memory: got '1', expected the memory of an earlier output li")
    said = counting(Counting, memory={"rounds": 1})
    assert said["error"] == "memory: got {'rounds': 1}, expected a state beside it"
