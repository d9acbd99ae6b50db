"""Spark settings for jobs that have few rows and many plans: `LIGHT`, `light_session`.

Generated Java code, adaptive plans, broadcasts, many partitions and an optimising compiler pay off
with many rows. A sweep, a demonstration, tests, and lag and episodes of a small history have few
rows. There these features cost more than the work itself, and take cores from Python.

A plan must be made and run under the same settings: Spark fails if code generation is turned off in
between. So `light_session` returns another session, and the settings of the given one stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEW_ROWS", "LIGHT", "light_session"]

FEW_ROWS: Final = 100_000
"""Number of rows up to which the light settings are faster."""

_OF_QUERIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
)

LIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_OF_QUERIES,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
)
"""The settings of a whole Spark."""


def light_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark, with the same settings except those for few rows.

    Args:
        spark: a session; it is returned if it has the settings for few rows already.
    """
    if all(spark.conf.get(name, None) == value for name, value in _OF_QUERIES.items()):
        return spark
    light = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if light.conf.isModifiable(name) and light.conf.get(name, None) != value:
            light.conf.set(name, value)
    for name, value in _OF_QUERIES.items():
        light.conf.set(name, value)
    return light
