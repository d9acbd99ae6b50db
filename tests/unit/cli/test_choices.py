"""Names and options of policies and assignors on the command line."""

import pytest

from coopgroup.cli.choices import parse_choice, parse_choices
from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice


def named(name: str) -> Choice:
    return Choice(name=name, options={"from": "scenario"})


def test_options_are_numbers_constants_and_strings() -> None:
    choice = parse_choice("--policy", "own:a=1,b=-2.5,c=true,d=null,e=topic,f=,g=[1],h=x=y", named)
    assert choice == Choice(
        name="own",
        options={
            "a": 1,
            "b": -2.5,
            "c": True,
            "d": None,
            "e": "topic",
            "f": "",
            "g": "[1]",
            "h": "x=y",
        },
    )


def test_keys_with_dots_are_options_of_an_option() -> None:
    choice = parse_choice("--policy", "own:a.b=1,a.c=x,d=2", named)
    assert choice == Choice(name="own", options={"a": {"b": 1, "c": "x"}, "d": 2})


def test_name_may_be_a_class_of_a_module() -> None:
    assert parse_choices("--policies", "mine.rules:Calm:a=1,b=x:y,other:Own,eager", named) == {
        "mine.rules:Calm:a=1,b=x:y": Choice(name="mine.rules:Calm", options={"a": 1, "b": "x:y"}),
        "other:Own": named("other:Own"),
        "eager": named("eager"),
    }


@pytest.mark.parametrize("text", ["own:a.b=1,a.b=2", "own:a=1,a.b=2", "own:a.b=1,a=2"])
def test_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="each key once"):
        parse_choice("--policy", text)


def test_options_in_a_list_belong_to_the_policy_before_them() -> None:
    assert parse_choices("--policies", "eager,own:a=1,b=2,simple,own:a=3", named) == {
        "eager": named("eager"),
        "own:a=1,b=2": Choice(name="own", options={"a": 1, "b": 2}),
        "simple": named("simple"),
        "own:a=3": Choice(name="own", options={"a": 3}),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--policies: got '', expected NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("simple,", "--policies: got '', expected NAME or NAME:KEY=VALUE,KEY=VALUE"),
        (":a=1", "--policies: got ':a=1', expected NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("own:", "--policies: got 'own:', expected NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("own:5", "--policies: got 'own:5', expected NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:=1", "--policies: got 'own:=1', expected NAME:KEY=VALUE,KEY=VALUE, each key once"),
        (
            "own:a=1,a=2",
            "--policies: got 'own:a=1,a=2', expected NAME:KEY=VALUE,KEY=VALUE, each key once",
        ),
        ("simple,simple", "--policies: got 'simple,simple', expected each policy once"),
    ],
)
def test_what_is_no_choice_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_choices("--policies", text, named)
    assert str(caught.value) == message
