"""Spark's start without Spark: what is missing, which lines are silenced, which jar is fetched."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from coopgroup.errors import ConfigurationError, CoopgroupError, PipelineError
from coopgroup.pipeline.spark import session
from coopgroup.pipeline.spark.session import (
    check_settings,
    connector_jars,
    in_one_line,
    reason_of,
    require_spark,
    with_remedy,
)
from coopgroup.testing import maven as maven_module
from tests.support.by_hand import by_hand


def _java(folder: Path, version: str) -> None:
    """Write a program that prints the output of a Java of that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("11.0.2", "is 11"),
        ("1.8.0_392", "is 8"),
        (None, r"Java \(java\) is missing"),
    ],
)
def test_java_when_old_or_missing_is_refused(
    version: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4 needs Java 17."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if version is not None:
        _java(tmp_path, version)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=said):
        require_spark()


NOISE = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
Setting Spark log level to "ERROR".
:: loading settings :: url = jar:file:/ivy.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /home/me/.ivy2.5.2/cache
The jars for the packages stored in: /home/me/.ivy2.5.2/jars
io.delta#delta-spark_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_2.13;4.0.0 in central
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
"""
TOLD = """14:03:01 ERROR Executor: no space left
\t\t::          UNRESOLVED DEPENDENCIES         ::
WARNING: the disk is nearly full
"""


def test_lines_of_every_start_are_silenced_and_errors_stay(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also lines that the started process writes later, when this process has its own again."""
    script = "import sys; write = lambda text: (sys.stderr.write(text), sys.stderr.flush());"
    script += f"write({NOISE!r}); write({TOLD!r}); sys.stdin.read(); write('at the end\\n')"
    with by_hand() as hand:
        with session._silenced():  # noqa: SLF001 - a start of Spark takes seconds
            process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
            sys.stderr.flush()
        sys.stderr.write("ours\n")
        sys.stderr.flush()
        process.communicate()
        hand.run("spark-stderr")
    said = capfd.readouterr().err
    assert sorted(said.splitlines()) == sorted([*TOLD.splitlines(), "at the end", "ours"])


Step = Callable[[list[str]], None]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COOPGROUP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _with_maven(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    monkeypatch.setattr(maven_module, "run_step", lambda command, *_: step(command))
    monkeypatch.setattr(maven_module, "find_program", lambda *_: "mvn")


def _fetching(calls: list[list[str]]) -> Step:
    def fetch(command: list[str]) -> None:
        calls.append(command)
        folder = next(one for one in command if one.startswith("-DoutputDirectory="))
        Path(folder.partition("=")[2], "source.jar").touch()

    return fetch


def test_jars_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    _with_maven(monkeypatch, _fetching(calls))
    listed = {"source.jar": hashlib.sha256(b"").hexdigest()}
    monkeypatch.setattr(maven_module, "listed_jars", lambda: listed)
    found = connector_jars()
    assert [Path(one).name for one in found] == ["source.jar"]
    assert connector_jars() == found
    assert len(calls) == 1
    assert len(list(cache.glob("spark-jars-*.building-*"))) == 0


def test_a_jar_that_is_not_listed_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_maven(monkeypatch, _fetching([]))
    with pytest.raises(PipelineError, match=r"source\.jar is not in the list of known jars; name"):
        connector_jars()


def test_a_missing_maven_is_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match=r"Maven \(mvn\) is missing.*--jars"):
        connector_jars()


class Throwable:
    """An exception of Java."""

    def __init__(self, name: str, message: str | None, cause: Throwable | None = None) -> None:
        self._text = name if message is None else f"{name}: {message}"
        self._message = message
        self._cause = cause

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> Throwable | None:  # noqa: N802 - likewise
        return self._cause

    def toString(self) -> str:  # noqa: N802 - likewise
        return self._text


class JavaError(Exception):
    """As Py4J reports an exception of Java."""

    def __init__(self, java: object) -> None:
        super().__init__("An error occurred while calling o6298.parquet.\n: org...\n\tat x.y")
        self.java_exception = java


