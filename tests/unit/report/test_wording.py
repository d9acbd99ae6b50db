"""Words for times, counts and resources."""

import pytest

from coopgroup.model import EMPTY, ResourceSet
from coopgroup.report.wording import counted, listed, rounded, seconds


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0 s"), (1, "0.001 s"), (1_500, "1.5 s"), (60_000, "60 s"), (1_234_567, "1,234.567 s")],
)
def test_seconds_have_no_more_digits_than_needed(duration_ms: int, text: str) -> None:
    assert seconds(duration_ms) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0523, "0.052"),
        (1.05, "1.1"),
        (40.0, "40"),
        (99.4, "99"),
        (99.96, "100"),
        (123.4, "123"),
        (115_621, "116,000"),
        (-4.26, "-4.3"),
    ],
)
def test_figures_have_two_or_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_counted_says_one_in_the_singular() -> None:
    assert counted(1, "round") == "1 round"
    assert counted(0, "round") == "0 rounds"
    assert counted(1_000, "story", "stories") == "1,000 stories"


def test_listed_joins_neighbours_to_ranges() -> None:
    resources = ResourceSet({"payments": [1], "orders": [0, 1, 2, 7, 9, 10]})
    assert listed(resources) == "orders 0-2, 7, 9-10; payments 1"
    assert listed(EMPTY) == ""


def test_listed_when_there_are_many_says_how_many_follow() -> None:
    resources = ResourceSet({"a": [0, 2, 4, 5, 6], "b": [1]})
    assert listed(resources, ranges_max=2) == "a 0, 2 and 4 more"


def test_listed_names_a_connector_beside_its_tasks() -> None:
    """The connector has the index -1, which a reader would not understand as a number."""
    resources = ResourceSet({"sink": [-1, 0, 1, 2], "source": [-1]})
    assert listed(resources) == "sink itself, 0-2; source itself"
