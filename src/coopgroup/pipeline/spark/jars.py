"""Jars of Spark's Kafka source and of Delta Lake: the user's own, or fetched once by Maven.

Theory of operation: the folder is named after the hash of `connector-pom.xml`, as with the broker
for tests (`coopgroup.testing.maven`). A file lock protects the download into a temporary folder
beside it. One rename then creates the final folder, so that it is always complete.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Final

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.errors import PipelineError
from coopgroup.testing.errors import KafkaFetchError, ToolMissingError
from coopgroup.testing.maven import cache_lock, cache_root, find_program, run_step

__all__ = ["CONNECTOR_VERSION", "check_jars", "connector_jars"]

CONNECTOR_VERSION: Final = "4.0.0"
FETCH_TIMEOUT_S: Final = 600


def check_jars(jars: Iterable[str]) -> tuple[str, ...]:
    """Return the user's jars if all of them exist.

    Raises:
        ConfigurationError: a jar is not a file.
    """
    given = tuple(jars)
    for jar in given:
        if "://" not in jar and not Path(jar).is_file():
            raise ConfigurationError("--jars", jar, "a jar file that exists")
    return given


def connector_jars() -> tuple[str, ...]:
    """Return the jars of Kafka source and Delta Lake, and fetch them if the cache lacks them.

    Raises:
        PipelineError: they cannot be fetched; the message has the reason and the alternatives.
    """
    folder = _folder()
    try:
        if not folder.is_dir():
            maven = find_program("mvn", "Maven (mvn)", "apt-get install maven")
            with cache_lock(folder):
                if not folder.is_dir():  # another process may have been first
                    _fetch(maven, folder)
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


def _folder() -> Path:
    digest = hashlib.sha256(_pom()).hexdigest()[:12]
    return cache_root() / f"spark-jars-{CONNECTOR_VERSION}-{digest}"


def _pom() -> bytes:
    return resources.files("coopgroup.pipeline.spark").joinpath("connector-pom.xml").read_bytes()


def _fetch(maven: str, folder: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix=f"{folder.name}.building-", dir=folder.parent))
    try:
        pom = building / "pom.xml"
        pom.write_bytes(_pom())
        command = [
            *(maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(pom)),
            *("dependency:copy-dependencies", "-DincludeScope=runtime"),
            f"-DoutputDirectory={building}",
        ]
        run_step(command, "Maven failed", FETCH_TIMEOUT_S)
        building.chmod(0o755)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
