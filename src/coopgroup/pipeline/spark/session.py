"""Spark's start, and the causes of its errors, in the words of a user.

`build_session` starts Spark for a job, and `light_session` suits a job with few rows.
Requirements are checked first and reported in one line, because Spark would fail with a page of
Java. Memory is bounded. On a local master no port listens beyond the loopback interface. Lines that
Java, Spark and Ivy print at every start are silenced; all other lines of theirs reach standard
error. The jars for Kafka and Delta Lake are the user's own, or Maven fetches them once.

Generated Java code, adaptive plans, broadcasts, many partitions and an optimising compiler pay off
with many rows. A sweep, a demonstration, tests, and lag and episodes of a small history have few
rows. There these features cost more than the work itself, and take cores from Python. A plan must
be made and run under the same settings: Spark fails if code generation is turned off in between. So
`light_session` returns another session, and the settings of the given one stay.

`in_one_line` reports the cause of an error. Spark wraps a cause in several exceptions of Java, and
Py4J wraps these in one of Python, whose first line is often "An error occurred while calling o98".
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from coopgroup.errors import (
    ConfigurationError,
    KafkaFetchError,
    MissingExtraError,
    PipelineError,
    ToolMissingError,
)
from coopgroup.extras import install_command
from coopgroup.temporary_folder import temporary_folder
from coopgroup.testing.maven import build_once, cache_root, copy_jars, find_java
from coopgroup.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FEW_ROWS",
    "LIGHT",
    "LOCAL_MASTER",
    "build_session",
    "check_settings",
    "connector_jars",
    "in_one_line",
    "is_submitted",
    "light_session",
    "reason_of",
    "require_spark",
]

LOCAL_MASTER: Final = "local[*]"
_PACKAGE: Final = "coopgroup.pipeline.spark"
_JAVA_MIN: Final = 17
_JAVA_TIMEOUT_S: Final = 30
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PARTITIONS_MIN: Final = 4
_PER_CORE: Final = 2  # tasks: one that ends late must not leave its core idle
# Spark joins small partitions after a shuffle. Large ones stay small enough to be sorted in memory.
_FIRST_PARTITIONS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
_FIRST_PER_CORE: Final = 24
_JARS_VERSION: Final = "4.0.0"
_CAUSES_MAX: Final = 50
_REASON_LETTERS_MAX: Final = 400
_TRACEBACK: Final = "Traceback (most recent call last)"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_QUERY_LETTERS_MAX: Final = 100
_SQL_STATE: Final = re.compile(r"SQLSTATE: (\w{2})\w{3}\b")
_OF_QUERIES: Final = frozenset({"0A", "21", "22", "42", "54", "P0"})  # SQLSTATE begins with it
_NAME_OF_CLASS: Final = re.compile(r"\A[\w.$]+:\s+(?=\[[A-Z])")
_MEMORY: Final = re.compile(r"\d+([kmgtp]b?|b)?", re.IGNORECASE)
_MASTER: Final = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://.+|yarn|k8s://.+")

# Seven days of history of a large group fit. The user can set more memory (`extra`).
_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        # A task writes the files of a few days side by side. Otherwise it would sort all its rows
        # by day first, and merge hundreds of spilled files. Smaller blocks bound the memory.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        "spark.hadoop.parquet.block.size": str(32 * 1024 * 1024),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
)
# A table has few files, so few tasks read its log. Logs of two days are enough to know what is new,
# and a log of `--follow` grows by thousands of files a day.
_DELTA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        # `OPTIMIZE ... ZORDER BY` sorts rows within a file too, so that readers skip parts of it.
        "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
        "spark.databricks.delta.properties.defaults.logRetentionDuration": "interval 2 days",
    }
)
# Delta Lake parses the names of columns: with reserved words it cannot read a column `group`.
_FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {"spark.sql.ansi.enforceReservedKeywords": "false"}
)
_LOCAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
)
FEW_ROWS: Final = 100_000
"""Number of rows up to which the light settings are faster."""

_LIGHT_QUERIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
)

# Without its optimising compiler, Java keeps only 48 MB of compiled code. Spark fills them, so
# Java drops code that it compiles again soon after. The default space for classes costs five full
# collections at the start.
LIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_LIGHT_QUERIES,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        " -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
    }
)
"""The settings for few rows, of a Spark that has not started yet."""

# Signs in a reason, and what to do.
_REMEDIES: Final = (
    (
        "No space left on device",
        "free space in the folder of --tables and in spark.local.dir, and run the job again",
    ),
    (
        "AuthorizationException|Not authorized",
        "the user needs the rights that docs/pipeline.md names (A secured broker)",
    ),
    (
        "CONCURRENT_STREAM_LOG_UPDATE|ConcurrentModification|Concurrent update to the log",
        "another run of this job works on the same tables; let one of them end",
    ),
    (
        "DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)",
        "another job changed the table at the same time; run this job again",
    ),
)

# Java prints the first line before any configuration applies, and Spark the others past its log.
# The rest is the report of Ivy on `spark.jars.packages`, without its errors.
_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|WARNING: package sun\.security\.action not in java\.base"
    rb"|Using Spark's default log4j profile"
    rb"|Setting (default|Spark) log level to"
    rb"|To adjust logging level use"
    rb"|:: (loading settings|resolving dependencies|resolution report|retrieving) "
    rb"|Ivy Default Cache |The jars for the packages |[\w.-]+#[\w.;-]+ added as a dependency"
    rb"|downloading |\t(confs: |found |\[SUCCESSFUL|:: modules in |:: artifacts dl|\d+ artifacts)"
    rb"|\t(-{20}| *\|)"
)


def require_spark() -> None:
    """Check that PySpark, its companions and Java are there.

    Raises:
        MissingExtraError: a package is missing; one line names it and says how to get it.
        PipelineError: Java is missing or too old.
    """
    for package in ("pyspark", "pandas", "pyarrow"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtraError(
                f"{package} is missing, which the pipeline needs: {install_command('spark')}"
            ) from None
    _require_java()


def _require_java() -> None:
    try:
        java = find_java()
    except ToolMissingError as error:
        raise PipelineError(
            f"{error.tool} is missing, which Spark needs; install it with {error.remedy}"
        ) from None
    try:
        said = subprocess.run(  # noqa: S603 - the Java of the machine
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_TIMEOUT_S,
            check=False,
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"Java does not run: {error}") from None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        raise PipelineError(f"{java} does not say which version of Java it is")
    # Java 8 reports version 1.8.
    version = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < _JAVA_MIN:
        raise PipelineError(f"Java {_JAVA_MIN} or newer is needed for Spark, {java} is {version}")


def check_settings(*, master: str, jars: Sequence[str], extra: Mapping[str, str]) -> None:
    """Check for errors that are visible before Spark starts; else as `build_session`."""
    if not _MASTER.fullmatch(master):
        raise ConfigurationError("--master", master, "a master of Spark, such as local[4]")
    for name, value in extra.items():
        if not name.startswith("spark."):
            raise ConfigurationError("--conf", name, "a setting whose name begins with 'spark.'")
        if name.endswith(".memory") and not _MEMORY.fullmatch(value):
            raise ConfigurationError("--conf", f"{name}={value}", "a size of memory, such as 4g")
    for jar in jars:
        if "://" not in jar and not Path(jar).is_file():
            raise ConfigurationError("--jars", jar, "a jar file that exists")


def is_submitted() -> bool:
    """Return whether `spark-submit` runs this process; its master, jars and settings apply."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def build_session(
    *,
    master: str = LOCAL_MASTER,
    jars: Sequence[str] = (),
    extra: Mapping[str, str] = _NOTHING,
) -> SparkSession:
    """Create the session, or return the running one.

    Spark's Kafka source hides internal topics unless it looks up offsets in its older way. The
    session selects that way, because otherwise the history would be empty. With assigned partitions
    (`cli.pipeline.jobs.all_partitions`) that way joins no consumer group.

    The master, the jars and the settings of `spark-submit` override all others. The session never
    enforces reserved words in SQL, because Delta Lake could not read the tables with them.

    Args:
        master: Spark's master URL: `local[*]`, `local[4]`, `spark://...`, `yarn`, `k8s://...`.
        jars: files that the session needs: `connector_jars()` for tables, none for a sweep.
        extra: further settings of Spark, which override ours.

    Raises:
        ConfigurationError: the master is invalid, a jar does not exist, Spark refuses a setting, or
            there is no folder for temporary files.
        PipelineError: PySpark or Java is missing, or Spark does not start.
    """
    check_settings(master=master, jars=jars, extra=extra)
    require_spark()
    submitted = _submitted()
    settings = {**_settings(submitted.get("spark.master", master), jars, extra), **submitted}
    return _start(settings, extra)


