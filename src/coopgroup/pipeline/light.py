"""Spark settings for jobs that have few rows and many plans: `LIGHT`.

Generated Java code, adaptive plans, many partitions and an optimising compiler pay off with many
rows. A sweep, a demonstration and tests have hundreds of rows. There these features cost more
than the work itself, and take cores from Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["LIGHT"]

LIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
)
