"""Input lines of `coopgroup plan`: the parsed values and the error messages."""

import json
from typing import Any

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.cli.plan_input import RESOURCES_MAX, Defaults, parse_line, read_line
from coopgroup.core.leader import TopicMetadata
from coopgroup.core.model import MemberClaim, ResourceSet
from coopgroup.core.model.traits import TRAITS_RULE
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.memory import state_to_json
from coopgroup.core.policies.policy import RoundContext
from coopgroup.errors import ConfigurationError
from tests.support.memory import remembered

DEFAULTS = Defaults(assignor="sticky", policy="simple")
FULL: dict[str, Any] = {
    "id": "full",
    "topics": {"orders": 3, "sink": [1, -1], "empty": 0},
    "racks": {"sink": [["r2", "r1"], []]},
    "lags": {"orders": [5, None, 7], "sink": [40, 30]},
    "arrivals_per_s": {"sink": [4, 0.5], "orders": [None, 2.5, 0]},
    "members": {
        "b": {"topics": [], "hands_over": True, "traits": {"places": 4}},
        "a": {
            "topics": ["sink", "orders", "orders", "later"],
            "owned": {"gone": [4], "orders": [2, 0, 2], "none": []},
            "generation": 6,
            "instance_id": "i",
            "rack": "r1",
            "remaining_delay_ms": 0,
            "loss_ends_in_ms": 4,
            "consumption_rate_per_s": 12,
        },
    },
    "assignor": "sticky",
    "policy": {"name": "simple"},
    "generation": 7,
    "leader": "b",
    "now_ms": -(2**40),
    "state": state_to_json(remembered("a", generation=6, owned=ResourceSet({"orders": [1]}))),
}


DEEP: dict[str, Any] = {"a": [[[[[[[[]]]]]]]]}
SHOWN = "{'a': [[[[[[...]]]]]]}"


def refusal(row: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as error:
        read_line(row, DEFAULTS)
    return str(error.value)


def changed(**fields: object) -> dict[str, Any]:
    return {"topics": {"t": 2}, "members": {"m": {"topics": ["t"]}}} | fields


def member(**fields: object) -> dict[str, Any]:
    return changed(members={"m": {"topics": ["t"]} | fields})


def test_read_line_when_every_field_is_given_reads_every_field() -> None:
    line = read_line(FULL, DEFAULTS)
    assert line.metadata == TopicMetadata(
        resources=ResourceSet({"orders": [0, 1, 2], "sink": [-1, 1]}),
        racks={"sink": {1: ("r2", "r1"), -1: ()}},
    )
    assert line.lags.resources == line.metadata.resources
    assert line.lags.values.tolist() == [5, 0, 7, 30, 40]
    assert line.lags.arrivals_per_s is not None
    assert line.lags.arrivals_per_s.tolist() == [0, 2.5, 0, 0.5, 4]
    assert line.claims == (
        MemberClaim(
            member_id="a",
            topics=("later", "orders", "sink"),
            owned=ResourceSet({"gone": [4], "orders": [0, 2]}),
            generation=6,
            instance_id="i",
            rack="r1",
            rejoin_in_ms=0,
            loss_ends_in_ms=4,
            consumption_rate_per_s=12.0,
        ),
        MemberClaim(member_id="b", topics=(), hands_over=True, traits={"places": 4}),
    )
    assert (line.assignor, line.policy) == (StickyAssignor(), SimplePolicy())
    assert line.context == RoundContext(
        leader_id="b",
        generation=7,
        now_ms=-(2**40),
        state=remembered("a", generation=6, owned=ResourceSet({"orders": [1]})),
    )


@pytest.mark.parametrize(
    ("given", "generation"), [({}, 7), ({"generation": 6}, 6), ({"generation": 0}, 0)]
)
def test_read_line_when_a_state_comes_without_a_generation_has_completed_its_round(
    given: dict[str, int], generation: int
) -> None:
    """Only an explicit generation can show that the leader's own sync failed."""
    state = state_to_json(remembered("a", generation=6))
    assert read_line(changed(state=state, **given), DEFAULTS).context.generation == generation


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("deferred scheduled_rebalance_timeout_ms true", "policy deferred: got true, expected"),
        ("incremental initial_delay_ms null", ": got null, expected an integer"),
        ('deferred initial_delay_ms "5"', "initial_delay_ms"),
        ("deferred max_moves_per_round 1", "max_moves_per_round"),
        ("incremental max_moves_per_round 0", "max_moves_per_round"),
        ("incremental move_interval_ms 9", "max_moves_per_round beside it"),
        ("eager delay 1", "no options at all"),
        ("simple initial_delay_ms 1", "one of warmup"),
    ],
)
def test_wrong_option_of_a_policy_is_named_in_the_words_of_json(policy: str, expected: str) -> None:
    name, option, value = policy.split()
    assert expected in refusal(changed(policy={"name": name, option: json.loads(value)}))


