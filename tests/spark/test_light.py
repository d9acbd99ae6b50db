"""Settings for queries on few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.pipeline.light import FEW_ROWS, lightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADAPTIVE, SHUFFLES = "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions"


def test_settings_are_light_for_few_rows_and_return(spark: SparkSession) -> None:
    before = {name: str(spark.conf.get(name)) for name in (ADAPTIVE, SHUFFLES)}
    spark.conf.set(ADAPTIVE, "true")
    spark.conf.set(SHUFFLES, "7")
    try:
        with lightly(spark, spark.range(1), spark.range(2)):
            assert (spark.conf.get(ADAPTIVE), spark.conf.get(SHUFFLES)) == ("false", "2")
            assert spark.range(9).groupBy("id").count().count() == 9
        assert (spark.conf.get(ADAPTIVE), spark.conf.get(SHUFFLES)) == ("true", "7")
        with lightly(spark, spark.range(FEW_ROWS), spark.range(1)):
            assert (spark.conf.get(ADAPTIVE), spark.conf.get(SHUFFLES)) == ("true", "7")
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
