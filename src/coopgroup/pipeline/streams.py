"""`start_job`: a stream whose micro-batches are the batches of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from coopgroup.pipeline.tables import Tables

__all__ = ["start_job"]


def start_job(
    raw: DataFrame,
    tables: Tables,
    job: str,
    write: Callable[[DataFrame, int], None],
    every_s: float | None,
) -> StreamingQuery:
    """Write a stream batch by batch; Spark's checkpoint beside the tables has the progress.

    Args:
        raw: the stream.
        tables: tables to write to.
        job: name of the job.
        write: writes a batch of rows under its number.
        every_s: seconds between micro-batches, until the query is stopped; `None` ends the query
            after the present records.
    """
    writer = raw.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", tables.checkpoint(job))
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()
