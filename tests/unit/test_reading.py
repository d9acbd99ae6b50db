"""Strict reading of tables into attrs classes: types, bounds, unknown keys, and paths of errors."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs
import pytest
from attrs import field, frozen

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.reading import (
    OneOrMore,
    StrictConverter,
    between,
    choice_hook,
    parse_json,
    parse_toml,
    structure,
    table_hook,
)


class Color(StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


@frozen(kw_only=True)
class Item:
    at_ms: int = field(validator=between(0))
    limit: int | None = field(default=None, validator=between(1, 9))
    color: Color = Color.RED
    counts: tuple[int, ...] = field(default=(), validator=between(0, 9))


@frozen(kw_only=True)
class Choice:
    name: str
    options: Mapping[str, object] = field(factory=dict)


@frozen(kw_only=True)
class Whole:
    items: tuple[Item, ...] = ()
    named: dict[str, Item] = field(factory=dict)
    names: OneOrMore[str] = ()
    is_on: bool = False
    ratio: float = 0.0
    resources: ResourceSet | None = None
    choice: Choice | None = None
    options: Mapping[str, object] = field(factory=dict)


def converter(table: str = "a table") -> StrictConverter:
    made = StrictConverter(table)
    made.register_structure_hook(Choice, choice_hook(Choice, made))
    return made


def refusal(row: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        structure(converter(), row, Whole)
    return str(caught.value)


def test_table_with_every_kind_of_value_is_read() -> None:
    row = {
        "items": [{"at_ms": 3, "limit": 9, "color": "dark-blue", "counts": [0, 9]}],
        "named": {"a.b": {"at_ms": 0}},
        "names": "x",
        "is_on": True,
        "ratio": 2,
        "resources": {"t": [2, 0, 2], "u": []},
        "choice": "c",
        "options": {"deep": [{"x": None}]},
    }
    assert structure(converter(), row, Whole) == Whole(
        items=(Item(at_ms=3, limit=9, color=Color.DARK_BLUE, counts=(0, 9)),),
        named={"a.b": Item(at_ms=0)},
        names=("x",),
        is_on=True,
        ratio=2.0,
        resources=ResourceSet({"t": [0, 2]}),
        choice=Choice(name="c"),
        options={"deep": [{"x": None}]},
    )
    assert structure(converter(), {"names": ["x", "y"]}, Whole).names == ("x", "y")


def item(**fields: object) -> object:
    return {"items": [{"at_ms": 1} | fields]}


NUMBER = "an integer from 0 to 1000000000000"


def test_wrong_value_is_refused_by_path_value_and_what_is_allowed(
    subtests: pytest.Subtests,
) -> None:
    for row, message in [
        ([], ": got [], expected a table with the keys items, named, names, is_on, ratio, "),
        ({"item": []}, "item: got [], but there is no such key (did you mean items?); there are "),
        ({"items": [{}]}, "items[0].at_ms: got nothing, expected a value, as this key is required"),
        ({"items": [{"at_ms": 0}, {"at_ms": -1}]}, f"items[1].at_ms: got -1, expected {NUMBER}"),
        (item(at_ms=True), f"items[0].at_ms: got true, expected {NUMBER}"),
        (item(at_ms=1.0), f"items[0].at_ms: got 1.0, expected {NUMBER}"),
        (item(at_ms="1"), f"items[0].at_ms: got '1', expected {NUMBER}"),
        (item(at_ms=None), f"items[0].at_ms: got null, expected {NUMBER}"),
        (item(limit=0), "items[0].limit: got 0, expected an integer from 1 to 9"),
        (item(color="blue"), "items[0].color: got 'blue', expected one of red, dark-blue"),
        (item(color=1), "items[0].color: got 1, expected one of red, dark-blue"),
        (item(counts=1), "items[0].counts: got 1, expected a list of int"),
        (item(counts=[1, True]), "items[0].counts[1]: got true, expected an integer"),
        (item(counts=[1, 10]), "items[0].counts[1]: got 10, expected an integer from 0 to 9"),
        ({"items": {}}, "items: got {}, expected a list"),
        ({"items": "ab"}, "items: got 'ab', expected a list"),
        ({"named": []}, "named: got [], expected a table"),
        ({"named": {"a": {"at_m": 1}}}, "named.a.at_m: got 1, but there is no such key (did you "),
        ({"names": 3}, "names: got 3, expected a string"),
        ({"names": ["a", 3]}, "names[1]: got 3, expected a string"),
        ({"is_on": 1}, "is_on: got 1, expected true or false"),
        ({"ratio": "1"}, "ratio: got '1', expected a number"),
        ({"ratio": False}, "ratio: got false, expected a number"),
        ({"resources": 1}, "resources: got 1, expected a table of lists of integers"),
        ({"resources": {"t": 1}}, "resources.t: got 1, expected a list of integers"),
        (
            {"resources": {"t": [0, 2**31]}},
            "resources.t[1]: got 2147483648, expected an integer from -2147483648 to 2147483647",
        ),
        ({"resources": {"t": [0], "u": [True]}}, "resources.u[0]: got true, expected an integer"),
        ({"choice": 1}, "choice: got 1, expected a name, or a table of name and options"),
        ({"choice": {"options": {}}}, "choice.name: got nothing, expected a value"),
        ({"choice": {"name": "a", "options": 1}}, "choice.options: got 1, expected a table"),
    ]:
        with subtests.test(row=row):
            assert refusal(row).startswith(message)


def test_hidden_key_is_refused_in_a_file_and_has_its_value() -> None:
    made = converter()
    made.register_structure_hook(Item, table_hook(Item, made, {"at_ms": 7}))
    assert structure(made, {"items": [{}]}, Whole).items == (Item(at_ms=7),)
    with pytest.raises(ConfigurationError, match=r"items\[0\]\.at_ms: got 1, but there is no such"):
        structure(made, {"items": [{"at_ms": 1}]}, Whole)


def test_error_that_is_no_refusal_is_not_hidden() -> None:
    @frozen
    class Broken:
        number: int

        def __attrs_post_init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        structure(converter(), {"number": 1}, Broken)


def test_bounds_hold_for_values_made_in_python() -> None:
    with pytest.raises(ConfigurationError, match="limit: got 10, expected an integer from 1 to 9"):
        attrs.evolve(Item(at_ms=1), limit=10)


def test_toml_with_a_syntax_error_is_refused_with_the_line_of_the_parser() -> None:
    assert parse_toml("a = 1\n", "f.toml", "file") == {"a": 1}
    with pytest.raises(ConfigurationError, match=r"file: got 'f\.toml', .*TOML .*line 2"):
        parse_toml("a = 1\nb = \n", "f.toml", "file")


@pytest.mark.parametrize("value", ["x" * 1_000, list(range(1_000)), {"k": ["v" * 500] * 500}])
def test_long_value_is_shortened(value: Any) -> None:  # noqa: ANN401
    assert len(refusal({"ratio": value})) < 500


@pytest.mark.parametrize("given", [b'{"id": 1}', b'\xef\xbb\xbf{"id": 1}'])
def test_json_may_begin_with_a_byte_order_mark(given: bytes) -> None:
    assert parse_json(given, "line") == ({"id": 1}, None)
