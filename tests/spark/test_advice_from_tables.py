"""The history of a group as advice reads it from the tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve
from click.testing import CliRunner
from pyspark.sql import SparkSession

from coopgroup.cli.pipeline.advise import advice_for, command
from coopgroup.cli.pipeline.run import _advice
from coopgroup.errors import CoopgroupError, PipelineError
from coopgroup.pipeline.advice import from_tables
from coopgroup.pipeline.advice.choose import ENOUGH
from coopgroup.pipeline.advice.cost import MoveCost
from coopgroup.pipeline.advice.from_tables import history_of, move_costs_of
from coopgroup.pipeline.scope import Scope
from coopgroup.pipeline.tables import Tables
from coopgroup.simulator.scenario import Choice
from tests.spark.frames import Given, make

# A task of seconds may take minutes if Spark gets a tenth of a core.
pytestmark = pytest.mark.timeout(480)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

ABSENCE: Mapping[str, Any] = {
    "group": "g",
    "client_id": "c",
    "client_host": "h1",
    "member_id": "m",
    "session_timeout_ms": 10_000,
    "partitions": 4,
    "observed_until_ms": 2 * DAY_MS,
}
REBALANCE: Mapping[str, Any] = {
    "group": "g",
    "source": "history",
    "trigger": "leave",
    "members_before": 3,
    "members_after": 3,
    "joined": 0,
    "left": 0,
    "partitions": 12,
    "moved": 4,
    "unavailable_partition_s": 30.0,
}


def given(spark: SparkSession, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Given:
    return Given(
        spark=spark, frames={name: make(spark, name, *some) for name, some in rows.items()}
    )


def absence(gone_ms: int, away_ms: int | None, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an absence that was noticed immediately."""
    returned_ms = None if away_ms is None else gone_ms + away_ms
    return {
        **ABSENCE,
        "gone_ms": gone_ms,
        "gone_latest_ms": gone_ms + 10,
        "absent_ms": away_ms,
        "returned_ms": returned_ms,
        "returned_as": "never" if away_ms is None else "telemetry",
        **others,
    }


