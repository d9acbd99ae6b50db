"""The contestants: processes that carry out the orders described in `worker`.

Each contestant has one process for the whole benchmark, so a JVM is warm from small groups when
the large ones come. Each contestant does its own warm-up before a measurement. A contestant that
takes too long for a run skips the larger groups of that case. After more than five
minutes for an order a contestant is killed, and restarts with the next case.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen, mutable

from coopgroup.testing.maven import fetch_kafka
from tests.benchmarks.assigning.groups import Int32Array, read_answer

__all__ = ["KEYS", "ORDER_S_MAX", "RUNS", "RUN_MS_MAX", "Contestant", "Outcome", "contestants"]

KEYS: Final = ("coopgroup", "claims", "java", "franz-go")
RUNS: Final = 5
RUN_MS_MAX: Final = 2_000
ORDER_S_MAX: Final = 300
BUILD_S_MAX: Final = 300
ROOT: Final = Path(__file__).resolve().parents[3]
JAVA_SOURCE: Final = ROOT / "tests" / "interop" / "java" / "AssignorBench.java"
GO_SOURCE: Final = ROOT / "tests" / "benchmarks" / "go"
GO_FOLDERS: Final = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/local/go/bin"
# At its usual level Java logs whole targets if subscriptions differ.
JAVA_OPTIONS: Final = (
    "-Xmx4g",
    "-XX:+UseParallelGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


@frozen(kw_only=True, eq=False)
class Outcome:
    """The answer of a contestant: CPU time of each run, and the member of each partition.

    A run that takes too long stays the only one. Without a result, `note` says why.
    """

    times_ms: tuple[float, ...] = ()
    holder: Int32Array | None = None
    note: str = ""


@mutable(eq=False)
class Contestant:
    """A contestant and its process; a suffix of the assignors' names tells it what to time."""

    title: str
    command: tuple[str, ...]
    suffix: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def measure(
        self, group: Path, answer: Path, assignor: str, *, run_ms_max: float = RUN_MS_MAX
    ) -> Outcome:
        """Have a group assigned; a run that takes longer than the limit stays the only one."""
        order = (str(group), str(answer), assignor + self.suffix, str(RUNS), str(run_ms_max))
        answer.unlink(missing_ok=True)
        line = self._ask("\t".join(order))
        if line is None:
            self.stop()
            return Outcome(note=f"no end after {ORDER_S_MAX} s")
        try:
            times_ms = tuple(float(part) for part in line.split())
        except ValueError:
            return Outcome(note=line)
        if not times_ms:
            self.stop()
            return Outcome(note="ended")
        return Outcome(times_ms=times_ms, holder=read_answer(answer))

    def stop(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, order: str) -> str | None:
        """Return the answer to an order: empty if the process ends, None if it takes too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(ORDER_S_MAX):
                return None
        return process.stdout.readline().strip()


def contestants(folder: Path) -> tuple[Mapping[str, Contestant], tuple[str, ...]]:
    """Return all contestants that this machine can start, and a sentence about each missing one."""
    python = (sys.executable, "-m", "tests.benchmarks.assigning.worker")
    found = {
        "coopgroup": Contestant("coopgroup", python),
        "claims": Contestant("with claims", python, "+claims"),
    }
    runtime = fetch_kafka()
    java = (runtime.java, *JAVA_OPTIONS, "-cp", runtime.classpath, str(JAVA_SOURCE))
    found["java"] = Contestant("Java", java)
    missing: tuple[str, ...] = ()
    program = _built_go(folder)
    if program is None:
        missing = ("franz-go was left out: no Go toolchain, or its module could not be fetched.",)
    else:
        found["franz-go"] = Contestant("franz-go", (str(program),))
    return found, missing


def _built_go(folder: Path) -> Path | None:
    go = shutil.which("go", path=GO_FOLDERS)
    if go is None:
        return None
    program = folder / "assignorbench"
    try:
        built = subprocess.run(
            [go, "build", "-o", str(program), "."],
            cwd=GO_SOURCE,
            capture_output=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return program if built.returncode == 0 else None