FULL = Throwable("java.io.IOException", "No space left on device")
PARSING = Throwable(
    "org.apache.spark.sql.catalyst.parser.ParseException",
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1)\n\n== SQL ==",
)
PARSED = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1)"
TRACEBACK = """Job aborted
Traceback (most recent call last):
  File "x.py", line 3, in f
    g()
ValueError: no such group
\tat org.apache.x"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JavaError(Throwable("Exception", "Task failed", FULL)), str(FULL.toString())),
        (JavaError(Throwable("Exception", "disk", Throwable("Error", None))), "Exception: disk"),
        (JavaError(PARSING), PARSED),
        (
            JavaError(Throwable("java.io.IOException", "\nno disk\nat x")),
            "java.io.IOException: no disk",
        ),
        (RuntimeError(TRACEBACK), "ValueError: no such group"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("x" * 9_999), "x" * 399 + "…"),
        (JavaError(None), "An error occurred while calling o6298.parquet."),
        (JavaError(object()), "An error occurred while calling o6298.parquet."),
    ],
    ids=[
        "innermost cause",
        "cause without a message",
        "SQL",
        "empty line",
        "Python",
        "empty",
        "long",
        "none",
        "gone",
    ],
)
def test_reason_is_the_innermost_cause_that_says_something(error: Exception, said: str) -> None:
    """Also if the JVM does not answer any longer."""
    assert reason_of(error) == said


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (str(FULL.toString()), "free space in the folder of --tables"),
        ("TopicAuthorizationException: Not authorized to access topics: [t]", "the user needs"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "let one of them end"),
        ("[DELTA_PROTOCOL_CHANGED] ProtocolChangedException", "run this job again"),
    ],
)
def test_a_known_reason_tells_what_to_do(reason: str, remedy: str) -> None:
    with pytest.raises(PipelineError) as raised, in_one_line("history failed"):
        raise PySparkException(reason)
    said = str(raised.value)
    assert said.startswith(f"history failed: {reason}; ")
    assert remedy in said
    assert "\n" not in said
    assert with_remedy("no such group") == "no such group"


@pytest.mark.parametrize(
    ("state", "is_users"),
    [
        pytest.param("42601", True, id="syntax"),
        pytest.param("42P01", True, id="no table"),
        pytest.param("22012", True, id="division by zero"),
        pytest.param("21000", True, id="two rows in place of one"),
        pytest.param("0A000", True, id="not supported"),
        pytest.param("P0001", True, id="raise_error"),
        pytest.param("KD001", False, id="a file is gone"),
        pytest.param("XX000", False, id="a fault of Spark"),
        pytest.param("58030", False, id="a fault of the system"),
    ],
)
def test_a_wrong_query_is_a_mistake_of_the_user(state: str, is_users: bool) -> None:
    """Its exit status is 2. Of our own statements, the same error is a failure."""
    wrong = PySparkException(f"[CONDITION] No. SQLSTATE: {state}")
    kind = ConfigurationError if is_users else PipelineError
    with pytest.raises(kind) as raised, in_one_line(query="SELEC 1"):
        raise wrong
    assert f"[CONDITION] No. SQLSTATE: {state}" in str(raised.value)
    assert ("QUERY: got 'SELEC 1', expected" in str(raised.value)) is is_users
    with pytest.raises(PipelineError), in_one_line():
        raise wrong


def test_a_long_query_is_quoted_with_its_begin() -> None:
    with pytest.raises(ConfigurationError) as raised, in_one_line(query="SELEC " + 999 * "x"):
        raise PySparkException("[CONDITION] No. SQLSTATE: 42601")
    assert len(str(raised.value)) < 200


# --- settings -------------------------------------------------------------------------------------

WRONG = "spark.sql.shuffle.partitions should be int, but was abc"


@pytest.mark.parametrize(
    ("extra", "error", "said"),
    [
        (
            {"spark.sql.shuffle.partitions": "abc"},
            ConfigurationError,
            "--conf: got 'spark.sql.shuffle.partitions=abc', expected what Spark accepts: ",
        ),
        # Of a file with the defaults of a cluster.
        ({}, PipelineError, "Spark does not start: "),
    ],
)
def test_a_setting_that_spark_refuses_at_its_first_use_is_named(
    extra: dict[str, str],
    error: type[CoopgroupError],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark has started then, and checks the settings of SQL later."""
    java = Throwable("Illegal", "Error while instantiating", Throwable("Illegal", WRONG))

    def refuse(*_: object) -> None:
        raise JavaPySparkError(java)

    class Builder:
        def config(self, *_: str) -> Builder:
            return self

        def getOrCreate(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
            return SimpleNamespace(conf=SimpleNamespace(set=refuse))

    def active() -> None:
        raise PySparkException("none")

    fake = SimpleNamespace(builder=Builder(), active=active)
    monkeypatch.setattr("pyspark.sql.SparkSession", fake)
    monkeypatch.setattr(session, "_silenced", nullcontext)
    monkeypatch.setattr(session, "require_spark", lambda: None)
    with pytest.raises(error) as raised:
        session.build_session(extra=extra)
    assert str(raised.value) == f"{said}Illegal: {WRONG}"


class JavaPySparkError(PySparkException):
    """As PySpark reports an exception of Java."""

    def __init__(self, java: object) -> None:
        super().__init__("Error while instantiating")
        self._origin = java


@pytest.mark.parametrize("value", ["abc", "", "4 g", "-1g", "1.5g"])
def test_memory_that_java_does_not_understand_is_refused_before_spark_starts(value: str) -> None:
    """Java would end with three lines of its own."""
    with pytest.raises(ConfigurationError, match=r"--conf: got 'spark\.driver\.memory="):
        check_settings(master="local[1]", jars=(), extra={"spark.driver.memory": value})


@pytest.mark.parametrize("value", ["4g", "512M", "2gb", "1073741824", "100kb"])
def test_sizes_of_memory_are_accepted(value: str) -> None:
    check_settings(master="local[1]", jars=(), extra={"spark.executor.memory": value})
