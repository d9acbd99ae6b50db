"""Facts of a trial; tests change them with `attrs.evolve`."""

from coopgroup.testing.trial import Facts

NOTHING = Facts(
    consumed=0,
    lost=0,
    duplicated=0,
    moved=0,
    moved_twice=0,
    retained=0,
    retained_pause_ms_max=0.0,
    pause_ms_max=0.0,
    unavailable_partition_s=0.0,
    double_owner_ms=0.0,
    double_owner_transitions=0,
    commits=0,
    failed_commits=0,
    commit_ms_max=0.0,
)
"""Nothing was consumed, and nothing went wrong."""
