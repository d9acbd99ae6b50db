"""Scenarios as values."""

from coopgroup.simulator.scenario import Choice, Group, MemberSet, Scenario, Topic

SCENARIO = Scenario(
    duration_ms=1000,
    settle_ms=500,
    topics=(Topic(name="t", partitions=1, rate_per_s=(0.0,)),),
    members=(MemberSet(name="m", topics=("t",)),),
)


def test_choice_reads_as_the_command_line_takes_it() -> None:
    assert str(Choice(name="simple")) == "simple"
    options = {"z": 1, "b": True, "a": None, "text": "topic"}
    assert str(Choice(name="own", options=options)) == "own:a=null,b=true,text=topic,z=1"
    assert Choice(name="own", options=options) == Choice(name="own", options=dict(options))
    assert hash(Choice(name="own", options=options)) == hash(Choice(name="own"))


def test_policy_named_has_the_options_that_the_scenario_gives_it() -> None:
    own, other = Choice(name="own", options={"a": 1}), Choice(name="other", options={"b": 2})
    scenario = Scenario(
        duration_ms=1,
        group=Group(policy=own),
        topics=SCENARIO.topics,
        members=SCENARIO.members,
        policies=(other,),
    )
    named = [scenario.policy_named(name) for name in ("own", "other", "third")]
    assert named == [own, other, Choice(name="third")]
