"""`coopgroup pipeline advise` from tables to JSON and page; the demonstration prints the rest."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from coopgroup.cli.pipeline.advise import command
from coopgroup.errors import CoopgroupError
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import make

# A task of seconds may take minutes if Spark gets a tenth of a core.
pytestmark = pytest.mark.timeout(480)

HOUR_MS = 3_600_000
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
    tables.replace("episodes", frames)
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
        "members": 3,
        "partitions": 6,
        "episodes": COUNT,
        "absences": COUNT,
        "is_enough": True,
        "observed": None,
    }
    text = page.read_text()
    assert "DeferredPolicy(scheduled_rebalance_timeout_ms=" in text


def test_group_without_history_is_said(folder: str) -> None:
    with pytest.raises(CoopgroupError) as refused:
        CliRunner().invoke(command, ["--tables", folder, "--group", "gone"], catch_exceptions=False)
    assert str(refused.value).endswith("no history of group 'gone'; there are billing")
