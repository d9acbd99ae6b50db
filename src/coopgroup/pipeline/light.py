"""Settings of Spark for jobs that have few rows and many plans: `LIGHT`.

Code that Java makes for each plan, plans that are made again while they run, many partitions and a
compiler that optimises for hours to come pay where there are many rows. A sweep, a demonstration
and tests have hundreds: there all that costs more than the work, and takes cores from Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["LIGHT"]

LIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
)