def test_read_line_when_a_field_is_wrong_names_it(subtests: pytest.Subtests) -> None:
    for row, message in [
        ({"members": {}}, "topics: got nothing, expected a value, as this key is required"),
        (changed(id=7), "id: got 7, expected a string"),
        (changed(member={}), "member: got {}, but there is no such key (did you mean members?); "),
        (changed(topics={"t": [0, 0]}), "topics.t: got [0, 0], expected every index once"),
        (changed(topics={"t": [2**31]}), "topics.t[0]: got 2147483648, expected an integer from -"),
        (changed(topics={"t": RESOURCES_MAX, "u": 1}), "topics: got '10000001 partitions', expect"),
        (changed(racks=None), "racks: got null, expected a value, or no such key"),
        (changed(racks={"t": [[]]}), "racks.t: got [[]], expected a list of 2, one item per part"),
        (changed(lags={"u": []}), "lags.u: got [], expected a name that topics has"),
        (changed(arrivals_per_s={"t": [1, -0.5]}), "arrivals_per_s.t[1]: got -0.5, expected a num"),
        (changed(lags={"t": [1, 1.5]}), "lags.t[1]: got 1.5, expected an integer from -92233720"),
        (changed(lags={"t": [1, 2**63]}), "lags.t[1]: got 9223372036854775808, expected an intege"),
        (member(traits=DEEP), f"members.m.traits: got {SHOWN}, expected {TRAITS_RULE}"),
        (member(hands_over=True), "members.m.hands_over: got true, expected no topics beside it"),
        (changed(members=[]), "members: got [], expected an object"),
        (member(own={}), "members.m.own: got {}, but there is no such key (did you mean owned?); "),
        (member(owned=[]), "members.m.owned: got [], expected an object of lists of integers"),
        (member(owned={"t": [-(2**31) - 1]}), "members.m.owned.t[0]: got -2147483649, expected an"),
        (member(generation=-2), "members.m.generation: got -2, expected an integer from -1 to 21"),
        (changed(leader="x"), "leader: got 'x', expected the id of one of the members"),
        (changed(lags=None), "lags: got null, expected an object"),
        (changed(assignor=1), "assignor: got 1, expected a name, or an object with a name and op"),
        (changed(assignor={"scope": "topic"}), "assignor.name: got nothing, expected a value, as "),
        (changed(policy={"name": 5}), "policy.name: got 5, expected a string"),
        (changed(state={}), "state: got {}, expected null or the state of an earlier output line"),
        (changed(state=FULL["state"] | {"silent": [1]}), "state: got {"),
        (changed(state=FULL["state"] | {"known": {"t": ["0"]}}), "state: got {"),
    ]:
        with subtests.test(message, row=row):
            assert refusal(row).startswith(message)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\n", "got '', expected one JSON object (Expecting value, column "),
        (b"[1]", "got [1], expected one JSON object"),
        (b'{"a": 1} {}', "got '{\"a\": 1} {}', expected one JSON object (Extra data, column "),
        (b'{"a": \xff}', "got b'\\xff', expected UTF-8 (byte 6)"),
        (b'{"a": ' + b"9" * 5000 + b"}", 'got \'{"a": 9999'),
        (b"[" * 100_000, "got '[[[[[["),
    ],
    ids=["empty", "list", "two", "bytes", "digits", "deep"],
)
def test_line_that_is_no_object_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_line(raw)
    assert str(error.value).startswith(f"line: {message}")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"b": 1, "b": 2}', "line: got 'b', expected every key once in an object"),
        (b"NaN", "line: got 'NaN', expected numbers that JSON has"),
        (b"-Infinity", "line: got '-Infinity', expected numbers that JSON has"),
    ],
)
def test_bent_json_gives_the_object_and_the_problem(raw: bytes, message: str) -> None:
    row, problem = parse_line(b'{"id": "x", "a": ' + raw + b"}")
    assert (row["id"], str(problem)) == ("x", message)
