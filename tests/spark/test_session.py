"""The Spark session of the jobs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as sql

from coopgroup.model import ResourceSet
from coopgroup.pipeline.session import build_session
from coopgroup.pipeline.tables import Tables
from coopgroup.telemetry import Envelope, ResourcesStarted, to_json
from tests.spark.frames import rows

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession


def _programs(frames: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(program=sys.executable)[["program"]]


def test_workers_run_this_python(spark: SparkSession) -> None:
    rows = spark.range(1).mapInPandas(_programs, "program string").collect()
    assert [row.program for row in rows] == [sys.executable]


def test_session_is_bounded_and_local(spark: SparkSession) -> None:
    """Memory has a limit, times are in UTC and the driver listens on loopback."""
    assert spark.conf.get("spark.driver.memory") == "1g"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
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


@pytest.fixture
def executors_log() -> Iterator[Path]:
    """Return the folder of the executors of `local-cluster`, and delete it if it is new."""
    folder = Path(pyspark.__file__).parent / "work"
    is_new = not folder.exists()
    yield folder
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)


def test_executors_may_be_other_processes_and_a_command_prints_only_its_own_lines(
    spark: SparkSession, tmp_path: Path, executors_log: Path
) -> None:
    """A real command: two executors decode a file; standard error stays empty."""
    record = ResourcesStarted(resources=ResourceSet({"orders": range(3)}))
    envelope = Envelope(at_ms=9, group="g", member="a-1", generation=7, record=record)
    file = tmp_path / "telemetry.jsonl"
    file.write_text(json.dumps(to_json(envelope)) + "\nnonsense\n")
    command = [sys.executable, "-m", "coopgroup.cli", "pipeline", "telemetry", str(file)]
    command += ["--tables", str(tmp_path / "tables"), "--master", "local-cluster[2,1,2048]"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "events: 1 row",
        "rounds: 0 rows",
        "work: 3 rows",
        "rejected: 1 row",
    ]
    assert sorted(one.name for one in executors_log.glob("app-*/*")) == ["0", "1"]
    work = Tables(spark=spark, folder=str(tmp_path / "tables")).read("work")
    assert rows(work, "partition") == [(0,), (1,), (2,)]
