"""Advice from table rows, without a running Spark."""

import pytest
from pyspark.sql import Row

from coopgroup.pipeline.advice.from_tables import policy_led, seen_of
from coopgroup.simulator.scenario import Choice, How


@pytest.mark.parametrize(
    ("gone_latest_s", "returned_s", "instance_id", "absent_s", "how"),
    [
        pytest.param(44, 44, None, 22, How.CRASH, id="waits in its join until the session ends"),
        pytest.param(3_600, 3_600, None, 22.5, How.CRASH, id="a guess stays below the session"),
        pytest.param(44, 60, None, 60, How.CRASH, id="back in a later round"),
        pytest.param(60, 60, "static-1", 60, How.CRASH, id="a static member joins immediately"),
        pytest.param(22.499, 1_000, None, 1_000, How.CLOSE, id="noticed soon: announced"),
        pytest.param(22.5, 1_000, None, 1_000, How.CRASH, id="noticed after half a session"),
    ],
)
def test_absence_is_guessed_only_where_the_join_hides_the_return(
    gone_latest_s: float, returned_s: int, instance_id: str | None, absent_s: float, how: How
) -> None:
    row = Row(
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        gone_ms=1_000_000,
        gone_latest_ms=1_000_000 + round(1_000 * gone_latest_s),
        returned_ms=1_000_000 + 1_000 * returned_s,
        absent_ms=1_000 * returned_s,
        returned_as="telemetry" if instance_id is None else "static_id",
        observed_until_ms=9_000_000,
        session_timeout_ms=45_000,
    )
    seen = seen_of(row)
    assert (seen.absent_ms, seen.how) == (1_000 * absent_s, how)
    unproven = Row(**{**row.asDict(), "returned_as": "client_and_host"})
    assert seen_of(unproven).absent_ms is None
    assert seen_of(unproven, returned_as=("client_and_host",)).absent_ms == seen.absent_ms


def led(policy: str, *rounds: tuple[int, int]) -> list[Row]:
    """Return rounds of (lost, announced delay), oldest first, as the function takes them."""
    made = [
        Row(policy=policy, lost=lost, rejoin_in_ms=waits_ms or None) for lost, waits_ms in rounds
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


def test_only_the_newest_of_our_policies_counts() -> None:
    rounds = led("simple", (0, 0)) + led("deferred", (3, 30_000))
    assert policy_led(rounds) == (Choice(name="simple"), ())
    found = policy_led(led("deferred", (0, 0)) + led("incremental", (3, 30_000)))
    assert found is not None
    assert found[0] == Choice(name="deferred")
    assert policy_led([]) is None
    assert policy_led(led("my own", (1, 1_000))) is None
