"""The Spark session of the jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as sql

from coopgroup.pipeline.session import build_session

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
