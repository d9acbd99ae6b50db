"""Member traits: which values are told, and which are refused."""

import math
from typing import Any

import pytest

from coopgroup.core.model.traits import (
    TRAITS_BYTES_MAX,
    TRAITS_RULE,
    checked_traits,
    traits_of_text,
    traits_text,
)

PLAIN: dict[str, Any] = {"places": 4, "tags": ["big"], "more": {"none": None, "half": 0.5}}
LONGEST = {"a": "x" * (TRAITS_BYTES_MAX - 8)}


@pytest.mark.parametrize("traits", [{}, PLAIN, LONGEST, {"a": [[[[[[[1]]]]]]]}])
def test_data_survives_its_text(traits: dict[str, Any]) -> None:
    assert checked_traits(traits) == traits
    assert traits_of_text(traits_text(traits)) == traits


def test_equal_data_have_equal_texts() -> None:
    assert traits_text({"b": 1, "a": "é"}) == traits_text({"a": "é", "b": 1}) == '{"a":"é","b":1}'


def test_checked_traits_is_a_copy_in_types_of_json() -> None:
    tags = ["big"]
    checked = checked_traits({"tags": tags, "pair": (1, 2)})
    tags.append("later")
    assert checked == {"tags": ["big"], "pair": [1, 2]}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1],
        "places",
        {1: 2},
        {"a": math.inf},
        {"a": math.nan},
        {"a": b"bytes"},
        {"a": {1: 2}},
        {"a": [{2}]},
        {"a": "\ud800"},
        {"a": 10**5_000},
        {"a": [[[[[[[[1]]]]]]]]},
        {"a": "x" * (TRAITS_BYTES_MAX - 7)},
        {"a": "é" * (TRAITS_BYTES_MAX // 2)},
    ],
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^a JSON object") as caught:
        checked_traits(value)
    assert str(caught.value) == TRAITS_RULE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":"\\ud800"}',
        '{"a":' + "[" * 900,
        '{"a":1}' + " " * TRAITS_BYTES_MAX,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a JSON object"):
        traits_of_text(text)
