"""Choosing by name: one clear line for any error."""

import pytest
from attrs import frozen

from coopgroup.core.model.named_factories import NamedFactories
from coopgroup.errors import ConfigurationError


@frozen(kw_only=True)
class _Kettle:
    litres: int = 1
    whistle: bool = False


@frozen(kw_only=True)
class _Mug:
    colour: str


def _anything(**options: object) -> dict[str, object]:
    return options


def _kitchen() -> NamedFactories[object]:
    return NamedFactories("thing", {"mug": _Mug, "kettle": _Kettle, "bag": _anything})


def test_create_when_named_makes_the_thing_with_its_options() -> None:
    kitchen = _kitchen()
    assert kitchen.names() == ("bag", "kettle", "mug")
    assert kitchen.create("kettle") == _Kettle()
    assert kitchen.create("kettle", {"litres": 2}) == _Kettle(litres=2)
    assert kitchen.create("mug", {"colour": "red"}) == _Mug(colour="red")
    assert kitchen.create("bag", {"any": 1}) == {"any": 1}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pan", {}, "thing: got 'pan', expected one of bag, kettle, mug, or module:Class"),
        (
            "kettle",
            {"litres": 1, "liters": 2},
            "option of thing kettle: got 'liters', expected one of litres, whistle",
        ),
        ("mug", {}, "colour of thing mug: got None, expected a value"),
    ],
)
def test_create_when_wrong_says_what_there_is(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _kitchen().create(name, options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mug", "thing name: got 'mug', expected a name that is not yet taken"),
        ("", "thing name: got '', expected a name"),
    ],
)
def test_register_when_name_cannot_be_had_is_refused(name: str, message: str) -> None:
    kitchen = _kitchen()
    with pytest.raises(ConfigurationError) as caught:
        kitchen.register(name, _Kettle)
    assert str(caught.value) == message
    assert kitchen.create("mug", {"colour": "red"}) == _Mug(colour="red")
