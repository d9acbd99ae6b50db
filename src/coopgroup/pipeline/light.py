"""Spark settings for jobs that have few rows and many plans: `LIGHT`, `lightly`.

Generated Java code, adaptive plans, many partitions and an optimising compiler pay off with many
rows. A sweep, a demonstration, tests and the episodes of a small history have few rows. There these
features cost more than the work itself, and take cores from Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FEW_ROWS", "LIGHT", "lightly"]

FEW_ROWS: Final = 100_000
"""Number of rows up to which the light settings are faster."""

_OF_QUERIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
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


@contextmanager
def lightly(spark: SparkSession, *inputs: DataFrame) -> Iterator[None]:
    """Run queries with light settings meanwhile, if their inputs have few rows together.

    Args:
        spark: the session; its settings return afterwards.
        inputs: the large inputs of the queries.
    """
    if sum(one.count() for one in inputs) > FEW_ROWS:
        yield
        return
    before = {name: spark.conf.get(name, None) for name in _OF_QUERIES}
    for name, value in _OF_QUERIES.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, setting in before.items():
            if setting is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, setting)
