"""The Spark session of the jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as sql

from coopgroup.cli.app import run
from coopgroup.pipeline.spark.session import LIGHT, build_session, connector_jars
from coopgroup.pipeline.tables import Tables
from tests.spark.conftest import RESERVED
from tests.spark.frames import commit, make

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def _programs(frames: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(program=sys.executable)[["program"]]


def test_workers_run_this_python(spark: SparkSession) -> None:
    rows = spark.range(1).mapInPandas(_programs, "program string").collect()
    assert [row.program for row in rows] == [sys.executable]


def test_session_is_bounded_and_local(spark: SparkSession) -> None:
    """Memory has a limit, times are in UTC and the driver listens on loopback."""
    assert spark.conf.get("spark.driver.memory") == "1g"
    # Otherwise a task sorts all its rows by day: with 144 million rows the heap was too small.
    assert spark.conf.get("spark.sql.maxConcurrentOutputFileWriters") == "8"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    # Spark would leave an empty folder behind in the current one.
    assert str(Path.cwd()) not in str(spark.conf.get("spark.sql.warehouse.dir"))
    hour = spark.range(1).select(sql.hour(sql.timestamp_seconds(sql.lit(3_600)))).collect()
    assert hour[0][0] == 1


def test_session_knows_the_kafka_source(spark: SparkSession) -> None:
    """The connector's jars are on the class path: the error is about the source's options."""
    with pytest.raises(IllegalArgumentException, match="for Kafka source"):
        spark.read.format("kafka").load()


def test_session_is_found_from_another_thread(spark: SparkSession) -> None:
    """It stays unchanged: the settings of this call do not apply."""
    with ThreadPoolExecutor(1) as pool:
        extra = {"spark.sql.shuffle.partitions": "7"}
        assert pool.submit(build_session, extra=extra).result() is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_reserved_words_are_names_of_columns(spark: SparkSession) -> None:
    """Also where the settings of a cluster forbid it; Delta Lake could not read the tables."""
    assert spark.sparkContext.getConf().get(RESERVED) == "true"
    assert spark.sql("SELECT 1 AS group, 2 AS end, 3 AS user, 4 AS table").collect() == [
        (1, 2, 3, 4)
    ]


MISTAKES = {
    "SELEC 1": "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'",
    " ": "[PARSE_EMPTY_STATEMENT]",
    "SELECT * FROM nothing": "[TABLE_OR_VIEW_NOT_FOUND]",
    "SELECT nothing FROM commits": "[UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    "SELECT 1 / (committed - 4) AS one FROM commits": "[DIVIDE_BY_ZERO]",
    "SELECT CAST(topic AS int) AS one FROM commits": "[CAST_INVALID_INPUT]",
}


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["table", "json"])
def test_mistakes_in_a_query_are_one_line_with_the_reason(
    more: tuple[str, ...], tables: Tables, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also those that only a task of Spark finds. The exit status is that of a wrong argument."""
    tables.append("history", 0, {"commits": make(tables.spark, "commits", commit(1, 4))})
    for query, reason in MISTAKES.items():
        assert run(["pipeline", "sql", query, "--tables", tables.folder, *more]) == 2
        said = capfd.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("coopgroup: QUERY: got ")
        assert reason in line


@pytest.mark.verify
def test_a_setting_that_spark_refuses_is_one_line(tmp_path: Path) -> None:
    """No job has begun then."""
    asked = ["pipeline", "sql", "SELECT 1", "--tables", str(tmp_path)]
    asked += ["--conf", "spark.sql.shuffle.partitions=abc"]
    command = [sys.executable, "-m", "coopgroup", *asked]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("coopgroup: --conf: got 'spark.sql.shuffle.partitions=abc', expected")
    assert line.endswith("spark.sql.shuffle.partitions should be int, but was abc")


@pytest.mark.verify
def test_spark_submit_runs_a_command_on_its_own_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two executors, each a process of its own, read Delta tables with the jars of the command."""
    tables = Tables(spark=spark, folder=str(tmp_path / "tables"))
    tables.append("history", 0, {"commits": make(spark, "commits", commit(1, 4), commit(2, 7))})
    # Workers of `local-cluster` write into SPARK_HOME.
    home = tmp_path / "spark"
    home.mkdir()
    for one in Path(pyspark.__file__).parent.iterdir():
        (home / one.name).symlink_to(one)
    settings = {**LIGHT, "spark.executor.extraJavaOptions": LIGHT["spark.driver.extraJavaOptions"]}
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,2048]"]
    command += ["--jars", ",".join(connector_jars())]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "examples" / "submit.py"), "pipeline", "sql", "--json"]
    command += ["SELECT sum(committed) AS all FROM commits", "--tables", tables.folder]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"all": 11}
    # At the end, workers may replace executors that have stopped.
    assert {"0", "1"} <= {one.name for one in home.glob("work/app-*/*")}
