"""Measures as rows."""

from attrs import frozen

from coopgroup.model import Resource
from coopgroup.report.measures import Cell, comparison_rows, measure_rows


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
            "c": [Measured(worst_outage_ms=None)],
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
    assert outage.cells[2] is None
