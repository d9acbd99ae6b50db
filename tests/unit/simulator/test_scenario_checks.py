"""Scenarios made by hand follow the same rules as files."""

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice, Crash, Group, MemberSet, Scenario, Topic
from coopgroup.simulator.scenario_checks import check_scenario
from coopgroup.simulator.scenario_problem import dotted

TOPIC = Topic(name="t", partitions=1, rate_per_s=(0.0,))
SCENARIO = Scenario(
    duration_ms=1000, topics=(TOPIC,), members=(MemberSet(name="m", topics=("t",)),)
)


def test_a_scenario_that_can_be_played_is_taken() -> None:
    check_scenario(SCENARIO)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            evolve(SCENARIO, events=(Crash(at_ms=0, member="m"), Crash(at_ms=-1, member="m"))),
            "events[1].at_ms: got -1, expected an integer from 0 on",
        ),
        (evolve(SCENARIO, members=()), "members: got [], expected at least one set of members"),
        (evolve(SCENARIO, topics=()), "topics: got [], expected at least one topic"),
        (evolve(SCENARIO, topics=(TOPIC, TOPIC)), "topics.t: got 't', expected every topic once"),
        (
            evolve(SCENARIO, topics=(evolve(TOPIC, name=""),)),
            "topics.: got '', expected a name",
        ),
        (
            evolve(SCENARIO, topics=(evolve(TOPIC, weights=(1, 2)),)),
            "topics.t.weight: got [1, 2], expected one integer for each of 1",
        ),
        (
            evolve(SCENARIO, policies=(Choice(name="simple"), Choice(name="simple"))),
            "policies: got 'simple', expected every policy once",
        ),
        (
            evolve(SCENARIO, group=Group(policy=Choice(name="simple", options={"x": 1}))),
            "option of policy simple: got 'x', expected no options at all",
        ),
    ],
)
def test_a_scenario_that_cannot_be_played_is_refused(broken: Scenario, message: str) -> None:
    """The message has the path of the value, since there is no file and line."""
    with pytest.raises(ConfigurationError) as caught:
        check_scenario(broken)
    assert str(caught.value) == message


def test_paths_are_written_as_in_programs() -> None:
    """Keys with dots, list positions in brackets."""
    assert dotted(("events", 2, "at_ms")) == "events[2].at_ms"
    assert dotted(()) == ""
