"""Runs groups of worker processes and a producer, and breaks them on demand.

    with Trial(cluster.client_config(), topics=["orders"], partitions_per_topic=24) as trial:
        trial.start_producer(rate_per_partition=100)
        group = trial.group("coopgroup-simple")
        group.start("m1", "m2")
        group.wait_settled()
        with trial.window() as join:
            group.start("m3")
            group.wait_settled()
        trial.finish()
        facts = measure(group.log(), join.window)

Rules of this file: every process is started here, ends here (`Trial.__exit__`, or its standard
input's end if this process dies), and sits in a session of its own, so that Ctrl-C reaches the
controller alone. Nothing here reads a consumer's mind: whether a group has settled is decided from
the records that its members hand out.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from attrs import define, field

from coopgroup.errors import CoopgroupError
from coopgroup.testing.trial.analysis import IncarnationLog, TrialLog, Window, merge
from coopgroup.testing.trial.recording import EventReader, RowReader, Rows
from coopgroup.testing.trial.spec import (
    ProducerSpec,
    WorkerSpec,
    check_kind,
    dump_spec,
)
from coopgroup.testing.trial.watch import GroupWatch

__all__ = ["Group", "Incarnation", "OpenWindow", "Trial", "TrialError"]

RAM_DISK: Final = Path("/dev/shm")  # noqa: S108 - the RAM disk of Linux, not a place for names
READY_S_MAX: Final = 30.0
DRAIN_S_MAX: Final = 30.0
CLOSE_S_MAX: Final = 15.0
POLL_S: Final = 0.05
FREEZE_S: Final = (1.0, 1.75)
SETTLE_S_MAX: Final = 30.0
STDERR_LINES: Final = 30


class TrialError(CoopgroupError):
    """A trial could not be played to its end."""


@define
class Incarnation:
    """One worker process, from start to end.

    Attributes:
        member: name of the member.
        log_path: path of its logs without their suffixes.
        process: the process.
        is_frozen: whether SIGSTOP was sent last.
    """

    member: str
    log_path: Path
    process: subprocess.Popen[str]
    is_frozen: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended; a frozen one is alive."""
        return self.process.poll() is None

    @property
    def records_path(self) -> Path:
        """Log of the records that it handed out."""
        return self.log_path.with_name(f"{self.log_path.name}.records")

    @property
    def events_path(self) -> Path:
        """Log of its events."""
        return self.log_path.with_name(f"{self.log_path.name}.events")

    def tell(self, line: str) -> None:
        """Write a line to the process' standard input."""
        if self.process.stdin is None:
            raise TrialError(f"{self.member} was started without an input")
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@define
class OpenWindow:
    """A window that is being played; `window` is complete when the `with` block is over."""

    begin_ns: int
    end_ns: int | None = None

    @property
    def window(self) -> Window:
        """The window, once it is over."""
        if self.end_ns is None:
            raise TrialError("the window is still open")
        return Window(begin_ns=self.begin_ns, end_ns=self.end_ns)


