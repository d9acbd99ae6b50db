"""Members with state for the benchmark `stateful`: our example, and Kafka Streams.

Both kinds log each processed record as `tests.lab.recording` defines it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import define, field

from coopgroup.testing.maven import COPY_JARS
from tests.lab.analysis import IncarnationLog, TrialLog, merge
from tests.lab.recording import RowReader, Rows
from tests.lab.watch import GroupWatch

SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_INTERVAL_MS: Final = 1_000
END_S_MAX: Final = 180
JAVA: Final = Path(__file__).parent / "java" / "streams_counts"
JARS: Final = Path(__file__).parents[2] / "build" / "jars" / "streams_counts"
FETCH_S_MAX: Final = 300
LATE_NS: Final = 1_500_000_000
PIPES: Final[dict[str, Any]] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "text": True,
    "start_new_session": True,
}


def _classpath() -> str:
    """Return the class path of Kafka Streams, which Maven copies on first use."""
    pom, marker = JAVA / "pom.xml", JARS / "pom.xml"
    if not marker.exists() or marker.read_bytes() != pom.read_bytes():
        shutil.rmtree(JARS, ignore_errors=True)
        maven = shutil.which("mvn")
        assert maven is not None
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(pom), COPY_JARS]
        found = subprocess.run(
            [*command, f"-DoutputDirectory={JARS}"],
            check=False,
            timeout=FETCH_S_MAX,
            capture_output=True,
            text=True,
        )
        if found.returncode != 0:
            raise RuntimeError(f"mvn: {found.stdout.strip().splitlines()[:1]}")
        shutil.copy(pom, marker)
    return f"{JARS}/*"


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str], name: str) -> None:
    """Wait for a line of a process."""
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError(f"the process of {name} ended")


@define(kw_only=True)
class OurProcesses:
    """`examples/stateful_counts`: processes that read `rate` changelog records per second each."""

    bootstrap: str
    topic: str
    group_id: str
    folder: Path
    rate: float
    standbys: int
    _prepared: dict[str, subprocess.Popen[str]] = field(factory=dict, init=False)
    _processes: dict[str, subprocess.Popen[str]] = field(factory=dict, init=False)

    @property
    def changelog(self) -> str:
        return f"{self.group_id}-changelog"

    def prepare(self, name: str, log: Path) -> None:
        given = {
            "bootstrap": self.bootstrap,
            "group": self.group_id,
            "name": name,
            "state": self.folder / "state",
            "standbys": self.standbys,
        }
        settings = {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
        with log.with_suffix(".stderr").open("wb") as complaints:
            self._prepared[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.benchmarks.stateful_worker"),
                    *(str(log), str(self.rate), self.topic),
                    *(word for key, value in given.items() for word in (f"--{key}", str(value))),
                    *(
                        word
                        for item in settings.items()
                        for word in ("--set", "{}={}".format(*item))
                    ),
                ],
                **PIPES,
                stderr=complaints,
            )

    def start(self, name: str) -> None:
        process = self._processes[name] = self._prepared.pop(name)
        _hear(process, name)
        _tell(process, "go")

    def end(self, names: Sequence[str], *, for_good: bool) -> None:
        for name in names:
            self._processes[name].send_signal(signal.SIGUSR1 if for_good else signal.SIGTERM)
        for name in names:
            status = self._processes[name].wait(END_S_MAX)
            if status != 0:
                raise RuntimeError(f"{name} ended with status {status}")

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def close(self) -> None:
        for process in (*self._processes.values(), *self._prepared.values()):
            process.kill()
            process.communicate()


@define(kw_only=True)
class StreamsHosts:
    """Kafka Streams: all members are objects of one JVM, except those that are killed (`apart`)."""

    bootstrap: str
    topic: str
    group_id: str
    folder: Path
    record_us: int
    settings: Mapping[str, Any]
    apart: Sequence[str] = ()
    _prepared: dict[str, Path] = field(factory=dict, init=False)
    _hosts: dict[str, subprocess.Popen[str]] = field(factory=dict, init=False)

    @property
    def changelog(self) -> str:
        return f"{self.group_id}-counts-changelog"

    def prepare(self, name: str, log: Path) -> None:
        self._prepared[name] = log
        if self._host_of(name) not in self._hosts:
            self._launch(self._host_of(name))

    def start(self, name: str) -> None:
        host = self._hosts[self._host_of(name)]
        _tell(host, f"start {name} {self._prepared.pop(name)}")
        _hear(host, name)

    def end(self, names: Sequence[str], *, for_good: bool) -> None:
        for name in names:
            _tell(self._hosts[self._host_of(name)], f"{'leave' if for_good else 'close'} {name}")
        for name in names:
            _hear(self._hosts[self._host_of(name)], name)

    def kill(self, name: str) -> None:
        host = self._hosts.pop(self._host_of(name))
        host.kill()
        host.communicate()

    def close(self) -> None:
        for host in self._hosts.values():
            host.kill()
            host.communicate()

    def _host_of(self, name: str) -> str:
        return name if name in self.apart else "all"

    def _launch(self, name: str) -> None:
        java = shutil.which("java")
        assert java is not None
        with (self.folder / f"jvm-{name}.stderr").open("ab") as complaints:
            self._hosts[name] = subprocess.Popen(
                [
                    *(java, "-Xmx768m", "-cp", _classpath()),
                    str(JAVA / "StreamsCounts.java"),
                    *(self.bootstrap, self.topic, self.group_id, str(self.folder / "state")),
                    str(self.record_us),
                    *(f"{key}={value}" for key, value in self.settings.items()),
                ],
                **PIPES,
                stderr=complaints,
            )


Launcher: TypeAlias = OurProcesses | StreamsHosts
"""Prepares processes of members, lets them join, ends them (for good or not) and kills them."""


@define(kw_only=True)
class Members:
    """The members of a group, their logs, and what the logs show."""

    launcher: Launcher
    folder: Path
    partitions: int
    living: set[str] = field(factory=set, init=False)
    _logs: list[tuple[str, Path]] = field(factory=list, init=False)
    _watch: GroupWatch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = GroupWatch(partition_count=self.partitions)

    def prepare(self, *names: str) -> None:
        """Start the processes of members, but do not let them join."""
        for name in names:
            log = self.folder / f"{name}-{len(self._logs)}.records"
            self._logs.append((name, log))
            self._watch.add(log, log.with_suffix(".events"))
            self.launcher.prepare(name, log)

    def start(self, *names: str) -> None:
        """Let prepared members join."""
        for name in names:
            self.launcher.start(name)
            self.living.add(name)

    def end(self, *names: str, for_good: bool) -> None:
        """End members; return when they have ended."""
        self.launcher.end(names, for_good=for_good)
        self.living.difference_update(names)

    def kill(self, name: str) -> None:
        """Kill a member (SIGKILL)."""
        self.launcher.kill(name)
        self.living.remove(name)

    def owners(self, now_ns: int) -> tuple[str, ...] | None:
        """Return who processes each partition; None if some partition stands still."""
        self._watch.refresh()
        if (self._watch.last_ns < now_ns - LATE_NS).any():
            return None
        return tuple(self._logs[index][0] for index in self._watch.owners.tolist())

    def is_balanced(self, owners: tuple[str, ...] | None) -> bool:
        """Return whether the living members, and only these, have equal shares."""
        if owners is None or set(owners) != self.living:
            return False
        shares = [owners.count(name) for name in self.living]
        return max(shares) - min(shares) <= 1

    def has_processed(self, acknowledged: Rows) -> bool:
        """Return whether the last acknowledged record of each partition was processed."""
        self._watch.refresh()
        ends = np.full(self.partitions, -1, np.int64)
        np.maximum.at(ends, acknowledged["partition"], acknowledged["offset"])
        return bool((self._watch.last_offsets >= ends).all())

    def log(self, acknowledged: Rows) -> TrialLog:
        """Return all logs so far, in order."""
        return merge(
            [
                IncarnationLog(member=name, rows=RowReader(log).read_new())
                for name, log in self._logs
            ],
            acknowledged,
        )
