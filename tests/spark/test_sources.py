"""Tables of one cluster are not continued with another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.sources import Source, check_cluster, claim_source
from coopgroup.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Source(cluster="c1", topic="offsets", topic_id="t1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster": "c2"}, "of cluster c1, and these brokers are cluster c2"),
        ({"topic_id": "t2"}, r"an earlier topic offsets \(id t1, now t2\)"),
        ({"topic": "other"}, "of topic offsets, not of other"),
    ],
)
def test_another_source_is_refused(
    change: dict[str, str], said: str, spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark=spark, folder=str(tmp_path))
    check_cluster(tables, "history", "c2")  # nothing is known yet
    for _ in range(2):
        claim_source(tables, "history", SOURCE)
    check_cluster(tables, "history", "c1")
    with pytest.raises(PipelineError, match=said) as raised:
        claim_source(tables, "history", evolve(SOURCE, **change))
    assert "\n" not in str(raised.value)
    if "cluster" in change:
        with pytest.raises(PipelineError, match=said):
            check_cluster(tables, "history", "c2")


def test_brokers_without_ids_are_not_refused(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark=spark, folder=str(tmp_path))
    claim_source(tables, "history", SOURCE)
    claim_source(tables, "history", evolve(SOURCE, cluster="", topic_id=""))
