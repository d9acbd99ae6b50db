"""A partition is stuck only with a proof that work waits."""

from attrs import evolve

from coopgroup.kafka.health.progress import PartitionSample, Progress

KEY = ("t", 0)
AT = PartitionSample(position=10, end=20)


def _stuck_after(*samples: PartitionSample) -> list[tuple[str, float]]:
    """Note one sample a second; return reason and duration at the last one."""
    progress = Progress()
    for at_s, sample in enumerate(samples):
        progress.note(float(at_s), {KEY: sample})
    found = progress.stuck(float(len(samples) - 1), {KEY: samples[-1]})
    return [(one.why, one.since_s) for one in found]


def test_records_that_arrive_and_are_not_handed_out_wait() -> None:
    assert _stuck_after(AT, AT, evolve(AT, end=21)) == [("records wait", 2.0)]


def test_lag_that_does_not_grow_is_no_proof() -> None:
    """The end of the log may be markers and aborted records of transactions."""
    assert _stuck_after(AT, AT, AT) == []


def test_partition_that_advances_is_not_stuck() -> None:
    assert _stuck_after(AT, evolve(AT, position=11, end=30), evolve(AT, position=12, end=40)) == []


def test_growth_counts_from_the_first_known_end() -> None:
    unknown = evolve(AT, end=-1)
    assert _stuck_after(unknown, AT) == []
    assert _stuck_after(unknown, AT, evolve(AT, end=21)) == [("records wait", 2.0)]


def test_paused_partition_is_not_stuck() -> None:
    paused = evolve(AT, is_paused=True)
    assert _stuck_after(paused, paused, evolve(paused, end=30)) == []


def test_resumed_partition_begins_anew() -> None:
    paused = evolve(AT, is_paused=True, end=30)
    assert _stuck_after(paused, evolve(paused, is_paused=False, end=31)) == [("records wait", 1.0)]


def test_partition_that_waits_for_its_committed_offset_is_stuck() -> None:
    waits = PartitionSample(waits_for_offset=True)
    assert _stuck_after(waits, waits, waits) == [("no committed offset", 2.0)]
    assert _stuck_after(waits, waits, AT) == []


def test_handler_that_hangs_is_stuck_though_records_are_handed_out() -> None:
    busy = evolve(AT, position=20, oldest=10)
    assert _stuck_after(busy, evolve(busy, position=30, end=30), busy) == [("handler", 2.0)]


def test_handler_that_hangs_in_a_paused_partition_is_stuck() -> None:
    """Processing pauses a partition whose records pile up."""
    busy = evolve(AT, oldest=10, position=20, is_paused=True)
    assert _stuck_after(busy, busy) == [("handler", 1.0)]


def test_handler_that_ends_is_progress() -> None:
    busy = evolve(AT, position=20, oldest=10)
    assert _stuck_after(busy, evolve(busy, oldest=11), evolve(busy, oldest=12)) == []


def test_first_record_after_a_quiet_time_is_not_late() -> None:
    """A handler counts from its own record on, not from the last progress before."""
    idle = evolve(AT, position=20, end=20)
    assert _stuck_after(idle, idle, idle, evolve(idle, position=21, oldest=20)) == []


def test_partition_that_is_given_up_is_forgotten() -> None:
    progress = Progress()
    progress.note(0.0, {KEY: AT})
    progress.note(1.0, {})
    progress.note(2.0, {KEY: evolve(AT, end=30)})
    assert progress.stuck(2.0, {KEY: evolve(AT, end=30)}) == ()


def test_quiet_partitions_are_those_without_progress() -> None:
    progress = Progress()
    progress.note(0.0, {KEY: AT, ("t", 1): AT})
    progress.note(5.0, {KEY: AT, ("t", 1): evolve(AT, position=11)})
    assert progress.quiet_since(4.0) == [KEY]


def test_lag_is_unknown_without_a_position_or_an_end() -> None:
    assert (AT.lag, evolve(AT, end=-1).lag, evolve(AT, position=-1001).lag) == (10, None, None)
