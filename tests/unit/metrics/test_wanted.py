"""The number of wanted members is steady."""

from attrs import evolve

from coopgroup.kafka.health.value import GroupLoad
from coopgroup.metrics.wanted import WantedMembers

LOAD = GroupLoad(members=3, partitions=12, lag=0, arrivals_per_s=250.0, rates_per_s=(100.0,) * 3)


def _values(loads: list[GroupLoad], *, horizon_s: float = 60.0) -> list[int | None]:
    """Note one look-up each 30 s."""
    wanted = WantedMembers(horizon_s)
    return [wanted.note(30.0 * at, load) for at, load in enumerate(loads)]


def test_lag_that_stays_asks_for_more_members_at_the_second_look() -> None:
    """250/s arrive, and 30,000 records in 60 s are 500/s more: 7.5 members of 100/s."""
    busy = evolve(LOAD, lag=30_000)
    assert _values([LOAD, busy, busy]) == [3, 3, 8]


def test_number_falls_only_after_a_whole_window() -> None:
    busy, calm = evolve(LOAD, lag=30_000), evolve(LOAD, arrivals_per_s=90.0)
    values = _values([LOAD, busy, busy, *[calm] * 20])
    assert values[2] == 8
    assert values[12] == 8  # 300 s after the last busy look
    assert values[13] == 1


def test_new_leader_does_not_shrink_the_group_before_it_knows_a_window() -> None:
    values = _values([evolve(LOAD, arrivals_per_s=10.0)] * 12)
    assert values == [3] * 10 + [1, 1]


def test_no_more_members_than_partitions_are_wanted() -> None:
    assert _values([evolve(LOAD, lag=10**9)] * 3)[-1] == 12


def test_group_without_work_wants_one_member() -> None:
    assert _values([evolve(LOAD, arrivals_per_s=0.0, rates_per_s=())] * 12)[-1] == 1


def test_unknown_rates_keep_the_present_size() -> None:
    assert set(_values([evolve(LOAD, lag=99, rates_per_s=())] * 12)) == {3}


def test_nothing_is_wanted_before_the_arrivals_are_known() -> None:
    assert _values([evolve(LOAD, arrivals_per_s=None)]) == [None]
