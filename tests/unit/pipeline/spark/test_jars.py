"""Jars of the Kafka source: given by the user, cached, or missing with a one-line error."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.spark import jars
from coopgroup.pipeline.spark.jars import check_jars, connector_jars
from coopgroup.testing.errors import KafkaFetchError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COOPGROUP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_jars_of_the_user_are_taken_as_they_are(tmp_path: Path) -> None:
    jar = tmp_path / "one.jar"
    jar.touch()
    given = (str(jar), "hdfs://cluster/two.jar")
    assert check_jars(given) == given
    with pytest.raises(ConfigurationError, match=r"--jars: got .*none\.jar"):
        check_jars([str(tmp_path / "none.jar")])


def test_jars_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def maven(command: list[str], complaint: str, timeout_s: float) -> None:
        calls.append(command)
        folder = next(one for one in command if one.startswith("-DoutputDirectory="))
        Path(folder.partition("=")[2], "source.jar").touch()

    monkeypatch.setattr(jars, "run_step", maven)
    monkeypatch.setattr(jars, "find_program", lambda *_: "mvn")
    found = connector_jars()
    assert [Path(one).name for one in found] == ["source.jar"]
    assert connector_jars() == found
    assert len(calls) == 1
    assert len(list(cache.glob("spark-jars-*.building-*"))) == 0


def test_a_missing_maven_is_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match=r"Maven \(mvn\) is missing.*--jars"):
        connector_jars()


def test_a_maven_that_fails_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def maven(command: list[str], complaint: str, timeout_s: float) -> None:
        raise KafkaFetchError(f"{complaint}: no network")

    monkeypatch.setattr(jars, "run_step", maven)
    monkeypatch.setattr(jars, "find_program", lambda *_: "mvn")
    with pytest.raises(PipelineError, match="no network; name the jars with --jars"):
        connector_jars()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
