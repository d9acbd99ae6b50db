"""`claim_source`: tables belong to one cluster, and to one life of a topic.

Spark's checkpoint has offsets of a topic, and offsets mean nothing in another cluster or after the
topic was created again. Spark would then find no new records, and report no error. So the folder
keeps the ids of the cluster and of the topic from the first run of a job, and later runs compare
them.

    FOLDER/v1/sources/history/_delta_log/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import astuple, frozen
from pyspark.errors import AnalysisException

from coopgroup.errors import PipelineError
from coopgroup.pipeline.tables import MISSING, unless_changed

if TYPE_CHECKING:
    from coopgroup.pipeline.tables import Tables

__all__ = ["Source", "check_cluster", "claim_source"]

_COLUMNS: Final = "cluster string, topic string, topic_id string, groups array<string>"


@frozen(kw_only=True)
class Source:
    """The topic that a job reads.

    Attributes:
        cluster: id of the cluster; "" if the brokers do not report it.
        topic: name of the topic.
        topic_id: id of the topic; "" if the brokers do not report it (before Kafka 2.8).
        groups: the groups that the job reads; empty for all groups.
    """

    cluster: str
    topic: str
    topic_id: str
    groups: tuple[str, ...] = ()


def claim_source(tables: Tables, job: str, source: Source) -> tuple[str, ...]:
    """Remember the source of a job's first run, and refuse another one later.

    A job reads each record once. So later runs read the groups of the first run: the records of
    another group before this run are gone.

    Args:
        tables: tables that the job writes to.
        job: name of the job.
        source: the topic to read. Without groups, the groups of the first run count.

    Returns:
        The groups to read; empty for all groups.

    Raises:
        PipelineError: the tables are from another cluster, from another topic, or from the same
            topic before it was created again.
    """
    known = _known(tables, job)
    if known is None:
        rows = tables.spark.createDataFrame([astuple(source)], _COLUMNS)
        # The first run decides, even if two begin at the same time.
        with unless_changed():
            rows.coalesce(1).write.format("delta").mode("ignore").save(_folder(tables, job))
        known = _known(tables, job) or source
    _check_cluster(tables, known, source.cluster)
    if known.topic != source.topic:
        raise PipelineError(
            f"{tables.folder} has the {job} of topic {known.topic}, not of {source.topic}; name "
            "another folder with --tables"
        )
    if source.groups and source.groups != known.groups:
        of = "of group " + ", ".join(known.groups) if known.groups else "of all groups"
        raise PipelineError(
            f"{tables.folder} has the {job} {of}: leave out --group, or name another folder with "
            "--tables"
        )
    if _differ(known.topic_id, source.topic_id):
        raise PipelineError(
            f"{tables.folder} has the {job} of an earlier topic {source.topic} (id "
            f"{known.topic_id}, now {source.topic_id}): the topic was created again; name another "
            "folder with --tables"
        )
    return known.groups


def check_cluster(tables: Tables, job: str, cluster: str) -> None:
    """Refuse a cluster that is not the one of a job's tables.

    Args:
        tables: tables that the job has written.
        job: name of the job.
        cluster: id of the cluster.

    Raises:
        PipelineError: the tables are from another cluster.
    """
    known = _known(tables, job)
    if known is not None:
        _check_cluster(tables, known, cluster)


def _check_cluster(tables: Tables, known: Source, cluster: str) -> None:
    if _differ(known.cluster, cluster):
        raise PipelineError(
            f"{tables.folder} has the history of cluster {known.cluster}, and these brokers are "
            f"cluster {cluster}; name another folder with --tables"
        )


def _differ(known: str, found: str) -> bool:
    """Return whether two ids differ; an unknown id differs from none."""
    return bool(known and found and known != found)


def _known(tables: Tables, job: str) -> Source | None:
    try:
        rows = tables.spark.read.format("delta").load(_folder(tables, job)).collect()
    except AnalysisException as error:
        if error.getCondition() in MISSING:
            return None
        raise
    found = rows[0].asDict()
    return Source(**{**found, "groups": tuple(found["groups"] or ())})


def _folder(tables: Tables, job: str) -> str:
    return f"{tables.root}/sources/{job}"
