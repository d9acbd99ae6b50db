"""Episodes of histories that are written by hand: rebalances, outages, absences and skew.

Each story is a group of its own, and all episodes are computed in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.sql import functions as sql

from coopgroup.pipeline.episodes.processes import states_of, steps_of
from coopgroup.pipeline.episodes.rebalances import numbered_steps
from coopgroup.pipeline.topic.consumer_groups import BROKER
from tests.spark.frames import commit, make, rows
from tests.spark.stories import (
    AS_OF_MS,
    REMOVED,
    Claims,
    State,
    Story,
    every,
    history_of,
    tables_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
TIMES = "partition begin_ms end_ms unavailable_ms error_ms"
STORIES: dict[str, Story] = {}
claim = Claims()


# --- a group from its first member to its last one ------------------------------------------------

# "a" came first, "b" joined in two rounds, "c" replaced it, all left, and at last "a" subscribed to
# more topics.
BOTH = ("orders", "paid")
STORIES["whole"] = Story(
    states=(
        State(at_ms=9_000, generation=0),
        State(at_ms=10_000, generation=1, held={"a": (0, 1)}),
        State(at_ms=60_000, generation=2, held={"a": (0,), "b": ()}),
        State(at_ms=61_000, generation=3, held={"a": (0,), "b": (1,)}),
        State(at_ms=90_000, generation=4, held={"a": (0,), "c": (1,)}),
        State(at_ms=120_000, generation=5, held={"a": (0, 1), "c": ()}, topics=BOTH),
        State(at_ms=150_000, generation=6, held={"a": (0, 1)}, topics=BOTH),
        State(at_ms=180_000, generation=7),
        State(at_ms=190_000, held=REMOVED),
    ),
    # Partition 0 has a commit every second; partition 1 has none while it moves.
    commits=(
        *every(1_000, (0, 179_000)),
        *every(1_000, (0, 59_000), (64_000, 88_000), (95_000, 179_000), partition=1),
    ),
    lag=[
        {"topic": "orders", "partition": partition, "at_ms": at_ms, "lag": lag}
        for at_ms, lags in (
            (5_000, (9, 9)),
            (70_000, (30, 10)),
            (70_500, (0, 0)),
            (130_000, (6, 4)),
        )
        for partition, lag in enumerate(lags)
    ],
)
claim(
    "rounds within five seconds belong together; joins and departures give the reason",
    *("whole", "rebalances"),
    "first_generation trigger rounds members_before members_after joined left",
    (1, "created", 1, 0, 1, 1, 0),
    (2, "join", 2, 1, 2, 1, 0),
    (4, "exchange", 1, 2, 2, 1, 1),
    (5, "subscription", 1, 2, 2, 0, 0),
    (6, "leave", 1, 2, 1, 0, 1),
    (7, "emptied", 1, 1, 0, 0, 1),
)
claim(
    "a rebalance begins at the earliest with the previous round",
    *("whole", "rebalances"),
    "first_generation begin_earliest_ms begin_ms end_ms duration_ms",
    (1, 9_000, 10_000, 10_000, 0),
    (2, 30_000, 60_000, 61_000, 1_000),  # not before members had the time to rejoin
    (4, 61_000, 90_000, 90_000, 0),
    (5, 90_000, 120_000, 120_000, 0),
    (6, 120_000, 150_000, 150_000, 0),
    (7, 150_000, 180_000, 180_000, 0),
)
claim(
    "partitions move from process to process, even if they had no owner in between",
    *("whole", "rebalances"),
    "first_generation partitions moved moved_twice unavailable_partition_s unobserved",
    (1, 2, 0, 0, 0.0, 0),
    (2, 2, 1, 0, 4.0, 0),
    (4, 2, 1, 0, 6.0, 0),
    (5, 2, 1, 0, 0.0, 0),
    (6, 2, 0, 0, 0.0, 0),
    (7, 0, 0, 0, 0.0, 0),
)
claim(
    "an outage is a gap between commits less the usual interval, which bounds the error",
    *("whole", "outages"),
    f"first_generation {TIMES}",
    (2, 1, 60_000, 64_000, 4_000, 1_000),
    (4, 1, 89_000, 95_000, 6_000, 1_000),
    (5, 1, 121_000, 121_000, 0, 1_000),
)
claim(
    "a member without partitions counts for skew; a time before the group has no skew",
    *("whole", "skew"),
    "at_ms generation members lag_total lag_max lag_mean imbalance",
    (70_000, 3, 2, 40, 30, 20.0, 1.5),
    (70_500, 3, 2, 0, 0, 0.0, None),
    (130_000, 5, 2, 10, 10, 5.0, 2.0),
)

STORIES["unobserved"] = Story(
    states=[
        State(at_ms=number * 100_000, generation=number, held={"a": [0][odd:], "b": [0][1 - odd :]})
        for number, odd in ((1, 0), (4, 1), (7, 0))
    ]
)
claim(
    "each move of a partition without commits counts one unobserved outage",
    *("unobserved", "rebalances"),
    "first_generation moved unobserved",
    *((1, 0, 0), (4, 1, 1), (7, 1, 1)),
)


# --- stories in which episodes were wrong ---------------------------------------------------------

BACK_MS = 100_000 + 9 * MINUTE_MS
STORIES["restart"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a1/s1": [0], "b1/s2": [1]}),
        State(at_ms=100_000, generation=2, held={"a1/s1": [0, 1]}),
        State(at_ms=BACK_MS, generation=2, held={"a2/s1": [0, 1]}),
    ),
    commits=(
        *every(1_000, (10_000, BACK_MS - 6_000), (BACK_MS + 1_000, 800_000)),
        *every(
            1_000,
            *((10_000, 76_000), (101_000, BACK_MS - 6_000), (BACK_MS + 1_000, 800_000)),
            partition=1,
        ),
    ),
)
# In one generation: s2 leaves, its partition stands still for 24 s, and later s1 restarts.
claim(
    "a static restart does not hide the rebalance before it",
    *("restart", "rebalances"),
    "first_generation begin_ms trigger rounds joined left moved unavailable_partition_s",
    (1, 10_000, "created", 1, 2, 0, 0, 0.0),
    (2, 100_000, "leave", 1, 0, 1, 1, 24.0),
    (2, BACK_MS, "restart", 0, 0, 0, 0, 12.0),
)
claim(
    "a static restart does not hide the outage before it",
    *("restart", "outages", TIMES),
    (0, BACK_MS - 5_000, BACK_MS + 1_000, 6_000, 1_000),
    (1, 77_000, 101_000, 24_000, 1_000),
    (1, BACK_MS - 5_000, BACK_MS + 1_000, 6_000, 1_000),
)

STORIES["repeated"] = Story(
    states=[State(at_ms=at_ms, generation=1, held={"a/s": [0]}) for at_ms in (1_000, 90_000)]
)
claim(
    "a state that is written twice is no restart",
    *("repeated", "rebalances", "trigger"),
    ("created",),
)

STORIES["idle"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
        State(at_ms=5 * HOUR_MS, generation=2, held={"a": [], "b": [0]}),
    ),
    commits=tuple(every(MINUTE_MS, (10_000, HOUR_MS), (9 * HOUR_MS, 10 * HOUR_MS))),
)
# Eight hours without records, in which the partition moves.
claim("an idle topic is no outage", "idle", "outages", TIMES)
claim(
    "the cost of a rebalance of an idle topic is unknown",
    *("idle", "rebalances"),
    "trigger unavailable_partition_s unobserved",
    *(("created", 0.0, 0), ("rejoin", None, 1)),
)


def waiting(at_ms: int, lag: int) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "at_ms": at_ms, "lag": lag}


STORIES["waiting"] = Story(
    states=STORIES["idle"].states,
    commits=STORIES["idle"].commits,
    lag=(
        *(waiting(at_ms, 0) for at_ms in range(0, 5 * HOUR_MS, MINUTE_MS)),
        *(waiting(at_ms, 9) for at_ms in range(5 * HOUR_MS, 9 * HOUR_MS, MINUTE_MS)),
    ),
)
claim(
    "an outage begins when the lag shows records; the error is the time between two moments",
    *("waiting", "outages", TIMES),
    (0, 5 * HOUR_MS, 9 * HOUR_MS, 4 * HOUR_MS, 2 * MINUTE_MS),
)


STOPPED = ((10_000, 80_000), (110_000, 200_000))
# No record of partition 1 arrived within the gap.
LATE = [
    {
        **one,
        "partition": 1,
        "source_offset": one["source_offset"] + 1,
        "committed": one["committed"] - (29_000 if one["at_ms"] > 100_000 else 0),
    }
    for one in every(1_000, *STOPPED)
]
STORIES["late"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0, 1], "b": []}),
        State(at_ms=100_000, generation=2, held={"a": [], "b": [0, 1]}),
    ),
    commits=(*every(1_000, *STOPPED), *LATE),
)
claim(
    "a gap without arrivals may be no outage: the error covers records that came after it",
    *("late", "outages", TIMES),
    (0, 81_000, 110_000, 29_000, 1_000),
    (1, 81_000, 110_000, 29_000, 29_000),
)

STORIES["removed"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"a": [0], "b": [1]}),
        State(at_ms=60_000, generation=2, held={"a": [0, 1]}),
        State(at_ms=120_000, generation=3, held={}),
        State(at_ms=200_000, held=REMOVED),
        State(at_ms=300_000, generation=1, held={"x@a@h": [0], "y": [1]}),
        State(at_ms=360_000, generation=2, held={"x@a@h": [0, 1]}),
    ),
    commits=(*every(1_000, (1_000, 119_000)), *every(1_000, (301_000, 400_000))),
)
claim(
    "a removed group keeps its past: each life has its rebalances",
    *("removed", "rebalances"),
    "begin_ms trigger moved",
    (1_000, "created", 0),
    (60_000, "leave", 1),
    (120_000, "emptied", 0),
    (300_000, "created", 0),
    (360_000, "leave", 1),
)
claim("no group that could pause existed between two lives", "removed", "outages", "partition")
claim(
    "no member returns in another life",
    *("removed", "absences"),
    "member_id returned_as observed_until_ms",
    *(("a", "never", 200_000), ("b", "never", 200_000), ("y", "never", None)),
)

STORIES["anew"] = Story(
    states=(
        State(at_ms=1_000, generation=7, held={"a": [0]}),
        State(at_ms=60_000, generation=8, held={"a": [0], "b": []}),
        State(at_ms=9 * HOUR_MS, generation=1, held={"c": [0]}),
        State(at_ms=10 * HOUR_MS, generation=2, held={"c": [0], "d": []}),
    )
)
# Compaction has removed the tombstone between them.
claim(
    "a generation that starts again is another life",
    *("anew", "rebalances"),
    "begin_ms trigger rounds missing members_before moved",
    (1_000, "created", 1, 6, 0, 0),
    (60_000, "join", 1, 0, 1, 0),
    (9 * HOUR_MS, "created", 1, 0, 0, 0),
    (10 * HOUR_MS, "join", 1, 0, 1, 0),
)

STORIES["compacted"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"a": [0]}),
        State(at_ms=9 * HOUR_MS, generation=400, held={"a": [], "b": [0]}),
    )
)
claim(
    "generations that compaction removed are no rounds",
    *("compacted", "rebalances"),
    "first_generation rounds missing",
    *((1, 1, 0), (400, 1, 398)),
)

STORIES["restarts"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"p1@pod@h1": [0], "s1/s": [1], "k": [2]}),
        State(at_ms=60_000, generation=2, held={"k": [0, 1, 2]}),
        State(at_ms=90_000, generation=3, held={"p2@pod@h1": [0], "k": [1, 2]}),
        State(at_ms=12 * HOUR_MS, generation=4, held={"p2@pod@h1": [0], "s2/s": [1], "k": [2]}),
        State(at_ms=12 * HOUR_MS, generation=4, held={"p2@pod@h1": [0], "s3/s": [1], "k": [2]}),
        State(at_ms=13 * HOUR_MS, generation=5, held={"p3@pod@h1": [0], "s3/s": [1], "k": [2]}),
        State(at_ms=14 * HOUR_MS, generation=6, held={"s3/s": [1], "k": [2]}),
        State(at_ms=15 * HOUR_MS + 1, generation=7, held={"p4@pod@h1": [0], "s3/s": [], "k": [2]}),
    )
)
# A new pod that replaces another one within a round, or later than an hour, is a new process.
claim(
    "a static id proves a return; client and host make it likely within an hour",
    *("restarts", "absences"),
    "member_id returned_as returned_member_id returned_ms absent_ms",
    ("p1", "client_and_host", "p2", 90_000, 30_000),
    ("p2", "never", None, None, None),
    ("p3", "never", None, None, None),
    ("s1", "static_id", "s2", 12 * HOUR_MS, 12 * HOUR_MS - 60_000),
    ("s2", "static_id", "s3", 12 * HOUR_MS, 0),
)


MIDNIGHT_MS = 24 * HOUR_MS
STORIES["settled"] = Story(
    states=[
        State(at_ms=MIDNIGHT_MS + at_ms, generation=number, held={"a": [0], "b": [number]})
        for number, at_ms in enumerate((-60_000, -3_000, 2_000, 7_001))
    ]
)
claim(
    "five seconds belong to a rebalance, a millisecond more does not; midnight has no effect",
    *("settled", "rebalances"),
    "first_generation rounds begin_ms end_ms",
    (0, 1, MIDNIGHT_MS - 60_000, MIDNIGHT_MS - 60_000),
    (1, 2, MIDNIGHT_MS - 3_000, MIDNIGHT_MS + 2_000),
    (3, 1, MIDNIGHT_MS + 7_001, MIDNIGHT_MS + 7_001),
)

STORIES["deleted"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
        State(at_ms=100_000, generation=2, held={"a": [], "b": [0]}),
    ),
    commits=(
        *every(1_000, (10_000, 90_000), (102_000, 200_000)),
        commit(95_000, None, source_offset=999_999),
    ),
)
claim(
    "a deleted commit is no sign of work",
    *("deleted", "outages", TIMES),
    (0, 91_000, 102_000, 11_000, 1_000),
)


STORIES["unknown begin"] = Story(
    states=(State(at_ms=90_000, generation=57, held={"a": [0]}),),
)
claim(
    "a history that begins late lacks the rounds before, and has the time-out as bound",
    *("unknown begin", "rebalances"),
    "first_generation trigger missing begin_earliest_ms begin_ms",
    (57, "created", 56, 60_000, 90_000),
)

STORIES["reset"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0]}),
        State(at_ms=100_000, generation=2),
        State(at_ms=340_000, generation=3, held={"b": [0]}),
    ),
    commits=(
        *every(1_000, (10_000, 99_000), (341_000, 700_000)),
        commit(220_000, 50_000),
    ),
)
claim(
    "a reset of the offsets of an empty group is no work",
    *("reset", "outages", TIMES),
    (0, 100_000, 341_000, 241_000, 1_000),
)

STORIES["downgraded"] = Story(
    states=(
        State(at_ms=10_000, generation=5, held={"k": [0], "n": [1]}, protocol=BROKER),
        State(at_ms=60_000, held=REMOVED),
        State(at_ms=60_000, generation=5, held={"k": [0]}, protocol="range"),
        State(at_ms=60_500, generation=6, held={"k": [0, 1]}, protocol="range"),
    ),
)
claim(
    "the last member of KIP-848 leaves: its epoch goes on as a generation, and is no restart",
    *("downgraded", "rebalances", "first_generation trigger rounds missing joined left moved"),
    (5, "created", 1, 4, 2, 0, 0),
    (5, "leave", 1, 0, 0, 1, 1),
)

STORIES["changed while empty"] = Story(
    states=(
        State(at_ms=10_000, generation=40, held={"a": [0]}, protocol="range"),
        State(at_ms=60_000, generation=41),
        State(at_ms=70_000, held=REMOVED),
        State(at_ms=70_000, generation=1, held={"k": [0]}, protocol=BROKER),
        State(at_ms=90_000, generation=2, held={"k": [0], "l": []}, protocol=BROKER),
    ),
    commits=tuple(every(1_000, (10_000, 59_000), (71_000, 99_000))),
)
claim(
    "a group without members changes its protocol: its generations begin again, its time does not",
    *("changed while empty", "rebalances"),
    "first_generation trigger rounds missing moved unavailable_partition_s",
    (1, "created", 1, 0, 1, 11.0),
    (2, "join", 1, 0, 0, 0.0),
    (40, "created", 1, 39, 0, 0.0),
    (41, "emptied", 1, 0, 0, 0.0),
)

STORIES["changed at once"] = Story(
    states=(
        State(at_ms=10_000, generation=40, held={"a": [0]}, protocol=BROKER),
        State(at_ms=60_000, generation=41, protocol=BROKER),
        State(at_ms=64_000, held=REMOVED),
        State(at_ms=64_000, generation=0),
        State(at_ms=64_000, generation=1, held={"k": [0]}, protocol="range"),
    ),
)
claim(
    "generations that begin again within a rebalance are rounds",
    *("changed at once", "rebalances", "first_generation last_generation trigger rounds missing"),
    *((40, 40, "created", 1, 39), (41, 1, "emptied", 2, 0)),
)

STORIES["made again"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0]}),
        State(at_ms=95_000, generation=2, held={"a": []}),
        State(at_ms=115_000, generation=3, held={"a": [0]}),
    ),
    commits=[
        {**one, "topic_id": "first" if one["at_ms"] < 95_000 else "second"}
        for one in every(1_000, (10_000, 90_000), (120_000, 200_000))
    ],
)
claim("a topic that does not exist has no outage", "made again", "outages", TIMES)
claim(
    "commits to two topics of one name are no gap",
    *("made again", "rebalances", "first_generation unavailable_partition_s unobserved"),
    *((1, 0.0, 0), (2, 0.0, 0), (3, None, 1)),
)

TWO = ({"a": [0]}, {"a": [0], "b": []})
STORIES["sparse"] = Story(
    states=[
        State(at_ms=at_ms, generation=number, held=held)
        for number, (at_ms, held) in enumerate(zip((10_000, 220_000), TWO, strict=True), 1)
    ],
    commits=[
        commit(at_ms, number)
        for number, at_ms in enumerate(
            (*range(0, 200_001, 20_000), *range(248_000, 500_000, 20_000))
        )
    ],
)
claim(
    "a gap of two records may be chance, and no outage",
    *("sparse", "outages", TIMES),
    (0, 220_000, 248_000, 28_000, 28_000),
)

STORIES["tighter"] = Story(
    states=[
        State(at_ms=at_ms, generation=number, held=held)
        for number, (at_ms, held) in enumerate(zip((10_000, 110_000), TWO, strict=True), 1)
    ],
    commits=tuple(every(2_000, (10_000, 98_000), (118_000, 300_000))),
    lag=(waiting(98_500, 0), waiting(118_500, 9)),
)
claim(
    "of two bounds of an outage the tighter one counts",
    *("tighter", "outages", TIMES),
    (0, 100_000, 118_000, 18_000, 2_000),
)

DEATH = (
    State(at_ms=10_000, generation=1, held={"a": [0], "b": [1]}),
    State(at_ms=100_000, generation=2),
)
WORK = tuple(one for place in (0, 1) for one in every(1_000, (10_000, 90_000), partition=place))
STORIES["died"] = Story(states=DEATH, commits=WORK, lag=(waiting(80_000, 0), waiting(95_000, 9)))
claim(
    "a group that died has open outages until the end of the history",
    *("died", "outages", TIMES),
    (0, 91_000, None, AS_OF_MS - 91_000, 6_000),
    (1, 91_000, None, AS_OF_MS - 91_000, AS_OF_MS - 91_000),  # nothing shows waiting records
)
STORIES["died twice"] = Story(  # its process joins again and dies at once
    states=(*DEATH, State(at_ms=110_000, generation=3)),
    commits=WORK,
    lag=(waiting(80_000, 0), waiting(95_000, 9)),
)
claim(
    "a crash loop ends no open outage",
    *("died twice", "outages", TIMES),
    (0, 91_000, None, AS_OF_MS - 91_000, 6_000),
    (1, 91_000, None, AS_OF_MS - 91_000, AS_OF_MS - 91_000),
)
claim(
    "the death of a group costs what its open outages have cost so far",
    *("died", "rebalances"),
    "trigger unavailable_partition_s unavailable_error_s",
    ("created", 0.0, 0.0),
    ("emptied", 2 * (AS_OF_MS - 91_000) / 1_000, (AS_OF_MS - 85_000) / 1_000),
)
STORIES["finished"] = Story(
    states=DEATH,
    commits=WORK,
    lag=[
        {**waiting(at_ms, 0), "partition": place} for at_ms in (80_000, 95_000) for place in (0, 1)
    ],
)
claim("a group that left no record behind has no outage", "finished", "outages", TIMES)


# --- members that leave ---------------------------------------------------------------------------

PEOPLE = {"a1": "a1@a@h1", "a2": "a2@a@h1", "k": "k@k@h7"}
SEEN = (commit(15, 1), commit(104, 2), commit(999, 3, written_ms=1_000))


def presence(*told: tuple[int, int, str], commits: Sequence[dict[str, Any]] = ()) -> Story:
    """Return a story of states: time, generation and members; the first one holds a partition."""
    states = [
        State(
            at_ms=at_ms,
            generation=generation,
            held={PEOPLE[name]: [0] * (not place) for place, name in enumerate(present.split())},
        )
        for at_ms, generation, present in told
    ]
    return Story(states=states, commits=commits, limits={"session_timeout_ms": 10})


ABSENT = "gone_earliest_ms gone_ms gone_latest_ms absent_ms partitions generation observed_until_ms"
LEFT: tuple[tuple[str, Story, tuple[object, ...]], ...] = (
    (
        "an absence begins with the last commit of its partitions",
        presence(
            *((100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a2 k"), (300, 4, "a2 k")), commits=SEEN
        ),
        (104, 104, 110, 46, 1, 1, None),
    ),
    (
        "without commits an absence begins with the round without the member",
        presence((100, 1, "k a1"), (110, 2, "k"), (150, 3, "k a2")),
        (100, 110, 110, 40, 0, 1, None),
    ),
    # A topic without records has old commits.
    (
        "no absence is longer than the group would have waited",
        presence((100, 1, "a1 k"), (2_000, 2, "k"), (2_005, 3, "a2 k"), commits=SEEN),
        (1_990, 2_000, 2_000, 5, 1, 1, None),
    ),
    (
        "unknown rounds set no limit for an absence",
        presence((100, 1, "a1 k"), (2_000, 9, "k"), commits=SEEN),
        (999, 999, 2_000, None, 1, 1, None),
    ),
)
SLOW = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 300_000}
HELD: tuple[dict[str, Sequence[int]], ...] = (
    {"a": [0], "b": [1], "k": [2]},
    {"a": [0], "b": [1], "k": [2], "new": []},
    {"k": [2], "new": []},
)
# In a group of KIP-848 "new" joins after the deaths of "a" and of "b", which never committed.
STORIES["corpses"] = Story(
    states=[
        State(at_ms=at_ms, generation=number, held=held, protocol=BROKER)
        for number, (at_ms, held) in enumerate(zip((10_000, 62_000, 105_000), HELD, strict=True), 1)
    ],
    commits=tuple(every(1_000, (10_000, 60_000))),
    limits=SLOW,
)
claim(
    "a member that is still in the group of KIP-848 may be dead already",
    *("corpses", "absences", "member_id gone_earliest_ms gone_ms gone_latest_ms"),
    ("a", 60_000, 60_000, 105_000),
    ("b", 10_000, 105_000, 105_000),
)
# A static member returns within the round of "a", after the death of "a".
STORIES["corpse and restart"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0], "s1/s": [1]}),
        State(at_ms=62_000, generation=1, held={"a": [0], "s2/s": [1]}),
        State(at_ms=105_000, generation=2, held={"s2/s": [0, 1]}),
    ),
    commits=tuple(every(1_000, (10_000, 60_000))),
    limits=SLOW,
)
claim(
    "a static restart of another member is no sign of life",
    *("corpse and restart", "absences", "member_id gone_earliest_ms gone_ms gone_latest_ms"),
    ("a", 60_000, 60_000, 105_000),
    ("s1", 10_000, 62_000, 62_000),
)
for text, story, absent in LEFT:
    STORIES[text] = story
    claim(text, text, "absences", ABSENT, absent)


@pytest.fixture(scope="module")
def episodes(spark: SparkSession) -> dict[str, DataFrame]:
    """Return the episodes of all groups; those whose name ends with "again" repeat each record."""
    again = {f"{name} again": evolve(one, copies=2) for name, one in STORIES.items()}
    return history_of(tables_of(spark, {**STORIES, **again}))


@pytest.mark.parametrize(("group", "table", "columns", "expected"), claim.cases)
def test_history(
    group: str,
    table: str,
    columns: Sequence[str],
    expected: list[object],
    episodes: dict[str, DataFrame],
) -> None:
    """Repeated records change nothing."""
    for name in (group, f"{group} again"):
        assert rows(episodes[table].where(sql.col("group") == name), *columns) == expected


def test_steps_of_one_epoch_are_one_rebalance(spark: SparkSession) -> None:
    """Members of a KIP-848 group give up and take partitions one heartbeat after the other."""
    times = [(0, 1), (60_000, 2), (65_500, 2), (71_000, 2), (90_000, 3)]
    rows_ = [
        {
            "group": "g",
            "at_ms": at_ms,
            "generation": epoch,
            "protocol": BROKER,
            "member_count": 2,
            "is_tombstone": False,
            "is_restart": False,
            "written_ms": at_ms,
            "source_partition": 0,
            "source_offset": at_ms,
        }
        for at_ms, epoch in times
    ]
    states = states_of(make(spark, "generations", *rows_))
    numbered = numbered_steps(steps_of(states))
    assert rows(numbered, "state", "first_state") == [(1, 1), (2, 2), (3, 2), (4, 2), (5, 5)]
