"""The program of a worker of each kind.

`tests.lab.worker` is the worker of the kinds of Python. Other clients have a program of their own
that does the same: it reads the specification, writes `ready`, waits for `go`, and writes the same
logs. A program is built once for each version of its sources, before the first worker starts.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from coopgroup.testing.maven import build_once, fetch_kafka, find_program, run_step
from tests.lab.processes import ROOT, python_program
from tests.lab.spec import is_supervised

BUILT: Final = ROOT / "build" / "lab"
BUILD_S_MAX: Final = 600.0
_HERE: Final = Path(__file__).parent


def worker_program(kind: str) -> list[str]:
    """Return the command of a worker, whose program is built first if it is missing.

    Raises:
        KafkaFetchError: the program could not be built.
        ToolMissingError: a tool that builds or runs it is missing.
    """
    if kind in _PROGRAMS:
        return _PROGRAMS[kind]()
    return python_program("tests.lab.worker", supervised=is_supervised(kind))


def missing_tool(kind: str) -> str | None:
    """Return the program that a kind needs and that is not on the PATH."""
    return "go" if kind == "franz-go-kip848" and shutil.which("go") is None else None


def _java() -> list[str]:
    kafka = fetch_kafka()

    def build(folder: Path) -> list[str]:
        javac = find_program(
            "javac", "the compiler of Java (javac)", "apt-get install openjdk-17-jdk-headless"
        )
        sources = [str(path) for path in sorted((_HERE / "java").glob("*.java"))]
        return [javac, "-nowarn", "-cp", kafka.classpath, "-d", str(folder), *sources]

    classes = _built("java", build)
    # These are the settings of the other JVMs of the tests. The compiler C2 would take the
    # processor from the other processes of a short trial.
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [kafka.java, *options, quiet, "-cp", f"{classes}:{kafka.classpath}", "Worker"]


def _franz_go() -> list[str]:
    def build(folder: Path) -> list[str]:
        go = find_program("go", "Go (go)", "apt-get install golang-go")
        # Go would look for the revision of the clone, and fail in a clone of another user.
        source = ["-C", str(_HERE / "franz_go"), "-buildvcs=false"]
        return [go, "build", *source, "-o", str(folder / "worker"), "."]

    return [str(_built("franz_go", build) / "worker")]


def _built(name: str, command: Callable[[Path], list[str]]) -> Path:
    """Return the folder with what is built from the sources in `tests/lab/<name>`."""
    sources = sorted((_HERE / name).iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = BUILT / f"{name}-{digest[:12]}"

    def build(_maven: str, building: Path) -> None:
        run_step(command(building), f"tests/lab/{name} cannot be built", BUILD_S_MAX)

    build_once(folder, build)
    return folder


_PROGRAMS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "java-kip848": _java,
    "franz-go-kip848": _franz_go,
}
