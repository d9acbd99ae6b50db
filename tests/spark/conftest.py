"""One small local Spark for all tests of this folder."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark import SparkContext

from coopgroup.pipeline.spark.session import LIGHT, build_session, connector_jars
from coopgroup.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: Final = Path(__file__).parent
RESERVED: Final = "spark.sql.ansi.enforceReservedKeywords"
TIMEOUT_S: Final = 600  # a session starts in five seconds, or in a minute on a busy machine


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return a session on two cores, with Spark's Kafka source, for all tests.

    A cluster may set words such as `group` and `end` aside, which the tables have as columns.
    """
    session = build_session(
        master="local[2]",
        jars=connector_jars(),
        extra={**LIGHT, RESERVED: "true"},
    )
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
        gc.collect()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    """Return a folder without tables."""
    return Tables(spark=spark, folder=str(tmp_path))


@pytest.fixture(scope="session")
def ordinary(spark: SparkSession) -> SparkSession:
    """Return a session in the same Spark, with the settings of a user: none of `LIGHT`."""
    session = spark.newSession()
    settings = {
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.autoBroadcastJoinThreshold": "10MB",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        RESERVED: "false",
    }
    assert {*LIGHT} - {*settings} == {"spark.driver.extraJavaOptions"}
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give up the connection to the JVM if a limit of time has interrupted a call.

    The answer comes later, and the next test would take it for its own.
    """
    report = yield
    context = SparkContext._active_spark_context  # noqa: SLF001 - Spark must not start here
    is_interrupted = call.excinfo is not None and not call.excinfo.errisinstance(Exception)
    if context is not None and is_interrupted:
        gateway: Any = context._gateway  # noqa: SLF001 - likewise
        connection = gateway._gateway_client.get_thread_connection()  # noqa: SLF001
        if connection is not None:
            connection.close()
        context.cancelAllJobs()
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow for a slow start of Spark, and for sockets that it leaves to the garbage collector."""
    leave = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(leave)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))