def _settings(master: str, jars: Sequence[str], extra: Mapping[str, str]) -> dict[str, str]:
    log = resources.files(_PACKAGE).joinpath("log4j2.properties")
    settings = {"spark.master": master, "spark.app.name": "coopgroup", **_DEFAULTS}
    java_options = "spark.driver.extraJavaOptions"
    settings[java_options] = f'"-Dlog4j2.configurationFile={log}"'
    if java_options in extra:
        extra = {**extra, java_options: f"{settings[java_options]} {extra[java_options]}"}
    if jars:
        settings["spark.jars"] = ",".join(jars)
    if jars or is_submitted():
        settings |= _DELTA
    if master.startswith("local"):
        settings |= _LOCAL
        # Spark would create this folder in the current one. All tables have paths of their own.
        warehouse = f"{temporary_folder()}/coopgroup-warehouse-{os.getuid()}"
        settings["spark.sql.warehouse.dir"] = warehouse
    return {**settings, **extra}


def _submitted() -> dict[str, str]:
    """Return the settings of `spark-submit`; empty without it."""
    if not is_submitted():
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra

    # The settings are in the JVM of spark-submit.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark connects when it starts a context
    return dict(SparkConf().getAll())


def _start(settings: Mapping[str, str], extra: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    # A running session has its settings already, from the thread that created it.
    with contextlib.suppress(PySparkException):
        return SparkSession.active()
    # Workers would run the first `python3` of the PATH, which may lack coopgroup.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _silenced():
            session: SparkSession = builder.getOrCreate()
        # Spark checks settings of SQL when it uses the first one.
        _prepare(session, settings)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        reason = reason_of(error)
        for name, value in extra.items():
            if name in reason:
                wrong = f"{name}={value}"
                raise ConfigurationError(
                    "--conf", wrong, f"what Spark accepts: {reason}"
                ) from error
        raise PipelineError(f"Spark does not start: {reason}") from error
    return session


def _prepare(session: SparkSession, settings: Mapping[str, str]) -> None:
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    for name, value in _FIXED.items():
        session.conf.set(name, value)
    # Delta prints how many files it deleted. Standard output is for results.
    jvm = session._jvm  # noqa: SLF001 - PySpark has no other way
    assert jvm is not None
    jvm.java.lang.System.setOut(jvm.java.lang.System.err)
    # PySpark would print an error of a query as JSON, and raise it too.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    if _SHUFFLE_PARTITIONS not in settings:
        cores = session.sparkContext.defaultParallelism
        session.conf.set(_SHUFFLE_PARTITIONS, max(_PARTITIONS_MIN, _PER_CORE * cores))
        if _FIRST_PARTITIONS not in settings:
            session.conf.set(_FIRST_PARTITIONS, _FIRST_PER_CORE * cores)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Give processes that start meanwhile a standard error without the lines of `_NOISE`.

    Java inherits the descriptor, so a thread passes its lines on as long as Java runs.
    """
    real, (source, sink) = os.dup(2), os.pipe()
    Worker("spark-stderr").submit(partial(_pass_on, source, real))
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(real, 2)


def _pass_on(source: int, target: int) -> None:
    """Copy the lines of a pipe that are no noise, until all its writers have ended."""
    with open(source, "rb") as lines:
        for line in lines:
            if not _NOISE.match(line):
                os.write(target, line)
    os.close(target)


def light_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark, with the same settings except those for few rows.

    Args:
        spark: a session; it is returned if it has the settings for few rows already.
    """
    if all(spark.conf.get(name, None) == value for name, value in _LIGHT_QUERIES.items()):
        return spark
    light = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if light.conf.isModifiable(name) and light.conf.get(name, None) != value:
            light.conf.set(name, value)
    for name, value in _LIGHT_QUERIES.items():
        light.conf.set(name, value)
    return light


# --- jars -----------------------------------------------------------------------------------------


def connector_jars() -> tuple[str, ...]:
    """Return the jars of Spark's Kafka source and of Delta Lake, fetched once by Maven.

    Raises:
        PipelineError: they cannot be fetched; the message has the reason and the alternatives.
    """
    pom = resources.files(_PACKAGE).joinpath("connector-pom.xml").read_bytes()
    # Another pom gets another folder.
    folder = cache_root() / f"spark-jars-{_JARS_VERSION}-{hashlib.sha256(pom).hexdigest()[:12]}"
    try:
        build_once(
            folder,
            lambda maven, building: copy_jars(maven, pom, building, "Maven failed"),
        )
    except ToolMissingError as error:
        raise PipelineError(
            f"{error.tool} is missing, which fetches Spark's jars for Kafka and Delta Lake; install"
            f" it with {error.remedy}, or name the jars with --jars"
        ) from None
    except (KafkaFetchError, OSError) as error:
        raise PipelineError(
            f"Spark's jars for Kafka and Delta Lake could not be fetched: {error}; name the jars "
            "with --jars"
        ) from error
    return tuple(sorted(str(jar) for jar in folder.glob("*.jar")))


# --- errors ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_one_line(complaint: str = "Spark failed", *, query: str | None = None) -> Iterator[None]:
    """Report the cause of an error of Spark in one line, in place of a page of Java.

    Args:
        complaint: the begin of the line.
        query: SQL of the user, if Spark runs it here.

    Raises:
        ConfigurationError: in the place of an error of Spark, if the query is wrong.
        PipelineError: in the place of other errors of Spark; it begins with the complaint.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    try:
        yield
    except (PySparkException, Py4JError) as error:
        reason = reason_of(error)
        state = _SQL_STATE.search(_text_of(error))
        if query is not None and state is not None and state[1] in _OF_QUERIES:
            said = _shortened(query, _QUERY_LETTERS_MAX)
            raise ConfigurationError("QUERY", said, f"SQL that Spark can run: {reason}") from error
        raise PipelineError(f"{complaint}: {with_remedy(reason)}") from error


def with_remedy(reason: str) -> str:
    """Return a reason, and what the user can do, if this is known."""
    remedies = (remedy for sign, remedy in _REMEDIES if re.search(sign, reason))
    return "; ".join([reason, *remedies])


def reason_of(error: BaseException) -> str:
    """Return the cause of an error of Spark or Py4J in one line."""
    line = _telling_line(_text_of(error)) or type(error).__name__
    return _shortened(line, _REASON_LETTERS_MAX)


def _shortened(text: str, letters_max: int) -> str:
    return text if len(text) <= letters_max else f"{text[: letters_max - 1]}…"


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = _innermost(java) if java is not None else ""
    # The text of an error of SQL begins with its condition, after the name of a class of Java.
    return _NAME_OF_CLASS.sub("", text or str(error), count=1)


def _innermost(java: Any) -> str:  # noqa: ANN401 - an object of Java
    """Return the innermost exception of Java that has a message; "" if Java does not answer."""
    text = ""
    with contextlib.suppress(Exception):  # the JVM may be gone
        for _ in range(_CAUSES_MAX):
            if java is None:
                break
            if java.getMessage() or not text:
                text = str(java.toString())
            java = java.getCause()
    return text


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(_TRACEBACK in line for line in lines):
        begin = max(number for number, line in enumerate(lines) if _TRACEBACK in line)
        said = [line for line in lines[begin + 1 :] if not line.startswith(("at ", "File ", "^"))]
        # What follows the traceback is a stack of Java, or nothing.
        return said[-1] if said else lines[begin]
    # The message of Java may begin with an empty line, after the name of its class.
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]) if lines else ""
