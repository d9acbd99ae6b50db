"""Columns of a table of sweeps: a row for each played cell, parameters first.

A row with an `error` has no measures. Every other row has all measures, in the terms of the
simulator (docs: scenarios). `parameters` is the whole cell as JSON. Parameters that a grid may vary
also have their own columns, null if the policy has no such option. `key` identifies a row.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from coopgroup.pipeline.sweep.grid import GROUP_AXES, OPTION_AXES
from coopgroup.simulator.comparison import MEASURES

__all__ = ["AXES", "COLUMNS", "SCHEMA", "VERSION"]

VERSION: Final = 2
"""Version of the columns; tables of another version are in another folder."""

AXES: Final = ("scenario", "policy", "assignor", *OPTION_AXES, *GROUP_AXES, "size")
"""Columns of a setting: all parameters except the seed."""

_TYPES: Final[dict[str, DataType]] = {
    "key": StringType(),
    "sweep": StringType(),
    "scenario": StringType(),
    "policy": StringType(),
    "assignor": StringType(),
    **dict.fromkeys((*OPTION_AXES, *GROUP_AXES, "size", "seed"), LongType()),
    "parameters": StringType(),
    "version": StringType(),
    **{
        name: DoubleType() if name == "unavailable_partition_s" else LongType() for name in MEASURES
    },
    "worst_resource": StringType(),
    "violations": IntegerType(),
    "violation": StringType(),
    "error": StringType(),
    "cpu_s": DoubleType(),
}

SCHEMA: Final = StructType(
    [StructField(name, kind, nullable=name != "key") for name, kind in _TYPES.items()]
)
COLUMNS: Final = tuple(_TYPES)
