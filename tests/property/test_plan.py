"""`coopgroup plan` answers whatever it is fed: one line for each, never with a traceback."""

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
    """What a field should hold, and now and then something else."""
    return st.integers(0, 19).flatmap(lambda die: strategy if die else anything)


indices = st.lists(mostly(st.integers(-1, 4)), max_size=4)
members = st.fixed_dictionaries(
    {"topics": mostly(st.lists(mostly(names), max_size=3))},
    optional={
        "owned": mostly(st.dictionaries(names, mostly(indices), max_size=3)),
        "generation": mostly(st.integers(-1, 3)),
        "instance_id": mostly(names),
        "rack": mostly(names),
        "remaining_delay_ms": mostly(st.integers(0, 9)),
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
        "policy": mostly(st.sampled_from(("simple", "deferred"))),
        "generation": mostly(st.integers(-1, 3)),
        "leader": mostly(names),
        "now_ms": mostly(st.integers()),
        "state": anything,
    },
)


def answered(lines: list[bytes]) -> tuple[int, list[Mapping[str, Any]]]:
    """Exit status and answers; every answer is one line of ASCII."""
    written = io.BytesIO()
    status = answer_lines(lines, written, DEFAULTS)
    return status, [json.loads(line) for line in written.getvalue().decode("ascii").splitlines()]


def check_answers(count: int, status: int, answers: list[Mapping[str, Any]]) -> None:
    """One answer for each line, and a status that fits them."""
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
    """Bytes that are no JSON at all."""
    check_answers(len(lines), *answered(lines))


@given(row=rows)
def test_answer_when_fields_are_wrong_is_an_error_or_a_plan(row: dict[str, Any]) -> None:
    """Objects that are nearly what they should be, and sometimes are."""
    status, answers = answered([json.dumps(row).encode()])
    check_answers(1, status, answers)
    if isinstance(row["id"], str):
        assert answers[0]["id"] == row["id"]
