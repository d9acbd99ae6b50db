"""Scenarios made by hand: as values, and under the same rules as files."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import (
    Choice,
    Cost,
    Crash,
    Group,
    MemberSet,
    Network,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.checks import check_scenario

TOPIC = Topic(name="t", partitions=1, rate_per_s=(0.0,))
SCENARIO = Scenario(
    duration_ms=1000, topics=(TOPIC,), members=(MemberSet(name="m", topics=("t",)),)
)


SIMPLE = Choice(name="simple")
# fmt: off
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"events": (Crash(at_ms=0, member="m"), Crash(at_ms=1000, member="m"))},
     "events[1].at_ms: got 1000, expected a time before duration_ms (1000)"),
    ({"members": ()}, "members: got [], expected at least one set of members"),
    ({"topics": ()}, "topics: got [], expected at least one topic"),
    ({"topics": (TOPIC, TOPIC)}, "topics.t: got 't', expected every topic once"),
    ({"policies": (SIMPLE, SIMPLE)}, "policies: got 'simple', expected every policy once"),
    ({"group": Group(policy=Choice(name="simple", options={"x": 1}))},
     "group.policy: option of policy simple: got 'x', expected one of warmup"),
    ({"settle_ms": 0}, ("settle_ms: got 0, expected at least 3012, the time of a heartbeat and two "
                        "rounds, so that the group can converge")),
    ({"network": Network(delay_ms=Span(low=1, high=100_000))},
     ("network.delay_ms: got 100000, expected less than half of group.session_timeout_ms (45000), "
      "so that heartbeats are answered in time")),
]
# fmt: on


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_scenario_that_cannot_be_played_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_scenario(evolve(SCENARIO, **change))
    assert str(caught.value) == message


T1: dict[str, object] = {"name": "t", "partitions": 1, "rate_per_s": (0.0,)}
# fmt: off
OUT_OF_BOUNDS: list[tuple[Callable[..., object], dict[str, object], str]] = [
    (Crash, {"at_ms": -1, "member": "m"}, "at_ms: got -1, expected an integer from 0 to 10000"),
    (Group, {"session_timeout_ms": 0}, "session_timeout_ms: got 0, expected an integer from 1"),
    (Topic, T1 | {"name": ""}, "name: got '', expected a na"),
    (Topic, T1 | {"weights": (1, 2)},
     "weights: got [1, 2], expected as many numbers as partitions (1)"),
    (Topic, T1 | {"partitions": 2},
     "rate_per_s: got [0.0], expected as many numbers as partitions (2)"),
    (Topic, T1 | {"weights": (-1,)}, "weights[0]: got -1, expected an integer from 0 to"),
    (Cost, {"stop_ms": Span(2, 1)},
     "stop_ms: got [2, 1], expected the smaller number before the larger"),
]
# fmt: on


@pytest.mark.parametrize(("kind", "fields", "message"), OUT_OF_BOUNDS)
def test_a_value_out_of_its_bounds_is_refused_when_it_is_made(
    kind: Callable[..., object], fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind(**fields)
    assert str(caught.value).startswith(message)


def test_choice_reads_as_the_command_line_takes_it() -> None:
    assert str(Choice(name="simple")) == "simple"
    options = {"z": 1, "b": True, "a": None, "text": "topic"}
    assert str(Choice(name="own", options=options)) == "own:a=null,b=true,text=topic,z=1"
    assert Choice(name="own", options=options) == Choice(name="own", options=dict(options))
    assert hash(Choice(name="own", options=options)) == hash(Choice(name="own"))


def test_policy_named_has_the_options_that_the_scenario_gives_it() -> None:
    own, other = Choice(name="own", options={"a": 1}), Choice(name="other", options={"b": 2})
    scenario = evolve(SCENARIO, group=Group(policy=own), policies=(other,))
    named = [scenario.policy_named(name) for name in ("own", "other", "third")]
    assert named == [own, other, Choice(name="third")]
