"""Advice from table rows, without a running Spark."""

import pytest
from pyspark.sql import Row

from coopgroup.pipeline.advice.tables import policy_led, seen_of
from coopgroup.simulator.scenario import Choice, How


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
    assert seen.how is How.CRASH


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


@pytest.mark.parametrize(("heard_ms", "how"), [(22_499, How.CLOSE), (22_500, How.CRASH)])
def test_departure_that_is_noticed_within_half_a_session_was_announced(
    heard_ms: int, how: How
) -> None:
    row = absence(gone_latest_ms=1_000_000 + heard_ms, returned_ms=2_000_000, instance_id=None)
    assert seen_of(row).how is how


def led(policy: str, *rounds: tuple[int, int]) -> list[Row]:
    """Return rounds of (lost, announced delay), oldest first, as the function takes them."""
    made = [
        Row(policy=policy, lost=lost, scheduled_rebalance_timeout_ms=waits_ms)
        for lost, waits_ms in rounds
    ]
    return made[::-1]


def waiting(name: str, timeout_ms: int) -> Choice:
    return Choice(name=name, options={"scheduled_rebalance_timeout_ms": timeout_ms})


def test_time_out_is_that_of_the_newest_wait_from_its_begin() -> None:
    """Later rounds announce only the rest of the delay."""
    rounds = led("deferred", (4, 60_000), (0, 0), (4, 12_000), (4, 7_000), (0, 0))
    assert policy_led(rounds) == (waiting("deferred", 12_000), ())


def test_delays_where_nothing_is_lost_are_of_the_ration() -> None:
    """These delays do not show the time-out, and no round reports the ration."""
    found = policy_led(led("incremental", (2, 9_000), (0, 0), (0, 60_000)))
    assert found is not None
    assert found[0] == waiting("incremental", 9_000)
    assert found[1][0].startswith("Today's ration was not seen")


@pytest.mark.parametrize("rounds", [((0, 5_000),), ((3, 0),)])
def test_time_out_that_was_not_seen_is_said_to_be_a_guess(
    rounds: tuple[tuple[int, int], ...],
) -> None:
    found = policy_led(led("deferred", *rounds))
    assert found is not None
    assert found[0] == Choice(name="deferred")
    assert "time-out" in found[1][0]
    assert "--today" in found[1][0]


def test_policy_before_a_change_does_not_count() -> None:
    rounds = led("simple", (0, 0)) + led("deferred", (3, 30_000))
    assert policy_led(rounds) == (Choice(name="simple"), ())
    rounds = led("deferred", (0, 0)) + led("incremental", (3, 30_000))
    found = policy_led(rounds)
    assert found is not None
    assert found[0] == Choice(name="deferred")


def test_policy_of_a_user_is_not_told() -> None:
    assert policy_led([]) is None
    assert policy_led(led("my own", (1, 1_000))) is None
