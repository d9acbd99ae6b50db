"""Names and options of policies and assignors on the command line."""

import pytest

from coopgroup.cli.choices import parse_choice, parse_choices
from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice


def named(name: str) -> Choice:
    return Choice(name=name, options={"from": "scenario"})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a=1,b=-2.5,c=true,d=null", {"a": 1, "b": -2.5, "c": True, "d": None}),
        ("e=topic,f=,g=[1],h=x=y", {"e": "topic", "f": "", "g": "[1]", "h": "x=y"}),
        ("a.b=1,a.c=x,d=2", {"a": {"b": 1, "c": "x"}, "d": 2}),
    ],
)
def test_options_are_numbers_constants_strings_and_options(
    text: str, options: dict[str, object]
) -> None:
    assert parse_choice("--policy", f"own:{text}", named) == Choice(name="own", options=options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("simple,", "NAME or NAME:KEY=VALUE,KEY=VALUE"),
        (":a=1", "NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("own:", "NAME or NAME:KEY=VALUE,KEY=VALUE"),
        ("own:5", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:=1", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:a=1,a=2", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:a.b=1,a.b=2", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:a=1,a.b=2", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("own:a.b=1,a=2", "NAME:KEY=VALUE,KEY=VALUE, each key once"),
        ("simple,simple", "each policy once"),
    ],
)
def test_what_is_no_choice_is_refused(text: str, expected: str) -> None:
    shown = text.rpartition(",")[2] if text == "simple," else text
    with pytest.raises(ConfigurationError) as caught:
        parse_choices("--policies", text, named)
    assert str(caught.value) == f"--policies: got '{shown}', expected {expected}"
