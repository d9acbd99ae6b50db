"""Measures as rows."""

import pytest
from attrs import frozen

from coopgroup.core.model import Resource, ResourceSet
from coopgroup.report.measures import Cell, comparison_rows, measure_rows
from coopgroup.report.wording import listed, rounded


@frozen(kw_only=True)
class Measured:
    moved: int = 1_234
    share: float = 12.34
    worst_outage_ms: int | None = 1_500
    worst_resource: Resource | None = None
    is_good: bool = True
    note: str = "text"


def test_numbers_and_resources_are_rows() -> None:
    assert measure_rows(Measured(worst_resource=Resource("orders", 3))) == (
        ("partitions moved", "1,234"),
        ("share", "12.3"),
        ("longest outage of a partition", "1.5 s"),
        ("partition that had it", "orders 3"),
    )


def test_time_that_never_came_is_said_so() -> None:
    assert measure_rows(Measured(worst_outage_ms=None))[-1] == (
        "longest outage of a partition",
        "never",
    )


def test_comparison_has_median_and_range_of_each_policy() -> None:
    rows = comparison_rows(
        {
            "a": [Measured(moved=moved) for moved in (9, 1, 2)],
            "b": [Measured(worst_outage_ms=None), Measured(), Measured()],
            "c": [Measured(worst_outage_ms=None), Measured()],
        }
    )
    moved, share, outage = rows
    assert [row.label for row in rows] == [
        "partitions moved",
        "share",
        "longest outage of a partition",
    ]
    assert moved.cells[0] == Cell(median=2, low=1, high=9, text="2", span="1 to 9")
    assert share.cells[0] == Cell(median=12.34, low=12.34, high=12.34, text="12.3", span="")
    assert outage.cells[1] is not None
    assert (outage.cells[1].text, outage.cells[1].span) == ("1.5 s", "1 of 3 never")
    assert outage.cells[2] is None  # the median of a run without an end is none


def test_measure_that_no_run_has_is_a_row() -> None:
    *_, outage = comparison_rows({"a": [Measured(worst_outage_ms=None)]})
    assert (outage.label, outage.cells) == ("longest outage of a partition", (None,))


# --- words for times, counts and resources --------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0523, "0.052"),
        (1.05, "1.1"),
        (99.96, "100"),
        (123.4, "123"),
        (115_621, "116,000"),
        (-4.26, "-4.3"),
    ],
)
def test_figures_have_two_or_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_listed_when_there_are_many_says_how_many_follow() -> None:
    resources = ResourceSet({"a": [0, 2, 4, 5, 6], "b": [1]})
    assert listed(resources, ranges_max=2) == "a 0, 2 and 4 more"


def test_listed_names_a_connector_beside_its_tasks() -> None:
    """The connector has the index -1, which a reader would not understand as a number."""
    resources = ResourceSet({"sink": [-1, 0, 1, 2], "source": [-1]})
    assert listed(resources) == "sink itself, 0-2; source itself"
