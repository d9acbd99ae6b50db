"""A job on a standalone cluster of Spark, whose workers get coopgroup as a zip file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from coopgroup.pipeline.spark.session import LIGHT, connector_jars
from tests.support.growing_file import whole_lines
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from coopgroup.testing import KafkaCluster

pytestmark = [pytest.mark.verify, pytest.mark.slow]

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = Path(pyspark.__file__).parent
OPTIONS: Final = LIGHT["spark.driver.extraJavaOptions"]


@contextmanager
def running(log: Path, *command: str, **environment: str) -> Iterator[None]:
    """Run a class of Spark as a process until the block ends."""
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *command],
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_HOME": str(HOME), **environment},
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def found_in(log: Path, text: str) -> str:
    """Return what follows a text in a log, as soon as it is there."""

    def found() -> list[str]:
        lines = (line.decode() for line in whole_lines(log))
        return [line.partition(text)[2].split()[0] for line in lines if text in line]

    wait_for(found, f"{text} in {log.name}", timeout_s=120)
    return found()[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Return the address of a master with two workers, which are processes of their own."""
    host = ("--host", "127.0.0.1", "--webui-port", "0")
    place = "org.apache.spark.deploy"
    with ExitStack() as processes:
        log = tmp_path / "master.log"
        processes.enter_context(running(log, f"{place}.master.Master", *host, "--port", "0"))
        master = found_in(log, "Starting Spark master at ")
        for number in range(2):
            log, work = tmp_path / f"worker-{number}.log", str(tmp_path / f"work-{number}")
            size = ("--cores", "1", "--memory", "2g", "--work-dir", work)
            command = (f"{place}.worker.Worker", *host, *size, master)
            processes.enter_context(running(log, *command))
            found_in(log, "Successfully registered with master ")
        yield master


def python_without_coopgroup(folder: Path) -> str:
    """Return a Python with the packages of this one, but without `.pth` files."""
    python = folder / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


def test_workers_read_a_history_with_the_zip_that_was_shipped(
    cluster: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Their Python cannot import coopgroup otherwise. Standard error has no noise at the end."""
    consumer = Consumer({**kafka_cluster.client_config(), "group.id": "standalone"})
    kafka_cluster.create_topic("standalone", 1)
    consumer.commit(offsets=[TopicPartition("standalone", 0, 7)], asynchronous=False)
    consumer.close()
    python = python_without_coopgroup(tmp_path)
    environment: Mapping[str, str] = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    lost = subprocess.run(
        [python, "-c", "import coopgroup"], check=False, capture_output=True, env=environment
    )
    assert b"No module named 'coopgroup'" in lost.stderr
    package = tmp_path / "coopgroup"
    shutil.copytree(ROOT / "src" / "coopgroup", package / "coopgroup")
    shipped = shutil.make_archive(str(package), "zip", package)
    shutil.rmtree(package)
    settings = {
        **LIGHT,
        "spark.executor.extraJavaOptions": OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster, "--py-files", shipped]
    command += ["--jars", ",".join(connector_jars())]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "examples" / "submit.py"), "pipeline", "history"]
    command += ["--tables", str(tmp_path / "tables"), "--group", "standalone"]
    command += ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    python_of = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={**environment, **python_of, "SPARK_HOME": str(HOME)},
    )
    assert done.returncode == 0, done.stderr
    assert "commits: 1 row" in done.stdout.splitlines()
    table = DeltaTable(str(tmp_path / "tables" / "v1" / "commits")).to_pyarrow_table()
    assert table.column("committed").to_pylist() == [7]
    noise = [line for line in done.stderr.splitlines() if " ERROR " in line or "Exception" in line]
    assert noise == []
    # Each worker has run an executor.
    assert all([*tmp_path.glob(f"work-{number}/app-*/*")] for number in range(2))
