"""A partition is stuck only with a proof that work waits."""

import pytest
from attrs import evolve

from coopgroup.kafka.health.progress import LastProgress, PartitionSample

KEY = ("t", 0)
AT = PartitionSample(position=10, end=20)
GROWN = evolve(AT, end=21)
UNKNOWN = evolve(AT, end=-1)
PAUSED = evolve(AT, is_paused=True)
WAITS = PartitionSample(waits_for_offset=True)
BUSY = evolve(AT, position=20, oldest=10)
IDLE = evolve(AT, position=20, end=20)


@pytest.mark.parametrize(
    ("samples", "stuck"),
    [
        ((AT, AT, GROWN), ("records wait", 2.0)),
        # The end of the log may be markers and aborted records of transactions.
        ((AT, AT, AT), None),
        ((AT, evolve(AT, position=11, end=30), evolve(AT, position=12, end=40)), None),
        ((UNKNOWN, AT), None),
        ((UNKNOWN, AT, GROWN), ("records wait", 2.0)),
        ((PAUSED, PAUSED, evolve(PAUSED, end=30)), None),
        ((evolve(PAUSED, end=30), evolve(AT, end=31)), ("records wait", 1.0)),
        ((WAITS, WAITS, WAITS), ("no committed offset", 2.0)),
        ((WAITS, WAITS, AT), None),
        ((BUSY, evolve(BUSY, position=30, end=30), BUSY), ("handler", 2.0)),
        # Processing pauses a partition whose records pile up.
        ((evolve(BUSY, is_paused=True), evolve(BUSY, is_paused=True)), ("handler", 1.0)),
        ((BUSY, evolve(BUSY, oldest=11), evolve(BUSY, oldest=12)), None),
        # A handler counts from its own record on, not from the last progress before.
        ((IDLE, IDLE, IDLE, evolve(IDLE, position=21, oldest=20)), None),
    ],
    ids=[
        "records arrive and are not handed out",
        "lag that does not grow",
        "position advances",
        "end is not known",
        "growth counts from the first known end",
        "paused",
        "resumed",
        "waits for its committed offset",
        "committed offset has come",
        "handler hangs, though records are handed out",
        "handler hangs in a paused partition",
        "handler ends",
        "first record after a quiet time",
    ],
)
def test_partition_is_stuck_since(
    samples: tuple[PartitionSample, ...], stuck: tuple[str, float] | None
) -> None:
    """One sample a second."""
    progress = LastProgress()
    for at_s, sample in enumerate(samples):
        progress.note(float(at_s), {KEY: sample})
    found = progress.stuck(float(len(samples) - 1), {KEY: samples[-1]})
    assert [(one.why, one.since_s) for one in found] == ([] if stuck is None else [stuck])


def test_partition_that_is_given_up_is_forgotten() -> None:
    progress = LastProgress()
    progress.note(0.0, {KEY: AT})
    progress.note(1.0, {})
    progress.note(2.0, {KEY: GROWN})
    assert progress.stuck(2.0, {KEY: GROWN}) == ()


def test_lag_is_unknown_without_a_position_or_an_end() -> None:
    assert (AT.lag, UNKNOWN.lag, evolve(AT, position=-1001).lag) == (10, None, None)
