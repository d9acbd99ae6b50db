"""Fetching of Kafka's jars; programs of the tests replace Maven and Java."""

import hashlib
import os
import re
import threading
from pathlib import Path

import pytest

from coopgroup.errors import KafkaFetchError, ToolMissingError
from coopgroup.testing.maven import (
    KafkaRuntime,
    fetch_kafka,
    kafka_runtime_path,
    listed_jars,
)
from coopgroup.testing.releases import KAFKA_VERSION
from tests.architecture.tree import ROOT

MVN = """#!/bin/sh
echo "$*" >> "$RUNS"
for argument; do case "$argument" in -DoutputDirectory=*) jars="${argument#*=}";; esac; done
cp "$SERVED"/* "$jars"
"""
KNOWN = b"as it was published"
UNLISTED = "4.3.9"
JAVA = """#!/bin/sh
for argument; do config="$argument"; done
folder="$(sed -n 's/^log.dirs=//p' "$config")"
mkdir "$folder" && echo checkpoint > "$folder/bootstrap.checkpoint"
"""


def write_program(folder: Path, name: str, text: str) -> None:
    """Write an executable script."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `mvn` and `java`, first on the PATH; the cache is below `tmp_path`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder, "mvn", MVN)
    write_program(folder, "java", JAVA)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COOPGROUP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SERVED", str(tmp_path / "served"))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "kafka.jar").write_bytes(KNOWN)
    listed = {"kafka.jar": hashlib.sha256(KNOWN).hexdigest(), f"kafka_2.13-{KAFKA_VERSION}.jar": ""}
    monkeypatch.setattr("coopgroup.testing.maven.listed_jars", lambda: listed)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def maven_runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_fetch_fills_the_cache_when_it_is_empty(programs: Path, tmp_path: Path) -> None:
    runtime = fetch_kafka()
    assert runtime == KafkaRuntime(java=str(programs / "java"), folder=kafka_runtime_path())
    assert runtime.classpath == f"{runtime.folder}/jars/*"
    assert runtime.bootstrap_checkpoint.read_text() == "checkpoint\n"
    assert sorted(path.name for path in runtime.folder.iterdir()) == [
        "bootstrap.checkpoint",
        "jars",
    ]
    cache = tmp_path / "cache"
    assert sorted(path.name for path in cache.iterdir()) == [
        runtime.folder.name,
        f"{runtime.folder.name}.lock",
    ]


def test_fetch_runs_maven_once_when_two_ask_at_once(programs: Path, tmp_path: Path) -> None:
    runtimes: list[KafkaRuntime] = []
    threads = [threading.Thread(target=lambda: runtimes.append(fetch_kafka())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runtimes == [fetch_kafka()] * 4
    assert maven_runs(tmp_path) == 1


def test_fetch_removes_what_a_killed_build_left(programs: Path) -> None:
    final = kafka_runtime_path()
    stale = final.with_name(f"{final.name}.building-x")
    (stale / "jars").mkdir(parents=True)
    assert fetch_kafka().folder == final
    assert not stale.exists()


def test_fetch_leaves_nothing_when_maven_fails(programs: Path, tmp_path: Path) -> None:
    broken = '#!/bin/sh\necho "[INFO] begin"\necho "[ERROR] no route to host"\nexit 1\n'
    write_program(programs, "mvn", broken)
    with pytest.raises(KafkaFetchError) as caught:
        fetch_kafka()
    assert str(caught.value) == "Maven could not fetch Kafka's jars: no route to host"
    assert not kafka_runtime_path().exists()
    write_program(programs, "mvn", MVN)
    assert fetch_kafka().folder.is_dir()


def test_maven_checks_its_downloads(programs: Path, tmp_path: Path) -> None:
    fetch_kafka()
    assert "--strict-checksums" in (tmp_path / "runs").read_text().split()


@pytest.mark.parametrize("version", [KAFKA_VERSION, UNLISTED])
def test_a_jar_that_was_changed_is_refused(programs: Path, tmp_path: Path, version: str) -> None:
    (tmp_path / "served" / "kafka.jar").write_bytes(KNOWN + b"!")
    with pytest.raises(KafkaFetchError, match=r"kafka\.jar is not the known jar.*try again$"):
        fetch_kafka(version)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize("name", ["added.jar", "added.JAR"])
def test_a_jar_that_was_added_to_a_listed_release_is_refused(
    programs: Path, tmp_path: Path, name: str
) -> None:
    """Java takes both from a folder of its class path."""
    (tmp_path / "served" / name).touch()
    with pytest.raises(KafkaFetchError, match=f"{name} is not in the list of known jars$"):
        fetch_kafka()


def test_a_release_that_is_not_listed_may_bring_its_own_jars(
    programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "served" / f"kafka_2.13-{UNLISTED}.jar").touch()
    assert fetch_kafka(UNLISTED).folder.is_dir()


def test_every_release_of_make_brokers_and_the_jars_of_spark_are_listed() -> None:
    found = re.search(r"^VERSIONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    expected = {f"kafka_2.13-{version}.jar" for version in found[1].split()}
    pom = (ROOT / "src/coopgroup/pipeline/spark/connector-pom.xml").read_text()
    expected |= {
        f"{artifact}-{version}.jar"
        for artifact, version in re.findall(r"<artifactId>(.+)</.+\s+<version>(.+)<", pom)[1:]
    }
    known = listed_jars()
    assert expected <= known.keys()
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in known.values())


def test_fetch_names_the_cache_when_it_cannot_be_written(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(KafkaFetchError, match="the cache of Kafka's jars cannot be written"):
        fetch_kafka()


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("java", "Java (java) is missing, {}; install it with {} openjdk-17-jre-headless"),
        ("mvn", "Maven (mvn) is missing, {}; install it with {} maven"),
    ],
)
def test_fetch_says_how_to_install_a_tool_when_it_is_missing(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tool: str, message: str
) -> None:
    (programs / tool).unlink()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ToolMissingError) as caught:
        fetch_kafka()
    assert str(caught.value) == message.format("which the test broker needs", "apt-get install")


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        ("/a", "/b", "/a"),
        ("", "/b", "/b/coopgroup"),
        ("", "relative", "/home/somebody/.cache/coopgroup"),
        ("", "", "/home/somebody/.cache/coopgroup"),
    ],
)
def test_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, own: str, shared: str, expected: str
) -> None:
    monkeypatch.setenv("COOPGROUP_CACHE_DIR", own)
    monkeypatch.setenv("XDG_CACHE_HOME", shared)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(kafka_runtime_path().parent) == expected