def rebalance(begin_ms: int, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a rebalance that takes one second."""
    return {**REBALANCE, "begin_ms": begin_ms, "end_ms": begin_ms + 1_000, **others}


def lag(at_ms: int, end: int, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the end of a partition at a time, without lag."""
    at = {"group": "g", "topic": "t", "partition": 0, "at_ms": at_ms}
    return {**at, "end": end, "lag": 0, **others}


def test_history_is_read_whole(spark: SparkSession) -> None:
    """Size, absences, growth, load, cost and configuration."""
    tables = given(
        spark,
        {
            "absences": [
                absence(HOUR_MS, 20_000),
                absence(5 * HOUR_MS, None, gone_latest_ms=5 * HOUR_MS + 9_000),
                absence(2 * DAY_MS - 5_000, None),
                absence(HOUR_MS, 1, group="another"),
            ],
            "rebalances": [
                rebalance(0, members_after=3),
                rebalance(HOUR_MS, members_after=2),
                rebalance(HOUR_MS + 20_000, trigger="join", joined=1),
                rebalance(9 * HOUR_MS, trigger="join", joined=2, members_after=5),
                rebalance(9 * HOUR_MS, source="telemetry", unavailable_partition_s=60.0, moved=2),
            ],
            "lag": [
                lag(0, 0, lag=5),
                lag(300_000, 3_000, lag=4),
                lag(300_000, 3_000, lag=3, partition=1),
                lag(340_000, 0),  # the topic was created again
                lag(400_000, 5_000, partition=1),
                lag(440_000, 5_000),
            ],
            "generations": [
                {"group": "g", "at_ms": 1, "protocol": "cooperative-sticky"},
                {"group": "g", "at_ms": 2, "protocol": "range"},
            ],
        },
    )
    history = history_of(tables, "g")
    assert (history.members, history.partitions, history.days) == (5, 12, 2.0)
    assert [
        (one.begin_ms, [away.absent_ms for away in one.absences], one.joined)
        for one in history.episodes
    ] == [
        (HOUR_MS, [20_000], 0),
        (5 * HOUR_MS, [None], 0),
        (9 * HOUR_MS, [], 2),
    ]
    assert history.episodes[1].absences[0].how == "crash"
    assert history.left_out == 1
    assert history.session_timeout_ms == 10_000
    assert history.rate_per_s == 20.0
    assert history.today == Choice(name="eager")
    assert history.notes[0].startswith("Today's policy is taken for eager, by its protocol 'range'")
    # Telemetry measures unavailability better than gaps between commits do.
    assert (history.observed.unavailable_s, history.observed.moved) == (30.0, 1.0)
    assert history.observed.lag_peak == 7

    with pytest.raises(PipelineError, match=r"no history of group 'h'; there are g$"):
        history_of(tables, "h")
    with pytest.raises(PipelineError, match="tables has no episodes to advise on"):
        history_of(given(spark, {}), "g")


def test_likely_returns_count_only_on_demand(spark: SparkSession) -> None:
    """Without it, the absence is permanent, and the newcomer is a new member."""
    likely = absence(HOUR_MS, 20_000, returned_as="client_and_host")
    tables = given(
        spark,
        {
            "absences": [likely, absence(2 * HOUR_MS, None), absence(3 * HOUR_MS, 5_000)],
            "rebalances": [
                rebalance(0),
                rebalance(HOUR_MS + 20_000, trigger="join", joined=1),
                rebalance(3 * HOUR_MS + 5_000, trigger="join", joined=1),
                rebalance(9 * HOUR_MS),
            ],
        },
    )
    for uses_likely, away, joined in (
        (False, [None, None, 5_000], 1),
        (True, [20_000, None, 5_000], 0),
    ):
        history = history_of(tables, "g", uses_likely=uses_likely)
        absences = [one for episode in history.episodes for one in episode.absences]
        assert [one.absent_ms for one in absences] == away
        assert sum(one.joined for one in history.episodes) == joined
        assert (history.absent, history.proven, history.likely) == (3, 1, 1)


def test_history_since_a_time_counts_only_what_came_then(spark: SparkSession) -> None:
    rows = {
        "absences": [absence(place * DAY_MS, 5_000) for place in (1, 3)],
        "rebalances": [rebalance(0, moved=100), rebalance(3 * DAY_MS, moved=4)],
        "lag": [
            lag(1 * DAY_MS, 0, lag=8),
            lag(3 * DAY_MS, 10_000, lag=6),
            lag(3 * DAY_MS + 10_000, 10_050),
        ],
    }
    tables = given(spark, rows)
    history = history_of(tables, "g", since_ms=2 * DAY_MS)
    assert [one.begin_ms for one in history.episodes] == [3 * DAY_MS]
    assert history.days == pytest.approx(1, abs=0.001)
    assert history.observed.moved == pytest.approx(4, abs=0.001)
    assert history.observed.lag_peak == 6
    assert history.rate_per_s == 5.0
    with pytest.raises(PipelineError, match="'g' has no rebalance and no absence after --since"):
        history_of(tables, "g", since_ms=9 * DAY_MS)


def test_group_that_only_telemetry_knows_has_its_size_and_a_note(spark: SparkSession) -> None:
    """Rebalances lack partitions, work events have them; today's policy may be given."""
    work = [
        {"group": "g", "topic": "t", "partition": place % 12, "at_ms": place} for place in range(24)
    ]
    known = rebalance(DAY_MS, source="telemetry", partitions=None)
    asked = Choice(name="simple")
    tables = given(spark, {"rebalances": [known], "work": work})
    history = history_of(tables, "g", asked)
    assert (history.members, history.partitions, history.today) == (3, 12, asked)
    assert "needs `coopgroup pipeline history`" in history.notes[0]


def test_of_too_many_absences_the_newest_count(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(from_tables, "_ROWS_MAX", 2)
    rows = {
        "absences": [absence(place * DAY_MS // 4, 5_000) for place in (6, 1, 4)],
        "rebalances": [rebalance(0, moved=100), rebalance(DAY_MS, moved=4)],
    }
    history = history_of(given(spark, rows), "g")
    assert [one.begin_ms for one in history.episodes] == [DAY_MS, 6 * DAY_MS // 4]
    assert (history.days, history.observed.moved) == (1.0, 4.0)
    assert history.notes[0].startswith("There are more than 2 absences")


def test_group_of_ours_at_rest_is_as_old_as_its_last_sign_and_its_leaders_tell_its_policy(
    spark: SparkSession,
) -> None:
    """The group still commits; the delay is that of the last round with lost members."""
    led = {"group": "g", "policy": "deferred", "assignor": "sticky", "lost": 3}
    tables = given(
        spark,
        {
            "rebalances": [rebalance(DAY_MS)],
            "commits": [{"group": "g", "at_ms": 6 * DAY_MS}, {"group": "h", "at_ms": 99 * DAY_MS}],
            "generations": [{"group": "g", "at_ms": 0}],
            "events": [{"group": "g", "at_ms": 8 * DAY_MS}],
            "rounds": [
                {**led, "at_ms": 5, "rejoin_in_ms": 60_000},
                {**led, "at_ms": 6, "rejoin_in_ms": None, "lost": 0},
                {**led, "at_ms": 7, "rejoin_in_ms": 30_000},
                {**led, "at_ms": 9, "rejoin_in_ms": 12_000},
            ],
        },
    )
    history = history_of(tables, "g")
    assert (history.days, history.observed.moved) == (8.0, 0.5)
    options = {"scheduled_rebalance_timeout_ms": 30_000}
    assert history.today == Choice(name="deferred", options=options)
    assert len(history.notes) == 1  # the load is unknown, the policy is known


def test_absence_is_known_to_last_as_long_as_episodes_has_read(spark: SparkSession) -> None:
    """A present life has no end. `history` has read on, but nobody has looked for returns there."""
    absences = make(spark, "absences", absence(HOUR_MS, None, observed_until_ms=None))
    given_ = Given(spark=spark, frames={"absences": absences}, until_ms=9 * DAY_MS)
    for read_ms, left_out in ((0, 1), (HOUR_MS + 1_000, 1), (2 * DAY_MS, 0)):
        tables = evolve(given_, notes={"episodes": {"as_of_ms": read_ms}})
        assert history_of(tables, "g").left_out == left_out


def test_cost_of_a_move_is_told_by_telemetry(spark: SparkSession) -> None:
    """From assignment to start of work; a return counts separately, a first start never."""
    events, work = [], []

    def takes(member: str, at_ms: int, wait_ms: int) -> None:
        record = {"gained": {"orders": [0]}}
        events.append(
            {
                "group": "g",
                "kind": "assignment_received",
                "member": member,
                "at_ms": at_ms,
                "record": json.dumps(record),
            }
        )
        work.append(
            {
                "group": "g",
                "member": member,
                "client": "",
                "topic": "orders",
                "partition": 0,
                "at_ms": at_ms + wait_ms,
                "is_start": True,
            }
        )

    takes("a", 0, 999_999)
    for number in range(1, 6):
        takes("b" if number % 2 else "a", 10_000_000 * number, 4_000 + number)
    tables = given(spark, {"events": events, "work": work})
    assert move_costs_of(tables, ["g"]) == {"g": MoveCost(move_ms=4_003, return_ms=4_003)}
    for number in range(6, 11):
        takes("b", 10_000_000 * number, 100 + number)
    tables = given(spark, {"events": events, "work": work})
    assert move_costs_of(tables, ["g"]) == {"g": MoveCost(move_ms=4_003, return_ms=108)}
    few = given(spark, {"events": events[:3], "work": work[:3]})
    assert move_costs_of(few, ["g"]) == {}


def test_process_that_starts_again_is_known_by_the_history(spark: SparkSession) -> None:
    """Its telemetry has a new member id and no name; the coordinator's states identify it."""
    events, work, generations, members = [], [], [], []
    for number in range(12):
        # Each process starts twice in a row: after a move, and after a return under a new id.
        at_ms, member = 1_000_000 * number, f"m-{number}"
        wait_ms = 100 if number % 2 else 4_000
        common = {"group": "g", "member": member, "client": ""}
        record = json.dumps({"gained": {"orders": [0]}})
        events.append({**common, "kind": "assignment_received", "at_ms": at_ms, "record": record})
        place = {"topic": "orders", "partition": 0, "is_start": True}
        work.append({**common, **place, "at_ms": at_ms + wait_ms})
        state = {
            "group": "g",
            "generation": number + 1,
            "at_ms": at_ms,
            "source_partition": 0,
            "source_offset": number,
        }
        generations.append(
            {**state, "member_count": 1, "is_tombstone": False, "protocol_type": "consumer"}
        )
        host = f"host-{number // 2}"
        members.append({**state, "member_id": member, "client_id": "c", "client_host": host})
    rows = {"events": events, "work": work, "generations": generations, "members": members}
    found = move_costs_of(given(spark, rows), ["g"])
    assert found == {"g": MoveCost(move_ms=4_000, return_ms=100)}


@pytest.mark.verify
def test_a_call_without_groups_advises_groups_with_enough_episodes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment is one episode, and new members form an episode without an absence.

    Few groups at a time are in the driver's memory.
    """
    asked = []

    def advised(tables: Tables, groups: Sequence[str], **others: Any) -> Any:  # noqa: ANN401
        asked.append(groups)
        return advice_for(tables, groups, **others)

    monkeypatch.setattr("coopgroup.cli.pipeline.run.advice_for", advised)
    monkeypatch.setattr("coopgroup.cli.pipeline.run._GROUPS_AT_ONCE", 1)
    absences = [
        absence(HOUR_MS * number // (1 if group == "crashed" else HOUR_MS), 5_000, group=group)
        for group in ("crashed", "deployed")
        for number in range(1, ENOUGH + 1)
    ]
    joins = [
        rebalance(HOUR_MS * number, group="grown", trigger="join", joined=1)
        for number in range(1, ENOUGH + 1)
    ]
    tables = cast("Tables", given(spark, {"absences": absences, "rebalances": joins}))
    found = _advice(tables, Scope(), 1_000)
    assert [(one["group"], "headline" in one) for one in found] == [
        ("crashed", True),
        ("grown", True),
    ]
    assert asked == [("crashed",), ("deployed",), ("grown",)]
    assert _advice(tables, Scope(since_ms=2 * HOUR_MS), 1_000) == []


# --- the command ----------------------------------------------------------------------------------

COUNT = 24


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write tables of a group of three whose members restart every hour, each within 8 s."""
    tables = Tables(spark=spark, folder=str(tmp_path_factory.mktemp("tables")))
    absences = [
        {
            "group": "billing",
            "member_id": f"m-{number}",
            "client_id": "c",
            "client_host": "h",
            "generation": number,
            "session_timeout_ms": 10_000,
            "partitions": 2,
            "gone_ms": number * HOUR_MS,
            "gone_latest_ms": number * HOUR_MS,
            "returned_ms": number * HOUR_MS + 8_000,
            "absent_ms": 8_000,
            "returned_as": "telemetry",
            "observed_until_ms": (COUNT + 1) * HOUR_MS,
        }
        for number in range(1, COUNT + 1)
    ]
    rebalance = {
        "group": "billing",
        "source": "history",
        "trigger": "leave",
        "members_after": 3,
        "partitions": 6,
        "moved": 2,
        "begin_ms": HOUR_MS,
        "end_ms": HOUR_MS + 1_000,
    }
    frames = {
        "absences": make(spark, "absences", *absences),
        "rebalances": make(spark, "rebalances", rebalance),
    }
    for name, frame in frames.items():
        tables.replace(name, frame)
    return tables.folder


def advised(folder: str, *arguments: str) -> str:
    """Return the output of the command."""
    result = CliRunner().invoke(
        command, ["--tables", folder, "--group", "billing", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.stdout


def test_stateful_group_is_advised_to_wait_and_gets_a_page(folder: str, tmp_path: Path) -> None:
    """Moves take 30 s, restarts 8 s."""
    page = tmp_path / "advice.html"
    told = ("--move-cost-ms", "30000", "--today", "simple")
    printed = advised(folder, *told, "--json", "--html", str(page))
    found = json.loads(printed)
    assert found["advised"]["policy"] == "deferred"
    assert 8_000 <= found["advised"]["options"]["scheduled_rebalance_timeout_ms"] <= 20_000
    assert found["advised"]["moved_per_day"]["mean"] == 0
    assert found["is_clear"]
    assert found["history"] | {"observed": None} == {
        "days": 1.0,
        "as_of_ms": None,
        "members": 3,
        "partitions": 6,
        "episodes": COUNT,
        "absences": COUNT,
        "proven_returns": COUNT,
        "likely_returns": 0,
        "uses_likely_returns": False,
        "is_enough": True,
        "observed": None,
    }
    text = page.read_text()
    assert "DeferredPolicy(scheduled_rebalance_timeout_ms=" in text


def test_group_without_history_is_said(folder: str) -> None:
    with pytest.raises(CoopgroupError) as refused:
        CliRunner().invoke(command, ["--tables", folder, "--group", "gone"], catch_exceptions=False)
    assert str(refused.value).endswith("no history of group 'gone'; there are billing")
