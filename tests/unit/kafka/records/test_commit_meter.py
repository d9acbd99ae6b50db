"""Commits by outcome and duration."""

from coopgroup.kafka.records.commit_meter import COMMIT_BUCKETS_S, CommitMeter


def test_commits_are_counted_by_outcome_and_duration() -> None:
    meter = CommitMeter()
    meter.add(0.004, is_committed=True)
    meter.add(0.005, is_committed=True)
    meter.add(99.0, is_committed=False)
    counts = meter.counts()
    assert counts.by_outcome == {"committed": 2, "failed": 1}
    assert counts.seconds == 0.004 + 0.005 + 99.0
    assert counts.bucket_seconds[0] == 0.004 + 0.005
    assert (counts + counts).by_outcome == {"committed": 4, "failed": 2}
    assert counts.buckets == (2, *(0,) * (len(COMMIT_BUCKETS_S) - 1), 1)
