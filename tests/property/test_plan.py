"""`coopgroup plan` answers any input: one line for each line, never a traceback."""

import io
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coopgroup.cli.plan import answer_lines
from coopgroup.cli.plan_input import Defaults

DEFAULTS = Defaults(assignor="sticky", policy="simple")

names = st.sampled_from(("t", "u", "\ud800", "é\n"))
integers = st.one_of(st.integers(-2, 4), st.integers())
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, st.floats(), names),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=2)),
    max_leaves=5,
)


def mostly(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw a valid value of a field, and sometimes another value."""
    return st.integers(0, 19).flatmap(lambda die: strategy if die else anything)


POLICIES = ("deferred", "eager", "incremental", "simple")
policies = st.fixed_dictionaries(
    {"name": mostly(st.sampled_from(POLICIES))},
    optional={
        "scheduled_rebalance_timeout_ms": mostly(st.integers(-1, 9)),
        "initial_delay_ms": mostly(st.integers(0, 9)),
        "max_moves_per_round": mostly(st.integers(0, 2)),
        "move_interval_ms": mostly(st.integers(0, 9)),
    },
)
indices = st.lists(mostly(st.integers(-1, 4)), max_size=4)
members = st.fixed_dictionaries(
    {"topics": mostly(st.lists(mostly(names), max_size=3))},
    optional={
        "owned": mostly(st.dictionaries(names, mostly(indices), max_size=3)),
        "generation": mostly(st.integers(-1, 3)),
        "instance_id": mostly(names),
        "rack": mostly(names),
        "rejoin_in_ms": mostly(st.integers(0, 9)),
        "loss_ends_in_ms": mostly(st.integers(0, 9)),
        "surprise": anything,
    },
)
rows = st.fixed_dictionaries(
    {
        "id": mostly(names),
        "topics": mostly(st.dictionaries(names, mostly(st.one_of(st.integers(0, 4), indices)))),
        "members": mostly(st.dictionaries(names, mostly(members), max_size=3)),
    },
    optional={
        "racks": mostly(st.dictionaries(names, st.lists(mostly(st.lists(names)), max_size=4))),
        "lags": mostly(st.dictionaries(names, st.lists(mostly(st.integers()), max_size=4))),
        "assignor": mostly(st.sampled_from(("sticky", "lag-aware", "range"))),
        "policy": mostly(st.one_of(st.sampled_from(POLICIES), policies)),
        "generation": mostly(st.integers(-1, 3)),
        "leader": mostly(names),
        "now_ms": mostly(st.integers()),
        "state": anything,
    },
)


def answered(lines: list[bytes]) -> tuple[int, list[Mapping[str, Any]]]:
    """Return exit status and answers; assert that every answer is one line of ASCII."""
    written = io.BytesIO()
    status = answer_lines(lines, written, DEFAULTS)
    return status, [json.loads(line) for line in written.getvalue().decode("ascii").splitlines()]


def check_answers(count: int, status: int, answers: list[Mapping[str, Any]]) -> None:
    """Assert one answer for each line, and a matching status."""
    assert len(answers) == count
    refused = [answer for answer in answers if "error" in answer]
    assert status == (2 if refused else 0)
    assert [answer for answer in refused if not set(answer) <= {"error", "id"}] == []
    assert [answer for answer in refused if "\n" in answer["error"]] == []
    assert [
        answer for answer in answers if not ({"error"} & set(answer) or "target" in answer)
    ] == []


@given(lines=st.lists(st.binary(max_size=40)))
def test_answers_when_lines_are_any_bytes_are_one_each(lines: list[bytes]) -> None:
    check_answers(len(lines), *answered(lines))


@given(row=rows)
def test_answer_when_fields_are_wrong_is_an_error_or_a_plan(row: dict[str, Any]) -> None:
    """Objects that are nearly valid, and sometimes valid."""
    status, answers = answered([json.dumps(row).encode()])
    check_answers(1, status, answers)
    if isinstance(row["id"], str):
        assert answers[0]["id"] == row["id"]


groups = st.dictionaries(
    st.sampled_from("abcd"),
    st.fixed_dictionaries(
        {"topics": st.just(["t", "u"])},
        optional={
            "owned": st.dictionaries(
                st.sampled_from("tu"), st.lists(st.integers(0, 5)), max_size=2
            ),
            "generation": st.integers(-1, 3),
            "instance_id": st.sampled_from(("i", "j")),
            "rejoin_in_ms": st.integers(0, 9),
            "loss_ends_in_ms": st.integers(0, 9),
        },
    ),
    max_size=4,
)


@given(
    policy=st.sampled_from((*POLICIES, {"name": "incremental", "max_moves_per_round": 1})),
    rounds=st.lists(st.tuples(groups, st.integers(0, 200_000)), min_size=1, max_size=4),
)
def test_answers_when_each_state_is_fed_into_the_next_line_are_plans(
    policy: object, rounds: list[tuple[dict[str, Any], int]]
) -> None:
    """With any events between the lines, the leader's own check refuses no round."""
    state = None
    for generation, (group, now_ms) in enumerate(rounds):
        row = {
            "topics": {"t": 5, "u": 2},
            "members": group,
            "policy": policy,
            "generation": generation,
            "now_ms": now_ms,
            "state": state,
        }
        status, (answer,) = answered([json.dumps(row).encode()])
        assert (status, set(answer["members"])) == (0, set(group))
        delays = {told["rejoin_in_ms"] for told in answer["members"].values()}
        revoked = [told["revoked"] for told in answer["members"].values()]
        assert len(delays) <= 1
        assert delays <= {None} or revoked == [None] * len(revoked)
        state = answer["state"]
