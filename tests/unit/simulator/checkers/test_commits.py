"""The checker of committed offsets."""

from coopgroup.model import ResourceSet
from coopgroup.simulator.checkers import check_commits
from coopgroup.telemetry import Envelope, OffsetsCommitted

T01 = ResourceSet({"T": [0, 1]})


def committed(at_ms: int, *offsets: int) -> Envelope:
    """Offsets of both partitions."""
    record = OffsetsCommitted(resources=T01, offsets=offsets)
    return Envelope(at_ms=at_ms, group="g", member="m", generation=1, record=record)


def test_commits_when_they_ascend_are_right() -> None:
    """The same offset twice is no harm."""
    assert list(check_commits([committed(1, 3, 3), committed(2, 3, 9)])) == []


def test_commits_when_one_goes_back_are_broken() -> None:
    """The message says where and from what to what."""
    (violation,) = check_commits([committed(1, 3, 9), committed(2, 4, 8)])
    assert (violation.at_ms, violation.message) == (2, "T-1 goes back from 9 to 8, by m")