@define(kw_only=True)
class Trial:
    """A topic, a producer, and groups that consume it.

    Attributes:
        client_config: address and security of the broker, in the keys of confluent_kafka.
        topics: topics, which exist already (or appear on first use).
        partitions_per_topic: partitions of each.
        seed: of everything random here.
        folder: where the logs are; removed at the end.
    """

    client_config: Mapping[str, str]
    topics: Sequence[str]
    partitions_per_topic: int
    seed: int = 0
    folder: Path = field(init=False)
    _groups: list[Group] = field(init=False, factory=list)
    _producer: subprocess.Popen[str] | None = field(init=False, default=None)
    _chance: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the folder and the source of chance."""
        parent = RAM_DISK if RAM_DISK.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="coopgroup-trial-", dir=parent))
        self._chance = random.Random(self.seed)  # noqa: S311 - no secret depends on it

    def __enter__(self) -> Self:
        """Nothing starts by itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process and remove the logs."""
        self.close()

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return len(self.topics) * self.partitions_per_topic

    # --- producer -------------------------------------------------------------------------------

    def start_producer(
        self, *, rate_per_partition: float = 100.0, backlog: Sequence[int] = ()
    ) -> None:
        """Write the backlog, wait until it is acknowledged, then begin to produce at a pace.

        Raises:
            TrialError: the producer ended or did not get its backlog through.
        """
        spec = ProducerSpec(
            topics=tuple(self.topics),
            partitions_per_topic=self.partitions_per_topic,
            log_path=str(self.folder / "producer"),
            client_config=dict(self.client_config),
            rate_per_partition=rate_per_partition,
            backlog=tuple(backlog),
        )
        self._producer = start_python("coopgroup.testing.trial.producer", spec)
        if self._producer.stdout is None or self._producer.stdout.readline().strip() != "ready":
            raise failure("the producer failed to write its backlog", self.folder / "producer")
        if self._producer.stdin is not None:
            self._producer.stdin.write("go\n")
            self._producer.stdin.flush()

    def stop_producer(self) -> None:
        """Stop producing and wait until every record is acknowledged.

        Raises:
            TrialError: it failed: records were refused, or it did not end.
        """
        if self._producer is None or self._producer.stdin is None:
            return
        producer, self._producer = self._producer, None
        self._end_input(producer)
        try:
            status = producer.wait(DRAIN_S_MAX)
        except subprocess.TimeoutExpired:
            producer.kill()
            status = producer.wait()
        if producer.stdout is not None:
            producer.stdout.close()
        if status != 0:
            raise failure(f"the producer ended with status {status}", self.folder / "producer")

    @property
    def producer_path(self) -> Path:
        """Log of the acknowledged records."""
        return self.folder / "producer.records"

    def acknowledged(self) -> Rows:
        """Everything acknowledged so far, dtype `ACKNOWLEDGED`."""
        return RowReader(self.producer_path).read_new()

    # --- groups ---------------------------------------------------------------------------------

    def group(self, kind: str, *, group_id: str | None = None, **settings: Any) -> Group:  # noqa: ANN401 - fields of WorkerSpec, checked by it
        """A group of consumers of one kind; nobody joins yet.

        Args:
            kind: one of `KINDS`.
            group_id: its name; the kind's if None.
            settings: further fields of `WorkerSpec`, the same for all members.

        Raises:
            ConfigurationError: there is no such kind.
        """
        group = Group(
            trial=self,
            kind=check_kind(kind),
            group_id=group_id or f"{kind}-{len(self._groups)}",
            settings=settings,
            chance=self._chance,
        )
        self._groups.append(group)
        return group

    @contextmanager
    def window(self) -> Iterator[OpenWindow]:
        """Measure what happens inside the `with` block."""
        opened = OpenWindow(time.monotonic_ns())
        yield opened
        opened.end_ns = time.monotonic_ns()

    def finish(self, *, drain_s: float = DRAIN_S_MAX) -> None:
        """Stop the producer, let every group consume the rest, then close its members.

        A group that does not get through the rest in `drain_s` seconds has lost records, which the
        facts then say.
        """
        self.stop_producer()
        acknowledged = self.acknowledged()
        deadline = time.monotonic() + drain_s
        for group in self._groups:
            while not group.has_consumed(acknowledged) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        for group in self._groups:
            group.stop(*group.living)

    def close(self) -> None:
        """Kill whatever still runs and remove the logs."""
        for group in self._groups:
            group.kill_all()
        if self._producer is not None:
            self._producer.kill()
            self._producer.wait()
            self._end_input(self._producer)
            if self._producer.stdout is not None:
                self._producer.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _end_input(process: subprocess.Popen[str]) -> None:
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError:  # it ended already; its status says why
                return


@define(kw_only=True)
class Group:
    """Members of one group, by name; `Trial.group` makes it.

    A member's name stays when its process is replaced; `incarnations` has all processes.
    """

    trial: Trial
    kind: str
    group_id: str
    settings: Mapping[str, Any]
    chance: random.Random
    incarnations: list[Incarnation] = field(init=False, factory=list)
    _prepared: dict[str, Incarnation] = field(init=False, factory=dict)
    _members: dict[str, Incarnation] = field(init=False, factory=dict)
    watch: GroupWatch = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin to watch the logs to come."""
        self.watch = GroupWatch(partition_count=self.trial.partition_count)

    @property
    def living(self) -> tuple[str, ...]:
        """Names of the members whose process has not ended, sorted."""
        return tuple(sorted(name for name, member in self._members.items() if member.is_alive))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all members that ever started, sorted."""
        return tuple(sorted(self._members))

    def member(self, name: str) -> Incarnation:
        """The present process of a member.

        Raises:
            TrialError: nobody of that name was started.
        """
        try:
            return self._members[name]
        except KeyError:
            raise TrialError(f"{self.group_id} has no member {name}") from None

    # --- start and end --------------------------------------------------------------------------

    def prepare(self, *names: str) -> None:
        """Start the processes of members up to the point where they would join.

        A new interpreter costs most of a core for a moment, which must not disturb a measurement:
        prepare members before a window, start them within.
        """
        for name in names:
            log_path = self.trial.folder / f"{self.group_id}-{len(self.incarnations)}-{name}"
            spec = WorkerSpec(
                kind=self.kind,
                name=name,
                group_id=self.group_id,
                topics=tuple(self.trial.topics),
                partitions_per_topic=self.trial.partitions_per_topic,
                log_path=str(log_path),
                client_config=dict(self.trial.client_config),
                **self.settings,
            )
            process = start_python("coopgroup.testing.trial.worker", spec)
            incarnation = Incarnation(name, log_path, process)
            self.incarnations.append(incarnation)
            self._prepared[name] = incarnation
            self.watch.add(name, incarnation.records_path, incarnation.events_path)
        for name in names:
            self._wait_ready(self._prepared[name])

    def start(self, *names: str) -> None:
        """Let members join, each in a new process unless one is prepared."""
        self.prepare(*(name for name in names if name not in self._prepared))
        for name in names:
            incarnation = self._prepared.pop(name)
            self._members[name] = incarnation
            incarnation.tell("go")

    def stop(self, *names: str) -> None:
        """Ask members to close (SIGTERM) and wait until they have.

        Raises:
            TrialError: one failed; its events and its standard error say why.
        """
        self.ask_to_stop(*names)
        for name in names:
            self.wait_stopped(name)

    def retire(self, *names: str) -> None:
        """Ask members to leave for good (SIGUSR1) and wait until they have.

        Raises:
            TrialError: one failed; its events and its standard error say why.
        """
        self.ask_to_retire(*names)
        for name in names:
            self.wait_stopped(name)

    def ask_to_stop(self, *names: str) -> None:
        """Ask members to close (SIGTERM) and do not wait."""
        self._signal(signal.SIGTERM, names)

    def ask_to_retire(self, *names: str) -> None:
        """Ask members to leave for good, handing over where they can, and do not wait."""
        self._signal(signal.SIGUSR1, names)

    def _signal(self, number: signal.Signals, names: tuple[str, ...]) -> None:
        for name in names:
            self.resume(name)
            self.member(name).process.send_signal(number)

    def wait_stopped(self, name: str) -> None:
        """Wait until a member that was asked to has closed; kill it if it does not.

        Raises:
            TrialError: it failed or had to be killed.
        """
        incarnation = self.member(name)
        process, log_path = incarnation.process, incarnation.log_path
        try:
            status = process.wait(CLOSE_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise failure(f"{name} did not close in {CLOSE_S_MAX:.0f} s", log_path) from None
        if status != 0:
            raise failure(f"{name} ended with status {status}", log_path)

    def kill(self, *names: str) -> None:
        """End members at once (SIGKILL)."""
        for name in names:
            process = self.member(name).process
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        """End every process of the group at once, prepared ones too."""
        for incarnation in self.incarnations:
            if incarnation.is_alive:
                incarnation.process.kill()
                incarnation.process.wait()
            if incarnation.process.stdin is not None:
                incarnation.process.stdin.close()

    # --- disturbance ----------------------------------------------------------------------------

    def freeze(self, *names: str) -> None:
        """Freeze members (SIGSTOP); their connections stay open."""
        for name in names:
            incarnation = self.member(name)
            incarnation.process.send_signal(signal.SIGSTOP)
            incarnation.is_frozen = True

    def resume(self, *names: str) -> None:
        """Let frozen members go on (SIGCONT)."""
        for name in names:
            incarnation = self.member(name)
            if incarnation.is_frozen:
                incarnation.process.send_signal(signal.SIGCONT)
                incarnation.is_frozen = False

    def desynchronise(self) -> None:
        """Freeze every member for a random 1 to 1.75 s, each for its own.

        Members that join together send their heartbeats together and hear of a rebalance in the
        same moment, which flatters every kind of consumer. Frozen for longer than the heartbeat
        interval, each sends the next one when it wakes. The waits that this makes lie before the
        window: the group has to settle again first.
        """
        began = time.monotonic()
        names = self.living
        durations = {name: self.chance.uniform(*FREEZE_S) for name in names}
        self.freeze(*names)
        for name in sorted(names, key=lambda name: durations[name]):
            time.sleep(max(0.0, began + durations[name] - time.monotonic()))
            self.resume(name)

    # --- observation ----------------------------------------------------------------------------

    def wait_settled(
        self, *, quiet_s: float = 2.0, timeout_s: float = SETTLE_S_MAX, fair: bool = True
    ) -> bool:
        """Wait until the group is at rest.

        At rest: every partition was handed out in the last half second by a living member, every
        living member has a partition, and no member told of a callback for `quiet_s` seconds.

        Args:
            quiet_s: how long no callback may have been heard of.
            timeout_s: when to give up.
            fair: whether each living member must have a partition.

        Returns:
            False if the group was not at rest in time.

        Raises:
            TrialError: a member failed.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.is_settled(quiet_s=quiet_s, fair=fair):
                return True
            time.sleep(POLL_S)
        return False

    def is_settled(self, *, quiet_s: float, fair: bool = True) -> bool:
        """Whether the group is at rest now; see `wait_settled`.

        Raises:
            TrialError: a member failed, so that rest would be that of a smaller group.
        """
        for name, member in sorted(self._members.items()):
            status = member.process.poll()
            if status is not None and status > 0:  # a killed one has the negative of its signal
                raise failure(f"{name} ended with status {status}", member.log_path)
        living = [member for member in self._members.values() if member.is_alive]
        logs = frozenset(member.records_path for member in living)
        return self.watch.is_settled(logs, quiet_s=quiet_s, fair=fair)

    def has_consumed(self, acknowledged: Rows) -> bool:
        """Whether the last acknowledged record of each partition was handed out."""
        self.watch.refresh()
        ends = np.full(self.trial.partition_count, -1, np.int64)
        np.maximum.at(ends, acknowledged["partition"], acknowledged["offset"])
        return bool((self.watch.last_offsets >= ends).all())

    def log(self) -> TrialLog:
        """Everything that the group left behind so far, put in order."""
        return merge(
            [
                IncarnationLog(
                    member=incarnation.member,
                    rows=RowReader(incarnation.records_path).read_new(),
                    events=EventReader(incarnation.events_path).read_new(),
                )
                for incarnation in self.incarnations
            ],
            self.trial.acknowledged(),
        )

    def _wait_ready(self, incarnation: Incarnation) -> None:
        reader = EventReader(incarnation.events_path)
        deadline = time.monotonic() + READY_S_MAX
        while not reader.read_new():
            if not incarnation.is_alive:
                raise failure(f"{incarnation.member} failed to start", incarnation.log_path)
            if time.monotonic() >= deadline:
                raise TrialError(f"{incarnation.member} was not ready in {READY_S_MAX:.0f} s")
            time.sleep(POLL_S)


def start_python(module: str, spec: WorkerSpec | ProducerSpec) -> subprocess.Popen[str]:
    """Start a module in a process and a session of its own, and tell it what to do.

    What it writes to standard error goes into a file beside its logs: the clients' complaints about
    connections that a scenario cuts would litter a terminal.
    """
    with Path(f"{spec.log_path}.stderr").open("ab") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if module.endswith("producer") else subprocess.DEVNULL,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
    if process.stdin is not None:
        process.stdin.write(dump_spec(spec) + "\n")
        process.stdin.flush()
    return process


def failure(text: str, log_path: Path) -> TrialError:
    """An error about a process, with the last lines of its standard error as notes."""
    error = TrialError(text)
    complaints = log_path.with_name(f"{log_path.name}.stderr")
    if complaints.exists():
        lines = complaints.read_text(errors="replace").splitlines()
        if lines:
            error = TrialError(f"{text}: {lines[-1]}")
        for line in lines[-STDERR_LINES:]:
            error.add_note(line)
    return error
