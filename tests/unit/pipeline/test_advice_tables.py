"""Advice from table rows, without a running Spark."""

import pytest
from pyspark.sql import Row

from coopgroup.pipeline.advice_history import how_it_ended
from coopgroup.pipeline.advice_tables import seen_of
from coopgroup.simulator.scenario import How


def absence(
    *, gone_ms: int = 1_000_000, gone_latest_ms: int, returned_ms: int, instance_id: str | None
) -> Row:
    return Row(
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        gone_ms=gone_ms,
        gone_latest_ms=gone_latest_ms,
        returned_ms=returned_ms,
        absent_ms=returned_ms - gone_ms,
        observed_until_ms=9_000_000,
        session_timeout_ms=45_000,
    )


def test_process_that_is_back_before_the_group_goes_on_was_not_away_for_its_session() -> None:
    """The process waits in its join until the old session ends, so its return time is hidden."""
    row = absence(gone_latest_ms=1_044_000, returned_ms=1_044_000, instance_id=None)
    seen = seen_of(row)
    assert seen.absent_ms == 22_000
    assert how_it_ended(seen) is How.CRASH


def test_guess_of_a_return_in_time_stays_below_the_session() -> None:
    row = absence(gone_latest_ms=4_600_000, returned_ms=4_600_000, instance_id=None)
    assert seen_of(row).absent_ms == 22_500


@pytest.mark.parametrize(
    ("gone_latest_ms", "instance_id"), [(1_044_000, None), (1_060_000, "static-1")]
)
def test_return_that_is_seen_is_taken_as_it_is(
    gone_latest_ms: int, instance_id: str | None
) -> None:
    """The return is in a later round, or of a static member, which joins immediately."""
    row = absence(gone_latest_ms=gone_latest_ms, returned_ms=1_060_000, instance_id=instance_id)
    assert seen_of(row).absent_ms == 60_000
