"""Missing requirements are reported before Spark reports them in Java."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError, MissingExtraError
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.spark import session
from coopgroup.pipeline.spark.session import build_session, require_spark


def _java(folder: Path, version: str) -> None:
    """Write a program that prints the output of a Java of that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize("master", ["", "locl[2]", "local[x]", "http://spark:7077"])
def test_master_when_invalid_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match="--master"):
        build_session(master=master)


def test_jar_when_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.jar"):
        build_session(jars=[str(tmp_path / "none.jar")])


def test_setting_when_not_of_spark_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="memory"):
        build_session(extra={"memory": "1g"})


@pytest.mark.parametrize("package", ["pyspark", "pandas", "pyarrow"])
def test_package_when_missing_names_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtraError, match=rf"{package} is missing.*: pip install .*'{package}<"
    ):
        require_spark()


@pytest.mark.parametrize(("version", "said"), [("11.0.2", "is 11"), ("1.8.0_392", "is 8")])
def test_java_when_old_is_refused(
    version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4 needs Java 17."""
    _java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=said):
        require_spark()


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_when_new_enough_is_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_spark()


def test_java_when_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match=r"Java \(java\) is missing"):
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
    script = "import sys, time; write = lambda text: (sys.stderr.write(text), sys.stderr.flush());"
    script += f"write({NOISE!r}); write({TOLD!r}); sys.stdin.read(); write('at the end\\n')"
    with session._silenced():  # noqa: SLF001 - a start of Spark takes seconds
        process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        sys.stderr.flush()
    sys.stderr.write("ours\n")
    sys.stderr.flush()
    process.communicate()
    said = ""
    deadline = time.monotonic() + 10
    while "at the end" not in said and time.monotonic() < deadline:
        time.sleep(0.01)
        said += capfd.readouterr().err
    assert sorted(said.splitlines()) == sorted([*TOLD.splitlines(), "at the end", "ours"])
